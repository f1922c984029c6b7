"""Workers take the places of others, in order; what becomes of those that do not get ready. With a part of a worker."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence

import msgspec
import pytest

from forebay_proxy.config.settings import HostPort, Settings
from forebay_proxy.process import replacing
from forebay_proxy.process.control import Drain
from forebay_proxy.process.lifecycle import Stop
from forebay_proxy.process.replacing import Replacing
from forebay_proxy.process.worker_slot import NOT_HEARD_FROM, WorkerSlot
from tests.kit.event_loop import in_loop, until

SETTINGS = Settings(bootstrap_servers=(HostPort("b", 9092),), workers=2)
OTHERS = msgspec.structs.replace(SETTINGS, batch_size=32_768)


class Worker(WorkerSlot):
    """Its process is an event, and its reports are `says`."""

    def __init__(self, index: int, settings: Settings, log: list[str]) -> None:
        super().__init__(index, settings, "", lambda: 0.0)
        self.name = f"{index}'" if settings == OTHERS else f"{index}"
        self.log = log
        self.ended = asyncio.Event()
        self.lingers = False
        self.succeeded = False
        self.code = 0

    async def live(self) -> int:
        self.log.append(f"{self.name} begins")
        await self.ended.wait()
        return self.code

    async def says(self, unready: str | None) -> None:
        self.served.set()
        self.unready = unready
        async with self._heard:
            self._heard.notify_all()

    def drain(self, *, succeeded: bool) -> None:
        self.succeeded = succeeded
        self._drain = Drain(succeeded)
        self.log.append(f"{self.name} drains")
        if not self.lingers:
            self.ended.set()

    def kill(self) -> None:
        self.log.append(f"{self.name} is killed")
        self.ended.set()


class Place:
    """Workers that serve; others are made as `born` says."""

    def __init__(self, born: Callable[[Worker], None] = lambda worker: None, workers: int = 2) -> None:
        self.log: list[str] = []
        self.born = born
        self.made: list[Worker] = []
        self.stop = Stop()
        self.workers: list[WorkerSlot] = [Worker(number, SETTINGS, self.log) for number in range(workers)]
        self.replacing = Replacing(self.workers, self.make, self.begin, self.stop, 30.0)
        for worker in self.workers:
            self.replacing.begin(worker)

    def make(self, index: int, settings: Settings, inherited: Sequence[socket.socket]) -> WorkerSlot:
        worker = Worker(index, settings, self.log)
        self.made.append(worker)
        self.born(worker)
        return worker

    def begin(self, worker: WorkerSlot) -> asyncio.Task[int]:
        return asyncio.create_task(worker.live())

    @property
    def serving(self) -> list[str]:
        return [worker.name for worker in self.workers if isinstance(worker, Worker)]

    async def close(self) -> None:
        for worker in (*self.workers, *self.replacing.beside):
            worker.kill()
        await until(lambda: not self.replacing.running)


def ready(worker: Worker) -> None:
    worker.served.set()
    worker.unready = None


@in_loop
async def test_one_after_the_other_and_the_old_one_drains_once_the_new_one_is_ready() -> None:
    place = Place()
    task = asyncio.create_task(place.replacing.replace(SETTINGS, OTHERS))
    await until(lambda: "0' begins" in place.log)
    (new,) = place.made
    await new.says("no broker yet")
    await asyncio.sleep(0)
    assert (place.serving, place.replacing.beside) == (["0", "1"], [new])
    old = place.workers[0]
    assert isinstance(old, Worker)
    old.lingers = True
    await new.says(None)
    await until(lambda: "0 drains" in place.log)
    assert (place.serving, place.replacing.beside) == (["0'", "1"], [old])
    assert old.succeeded
    old.ended.set()
    await until(lambda: "1' begins" in place.log)
    await place.made[1].says(None)
    assert await task == ""
    assert place.log == ["0 begins", "1 begins", "0' begins", "0 drains", "1' begins", "1 drains"]
    assert (place.serving, place.replacing.beside) == (["0'", "1'"], [])
    await place.close()


@in_loop
async def test_one_that_does_not_get_ready_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replacing, "READY_WAIT_S", 0.01)
    place = Place()
    why = await place.replacing.replace(SETTINGS, OTHERS)
    assert why == f"a new worker is not ready: {NOT_HEARD_FROM}, after 0.01 s; nothing was changed"
    assert (place.log[2:], place.serving) == (["0' begins", "0' drains"], ["0", "1"])
    await place.close()


@in_loop
async def test_one_that_dies_or_cannot_start_goes_and_the_one_before_it_has_its_place_back() -> None:
    def born(worker: Worker) -> None:
        if worker.name == "1'":
            worker.start_failure = "it cannot"
            worker.ended.set()
        else:
            ready(worker)

    place = Place(born)
    assert (
        await place.replacing.replace(SETTINGS, OTHERS) == "a new worker is not ready: it cannot; nothing was changed"
    )
    assert place.log[2:] == ["0' begins", "0 drains", "1' begins", "1' drains", "0 begins", "0' drains"]
    assert place.serving == ["0", "1"]
    await place.close()


@in_loop
async def test_where_that_fails_too_it_is_told_who_has_what() -> None:
    can_start = ["0'", "1'", "1"]

    def born(worker: Worker) -> None:
        if worker.name in can_start:
            ready(worker)
        else:
            worker.ended.set()

    place = Place(born, workers=4)
    why = await place.replacing.replace(SETTINGS, OTHERS)
    assert why.startswith("a new worker is not ready: it has died; not in force, yet kept by workers 0: others are not")
    assert (place.serving, place.replacing.astray) == (["0'", "1", "2", "3"], {0})
    can_start[:] = ["0'", "1'", "2'"]
    assert "kept by workers 0, 1, 2: " in await place.replacing.replace(SETTINGS, OTHERS)
    assert place.serving == ["0'", "1'", "2'", "3"], "each of them was tried"
    can_start[:] = []
    assert "kept by workers 0, 1, 2: " in await place.replacing.replace(SETTINGS, SETTINGS)
    can_start[:] = ["0", "1", "2", "3"]
    assert await place.replacing.replace(SETTINGS, SETTINGS) == ""
    assert (place.serving, place.replacing.astray) == (["0", "1", "2", "3"], set())
    await place.close()


@in_loop
async def test_one_that_does_not_drain_in_time_is_killed() -> None:
    place = Place(ready)
    place.replacing._patience_s = 0.01
    for worker in place.workers:
        assert isinstance(worker, Worker)
        worker.lingers = True
    assert await place.replacing.replace(SETTINGS, OTHERS) == ""
    assert [line for line in place.log if "killed" in line] == ["0 is killed", "1 is killed"]
    await place.close()


@in_loop
async def test_told_to_stop_it_goes_on_with_none() -> None:
    place = Place()
    task = asyncio.create_task(place.replacing.replace(SETTINGS, OTHERS))
    await until(lambda: "0' begins" in place.log)
    place.stop.draining.set()
    assert await task == "a new worker is not ready: Forebay is leaving; nothing was changed"
    assert place.serving == ["0", "1"]
    await place.close()
