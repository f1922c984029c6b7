"""From start to leaving: one App, served until it is told to go.

    start → serve → (SIGTERM, SIGINT) → drain, at most shutdown.timeout.ms → leave
                                          └ a second signal: leave at once

Exit codes
0    everything was drained; also when told to go before the start was complete
1    the start failed, or the drain did not end in time: what was not answered is cut off
2    the settings are wrong (see cli.py)
130  a second signal, SIGINT (128 + 2)
143  a second signal, SIGTERM (128 + 15)
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import signal
from collections.abc import Coroutine
from typing import Final, Protocol, cast

from forebay_proxy.config.settings import Settings
from forebay_proxy.logs import get_logger
from forebay_proxy.metrics.registry import Stats

DRAINED: Final = 0
FAILED: Final = 1
WRONG_SETTINGS: Final = 2

TICK_S: Final = 1.0
GC_THRESHOLD: Final = 10_000
"""Objects more than before, instead of 700: a busy moment has thousands of records' owners alive."""
SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class App(Protocol):
    """A whole proxy in one process."""

    async def start(self) -> None:
        """Open the listeners; StartError for what a person must mend."""

    def ready(self) -> str | None:
        """None: clients can be served. Otherwise why not."""

    async def drain(self) -> None:
        """Stop accepting, flush every batch, answer everything. Whoever calls it bounds it."""

    def abort(self) -> None:
        """Close everything now. Whatever came before."""


class MakeApp(Protocol):
    def __call__(self, settings: Settings, stats: Stats, worker: int) -> App: ...


def load_app(path: str) -> MakeApp:
    """`package.module:Name` → what makes an App. By name, so that a worker process can be told."""
    module, _, name = path.partition(":")
    return cast(MakeApp, getattr(importlib.import_module(module), name))


class Stop:
    """How far a life has come, and when it is to end: the first request drains, the second cuts short."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        """The App's listeners stand."""
        self.draining = asyncio.Event()
        self.now = asyncio.Event()
        self.exit_code = 128 + signal.SIGTERM
        """With which to leave after the second request."""

    def request(self, number: int) -> None:
        """A signal has come."""
        if self.draining.is_set():
            self.exit_code = 128 + number
            self.now.set()
        self.draining.set()

    def unready(self) -> str | None:
        """Why no new client should come; None: nothing is known against it."""
        return "draining" if self.draining.is_set() else None

    def listen(self) -> None:
        """Take over the process's signals."""
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self.request, number)


async def serve(app: App, stats: Stats, stop: Stop, shutdown_timeout: float) -> int:
    """Run `app` until `stop`; the exit code. StartError goes up, with nothing left open."""
    turning = asyncio.create_task(_turn_windows(stats))
    try:
        if not await _before(app.start(), stop.draining):
            return DRAINED
        stop.started.set()
        _spare_the_collector()
        get_logger().info("serving")
        await stop.draining.wait()
        return await _drain(app, stop, shutdown_timeout)
    finally:
        turning.cancel()
        app.abort()


def _spare_the_collector() -> None:
    """What stands now stands for good, and requests leave no cycles: looking for them took a tenth of the CPU."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD)


async def _drain(app: App, stop: Stop, shutdown_timeout: float) -> int:
    log = get_logger()
    log.info("draining", at_most_s=shutdown_timeout)
    draining = asyncio.wait_for(app.drain(), shutdown_timeout)
    try:
        if not await _before(draining, stop.now):
            log.warning("left at once, undrained")
            return stop.exit_code
    except TimeoutError:
        log.warning("not everything was drained in time", shutdown_timeout_s=shutdown_timeout)
        return FAILED
    log.info("drained")
    return DRAINED


async def _before(work: Coroutine[object, object, None], event: asyncio.Event) -> bool:
    """Do `work` unless `event` comes first: then it is cancelled, and the answer is False."""
    working = asyncio.ensure_future(work)
    waiting = asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait((working, waiting), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            return False
        working.result()
        return True
    finally:
        waiting.cancel()
        working.cancel()
        await asyncio.wait((working, waiting))


async def _turn_windows(stats: Stats) -> None:
    """Windows turn whether or not anybody asks for metrics."""
    while True:
        await asyncio.sleep(TICK_S)
        stats.tick()
