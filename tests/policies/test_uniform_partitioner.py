"""Turns of a uniform partitioner, and what partitioners share: any partition, and those that are shut."""

from __future__ import annotations

import math
from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay_policies.uniform_partitioner import UniformPartitioner, any_partition, position_of, shut
from tests.policies.fakes import FakeTopic, Recording, Scripted, asked
from tests.policies.spread import assert_spread, chi_square, p_value

KB = 1024


def test_uniform_is_within_its_expected_spread() -> None:
    choices, partitions = 1_000_000, 101
    topic = FakeTopic(partitions)
    observed = Counter(asked(UniformPartitioner(Random(3), 1), topic, choices))

    assert_spread(observed, dict.fromkeys(range(partitions), choices / partitions))


def test_the_bound_of_the_spread_catches_a_slight_bias() -> None:
    """One partition in 101 that is left out 1 time in 10 is seen; so are counts too even to be random."""
    choices, partitions = 1_000_000, 101
    skewed = Counter(dict.fromkeys(range(partitions), choices // partitions))
    skewed[7] -= skewed[7] // 10
    even = Counter(dict.fromkeys(range(partitions), choices // partitions))
    expected = dict.fromkeys(range(partitions), choices / partitions)

    rng = Random(4)
    noisy = Counter({key: round(rng.gauss(mean, math.sqrt(mean))) for key, mean in skewed.items()})
    assert p_value(chi_square(noisy, expected), partitions - 1) < 1e-4
    assert p_value(chi_square(even, expected), partitions - 1) > 1 - 1e-4


def test_uniform_takes_every_available_partition_for_exactly_one_number() -> None:
    topic = FakeTopic(5, available=(0, 2, 3))
    assert [UniformPartitioner(Scripted([n]), 1).partition(topic, 1, 0.0) for n in range(3)] == [0, 2, 3]


def test_a_turn_ends_after_the_sticky_bytes() -> None:
    """KIP-794: 16 KB to partition 1, then 16 KB to 42, then 16 KB to 3."""
    partitioner = UniformPartitioner(Scripted([1, 42, 3]), 16 * KB)

    assert asked(partitioner, FakeTopic(50), 48, size=KB) == [1] * 16 + [42] * 16 + [3] * 16
    assert (partitioner.switches, partitioner.sticky_hits) == (3, 45)


def test_batches_do_not_end_a_turn() -> None:
    """KIP-794: 30 partitions, linger 0; every record opens a batch, and all the same they go to one partition."""
    topic = FakeTopic(30)
    partitioner = UniformPartitioner(Scripted([1]), 16 * KB)

    for _ in range(16):
        assert partitioner.partition(topic, KB, 0.0) == 1
        assert partitioner.on_new_batch(topic, 1) is False


def test_a_run_of_records_is_not_cut_and_ends_a_turn_once() -> None:
    partitioner = UniformPartitioner(Scripted([4, 2, 0]), 16 * KB)
    topic = FakeTopic(5)
    sizes = [15 * KB, 100 * KB, 16 * KB, KB]

    assert [partitioner.partition(topic, size, 0.0) for size in sizes] == [4, 4, 2, 0]


def test_a_turn_goes_on_while_a_batch_lingers() -> None:
    """KAFKA-14156: its last records would wait out the linger by themselves."""
    topic = FakeTopic(50)
    partitioner = UniformPartitioner(Scripted([1, 42]), 16 * KB)

    assert asked(partitioner, topic, 16, KB) == [1] * 16
    topic.lingering = {1}
    assert asked(partitioner, topic, 3, KB) == [1] * 3
    topic.lingering = {42}
    assert partitioner.partition(topic, KB, 0.0) == 42


def test_a_turn_that_goes_on_takes_at_most_as_many_bytes_again() -> None:
    topic = FakeTopic(50)
    topic.lingering = {1}
    partitioner = UniformPartitioner(Scripted([1, 42]), 16 * KB)

    assert asked(partitioner, topic, 33, KB) == [1] * 32 + [42]


def test_a_partition_that_lost_its_leader_is_left_though_a_batch_lingers() -> None:
    topic = FakeTopic(3)
    topic.lingering = {1}
    partitioner = UniformPartitioner(Scripted([1, 1]), KB)

    assert partitioner.partition(topic, KB, 0.0) == 1
    topic.available = (0, 2)
    assert partitioner.partition(topic, KB, 0.0) == 2


def test_the_next_turn_may_be_of_the_same_partition() -> None:
    assert asked(UniformPartitioner(Scripted([2, 2, 1]), 1), FakeTopic(3), 3) == [2, 2, 1]


@given(st.lists(st.integers(1, 40 * KB), min_size=1, max_size=60), st.integers(1, 20 * KB), st.integers(0, 99))
def test_a_turn_holds_the_sticky_bytes_and_at_most_one_run_more(sizes: list[int], turn: int, seed: int) -> None:
    partitioner = UniformPartitioner(Random(seed), turn)
    topic = FakeTopic(7)
    turns: list[list[int]] = []
    for size in sizes:
        switches = partitioner.switches
        partitioner.partition(topic, size, 0.0)
        if partitioner.switches > switches:
            turns.append([])
        turns[-1].append(size)

    assert all(sum(run) >= turn for run in turns[:-1])
    assert all(sum(run[:-1]) < turn for run in turns)


@pytest.mark.parametrize("available", [(0, 1, 2, 3), (0, 2, 3), (1, 3), (3,), ()])
def test_position_of(available: tuple[int, ...]) -> None:
    for partition in range(5):
        expected = available.index(partition) if partition in available else -1
        assert position_of(available, partition) == expected


def test_any_partition_is_drawn_from_the_available_or_else_from_all() -> None:
    rng = Recording()
    assert any_partition(FakeTopic(5, available=(2, 4)), rng) == 2
    assert any_partition(FakeTopic(5, available=()), rng) == 0
    assert rng.stops == [2, 5]


def test_a_partition_is_shut_once_its_batch_waits_longer_than_the_timeout() -> None:
    topic = FakeTopic(4, available=(0, 1, 2))
    topic.waiting = {0: 4.9, 1: 5.0, 3: 0.0}
    assert shut(topic, {0: 1, 1: 1, 2: 1, 3: 1}, 5.0, 10.0) == {0}
    assert shut(topic, {0: 1, 1: 1, 2: 1, 3: 1}, 0.0, 10.0) == set()


def test_none_is_shut_where_all_would_be() -> None:
    topic = FakeTopic(2)
    topic.waiting = {0: 0.0, 1: 0.0}
    assert shut(topic, {0: 1, 1: 1}, 5.0, 10.0) == set()
