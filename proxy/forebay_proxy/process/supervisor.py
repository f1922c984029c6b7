"""`--workers N`: one process that does everything, or N that share the ports and one that minds them.

N = 1: the App and the admin endpoint run in this very process.
N > 1: this process is the supervisor. It starts N worker processes, which listen on the same ports (SO_REUSEPORT) and
serve; it serves the admin endpoint itself, adding up what the workers count; it starts a worker again that died,
after a pause that doubles while it keeps dying, and kills one that hangs. Told to go, it tells the workers to drain;
told twice, it kills them. When it dies itself, its workers find their channel closed, drain and leave.

What a dead worker had counted stays counted, as of its last report (every second): counters never fall.
Exit codes: lifecycle.py.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import time
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, Final

import uvloop

from forebay_policies.retry import backoff
from forebay_proxy import __version__
from forebay_proxy.config.settings import Settings
from forebay_proxy.errors import StartError
from forebay_proxy.logs import get_logger
from forebay_proxy.metrics.admin import Admin
from forebay_proxy.metrics.clients_seen import SeenClient
from forebay_proxy.metrics.exposition import expose
from forebay_proxy.metrics.registry import Snapshot, Stats, decode, merge
from forebay_proxy.process.control import Ask, Channel, Drain, Hello, Message, Report, StartFailed
from forebay_proxy.process.lifecycle import DRAINED, FAILED, App, Stop, load_app, serve

Clock = Callable[[], float]

APP: Final = "forebay_proxy.app:App"

ASK_EVERY_S: Final = 1.0
SCRAPE_WAIT_S: Final = 1.0
"""A scrape waits this long for workers; those that do not answer stand with their last report."""
SILENT_S: Final = 10.0
"""A worker whose event loop has not turned for so long makes /healthz fail."""
HUNG_S: Final = 30.0
"""After so long it is killed, and another one takes its place: its clients have given up waiting by then."""
HUNG_ASKED: Final = 30
PAUSE_S: Final = 0.1
PAUSE_MOST_S: Final = 10.0
MOST_UNANSWERED: Final = 100
"""Questions to a worker that does not answer; then it is not asked again before it does."""
NOT_HEARD_FROM: Final = "starting"
STEADY_S: Final = 60.0
"""A worker that lived for so long died anew: the pause begins small again."""
LATE_S: Final = 5.0
"""How long after shutdown.timeout.ms a worker is killed that should have left by itself."""


def run(settings: Settings, app: str = APP) -> int:
    """Serve until told to go; the exit code. StartError for what a person must mend."""
    return uvloop.run(run_alone(settings, app) if settings.workers == 1 else run_many(settings, app))


async def run_alone(settings: Settings, app_path: str) -> int:
    stats, stop = Stats(), Stop()
    app: App = load_app(app_path)(settings, stats, 0)
    stats.gauge("forebay_workers", lambda: 1)

    async def metrics() -> tuple[bytes, str]:
        return expose(stats.take(), __version__)

    async def clients() -> list[SeenClient]:
        return stats.take().clients

    def unready() -> str | None:
        return stop.unready() or app.ready()

    stop.listen()
    admin = Admin(metrics, clients, unready)
    return await _with_admin(admin, settings, serve(app, stats, stop, settings.shutdown_timeout_ms / 1000))


async def run_many(settings: Settings, app_path: str) -> int:
    supervisor = Supervisor(settings, app_path)
    supervisor.stop.listen()
    admin = Admin(supervisor.metrics, supervisor.clients, supervisor.unready, supervisor.unhealthy)
    return await _with_admin(admin, settings, supervisor.run())


async def _with_admin(admin: Admin, settings: Settings, serving: Coroutine[Any, Any, int]) -> int:
    try:
        if settings.admin is not None:
            await admin.start(settings.admin)
        return await serving
    finally:
        serving.close()
        await admin.stop()


class Supervisor:
    """Keeps `settings.workers` workers alive until it is told to stop."""

    def __init__(
        self, settings: Settings, app_path: str, clock: Clock = time.monotonic, rng: Random | None = None
    ) -> None:
        self._rng = rng or Random()
        self.stop = Stop()
        self.stats = Stats(clock)
        self.workers = [Worker(index, settings, app_path, clock) for index in range(settings.workers)]
        self._clock = clock
        self._shutdown_timeout = settings.shutdown_timeout_ms / 1000
        self._restarts = self.stats.counter("forebay_worker_restarts_total")
        self._past = Snapshot()
        self._start_failure: str | None = None
        self.stats.gauge("forebay_workers", lambda: sum(worker.running for worker in self.workers))

    async def run(self) -> int:
        minding = [asyncio.create_task(self._ask()), asyncio.create_task(self._end())]
        try:
            codes = await asyncio.gather(*map(self._keep, self.workers))
        finally:
            for task in minding:
                task.cancel()
            for worker in self.workers:
                worker.kill()
        if self._start_failure is not None:
            raise StartError(self._start_failure)
        if self.stop.now.is_set():
            return self.stop.exit_code
        return max(codes)

    async def metrics(self) -> tuple[bytes, str]:
        return expose(await self._all(), __version__)

    async def clients(self) -> list[SeenClient]:
        return (await self._all()).clients

    async def _all(self) -> Snapshot:
        """What all workers have counted, those that are gone included."""
        await asyncio.gather(*(worker.fresh(SCRAPE_WAIT_S) for worker in self.workers))
        return merge([self._past, self.stats.take(), *(worker.snapshot for worker in self.workers)])

    def unready(self) -> str | None:
        """All workers must be ready: the kernel gives connections to any that listens."""
        if reason := self.stop.unready():
            return reason
        for worker in self.workers:
            if worker.unready is not None:
                return f"worker {worker.index}: {worker.unready}"
        return None

    def unhealthy(self) -> str | None:
        for worker in self.workers:
            if worker.silent_for() > SILENT_S:
                return f"worker {worker.index} does not answer"
        return None

    async def _keep(self, worker: Worker) -> int:
        """One worker after the other in one place; DRAINED or FAILED for the last of them."""
        deaths = 0
        while not self.stop.draining.is_set():
            began = self._clock()
            code = await worker.live()
            self._past = merge([self._past, await worker.retire()])
            if self.stop.draining.is_set():
                return DRAINED if code == DRAINED else FAILED
            if worker.start_failure is not None and not worker.served.is_set():
                self._start_failure = self._start_failure or worker.start_failure
                self.stop.draining.set()
                return FAILED
            deaths = 1 if self._clock() - began > STEADY_S else deaths + 1
            pause = backoff(deaths - 1, PAUSE_S, PAUSE_MOST_S, self._rng)
            get_logger().error("worker died", worker=worker.index, exit_code=code, restart_in_s=pause)
            try:
                await asyncio.wait_for(self.stop.draining.wait(), pause)
            except TimeoutError:
                self._restarts.value += 1
        return DRAINED

    async def _ask(self) -> None:
        """Keep the last reports recent."""
        while True:
            await asyncio.sleep(ASK_EVERY_S)
            for worker in self.workers:
                worker.ask()
                if worker.hung and not self.stop.draining.is_set():
                    get_logger().error("worker hangs: killed", worker=worker.index, silent_for_s=worker.silent_for())
                    worker.end()
            self.stats.tick()

    async def _end(self) -> None:
        """See the workers off: first with a word, at last by force."""
        await self.stop.draining.wait()
        for worker in self.workers:
            worker.drain()
        try:
            await asyncio.wait_for(self.stop.now.wait(), self._shutdown_timeout + LATE_S)
        except TimeoutError:
            get_logger().error("workers did not leave in time: killed")
        for worker in self.workers:
            worker.kill()


class Worker:
    """One worker's place: a process, its channel, its last report. The place outlives its processes."""

    def __init__(self, index: int, settings: Settings, app_path: str, clock: Clock) -> None:
        self.index = index
        self._clock = clock
        self.unready: str | None = NOT_HEARD_FROM
        self.start_failure: str | None = None
        self.served = asyncio.Event()
        """Some process in this place has served."""
        self.snapshot = Snapshot()
        self._hello = Hello(index, settings, app_path)
        self._process: Process | None = None
        self._channel: Channel | None = None
        self._is_to_drain = False
        self._is_to_die = False
        self._asked = 0
        self._answered = 0
        self._unanswered_since = 0.0
        self._heard = asyncio.Condition()

    @property
    def running(self) -> bool:
        return self._process is not None

    @property
    def process_id(self) -> int | None:
        return self._process.pid if self._process is not None else None

    async def live(self) -> int:
        """One process from its start to its end; its exit code (negative: the signal that killed it)."""
        ours, theirs = socket.socketpair()
        with theirs:
            # A session of its own, so that a terminal's Ctrl-C reaches the supervisor only.
            command = (sys.executable, "-P", "-m", "forebay_proxy.process.worker", str(theirs.fileno()))
            process = await asyncio.create_subprocess_exec(
                *command, stdin=DEVNULL, pass_fds=(theirs.fileno(),), start_new_session=True
            )
        self._process = process
        self._channel = channel = await Channel.over(ours)
        channel.send(self._hello)
        if self._is_to_drain:
            channel.send(Drain())
        if self._is_to_die:
            process.kill()
        while message := await channel.receive():
            await self._hear(message)
        code = await process.wait()
        self._process = self._channel = None
        await channel.close()
        return code

    async def _hear(self, message: Message) -> None:
        if isinstance(message, StartFailed):
            self.start_failure = message.message
        elif isinstance(message, Report):
            self.snapshot = decode(message.stats)
            self.unready = message.unready
            if message.started:
                self.served.set()
            async with self._heard:
                self._answered = message.number
                self._unanswered_since = self._clock()
                self._heard.notify_all()

    async def retire(self) -> Snapshot:
        """The process is gone: what it had counted. Whoever waits for it waits no longer."""
        past, self.snapshot = self.snapshot.without_present(), Snapshot()
        self.unready = NOT_HEARD_FROM
        async with self._heard:
            self._answered = self._asked
            self._heard.notify_all()
        return past

    def ask(self) -> int:
        """Ask for a report; its number."""
        if self._channel is not None and self._asked - self._answered < MOST_UNANSWERED:
            if self._asked == self._answered:
                self._unanswered_since = self._clock()
            self._asked += 1
            self._channel.send(Ask(self._asked))
        return self._asked

    async def fresh(self, most: float) -> None:
        """Ask for a report and wait for it, for at most so many seconds."""
        number = self.ask()
        try:
            async with asyncio.timeout(most), self._heard:
                await self._heard.wait_for(lambda: self._answered >= number)
        except TimeoutError:
            pass

    def silent_for(self) -> float:
        """Seconds for which a question has gone unanswered."""
        return self._clock() - self._unanswered_since if self._asked > self._answered else 0.0

    @property
    def hung(self) -> bool:
        """It was asked again and again, too: where everything stood still, the supervisor included, nothing hangs."""
        return self.silent_for() > HUNG_S and self._asked - self._answered >= HUNG_ASKED

    def drain(self) -> None:
        self._is_to_drain = True
        if self._channel is not None:
            self._channel.send(Drain())

    def kill(self) -> None:
        """Now and for good: one that is about to start is killed, too."""
        self._is_to_die = True
        self.end()

    def end(self) -> None:
        """Kill the process; another one may take its place."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
