"""Workers that begin with other settings take the place of those that serve, one after the other.

    the next place: start one ──▶ ready in time, and takes connections ──▶ the old one drains, and is gone ─▶ the next
                      └ it is not: it goes, and where others have been replaced by then, they are replaced again

In: workers that serve, and settings. Out: all with these, or, where one does not get ready, all with those from before,
and why; where none with those gets ready either, some are `astray`. The new one accepts from the old one's sockets, so
nobody who connects meanwhile is refused. While a worker drains its clients come back, and meet the others and its
successor; it ends as it would on SIGTERM, and is killed where it takes too long.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from typing import Final

from forebay_proxy.config.settings import Settings
from forebay_proxy.logs import get_logger
from forebay_proxy.process.lifecycle import Stop
from forebay_proxy.process.worker_slot import WorkerSlot

READY_WAIT_S: Final = 30.0
"""For a worker to start, and to hear of its brokers."""
SHARE_WAIT_S: Final = 5.0
"""For one to hand over what it listens on."""

log: Final = get_logger()


class Replacing:
    """`workers` are those that serve, by their numbers; `make` makes another, which accepts from those sockets, too;
    `begin` runs it until its end.

    `patience_s`: how long one may take to drain.
    """

    def __init__(
        self,
        workers: list[WorkerSlot],
        make: Callable[[int, Settings, Sequence[socket.socket]], WorkerSlot],
        begin: Callable[[WorkerSlot], asyncio.Task[object]],
        stop: Stop,
        patience_s: float,
    ) -> None:
        self._workers = workers
        self._make = make
        self._begin = begin
        self._stop = stop
        self._patience_s = patience_s
        self.running: dict[WorkerSlot, asyncio.Task[object]] = {}
        """All that have begun, until their end."""
        self.on_trial: WorkerSlot | None = None
        """The one that is to take another's place. It has one try."""
        self.leaving: WorkerSlot | None = None
        """The one whose place was taken."""
        self.astray: set[int] = set()
        """Numbers of those that serve with settings that are not in force."""

    def begin(self, worker: WorkerSlot) -> None:
        """Run it until its end."""
        self.running[worker] = task = self._begin(worker)
        task.add_done_callback(lambda done: self.running.pop(worker))

    @property
    def beside(self) -> list[WorkerSlot]:
        """Those that run and have no place: no longer, or not yet."""
        return [worker for worker in (self.on_trial, self.leaving) if worker is not None]

    async def replace(self, before: Settings, settings: Settings) -> str:
        """Replace all; why it could not be, empty: it is done."""
        for number in range(len(self._workers)):
            if why := await self._replace(number, settings):
                log.error("a new worker is not ready", worker=number, error=why)
                await self._back(number, before)
                return f"a new worker is not ready: {why}; {self._told}"
        self.astray.clear()
        return ""

    async def _back(self, so_many: int, before: Settings) -> None:
        """Give back what those have whose places were taken."""
        for number in range(so_many):
            if why := await self._replace(number, before):
                log.error("a worker stays with settings that are not in force", worker=number, error=why)
                self.astray.add(number)
            else:
                self.astray.discard(number)

    @property
    def _told(self) -> str:
        if not self.astray:
            return "nothing was changed"
        numbers = ", ".join(map(str, sorted(self.astray)))
        return f"not in force, yet kept by workers {numbers}: others are not ready either; the next reload tries again"

    async def _replace(self, number: int, settings: Settings) -> str:
        sockets = await self._workers[number].share(SHARE_WAIT_S)
        self.on_trial = new = self._make(number, settings, sockets)
        self.begin(new)
        if why := await self._not_ready(new):
            await self._leave(new)  # clients may have come to it already
            self.on_trial = None
            return why
        self.leaving, self._workers[number], self.on_trial = self._workers[number], new, None
        log.info("worker replaced, the old one drains", worker=number)
        await self._leave(self.leaving)
        self.leaving = None
        return ""

    async def _not_ready(self, new: WorkerSlot) -> str:
        """Why it does not get ready; empty: it is."""
        until = [asyncio.create_task(new.ready()), asyncio.create_task(self._stop.draining.wait())]
        try:
            await asyncio.wait([*until, self.running[new]], timeout=READY_WAIT_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in until:
                task.cancel()
        if self._stop.draining.is_set():
            return "Forebay is leaving"
        if new not in self.running or self.running[new].done():
            return new.start_failure or "it has died"
        return "" if new.serves else f"{new.unready}, after {READY_WAIT_S:g} s"

    async def _leave(self, old: WorkerSlot) -> None:
        old.drain(succeeded=not self._stop.draining.is_set())
        try:
            async with asyncio.timeout(self._patience_s):
                await self._gone(old)
        except TimeoutError:
            log.error("a worker did not exit in time, killing it", worker=old.index)
            old.kill()
            await self._gone(old)

    async def _gone(self, worker: WorkerSlot) -> None:
        if (task := self.running.get(worker)) is not None:
            await asyncio.wait([task])
