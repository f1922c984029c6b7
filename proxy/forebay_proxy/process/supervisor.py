"""`--workers N`: one process that does everything, or a supervisor with N workers that share the ports.

N = 1: the App and the admin endpoint run in this process.
N > 1: this process is the supervisor. It starts N worker processes, which listen on the same ports (SO_REUSEPORT); it
serves the admin endpoint itself, with the workers' metrics added up; it restarts a worker that died, after a pause that
doubles while the worker keeps dying or cannot be started, and kills one that hangs; it has others take the place of
all, one by one (replacing.py). Told to stop, it tells the workers to drain; told twice, it kills them. If the
supervisor itself dies, its workers find their channel closed, drain and exit.

What a dead worker had counted stays counted, as of its last report (one a second, with topics and clients every ten),
so counters never fall.
Exit codes: lifecycle.py.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from functools import partial
from random import Random
from typing import Any, Final, NamedTuple, Protocol

import msgspec
import uvloop
from prometheus_client.metrics_core import Metric as Family

from forebay_policies.retry import backoff
from forebay_proxy import __version__, logs
from forebay_proxy.config.advertised import KUBERNETES, may_strand
from forebay_proxy.config.settings import Settings
from forebay_proxy.config.without_effect import without_effect
from forebay_proxy.console.api import NOTHING_TOLD, Told
from forebay_proxy.console.console import Console
from forebay_proxy.console.source import OneProcess, Source, Workers
from forebay_proxy.errors import StartError
from forebay_proxy.inherited import Inherited
from forebay_proxy.logs import get_logger
from forebay_proxy.metrics import topics_seen
from forebay_proxy.metrics.admin import Admin
from forebay_proxy.metrics.clients_seen import SeenClient
from forebay_proxy.metrics.exposition import expose, families
from forebay_proxy.metrics.registry import MetricRegistry, Snapshot, merge
from forebay_proxy.metrics.scrapes import Scrapes
from forebay_proxy.metrics.topics_seen import NamedTopics
from forebay_proxy.metrics.traffic import RenewalMetrics
from forebay_proxy.process import service_manager
from forebay_proxy.process.exporting import Runs, otlp_export
from forebay_proxy.process.in_force import Read, Served, SettingsInForce, WorkersDiffer
from forebay_proxy.process.lifecycle import DRAINED, FAILED, App, Stop, load_app, serve
from forebay_proxy.process.overrides import Overrides
from forebay_proxy.process.reloading import Load, Reloading
from forebay_proxy.process.replacing import SHARE_WAIT_S, Replacing
from forebay_proxy.process.stacks import stacks
from forebay_proxy.process.steering import Steering, Watched
from forebay_proxy.process.succession import Predecessor, Succession
from forebay_proxy.process.worker_slot import SILENT_S, Clock, WorkerSlot
from forebay_proxy.security.renewals import Outcome, Renewals

APP: Final = "forebay_proxy.app:App"

ASK_EVERY_S: Final = 1.0
SCRAPE_WAIT_S: Final = 1.0
"""A scrape waits this long for the workers; those that do not answer are counted by their last report."""
PREPARE_WAIT_S: Final = 10.0
"""A worker that takes longer to get ready for other settings keeps all from having them."""
RENEW_WAIT_S: Final = 10.0
"""A worker that does not say in this time what became of certificates and secrets may do so in the log."""
DUMP_WAIT_S: Final = 5.0
"""A worker that does not say in this time how it stands is left out of a dump."""
RESTART_BACKOFF_S: Final = 0.1
"""Pause before a worker's first restart; doubles with each death, up to RESTART_BACKOFF_MAX_S."""
RESTART_BACKOFF_MAX_S: Final = 10.0
STEADY_S: Final = 60.0
"""A worker that lived this long before it died starts again with the first pause."""
LATE_S: Final = 5.0
"""Workers that have not exited by themselves this long after shutdown.timeout.ms are killed."""


def run(settings: Settings, app: str = APP, told: Told = NOTHING_TOLD, load: Load | None = None) -> int:
    """Serve until told to stop; the exit code. `app` is as load_app reads it, `told` is for the page.

    `load` reads the settings again. Raises StartError for what a person must fix.
    """
    _tell_of_addresses(settings)
    for idle in without_effect(settings):
        get_logger().warning("settings of security have no effect", settings=idle.names, why=idle.why)
    predecessor = Predecessor.of(os.environ)
    serving = run_alone if settings.workers == 1 else run_many
    return uvloop.run(serving(settings, app, told, load, predecessor))


def _tell_of_addresses(settings: Settings) -> None:
    """Once, whatever the number of workers."""
    if found := [listener.name for listener in may_strand(settings, os.environ)]:
        log = get_logger()
        (log.warning if KUBERNETES in os.environ else log.info)(
            "clients are told the address at which they reach this host, and most never ask for another: behind a "
            "balancer set advertised.host or advertised.address",
            listeners=found,
        )


def _tell_of_start(stats: MetricRegistry) -> None:
    """One that is started again and again is seen by it."""
    began = time.time()
    stats.gauge("forebay_start_time_seconds", lambda: began)


class _Serving(Served, Watched, Protocol):
    """Who serves with settings, and may be looked at."""


class _Alone:
    """The one App of this process, as in_force.Served and steering.Watched."""

    def __init__(self, app: App, stats: MetricRegistry) -> None:
        self._app = app
        self._stats = stats

    async def looked_at(self) -> tuple[Snapshot, list[int]]:
        return self._stats.take(details=False), []

    async def dumps(self) -> list[dict[str, Any]]:
        return [{"worker": 0, **self._app.dump(), "tasks": stacks()}]

    async def prepare(self, settings: Settings) -> Callable[[], None]:
        return self._app.prepare(settings)

    async def replace(self, settings: Settings) -> Callable[[], None]:
        raise StartError("with one worker this takes a restart; nothing was changed")


async def run_alone(
    settings: Settings,
    app_path: str,
    told: Told = NOTHING_TOLD,
    load: Load | None = None,
    predecessor: Predecessor | None = None,
) -> int:
    """`run` with everything in this process."""
    stats, stop = MetricRegistry(), Stop()
    inherited = Inherited() if predecessor is None else predecessor.inherited
    app: App = load_app(app_path)(settings, stats, 0, inherited)
    stats.gauge("forebay_workers", lambda: 1)
    _tell_of_start(stats)

    named = NamedTopics(settings.metrics_topics_max)

    def taken() -> Snapshot:
        snapshot = stats.take(details=False)
        if settings.metrics_topics_max:
            snapshot.topics = topics_seen.snapshot(stats.topics, {})
        return snapshot

    async def counted() -> Iterable[Family]:
        return families(taken(), __version__, named)

    async def clients() -> list[SeenClient]:
        return stats.current_clients()

    def unready() -> str | None:
        return stop.unready() or app.ready()

    stats.gauge("forebay_ready", lambda: unready() is None)
    export = otlp_export(settings, counted, stats)
    serving = serve(app, stats, stop, settings.shutdown_timeout_ms / 1000)
    steering, in_force = _steering(settings, told, load, _Alone(app, stats), stats)
    console = _console(settings, OneProcess(stats), told, unready, steering, in_force)
    scrapes = Scrapes(taken, __version__, named)
    admin = Admin(scrapes.metrics, clients, unready, app.unhealthy, console)
    steering.on_reload(app.reload)

    async def listening() -> list[socket.socket]:
        return [each.dup() for each in app.listening()]

    place = Place(stop, stop.started.wait, listening, unready, predecessor, app.unhealthy)
    return await _with_admin(admin, console, export, settings, stats, place, steering, in_force, serving)


def _steering(
    settings: Settings, told: Told, load: Load | None, serving: _Serving, stats: MetricRegistry
) -> tuple[Steering, SettingsInForce]:
    in_force = SettingsInForce(Read(settings, told), serving)
    overrides = Overrides(in_force, time.monotonic, time.time)
    return Steering(Reloading(in_force, load, stats), overrides, serving), in_force


def _console(
    settings: Settings,
    source: Source,
    told: Told,
    unready: Callable[[], str | None],
    steering: Steering,
    in_force: SettingsInForce,
    ailing: Callable[[], Iterable[str]] = tuple,
) -> Console | None:
    """None where nobody could look at it."""
    if settings.admin is None and not settings.admin_socket:
        return None
    console = Console(settings, source, told, unready, steering, ailing)
    in_force.on_change(console.tell)
    return console


async def run_many(
    settings: Settings,
    app_path: str,
    told: Told = NOTHING_TOLD,
    load: Load | None = None,
    predecessor: Predecessor | None = None,
) -> int:
    """`run` with this process as the supervisor of `settings.workers` others."""
    inherited = Inherited() if predecessor is None else predecessor.inherited
    supervisor = Supervisor(settings, app_path, inherited=inherited)
    source = Workers(supervisor.reports, supervisor.refresh)
    stats, stop = supervisor.stats, supervisor.stop
    steering, in_force = _steering(settings, told, load, supervisor, stats)
    console = _console(settings, source, told, supervisor.unready, steering, in_force, supervisor.ailing)
    admin = Admin(supervisor.metrics, supervisor.clients, supervisor.unready, supervisor.unhealthy, console)
    steering.on_reload(supervisor.reload)
    export = otlp_export(settings, supervisor.families, stats)
    serving = supervisor.run()
    place = Place(stop, supervisor.started, supervisor.listening, supervisor.unready, predecessor)
    return await _with_admin(admin, console, export, settings, stats, place, steering, in_force, serving)


class Place(NamedTuple):
    """What may be handed on, and was perhaps taken over."""

    stop: Stop
    started: Callable[[], Awaitable[object]]
    """Returns once it serves."""
    listening: Callable[[], Awaitable[list[socket.socket]]]
    """By what clients come; the caller closes them."""
    unready: Callable[[], str | None]
    predecessor: Predecessor | None
    unhealthy: Callable[[], str | None] = lambda: None
    """Why a service manager should end this process. A supervisor replaces by itself what has failed or hangs."""


async def _with_admin(
    admin: Admin,
    console: Console | None,
    export: Runs | None,
    settings: Settings,
    stats: MetricRegistry,
    place: Place,
    steering: Steering,
    in_force: SettingsInForce,
    serving: Coroutine[Any, Any, int],
) -> int:
    """`serving`, with the process's signals handled and the admin endpoint open. SIGHUP renews both, and settings.

    The endpoint of a predecessor is taken over, and the service manager told, once this process serves.
    """
    stop, predecessor = place.stop, place.predecessor
    renewals = Renewals(settings, RenewalMetrics(stats))
    steering.on_reload(renewals.now)

    async def sockets() -> list[socket.socket]:
        return [*await place.listening(), *(each.dup() for each in admin.sockets)]

    succession = Succession(stop, sockets, admin.leave, os.environ, kept=in_force.kept)
    steering.on_restart(succession.begin)
    stop.listen(steering.hang_up, succession.begin)
    relieved = asyncio.Event()

    beside: list[asyncio.Task[None]] = []

    def have_beside(part: Coroutine[Any, Any, None]) -> None:
        beside.append(task := asyncio.create_task(part))
        task.add_done_callback(_tell_of_failure)

    async def open_admin() -> None:
        if predecessor is not None:
            await predecessor.relieve(place.unready)
        if console is not None:
            await admin.serve()
            have_beside(console.run())
        relieved.set()

    async def started() -> None:
        await place.started()
        await relieved.wait()

    have_beside(renewals.run())
    have_beside(steering.run())
    patience_s = settings.shutdown_timeout_ms / 1000 + 2 * LATE_S
    have_beside(service_manager.keep_told(started, stop, os.environ, patience_s))
    have_beside(service_manager.keep_alive(place.started, stop, os.environ, place.unhealthy))
    try:
        if console is not None:
            renewals.add(admin.renewable)
            admin.bind(settings, Inherited() if predecessor is None else predecessor.inherited)
        if predecessor is None:
            await open_admin()
        else:
            have_beside(open_admin())
        if export is not None:
            have_beside(export.run())
        return await serving
    finally:
        for task in beside:
            task.cancel()
        succession.close()
        steering.close()
        serving.close()
        await admin.stop()


def _tell_of_failure(task: asyncio.Task[None]) -> None:
    """Clients are served without such a part, so the process goes on; but it must not go unseen."""
    if not task.cancelled() and (error := task.exception()) is not None:
        get_logger().error("a part beside the proxy has failed", exc_info=error)


class Supervisor:
    """Keeps `settings.workers` workers alive until `stop`, and leaves none behind.

    `clock` in seconds; `rng` spreads the pauses before restarts. What was `inherited` the workers share.
    """

    def __init__(
        self,
        settings: Settings,
        app_path: str,
        clock: Clock = time.monotonic,
        rng: Random | None = None,
        inherited: Inherited | None = None,
    ) -> None:
        self._inherited = inherited or Inherited()
        self._rng = rng or Random()
        self.stop = Stop()
        self.stats = MetricRegistry(clock)
        self._app_path = app_path
        self._clock = clock
        self._settings = settings
        self.workers = [self._worker(index, settings) for index in range(settings.workers)]
        """Those that have a place; others may drain or be on trial beside them."""
        self._patience_s = settings.shutdown_timeout_ms / 1000 + LATE_S
        self._replacing = Replacing(self.workers, self._worker, self._begin, self.stop, self._patience_s)
        self._restarts = self.stats.counter("forebay_worker_restarts_total")
        self._past = Snapshot()
        self._named = NamedTopics(settings.metrics_topics_max)
        self._start_failure: str | None = None
        self._generation = 1
        """Of settings, as workers are told."""
        self.stats.gauge("forebay_workers", lambda: sum(worker.running for worker in self.workers))
        self.stats.gauge("forebay_ready", lambda: self.unready() is None)
        _tell_of_start(self.stats)

    async def run(self) -> int:
        """Start the workers and look after them until the last one has exited; the exit code.

        Raises StartError if a worker cannot start for a reason that a person must fix; the others are drained first.
        """
        minding = [asyncio.create_task(self._ask()), asyncio.create_task(self._end())]
        for part in minding:
            part.add_done_callback(_tell_of_failure)
        try:
            for worker, share in zip(self.workers, self._inherited.shares(len(self.workers)), strict=True):
                for each in share:  # before any of them binds another
                    each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
                worker.inherits(share)
            for worker in self.workers:
                self._replacing.begin(worker)
            while running := self._replacing.running:
                done, _ = await asyncio.wait(running.values(), return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()  # raises what nobody foresaw
        finally:
            for part in minding:
                part.cancel()
            for worker in self._all():
                worker.kill()
        if self._start_failure is not None:
            raise StartError(self._start_failure)
        if self.stop.now.is_set():
            return self.stop.exit_code
        return max(worker.exit_code for worker in self.workers)

    async def started(self) -> None:
        """Returns once every worker's listeners are open."""
        await asyncio.gather(*(worker.served.wait() for worker in self.workers))

    async def listening(self) -> list[socket.socket]:
        """All that workers listen on, which is the caller's to close."""
        shares = await asyncio.gather(*(worker.share(SHARE_WAIT_S) for worker in self.workers))
        return [each for share in shares for each in share]

    async def reload(self) -> list[Outcome]:
        """Have all workers read certificates and secrets again; what came of it, in the first where it failed.

        Of those that leave it does not count: they may have been told of other files than there are now.
        """
        workers = self._all()
        found: dict[str, str] = {}
        for worker, told in zip(
            workers, await asyncio.gather(*(each.reload(RENEW_WAIT_S) for each in workers)), strict=True
        ):
            for of, error in ((each.of, each.error) for each in told if worker in self.workers):
                found[of] = found.get(of) or (f"worker {worker.index}: {error}" if error else "")
        return [Outcome(of, error) for of, error in found.items()]

    async def prepare(self, settings: Settings) -> Callable[[], None]:
        """Have all workers get ready for other settings; what has all of them put these into force.

        Raises StartError where one cannot, or does not answer.
        """
        self._generation += 1
        generation = self._generation
        said = await asyncio.gather(*(worker.prepare(generation, settings, PREPARE_WAIT_S) for worker in self.workers))
        for worker, error in zip(self.workers, said, strict=True):
            if error:
                raise StartError(f"worker {worker.index}: {error}")

        def commit() -> None:
            for worker in self.workers:
                worker.commit(generation, settings)
            self._in_force(settings)

        return commit

    async def replace(self, settings: Settings) -> Callable[[], None]:
        """Have other workers take the place of all; what has this process go by the settings, too.

        Raises StartError where one does not get ready.
        """
        if why := await self._replacing.replace(self._settings, settings):
            raise (WorkersDiffer if self._replacing.astray else StartError)(why)
        return partial(self._in_force, settings)

    def _in_force(self, settings: Settings) -> None:
        logs.set_level(settings.log_level)
        self._settings = settings

    async def metrics(self) -> tuple[bytes, str]:
        """(body, content type) of a scrape: all workers added up, those that have died included."""
        return expose(await self.counted(), __version__, self._named)

    async def families(self) -> Iterable[Family]:
        """The metrics of all workers, as Prometheus families."""
        return families(await self.counted(), __version__, self._named)

    async def clients(self) -> list[SeenClient]:
        """The clients of all workers; one that several workers have seen is one client."""
        return (await self.counted()).clients

    async def counted(self) -> Snapshot:
        """What all workers have counted, those that have died included."""
        return (await self.looked_at())[0]

    async def looked_at(self) -> tuple[Snapshot, list[int]]:
        """The same, and which workers do not answer: they are known by what they told last."""
        silent = await self.refresh()
        return merge(self.reports(), self._named.names), silent

    async def dumps(self) -> list[dict[str, Any]]:
        """How each worker stands."""
        found = await asyncio.gather(*(worker.dump(DUMP_WAIT_S) for worker in self.workers))
        return [{"worker": worker.index, **told} for worker, told in zip(self.workers, found, strict=True)]

    async def refresh(self) -> list[int]:
        """Have all workers tell all that they know; who does not answer, and is known by what it told last."""
        workers = self._all()
        answered = await asyncio.gather(*(worker.fresh(SCRAPE_WAIT_S) for worker in workers))
        return [worker.index for worker, has in zip(workers, answered, strict=True) if not has]

    def reports(self) -> list[Snapshot]:
        """What dead workers had counted, what this process counts, and each worker's last report."""
        return [self._past, self.stats.take(), *(worker.snapshot for worker in self._all())]

    def unready(self) -> str | None:
        """Why no client should come; None: ready. The kernel picks any worker that listens, so all of these must be.

        One that has died keeps nobody from the others.
        """
        if reason := self.stop.unready():
            return reason
        others_serve = any(worker.unready is None for worker in self.workers)
        for worker in self.workers:
            if worker.unready is not None and not (worker.away and others_serve):
                return f"worker {worker.index}: {worker.unready}"
        return None

    def unhealthy(self) -> str | None:
        """Which worker has not answered for SILENT_S; None: all answer."""
        return next(self._silent(), None)

    def ailing(self) -> list[str]:
        """What is wrong with workers: who does not answer, and who is away while others serve."""
        away = [] if self.unready() is not None else [worker.index for worker in self.workers if worker.away]
        return [*self._silent(), *(f"worker {index} is away: the log says why" for index in away)]

    def _silent(self) -> Iterator[str]:
        return (f"worker {worker.index} does not answer" for worker in self.workers if worker.silent_for() > SILENT_S)

    def _worker(self, index: int, settings: Settings, inherited: Sequence[socket.socket] = ()) -> WorkerSlot:
        return WorkerSlot(index, settings, self._app_path, self._clock, inherited)

    def _begin(self, worker: WorkerSlot) -> asyncio.Task[None]:
        return asyncio.get_running_loop().create_task(self._keep(worker))

    def _all(self) -> list[WorkerSlot]:
        return [*self.workers, *self._replacing.beside]

    async def _keep(self, worker: WorkerSlot) -> None:
        """Run one process after the other in one slot, which has the exit code of the last of them."""
        try:
            worker.exit_code = await self._restart(worker)
        finally:
            worker.inherits(())  # nobody would accept from what no process has taken

    async def _restart(self, worker: WorkerSlot) -> int:
        """DRAINED or FAILED."""
        deaths = 0
        while not (self.stop.draining.is_set() or worker.leaving):
            began = self._clock()
            code = await self._live(worker)
            retired = await worker.retire()
            self._past = merge([self._past, retired], self._named.names)
            on_trial = worker is self._replacing.on_trial
            if self.stop.draining.is_set() or worker.leaving or on_trial:
                if code not in (DRAINED, FAILED) and not (worker.killed or on_trial):
                    event = "worker died while it drained: its open requests are cut off"
                    get_logger().error(event, worker=worker.index, exit_code=code)
                return DRAINED if code == DRAINED else FAILED
            if worker.start_failure is not None:
                if not worker.served.is_set():
                    self._start_failure = self._start_failure or worker.start_failure
                    self.stop.draining.set()
                    return FAILED
                get_logger().error("worker lost", worker=worker.index, error=worker.start_failure)
                worker.start_failure = None
            deaths = 1 if self._clock() - began > STEADY_S else deaths + 1
            pause = backoff(deaths - 1, RESTART_BACKOFF_S, RESTART_BACKOFF_MAX_S, self._rng)
            get_logger().error("worker died", worker=worker.index, exit_code=code, restart_in_s=pause)
            try:
                await asyncio.wait_for(self.stop.draining.wait(), pause)
            except TimeoutError:
                self._restarts.value += 1
        return DRAINED

    async def _live(self, worker: WorkerSlot) -> int:
        """Run one process. None that starts, or none that is understood, counts as one that died: others serve."""
        try:
            return await worker.live()
        except OSError as error:
            why = f"a worker process cannot be started: {error.strerror or error}"
        except msgspec.DecodeError as error:
            why = f"a worker process speaks another language, is its code of another version? {error}"
        get_logger().error("worker lost", worker=worker.index, error=why)
        if worker is self._replacing.on_trial or not any(each.served.is_set() for each in self.workers):
            worker.start_failure = why
        return FAILED

    async def _ask(self) -> None:
        """Ask all workers for a report every second, and kill those that hang."""
        while True:
            await asyncio.sleep(ASK_EVERY_S)
            for worker in self._all():
                worker.ask(details=False)
                if worker.hung and not self.stop.draining.is_set():
                    get_logger().error("worker hung, killing it", worker=worker.index, silent_for_s=worker.silent_for())
                    worker.end()
            self.stats.tick()

    async def _end(self) -> None:
        """Once told to stop: drain the workers, then kill those that are late, or all of them when told again."""
        await self.stop.draining.wait()
        for worker in self._all():
            worker.drain(succeeded=self.stop.succeeded)
        try:
            await asyncio.wait_for(self.stop.now.wait(), self._patience_s)
        except TimeoutError:
            get_logger().error("workers did not exit in time, killing them")
        for worker in self._all():
            worker.kill()
