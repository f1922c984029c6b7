"""A worker process: `python -m forebay_proxy.process.worker FD FD VERSION`, started by worker_slot.py only.

The first is its end of the control channel, the second that over which listening sockets come and go. VERSION is the
supervisor's: code of another one, installed since, serves nobody, since settings may mean something else to it. A
worker lives as long as the supervisor wants it: told to drain, or finding the channel closed, or that a part of it has
failed, it drains and exits with the codes of lifecycle.py. SIGTERM drains it too, SIGHUP reloads; SIGINT and SIGUSR2,
which terminals and service managers send to every process, are left to the supervisor.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

import msgspec
import structlog
import uvloop

from forebay_proxy import __version__, logs
from forebay_proxy.config.rereading import reread
from forebay_proxy.config.settings import Settings
from forebay_proxy.errors import StartError
from forebay_proxy.inherited import Inherited
from forebay_proxy.metrics.registry import MetricRegistry
from forebay_proxy.process import core_dumps, handed_sockets
from forebay_proxy.process.control import (
    Ask,
    Channel,
    Commit,
    Drain,
    Dump,
    Dumped,
    Hello,
    Prepare,
    Prepared,
    Reload,
    Renewed,
    Report,
    Share,
    StartFailed,
)
from forebay_proxy.process.lifecycle import FAILED, App, Stop, ignore_what_would_read_anew, load_app, serve
from forebay_proxy.process.stacks import stacks
from forebay_proxy.security.renewals import Outcome

NO_SUPERVISOR: Final = "supervisor gone before it sent the settings"


class WorkerControl:
    """Answers every Ask while the App serves; sets `stop` when told to drain or when the supervisor is gone."""

    def __init__(self, channel: Channel, app: App, stats: MetricRegistry, stop: Stop, sockets: socket.socket) -> None:
        self._channel = channel
        self._sockets = sockets
        self._app = app
        self._stats = stats
        self._stop = stop
        self._asked = 0
        self._prepared: tuple[int, Callable[[], None]] | None = None
        """Generation, and what puts its settings into force."""

    async def obey(self) -> None:
        """Act on the supervisor's messages until the channel is closed."""
        while message := await self._channel.receive():
            if isinstance(message, Ask):
                self._leave_if_broken()
                self._asked = message.number
                self.report(details=message.details)
            elif isinstance(message, Reload):
                self._app.reload().add_done_callback(partial(self._renewed, message.number))
            elif isinstance(message, Prepare):
                self._channel.send(Prepared(message.generation, self._prepare(message)))
            elif isinstance(message, Commit):
                self._commit(message)
            elif isinstance(message, Dump):
                content = msgspec.json.encode({**self._app.dump(), "tasks": stacks()})
                self._channel.send(Dumped(message.number, content))
            elif isinstance(message, Share):
                self._share()
            elif isinstance(message, Drain):
                if not self._stop.draining.is_set():
                    self._stop.succeeded = message.succeeded
                self._stop.draining.set()
        self._stop.draining.set()

    def _renewed(self, number: int, done: asyncio.Future[list[Outcome]]) -> None:
        if not done.cancelled():
            self._channel.send(Renewed(number, done.result()))

    def _leave_if_broken(self) -> None:
        if not self._stop.draining.is_set() and (why := self._app.unhealthy()) is not None:
            self._be_replaced(error=why)

    def ended(self, task: asyncio.Task[None]) -> None:
        """Of its tasks: by a fault of ours the supervisor would not be heard any more, and take it for hung."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self._be_replaced(exc_info=error)

    def _be_replaced(self, **why: object) -> None:
        logs.get_logger().error("this worker drains, and another takes its place", **why)
        self._stop.draining.set()

    def _share(self) -> None:
        try:
            handed_sockets.hand(self._sockets, self._app.listening())
        except OSError as error:  # who takes this place binds its own, then
            logs.get_logger().error("sockets cannot be handed over", error=str(error))

    def _prepare(self, message: Prepare | Commit) -> str:
        """Why it cannot be; empty: it is prepared."""
        try:
            self._prepared = message.generation, self._app.prepare(message.settings)
        except StartError as error:
            self._prepared = None
            return str(error)
        except Exception as error:  # a fault of ours: the settings must come into force nowhere, and this worker stays
            self._prepared = None
            logs.get_logger().error("settings cannot be prepared: this is a bug in Forebay", exc_info=error)
            return f"{type(error).__name__}, see the log: this is a bug in Forebay"
        return ""

    def _commit(self, message: Commit) -> None:
        if (self._prepared is None or self._prepared[0] != message.generation) and (error := self._prepare(message)):
            logs.get_logger().error("settings not reloaded", error=error)
        if self._prepared is not None:
            self._prepared[1]()
            self._prepared = None

    async def announce(self) -> None:
        """Report unasked as soon as the listeners are open."""
        await self._stop.started.wait()
        self.report()

    def report(self, *, details: bool = True) -> None:
        """Send how the worker stands, as the answer to the last Ask; `details`: with topics and clients."""
        unready = self._stop.unready() or self._app.ready()
        self._channel.send(
            Report(
                number=self._asked,
                started=self._stop.started.is_set(),
                unready=unready,
                stats=self._stats.snapshot(details=details),
                details=details,
                leaving=self._stop.draining.is_set(),
            )
        )


async def work(end: socket.socket, sockets: socket.socket, version: str = "an earlier version") -> int:
    """Serve as the worker at one `end` of the control channel, and of that for `sockets`; the exit code.

    `version` is the supervisor's.
    """
    channel = await Channel.over(end)
    if version != __version__:
        with suppress(msgspec.DecodeError):  # what is left unread when this end closes could cost the answer
            await channel.receive()
        channel.send(StartFailed(f"{__version__} has been installed since {version} began to serve: forebay restart"))
        await channel.close()
        return FAILED
    hello = await channel.receive()
    if not isinstance(hello, Hello):
        logs.get_logger().warning(NO_SUPERVISOR)
        return FAILED
    logs.configure(hello.settings.log_level, hello.settings.log_format)
    structlog.contextvars.bind_contextvars(worker=hello.index)
    settings = _as_of_now(hello.settings)
    stats, stop = MetricRegistry(), Stop()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.draining.set)
    try:
        inherited = Inherited(handed_sockets.take(sockets))  # they are there: they came before the process
        app = load_app(hello.app)(settings, stats, hello.index, inherited)
    except StartError as error:
        channel.send(StartFailed(str(error)))
        await channel.close()
        return FAILED
    loop.add_signal_handler(signal.SIGHUP, app.reload)
    control = WorkerControl(channel, app, stats, stop, sockets)
    answering = [asyncio.create_task(control.obey()), asyncio.create_task(control.announce())]
    for task in answering:
        task.add_done_callback(control.ended)
    try:
        return await serve(app, stats, stop, settings.shutdown_timeout_ms / 1000)
    except StartError as error:
        channel.send(StartFailed(str(error)))
        return FAILED
    finally:
        for task in answering:
            task.cancel()
        control.report()
        await channel.close()


def _as_of_now(settings: Settings) -> Settings:
    """The supervisor may have read its settings long ago, and passwords have changed since."""
    try:
        return reread(settings, ("",), os.environ)
    except StartError as error:
        logs.get_logger().error("secrets cannot be read again: those of the start are used", error=str(error))
        return settings


def main() -> None:
    """The program; never returns."""
    core_dumps.forbid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ignore_what_would_read_anew()
    end, sockets, *version = sys.argv[1:]  # supervisors of before told none
    sys.exit(uvloop.run(work(socket.socket(fileno=int(end)), socket.socket(fileno=int(sockets)), *version)))


if __name__ == "__main__":
    main()
