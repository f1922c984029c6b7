"""Who is connected to which port of this machine, from Linux's /proc: the proof that no client goes around the proxy.

A client that learned a broker's own address would work just as well, and no test of what it reads or writes would
notice; its socket is what gives it away.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

_PROC = Path("/proc")
_SAMPLE_SECONDS = 0.01
_ESTABLISHED = "01"


class ConnectionWatch:
    """While it is entered, samples who connects to `ports`; `strangers` are those who are not in `allowed`.

    Connections that stood before are other tests': a client in this process is gone only when it is collected.

    A stranger is its command line, to be read in a failed assertion.
    """

    def __init__(self, ports: Iterable[int], allowed: Iterable[int]) -> None:
        self._ports = frozenset(ports)
        self._allowed = frozenset(allowed)
        self._before: set[str] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.strangers: set[str] = set()

    def sample(self) -> None:
        sockets = _sockets_to(self._ports) - self._before
        if sockets:
            for pid in _owners(sockets, self._allowed):
                if not self._allowed.intersection(_with_ancestors(pid)):
                    self.strangers.add(_command(pid))

    def _run(self) -> None:
        while not self._stop.wait(_SAMPLE_SECONDS):
            self.sample()

    def __enter__(self) -> Self:
        self._before = _sockets_to(self._ports)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join()


def standing(ports: Iterable[int]) -> int:
    """How many connections to `ports` stand, whoever made them."""
    return len(_sockets_to(frozenset(ports)))


def _sockets_to(ports: frozenset[int]) -> set[str]:
    """Inodes of the established sockets whose remote port is one of `ports`."""
    inodes = set()
    for table in ("net/tcp", "net/tcp6"):
        for line in (_PROC / table).read_text().splitlines()[1:]:
            columns = line.split()
            remote_port = int(columns[2].rpartition(":")[2], 16)
            if remote_port in ports and columns[3] == _ESTABLISHED:
                inodes.add(columns[9])
    return inodes


def _owners(inodes: set[str], allowed: frozenset[int]) -> set[int]:
    """Who holds one of `inodes`, but for `allowed`: brokers have thousands of files open, and to read where each leads
    takes longer than a client's connection may last."""
    links = {f"socket:[{inode}]" for inode in inodes}
    others = (each for each in _PROC.glob("[0-9]*") if int(each.name) not in allowed)
    return {int(process.name) for process in others if not links.isdisjoint(_open_files(process))}


def _open_files(process: Path) -> set[str]:
    files = set()
    try:
        for descriptor in os.scandir(process / "fd"):
            files.add(os.readlink(descriptor.path))
    except OSError:  # ended meanwhile, or not ours to look at
        pass
    return files


def _with_ancestors(pid: int) -> set[int]:
    """A process with its parents: a worker of the proxy is the proxy."""
    seen: set[int] = set()
    while pid > 1 and pid not in seen:
        seen.add(pid)
        try:
            stat = (_PROC / str(pid) / "stat").read_text()
        except OSError:
            break
        pid = int(stat.rpartition(")")[2].split()[1])
    return seen


def _command(pid: int) -> str:
    try:
        words = (_PROC / str(pid) / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return f"process {pid}, which has ended"
    return f"process {pid}: {b' '.join(words).decode(errors='replace')[-200:]}"
