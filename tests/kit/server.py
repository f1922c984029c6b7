"""A server run as a child process: its output in a log file, its readiness awaited, its end certain.

A server that ends before it is ready, or is not ready in time, raises ServerFailed with the end of its log. Whatever
is still running when this interpreter exits is killed.
"""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

_POLL_SECONDS = 0.05
_LOG_TAIL = 4_000


class ServerFailed(Exception):
    """Says which server, what happened, and how its log ends."""


class Server:
    def __init__(self, name: str, command: Sequence[str], log: Path, env: Mapping[str, str] | None = None) -> None:
        self.name = name
        self.log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(env or {})},
            )
        atexit.register(self.kill)

    @property
    def pid(self) -> int:
        return self.process.pid

    def running(self) -> bool:
        return self.process.poll() is None

    def wait_until(self, ready: Callable[[], bool], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not ready():
            if not self.running():
                raise self.failed(f"ended with {self.process.returncode} before it was ready")
            if time.monotonic() > deadline:
                self.kill()
                raise self.failed(f"was not ready within {seconds} s")
            time.sleep(_POLL_SECONDS)

    def terminate(self, seconds: float = 60) -> int:
        """SIGTERM, then the exit code; one that does not end in time is killed and raises."""
        if self.running():
            self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise self.failed(f"did not end within {seconds} s of SIGTERM") from None
        atexit.unregister(self.kill)
        return code

    def kill(self) -> None:
        if self.running():
            self.process.kill()
        self.process.wait()
        atexit.unregister(self.kill)

    def tail(self) -> str:
        return self.log.read_text(errors="replace")[-_LOG_TAIL:] if self.log.exists() else ""

    def failed(self, what: str) -> ServerFailed:
        return ServerFailed(f"{self.name} {what}; {self.log} ends:\n{self.tail()}")


class InFolder:
    """A server with a folder of its own: both are gone when the test leaves it, or its process ends. `__enter__` starts
    `_server`."""

    _server: Server

    def __init__(self, name: str) -> None:
        self._made = tempfile.TemporaryDirectory(prefix=f"{name}-", ignore_cleanup_errors=True)
        self._folder = Path(self._made.name)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._server.kill()
        self._made.cleanup()
