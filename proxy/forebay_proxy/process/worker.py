"""A worker process: `python -m forebay_proxy.process.worker FD`, started by supervisor.py only.

FD is its end of the control channel. It lives as long as the supervisor wants it: told to drain, or finding the channel
closed, it drains and leaves, with the exit codes of lifecycle.py. SIGTERM drains it as well; SIGINT, which a terminal
sends to all, is the supervisor's to act on.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from typing import Final

import structlog
import uvloop

from forebay_proxy import logs
from forebay_proxy.errors import StartError
from forebay_proxy.metrics.registry import Stats
from forebay_proxy.process.control import Ask, Channel, Hello, Report, StartFailed
from forebay_proxy.process.lifecycle import FAILED, App, Stop, load_app, serve

NO_SUPERVISOR: Final = "the supervisor was gone before it said hello"


class _Worker:
    """Answers the supervisor while the App serves."""

    def __init__(self, channel: Channel, app: App, stats: Stats, stop: Stop) -> None:
        self._channel = channel
        self._app = app
        self._stats = stats
        self._stop = stop
        self._asked = 0

    async def obey(self) -> None:
        while message := await self._channel.receive():
            if isinstance(message, Ask):
                self._asked = message.number
                self.report()
            else:
                self._stop.draining.set()
        self._stop.draining.set()

    async def announce(self) -> None:
        """Say unasked that the listeners stand."""
        await self._stop.started.wait()
        self.report()

    def report(self) -> None:
        unready = self._stop.unready() or self._app.ready()
        self._channel.send(Report(self._asked, self._stop.started.is_set(), unready, self._stats.snapshot()))


async def work(end: socket.socket) -> int:
    """One worker's life; its exit code."""
    channel = await Channel.over(end)
    hello = await channel.receive()
    if not isinstance(hello, Hello):
        logs.get_logger().warning(NO_SUPERVISOR)
        return FAILED
    settings = hello.settings
    logs.configure(settings.log_level, settings.log_format)
    structlog.contextvars.bind_contextvars(worker=hello.index)
    stats, stop = Stats(), Stop()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.draining.set)
    app = load_app(hello.app)(settings, stats, hello.index)
    worker = _Worker(channel, app, stats, stop)
    answering = [asyncio.create_task(worker.obey()), asyncio.create_task(worker.announce())]
    try:
        return await serve(app, stats, stop, settings.shutdown_timeout_ms / 1000)
    except StartError as error:
        channel.send(StartFailed(str(error)))
        return FAILED
    finally:
        for task in answering:
            task.cancel()
        worker.report()
        await channel.close()


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.exit(uvloop.run(work(socket.socket(fileno=int(sys.argv[1])))))


if __name__ == "__main__":
    main()
