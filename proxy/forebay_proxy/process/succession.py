"""A Forebay takes the place of one that serves, and nobody who connects is refused: `forebay run` again, told to.

    the one that serves                              its successor, a child of it: the same command, read anew
    starts it, hands its sockets over ─────────────▶ accepts from them, too, hears of its brokers
      ◀───────────────────────────────────── READY ──┘
    names it to the service manager,
    leaves the admin endpoint ──────────────── GO ──▶ opens that
    drains, exits

In: SIGUSR2, or a request. Out: a successor that serves, or why there is none: then the one that serves goes on as if
nothing had happened. Everything is read anew: code, settings, certificates. What is kept is who waits at the ports.
"""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Final, Self

from forebay_proxy.errors import StartError
from forebay_proxy.inherited import Inherited
from forebay_proxy.logs import get_logger
from forebay_proxy.process import handed_sockets, service_manager
from forebay_proxy.process.lifecycle import Stop

VARIABLE: Final = "_FOREBAY_SUCCEEDS"
"""The descriptor over which the two speak; no setting, and gone from the environment once it is read."""
READY: Final = b"R"
GO: Final = b"G"
READY_WAIT_S: Final = 60.0
"""For it to start all workers, and to hear of its brokers."""
GO_WAIT_S: Final = 10.0
END_WAIT_S: Final = 40.0
"""For one that is not wanted; then it is killed."""
HAND_WAIT_S: Final = 10.0
ASK_EVERY_S: Final = 0.1

log: Final = get_logger()


class Predecessor:
    """The one whose place this process takes."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        end.settimeout(HAND_WAIT_S)
        self.inherited = Inherited(handed_sockets.take(end))

    @classmethod
    def of(cls, environ: MutableMapping[str, str]) -> Self | None:
        """None: there is none. Raises StartError where it has left."""
        number = environ.pop(VARIABLE, None)
        if number is None:
            return None
        try:
            return cls(socket.socket(fileno=int(number)))
        except (OSError, ValueError) as error:
            raise StartError(f"the Forebay that was to be succeeded has left: {error}") from None

    async def relieve(self, unready: Callable[[], str | None]) -> None:
        """Returns once this process is ready, and the other one leaves, or has died."""
        loop = asyncio.get_running_loop()
        while True:
            if unready() is None:
                break
            await asyncio.sleep(ASK_EVERY_S)
        self._end.setblocking(False)  # noqa: FBT003 - it has no keyword
        try:
            async with asyncio.timeout(GO_WAIT_S):
                await loop.sock_sendall(self._end, READY)
                await loop.sock_recv(self._end, 1)
        except OSError as error:
            log.warning("the Forebay that was to be succeeded does not answer", error=str(error))
        self._end.close()
        log.info("took over from another Forebay")


class Succession:
    """`sockets` gives all that is listened on, to be closed here; `leave` closes what only one can have.

    `command` starts a Forebay; `environ` is its environment. What it reads is `kept` as it is from then on.
    """

    def __init__(
        self,
        stop: Stop,
        sockets: Callable[[], Awaitable[Sequence[socket.socket]]],
        leave: Callable[[], Awaitable[None]],
        environ: MutableMapping[str, str],
        command: Sequence[str] = (sys.executable, *sys.orig_argv[1:]),
        kept: Callable[[], AbstractAsyncContextManager[None]] = nullcontext,
    ) -> None:
        self._stop = stop
        self._sockets = sockets
        self._leave = leave
        self._environ = environ
        self._command = command
        self._kept = kept
        self._task: asyncio.Task[int] | None = None

    def begin(self) -> asyncio.Task[int]:
        """Start one, unless one is starting. The task gives its process id, or raises StartError."""
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._told())
            self._task.add_done_callback(lambda task: task.cancelled() or task.exception())  # the log has told of it
        return self._task

    def close(self) -> None:
        """None is started any more."""
        if self._task is not None:
            self._task.cancel()

    async def _told(self) -> int:
        try:
            async with self._kept():
                return await self._succeed()
        except (OSError, StartError) as error:  # OSError: no descriptor is left, say
            self._stop.succeeded = False
            if self._stop.draining.is_set():
                log.info("no successor: this process is leaving")
            else:
                log.error("no successor: this process goes on", error=str(error))
            raise StartError(str(error)) from None

    async def _succeed(self) -> int:
        if self._stop.draining.is_set():
            raise StartError("Forebay is leaving")
        ours, theirs = socket.socketpair()
        with ours:
            with theirs:
                sockets = await self._sockets()
                try:
                    handed_sockets.hand(ours, sockets)
                finally:
                    handed_sockets.close(sockets)
                process = self._started(theirs.fileno())
            log.info("successor started", process=process.pid)
            if why := await self._not_ready(ours, process):
                process.terminate()
                await _ended(process)
                raise StartError(f"the successor is not ready: {why}")
            self._stop.succeeded = True
            await self._leave()
            ours.send(GO)
            service_manager.notify(f"MAINPID={process.pid}", self._environ)  # one that has died must not be named
        log.info("successor serves, leaving", process=process.pid)
        self._stop.draining.set()
        return process.pid

    def _started(self, descriptor: int) -> subprocess.Popen[bytes]:
        """Not asyncio's: it outlives this process, whose loop would take it along."""
        environ = {**service_manager.for_successor(self._environ), VARIABLE: str(descriptor)}
        try:
            return subprocess.Popen(self._command, pass_fds=(descriptor,), env=environ)
        except OSError as error:
            raise StartError(f"{self._command[0]}: {error.strerror or error}") from None

    async def _not_ready(self, ours: socket.socket, process: subprocess.Popen[bytes]) -> str:
        """Why; empty: it is ready."""
        ours.setblocking(False)  # noqa: FBT003 - it has no keyword
        saying = asyncio.ensure_future(asyncio.get_running_loop().sock_recv(ours, 1))
        stopping = asyncio.ensure_future(self._stop.draining.wait())
        try:
            await asyncio.wait((saying, stopping), timeout=READY_WAIT_S, return_when=asyncio.FIRST_COMPLETED)
            if self._stop.draining.is_set():
                return "Forebay is leaving"
            if not saying.done():
                return f"it was not within {READY_WAIT_S:g} s: its own lines in the log say why"
            if saying.exception() is not None or saying.result() != READY:
                return f"it has ended with {await _ended(process)}: its own lines in the log say why"
        finally:
            saying.cancel()
            stopping.cancel()
        return ""


async def _ended(process: subprocess.Popen[bytes]) -> int:
    """Its exit code, once it has one."""
    try:
        return await asyncio.to_thread(process.wait, END_WAIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return await asyncio.to_thread(process.wait)
