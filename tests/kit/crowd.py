"""Many connections at once, from a process of their own, which has the file descriptors for them.

    with Crowd(port, 10_000, first=b"...") as crowd:
        crowd.start()                                     # all are connected, and have sent `first`
        …                                                 # they stay and read nothing
                                                          # all are gone

`python -m tests.kit.crowd PORT COUNT HEX` prints how many stand, holds them until its stdin ends, and leaves.
"""

from __future__ import annotations

import resource
import socket
import subprocess
import sys
import time
from types import TracebackType
from typing import Self

from tests.kit.paths import ROOT
from tests.kit.ports import LOOPBACK

_SPARE = 100
"""Descriptors that are not connections."""
_CONNECT_SECONDS = 60


class Crowd:
    def __init__(self, port: int, count: int, first: bytes = b"") -> None:
        self._command = [sys.executable, "-m", "tests.kit.crowd", str(port), str(count), first.hex()]
        self._process: subprocess.Popen[str] | None = None
        self.count = 0
        """How many stand: fewer than asked for where the system has not as many descriptors."""

    def start(self) -> Self:
        """Returns when all are connected."""
        self._process = subprocess.Popen(
            self._command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self.count = int(self._process.stdout.readline())
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()


def _connect(port: int, count: int, first: bytes) -> list[socket.socket]:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    deadline = time.monotonic() + _CONNECT_SECONDS
    connected: list[socket.socket] = []
    while len(connected) < min(count, hard - _SPARE) and time.monotonic() < deadline:
        one = socket.create_connection((LOOPBACK, port), timeout=_CONNECT_SECONDS)
        one.setblocking(False)
        if first:
            try:
                one.send(first)
            except OSError:  # the other side has had enough of it already
                pass
        connected.append(one)
    return connected


if __name__ == "__main__":
    crowd = _connect(int(sys.argv[1]), int(sys.argv[2]), bytes.fromhex(sys.argv[3]))
    print(len(crowd), flush=True)
    sys.stdin.read()
