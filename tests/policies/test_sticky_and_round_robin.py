"""sticky (KIP-480) and round_robin, with a scripted generator."""

from __future__ import annotations

from forebay_policies.builtin_partitioners import RoundRobinPartitioner, StickyPartitioner
from forebay_policies.partitioner import Partitioner
from tests.policies.fakes import FakeTopic, Scripted, asked


def placed(partitioner: Partitioner, topic: FakeTopic, *, opens_batch: bool) -> int:
    """Place a run as the contract of partitioner.py says."""
    partition = partitioner.partition(topic, 1, 0.0)
    if opens_batch and partitioner.on_new_batch(topic, partition):
        partition = partitioner.partition(topic, 1, 0.0)
    return partition


def test_sticky_stays_until_a_batch_opens_then_takes_another() -> None:
    partitioner = StickyPartitioner(Scripted([1, 0, 1, 1]))
    topic = FakeTopic(3)
    opens = [True, False, False, True, False, True]

    # Draws: 1 of 0 1 2; 0 of the others 0 2; 1 of 1 2 is 2; 1 of 0 1 is 1.
    assert [placed(partitioner, topic, opens_batch=opening) for opening in opens] == [0, 0, 0, 2, 2, 1]


def test_sticky_ignores_batches_of_other_partitions() -> None:
    partitioner = StickyPartitioner(Scripted([1]))
    topic = FakeTopic(3)
    partitioner.partition(topic, 1, 0.0)

    assert partitioner.on_new_batch(topic, 0) is False
    assert partitioner.on_new_batch(topic, 2) is False
    assert partitioner.partition(topic, 1, 0.0) == 1


def test_sticky_takes_each_other_partition_for_exactly_one_number() -> None:
    topic = FakeTopic(6, available=(0, 2, 3, 5))
    following = []
    for number in range(3):
        partitioner = StickyPartitioner(Scripted([1, number]))
        assert partitioner.partition(topic, 1, 0.0) == 2
        assert partitioner.on_new_batch(topic, 2) is True
        following.append(partitioner.partition(topic, 1, 0.0))
    assert following == [0, 3, 5]


def test_sticky_with_one_available_partition_stays() -> None:
    partitioner = StickyPartitioner(Scripted([0]))
    topic = FakeTopic(3, available=(1,))

    assert [placed(partitioner, topic, opens_batch=True) for _ in range(3)] == [1, 1, 1]


def test_sticky_does_not_count_bytes() -> None:
    partitioner = StickyPartitioner(Scripted([2]))
    assert asked(partitioner, FakeTopic(3), 5, size=1 << 20) == [2] * 5


# round robin


def test_round_robin_takes_the_available_ones_in_order() -> None:
    topic = FakeTopic(6, available=(0, 2, 3, 5))
    assert asked(RoundRobinPartitioner(Scripted([2])), topic, 6) == [3, 5, 0, 2, 3, 5]


def test_round_robin_goes_on_where_it_was_when_leaders_change() -> None:
    topic = FakeTopic(5)
    partitioner = RoundRobinPartitioner(Scripted([1]))

    assert asked(partitioner, topic, 2) == [1, 2]
    topic.available = (0, 4)
    assert asked(partitioner, topic, 2) == [4, 0]
    topic.available = ()
    assert asked(partitioner, topic, 5) == [1, 2, 3, 4, 0]


def test_round_robin_is_not_moved_by_new_batches() -> None:
    """Kafka's own skips a partition with every new batch, because it is asked twice."""
    topic = FakeTopic(4)
    partitioner = RoundRobinPartitioner(Scripted([0]))
    assert [placed(partitioner, topic, opens_batch=True) for _ in range(5)] == [0, 1, 2, 3, 0]
