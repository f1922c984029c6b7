"""Settings come into force in all workers or in none, with overrides above what the sources say."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress

import msgspec
import pytest

from forebay_proxy.config.overriding import Override
from forebay_proxy.config.settings import Settings
from forebay_proxy.console.api import NOTHING_TOLD, Told
from forebay_proxy.errors import StartError
from forebay_proxy.process.in_force import Read, SettingsInForce, WorkersDiffer
from tests.kit.event_loop import in_loop, turns

NOW = Settings(bootstrap_servers=())


def told_of(settings: Settings) -> Told:
    def overridden(overrides: Iterable[Override]) -> Told:
        values = {each.name: each.value for each in overrides}
        return Told([{"topics": settings.topics_include, **values}], NOTHING_TOLD.explain)

    return Told([], NOTHING_TOLD.explain, overridden)


def read(*topics: str) -> Read:
    settings = msgspec.structs.replace(NOW, topics_include=topics)
    return Read(settings, told_of(settings))


def override(*topics: str) -> dict[str, Override]:
    return {"topics.exclude": Override("topics.exclude", topics, "a test", 0.0)}


class Workers:
    """What is prepared and committed; who is told."""

    def __init__(self) -> None:
        self.refuses = ""
        self.differ = False
        self.replaced: list[int] = []
        self.committed: list[tuple[tuple[str, ...], tuple[str, ...]]] = []
        self.told: list[Told] = []
        self.in_force = SettingsInForce(read("*"), self)
        self.in_force.on_change(self.told.append)

    async def prepare(self, settings: Settings) -> Callable[[], None]:
        if self.refuses:
            raise StartError(self.refuses)
        return lambda: self.committed.append((settings.topics_include, settings.topics_exclude))

    async def replace(self, settings: Settings) -> Callable[[], None]:
        if self.refuses:
            raise (WorkersDiffer if self.differ else StartError)(self.refuses)
        self.replaced.append(settings.batch_size)
        return lambda: self.committed.append((settings.topics_include, settings.topics_exclude))


@in_loop
async def test_overrides_lie_above_what_the_sources_say() -> None:
    workers = Workers()
    in_force = workers.in_force
    assert await in_force.put(in_force.read, override("a")) == {"topics.exclude": " → a"}
    assert await in_force.put(read("b"), in_force.overrides) == {"topics.include": "* → b"}
    assert await in_force.put(in_force.read, {}) == {"topics.exclude": "a → "}
    assert workers.committed == [(("*",), ("a",)), (("b",), ("a",)), (("b",), ())]
    assert in_force.generation == 4
    assert [told.config for told in workers.told] == [
        [{"topics": ("*",), "topics.exclude": ("a",)}],
        [{"topics": ("b",), "topics.exclude": ("a",)}],
        [{"topics": ("b",)}],
    ]


@in_loop
async def test_an_override_with_the_same_value_is_told_and_is_no_generation() -> None:
    workers = Workers()
    assert await workers.in_force.put(workers.in_force.read, override()) == {}
    assert (workers.committed, workers.in_force.generation, len(workers.told)) == ([], 1, 1)


@in_loop
async def test_what_is_refused_leaves_everything_as_it_was() -> None:
    workers = Workers()
    in_force = workers.in_force
    workers.refuses = "worker 1: no answer within 10 s"
    with pytest.raises(StartError, match="worker 1"):
        await in_force.put(in_force.read, override("a"))
    of_the_start = msgspec.structs.replace(NOW, workers=3)
    with pytest.raises(StartError, match="workers cannot change without a restart; nothing was changed"):
        await in_force.put(Read(of_the_start, NOTHING_TOLD), {})
    wrong = msgspec.structs.replace(NOW, linger_ms=60_000, request_timeout_ms=120_000)
    with pytest.raises(StartError, match=r"^delivery\.timeout\.ms: must be at least"):
        await in_force.put(Read(wrong, NOTHING_TOLD), {})
    assert (workers.committed, workers.told, in_force.overrides, in_force.generation) == ([], [], {}, 1)
    workers.refuses = ""
    assert await in_force.put(in_force.read, override("a")) == {"topics.exclude": " → a"}


@in_loop
async def test_settings_of_workers_come_with_other_workers_and_all_that_has_changed() -> None:
    workers = Workers()
    in_force = workers.in_force
    new = msgspec.structs.replace(NOW, topics_include=("b",), batch_size=32_768, client_rack="r1")
    changes = {"topics.include": "* → b", "client.rack": " → r1", "batch.size": "16384 → 32768"}
    workers.refuses = "a new worker is not ready: no broker yet; nothing was changed"
    with pytest.raises(StartError, match=r"^client\.rack, batch\.size: a new worker is not ready"):
        await in_force.put(Read(new, told_of(new)), {})
    assert (workers.committed, in_force.generation, in_force.settings) == ([], 1, NOW)
    workers.refuses = ""
    assert await in_force.put(Read(new, told_of(new)), override("a")) == {**changes, "topics.exclude": " → a"}
    assert (workers.replaced, workers.committed, in_force.generation) == ([32_768], [(("b",), ("a",))], 2)


@in_loop
async def test_workers_that_could_not_be_put_back_are_replaced_with_the_next_reload_whatever_has_changed() -> None:
    workers = Workers()
    in_force = workers.in_force
    new = msgspec.structs.replace(NOW, batch_size=32_768, linger_ms=5)
    workers.refuses, workers.differ = "not in force, yet kept by workers 0", True
    for _ in range(2):
        with pytest.raises(StartError, match=r"^batch\.size: not in force, yet kept by workers 0"):
            await in_force.put(Read(new, told_of(new)), {}, everywhere=True)
    with pytest.raises(StartError, match=r"^batch\.size: not in force, yet kept by workers 0"):
        await in_force.put(read("*"), {}, everywhere=True)
    workers.refuses = ""
    assert await in_force.put(in_force.read, override("a")) == {"topics.exclude": " → a"}
    assert workers.replaced == [], "an override is not kept waiting"
    changes = {"batch.size": "32768 → 16384", "topics.include": "* → b"}
    assert await in_force.put(read("b"), {}, everywhere=True) == {**changes, "topics.exclude": "a → "}
    assert (workers.replaced, in_force.generation) == ([16_384], 3)
    assert await in_force.put(read("b"), {}, everywhere=True) == {}


@in_loop
async def test_workers_that_could_be_put_back_later_do_not_differ_any_more() -> None:
    workers = Workers()
    in_force = workers.in_force
    new = msgspec.structs.replace(NOW, batch_size=32_768)
    workers.refuses = "a new worker is not ready"
    for workers.differ in (True, False):
        with pytest.raises(StartError):
            await in_force.put(Read(new, told_of(new)), {}, everywhere=True)
    workers.refuses = ""
    assert await in_force.put(in_force.read, {}, everywhere=True) == {}
    assert workers.replaced == []


@in_loop
async def test_from_when_a_successor_starts_nobody_may_change_them_unless_it_fails() -> None:
    in_force = Workers().in_force
    in_force.check()
    with suppress(StartError):
        async with in_force.kept():
            with pytest.raises(StartError, match="a successor is starting"):
                in_force.check()
            raise StartError("it has died")
    in_force.check()
    await in_force.turn.acquire()  # somebody changes them
    starting = asyncio.create_task(in_force.kept().__aenter__())
    await turns()
    in_force.check()
    in_force.turn.release()
    await starting
    with pytest.raises(StartError, match="a successor is starting"):
        in_force.check()
