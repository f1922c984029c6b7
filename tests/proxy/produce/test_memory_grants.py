"""Whoever waits for memory is let in soon after it is freed, by one look for all that is freed in a turn."""

from __future__ import annotations

from forebay_policies.accumulator import PartitionQueue
from forebay_policies.buffer_pool import BufferPool
from forebay_policies.memory_shares import MemoryRequest
from forebay_proxy.metrics.registry import MetricRegistry
from forebay_proxy.produce.memory_grants import LONGEST_PAUSE_S, PAUSE, MemoryGrants
from tests.kit import fakes_proxy as fakes
from tests.kit.event_loop import in_loop, turns, until

CHUNK = 4096


class Bench:
    """A pool of 8 chunks, which all belong to one batch. By its clock a look takes `look` seconds."""

    def __init__(self, look: float = 0.0) -> None:
        self.pool = BufferPool(8 * CHUNK, CHUNK, CHUNK)
        self.stats = MetricRegistry()
        self.let_in: list[str] = []
        self.look = look
        self.now = 0.0
        MemoryGrants(self.pool, self.stats, lambda: self.now)
        self._topic = fakes.known(fakes.accumulator(), {"ponds": [0]}).topics["ponds"].queues
        self.held = [self.pool.take() for _ in range(8)]

    def _find(self) -> PartitionQueue:
        self.now += self.look
        return self._topic.queue(0)

    def wait(self, name: str) -> None:
        asked = MemoryRequest(name)
        asked.add(self._find, CHUNK)
        self.pool.wait(asked, lambda: self.let_in.append(name))

    def level(self, name: str) -> float:
        return self.stats.take().gauges[f"forebay_buffer_memory_{name}", ()]


@in_loop
async def test_what_is_freed_in_one_turn_takes_one_look() -> None:
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


async def lets_nobody_in(bench: Bench) -> None:
    """A look while nothing is free."""
    bench.pool.charge("large", 0, 1)
    bench.pool.charge("large", 0, -1)
    await turns(5)


@in_loop
async def test_the_longer_a_look_takes_the_longer_it_is_to_the_next() -> None:
    look = 0.9 * LONGEST_PAUSE_S / PAUSE
    bench = Bench(look)
    bench.wait("large")
    await lets_nobody_in(bench)
    bench.pool.give_back(bench.held)
    await turns(5)
    assert bench.let_in == [], "a tenth of a second has not passed"
    await until(lambda: bench.let_in)


@in_loop
async def test_what_stood_still_in_the_middle_of_a_look_holds_nobody_up_for_long() -> None:
    bench = Bench(look=3600.0)
    bench.wait("large")
    await lets_nobody_in(bench)
    bench.pool.give_back(bench.held)
    await until(lambda: bench.let_in)


@in_loop
async def test_behind_a_look_that_took_no_time_there_is_no_pause() -> None:
    bench = Bench()
    bench.wait("large")
    await lets_nobody_in(bench)
    bench.pool.give_back(bench.held)
    await turns(5)
    assert bench.let_in == ["large"]
