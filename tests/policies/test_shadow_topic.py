"""One topic's shadow: what a partitioner sees of it."""

from __future__ import annotations

from forebay_policies.accumulator import ALL_REPLICAS, Accumulator
from forebay_policies.buffer_pool import BufferPool
from forebay_policies.shadow_topic import ShadowBatch, ShadowTopic
from tests.policies.batches import KEPT, MOVABLE

KIB = 1024


def topic_of(*leaders: int) -> ShadowTopic:
    accumulator = Accumulator(BufferPool(KIB * KIB, 4 * KIB, 16 * KIB), 16 * KIB, 64 * KIB)
    real = accumulator.topic("ponds")
    accumulator.set_leaders(real, leaders, 0.0, [(3, 1)] * len(leaders))
    real.available = (1,)
    real.racks = {"a": (1,)}
    return ShadowTopic(real)


def test_its_partitions_are_those_of_the_real_one() -> None:
    topic = topic_of(1, 3)
    assert (topic.name, topic.partition_count, topic.available, topic.racks) == ("ponds", 2, (1,), {"a": (1,)})
    assert (topic.queue(1, 1).leader, topic.queue(1, 1).replicas) == (3, None)
    assert topic.queue(1, ALL_REPLICAS).replicas == (1, 3)
    assert topic.queue(1, 0) is topic.queue(1, 1)
    assert len(topic.queues()) == 2


def test_loads_are_those_that_there_would_be() -> None:
    topic = topic_of(1, 3)
    assert topic.idle
    topic.add_load(1, 100)
    topic.add_load(1, 50)
    assert (topic.loads(), topic.idle) == ({1: 150}, False)
    topic.add_load(1, -150)
    assert (topic.loads(), topic.idle) == ({}, True)


def test_what_lingers_and_what_waits() -> None:
    topic = topic_of(1, 3)
    queue = topic.queue(1, 1)
    batch = ShadowBatch(KEPT, 1000, 5000, 2.0)
    batch.add("a", 400, 400)
    queue.batches.append(batch)
    queue.open[KEPT] = batch
    assert topic.lingers(1)
    assert not topic.lingers(0)
    assert topic.ready_since(1) is None
    batch.due = True
    queue.ready_at = 3.0
    assert not topic.lingers(1)
    assert topic.ready_since(1) == 3.0


def test_a_batch_that_came_compressed_is_opened_up_by_the_second_run() -> None:
    batch = ShadowBatch(MOVABLE, 1000, 5000, 0.0)
    batch.add("a", 100, 900)
    assert (batch.size, batch.ready) == (100, False)
    batch.add("a", 100, 900)
    assert (batch.size, batch.ready) == (1800, True)
    assert batch.has_room(3200)
    assert not batch.has_room(3201)
    batch.add("a", 100, 3200)
    assert batch.closed
