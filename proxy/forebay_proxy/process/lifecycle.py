"""From start to exit: one App, served until it is told to stop.

    start → serve → (SIGTERM, SIGINT) → drain, at most shutdown.timeout.ms → exit
      │       ├ SIGHUP: see reloading.py  └ a second signal: exit at once
      │       └ SIGUSR2: see succession.py
      └ SIGHUP, SIGUSR2: ignored

Exit codes
0    everything was drained, or the signal came before the start was complete
1    the start failed, or the drain did not end in time and open requests were cut off
2    the settings are wrong (see cli.py)
130  a second signal, SIGINT (128 + 2)
143  a second signal, SIGTERM (128 + 15)
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import signal
import socket
import sys
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol, cast

from forebay_codecs import primitives
from forebay_proxy import __version__
from forebay_proxy.config.settings import Settings
from forebay_proxy.inherited import Inherited
from forebay_proxy.logs import get_logger
from forebay_proxy.metrics.registry import MetricRegistry
from forebay_proxy.security.renewals import Outcome

DRAINED: Final = 0
FAILED: Final = 1
WRONG_SETTINGS: Final = 2

TICK_S: Final = 1.0
CUT_OFF_S: Final = 3.0
"""For the journal, where a drain has timed out: less than workers may be late (supervisor.LATE_S)."""
GC_THRESHOLD: Final = 10_000
"""New objects before the collector runs, instead of 700: a busy moment has thousands of pending requests."""
SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
COMPILED: Final = not str(primitives.__file__).endswith(".py")
"""Whether the hot modules are (hatch_build.py)."""


class App(Protocol):
    """A whole proxy in one process."""

    async def start(self) -> None:
        """Open the listeners. Raises StartError for what a person must fix."""

    def listening(self) -> list[socket.socket]:
        """All sockets by which clients come, for a successor: it will accept from them, too."""

    def reload(self) -> asyncio.Future[list[Outcome]]:
        """Read certificates and secrets again; what came of it. May be called at any time."""

    def prepare(self, settings: Settings) -> Callable[[], None]:
        """Get ready for settings that differ from those in force in live ones only; what puts them into force.

        Raises StartError.
        """

    def dump(self) -> dict[str, Any]:
        """How it stands, as JSON has a form for: of bounded size, without records and secrets."""

    def ready(self) -> str | None:
        """Why clients cannot be served; None: they can."""

    def unhealthy(self) -> str | None:
        """Why the process should be restarted; None: it need not be."""

    async def drain(self, *, succeeded: bool = False) -> None:
        """Stop accepting, flush every batch, answer everything. The caller bounds the time.

        `succeeded`: others accept on the same ports, and clients are to leave one broker after the other.
        """

    async def cut_off(self) -> None:
        """A drain took too long: no client is answered any more, and the journal is closed. The caller bounds the time.

        `abort` follows.
        """

    def abort(self) -> None:
        """Close everything now, whatever state it is in."""


class MakeApp(Protocol):
    """Builds an App and starts nothing; `worker` is its number, from 0.

    It listens on what was `inherited` where that is bound to an address of its own, and closes the rest in time.
    """

    def __call__(self, settings: Settings, stats: MetricRegistry, worker: int, inherited: Inherited) -> App: ...


def load_app(path: str) -> MakeApp:
    """What `package.module:Name` refers to. A name, so that it can be sent to a worker process."""
    module, _, name = path.partition(":")
    return cast(MakeApp, getattr(importlib.import_module(module), name))


def ignore_what_would_read_anew() -> None:
    """Until the signals are handled: SIGHUP and SIGUSR2 would end the process, and ask for what a start does anyway."""
    for number in (signal.SIGHUP, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)


def leave_when_told() -> None:
    """Until the signals are handled: SIGTERM and SIGINT end a start, of which nothing is left.

    SIGINT would end it with a traceback, and SIGTERM not at all in a container, whose first process it does not reach
    before it asks for it.
    """
    for number in SIGNALS:
        signal.signal(number, lambda *_: sys.exit(DRAINED))


class Stop:
    """Whether a process has started and should stop: the first request asks it to drain, a second to exit at once.

    One that drains for another reason, since its place is taken, say, was not asked yet.
    """

    def __init__(self) -> None:
        self.started = asyncio.Event()
        """The App's listeners are open."""
        self.draining = asyncio.Event()
        self.now = asyncio.Event()
        self.succeeded = False
        """Another process has taken the place of this one: who leaves it may come there."""
        self.exit_code = 128 + signal.SIGTERM
        """The exit code after a second request."""
        self._requested = False

    def request(self, number: int) -> None:
        """Signal `number` has arrived."""
        if self._requested:
            self.exit_code = 128 + number
            self.now.set()
        self._requested = True
        self.draining.set()

    def unready(self) -> str | None:
        """Why no new client should come; None: no reason."""
        return "draining" if self.draining.is_set() else None

    def listen(self, reload: Callable[[], object], restart: Callable[[], object]) -> None:
        """Handle the process's SIGTERM and SIGINT; SIGHUP calls `reload`, SIGUSR2 `restart`."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGHUP, reload)
        loop.add_signal_handler(signal.SIGUSR2, restart)
        for number in SIGNALS:
            loop.add_signal_handler(number, self.request, number)


async def serve(app: App, stats: MetricRegistry, stop: Stop, shutdown_timeout_s: float) -> int:
    """Run `app` until `stop`; the exit code. Nothing is left open, also when StartError is raised."""
    turning = asyncio.create_task(_turn_windows(stats))
    try:
        if not await _before(app.start(), stop.draining):
            return DRAINED
        stop.started.set()
        _spare_the_collector()
        get_logger().info("serving", version=__version__, compiled=COMPILED)
        await stop.draining.wait()
        return await _drain(app, stop, shutdown_timeout_s)
    finally:
        turning.cancel()
        app.abort()


def _spare_the_collector() -> None:
    """What exists now is here to stay, and neither requests nor connections leave cycles: looking for them took a tenth
    of the CPU.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD)


async def _drain(app: App, stop: Stop, shutdown_timeout_s: float) -> int:
    log = get_logger()
    log.info("draining", at_most_s=shutdown_timeout_s)
    draining = asyncio.wait_for(app.drain(succeeded=stop.succeeded), shutdown_timeout_s)
    try:
        if not await _before(draining, stop.now):
            log.warning("exiting without draining")
            return stop.exit_code
    except TimeoutError:
        log.warning("drain timed out, open requests are cut off", shutdown_timeout_s=shutdown_timeout_s)
        return await _cut_off(app, stop)
    log.info("drained")
    return DRAINED


async def _cut_off(app: App, stop: Stop) -> int:
    try:
        if not await _before(asyncio.wait_for(app.cut_off(), CUT_OFF_S), stop.now):
            return stop.exit_code
    except TimeoutError:
        get_logger().warning("the journal is left open: it could not be written in time", waited_s=CUT_OFF_S)
    return FAILED


async def _before(work: Coroutine[object, object, None], event: asyncio.Event) -> bool:
    """True once `work` is done; False if `event` came first: then `work` is cancelled."""
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


async def _turn_windows(stats: MetricRegistry) -> None:
    """Metrics' windows advance whether or not anybody scrapes."""
    while True:
        await asyncio.sleep(TICK_S)
        stats.tick()
