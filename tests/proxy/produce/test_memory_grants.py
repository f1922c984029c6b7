"""Whoever waits for memory is let in soon after it is freed, by one look for all that is freed in a turn."""

from __future__ import annotations

from functools import partial

import pytest

from forebay_policies.buffer_pool import BufferPool
from forebay_policies.memory_shares import MemoryRequest
from forebay_proxy.metrics.registry import MetricRegistry
from forebay_proxy.produce import memory_grants
from forebay_proxy.produce.memory_grants import MemoryGrants
from tests.kit import fakes_proxy as fakes
from tests.kit.event_loop import in_loop, turns, until

CHUNK = 4096


class Bench:
    """A pool of 8 chunks, which all belong to one batch. `looks` counts the looks through those that wait."""

    def __init__(self) -> None:
        self.pool = BufferPool(8 * CHUNK, CHUNK, CHUNK)
        self.stats = MetricRegistry()
        self.looks = 0
        self.let_in: list[str] = []
        MemoryGrants(self.pool, self.stats)
        self._topic = fakes.known(fakes.accumulator(), {"ponds": [0]}).topics["ponds"].queues
        self.held = [self.pool.take() for _ in range(8)]

    def wait(self, name: str) -> None:
        asked = MemoryRequest(name)
        asked.add(partial(self._topic.queue, 0), CHUNK)
        self.pool.wait(asked, lambda: self.let_in.append(name))

    def level(self, name: str) -> float:
        return self.stats.take().gauges[f"forebay_buffer_memory_{name}", ()]


@in_loop
async def test_what_is_freed_in_one_turn_takes_one_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_grants, "LOOK_S", 0.0)
    bench = Bench()
    bench.wait("a")
    bench.wait("b")
    await until(lambda: bench.let_in == [])
    assert (bench.level("total_bytes"), bench.level("available_bytes"), bench.level("waiters")) == (8 * CHUNK, 0, 2)
    for chunk in bench.held:
        bench.pool.give_back([chunk])
        assert bench.let_in == [], "not in the middle of what freed it"
    await until(lambda: bench.let_in == ["a", "b"])
    assert (bench.level("available_bytes"), bench.level("waiters")) == (8 * CHUNK, 0)
    assert bench.stats.take().counters["forebay_pool_waits_total", ()] == 2


@in_loop
async def test_the_more_wait_the_longer_it_is_to_the_next_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_grants, "LOOK_S", 3600.0)
    bench = Bench()
    bench.wait("large")
    bench.pool.charge("large", 0, 1)
    bench.pool.charge("large", 0, -1)  # nothing is free: a look that lets nobody in
    await turns(5)
    bench.pool.give_back(bench.held)
    await turns(5)
    assert bench.let_in == [], "an hour for each that waits has not passed"
