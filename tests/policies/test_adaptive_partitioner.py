"""adaptive: exact weights by drawing every number, the availability timeout, and frequencies by chance."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay_policies.builtin_partitioners import DRAWS, MANY_QUEUES, AdaptivePartitioner
from tests.policies.fakes import FakeTopic, Recording, Scripted, asked
from tests.policies.spread import assert_spread

BATCH_SIZE = 16 * 1024


def adaptive(rng: Random | Scripted | Recording, timeout: float = 0.0) -> AdaptivePartitioner:
    """Switches with every call, so that each call shows one choice."""
    return AdaptivePartitioner(rng, 1, BATCH_SIZE, timeout)


def weights(topic: FakeTopic, timeout: float = 0.0, now: float = 0.0) -> list[int]:
    """How many of the numbers that can be drawn lead to each partition: its exact weight."""
    asking = Recording()
    adaptive(asking, timeout).partition(topic, 1, now)
    (total,) = asking.stops
    chosen = Counter(adaptive(Scripted([n]), timeout).partition(topic, 1, now) for n in range(total))
    return [chosen[partition] for partition in range(topic.partition_count)]


def test_adaptive_weights_are_the_inverted_queues() -> None:
    """KIP-794's queues 0 3 1 give 4 1 3, laid out as 4 5 8."""
    topic = FakeTopic(3, loads={1: 3 * BATCH_SIZE, 2: BATCH_SIZE})
    asking = Recording()
    adaptive(asking).partition(topic, 1, 0.0)

    assert asking.stops == [8]
    assert [adaptive(Scripted([n])).partition(topic, 1, 0.0) for n in range(8)] == [0, 0, 0, 0, 1, 2, 2, 2]


def test_adaptive_frequencies_follow_the_weights() -> None:
    choices = 200_000
    topic = FakeTopic(3, loads={1: 3 * BATCH_SIZE, 2: BATCH_SIZE})
    observed = Counter(asked(adaptive(Random(5)), topic, choices))

    assert_spread(observed, {0: choices * 4 / 8, 1: choices * 1 / 8, 2: choices * 3 / 8})


@pytest.mark.parametrize(
    ("loads", "expected"),
    [
        ({0: 1}, [1, 2, 2]),  # a part of a batch is a queue of one
        ({0: BATCH_SIZE}, [1, 2, 2]),
        ({0: BATCH_SIZE + 1}, [1, 3, 3]),
        ({0: 1, 1: BATCH_SIZE, 2: 2 * BATCH_SIZE}, [2, 2, 1]),
        ({0: 5, 1: 6, 2: 7}, [1, 1, 1]),  # equal queues: uniform
        ({}, [1, 1, 1]),
    ],
)
def test_queues_are_counted_in_batches_rounded_up(loads: dict[int, int], expected: list[int]) -> None:
    assert weights(FakeTopic(3, loads=loads)) == expected


def test_partitions_without_a_leader_neither_weigh_nor_lengthen_the_longest_queue() -> None:
    topic = FakeTopic(6, available=(1, 2, 5), loads={0: 99 * BATCH_SIZE, 2: 2 * BATCH_SIZE, 4: 1})
    assert weights(topic) == [0, 3, 1, 0, 0, 3]


@given(
    st.integers(1, 12).flatmap(
        lambda count: st.tuples(
            st.just(count),
            st.sets(st.integers(0, count - 1), min_size=1),
            st.dictionaries(st.integers(0, count - 1), st.integers(1, 9)),
        )
    )
)
def test_every_weight_is_the_inverted_queue(case: tuple[int, set[int], dict[int, int]]) -> None:
    count, available, queues = case
    topic = FakeTopic(
        count,
        available=sorted(available),
        loads={partition: queue * BATCH_SIZE for partition, queue in queues.items()},
    )
    found = weights(topic)

    lengths = {partition: queues.get(partition, 0) for partition in available}
    if set(queues) & available:
        full = max(lengths.values()) + 1
        assert found == [full - lengths[p] if p in available else 0 for p in range(count)]
    else:
        assert len({found[p] for p in available}) == 1
        assert sum(found) == sum(found[p] for p in available)


def test_load_decides_at_the_switch_and_not_between() -> None:
    topic = FakeTopic(2)
    partitioner = AdaptivePartitioner(Scripted([1, 0]), 10, BATCH_SIZE, 0.0)

    assert asked(partitioner, topic, 5) == [1] * 5
    topic.load = {1: 50 * BATCH_SIZE}
    assert asked(partitioner, topic, 5) == [1] * 5
    assert asked(partitioner, topic, 1) == [0]


def test_a_switch_without_load_draws_once_among_the_partitions() -> None:
    asking = Recording()
    adaptive(asking).partition(FakeTopic(1000), 1, 0.0)
    assert asking.stops == [1000]


# many queues


def many() -> FakeTopic:
    """Queues 0 1 2 3 0 1 2 3 …, and one without a leader, one whose batch waits: both are the longest."""
    loads = {partition: partition % 4 * BATCH_SIZE for partition in range(101)} | {
        6: 90 * BATCH_SIZE,
        9: 90 * BATCH_SIZE,
    }
    topic = FakeTopic(101, available=[partition for partition in range(101) if partition != 6], loads=loads)
    topic.waiting = {9: 100.0}
    assert len(topic.loads()) > MANY_QUEUES
    return topic


MANY_WEIGHTS = {partition: 4 - partition % 4 for partition in range(101) if partition not in {6, 9}}


def test_of_many_queues_each_number_leads_where_its_weight_says_or_to_another_draw() -> None:
    drawn: Counter[int] = Counter()
    for number in range(4 * 100):
        script = Scripted([number] * DRAWS + [0])
        chosen = adaptive(script, 5.0).partition(many(), 1, 110.0)
        assert script.stops[0] == 4 * 100
        if len(script.stops) == 1:
            drawn[chosen] += 1
    assert drawn == MANY_WEIGHTS


def test_of_many_queues_frequencies_follow_the_weights() -> None:
    choices, total = 100_000, sum(MANY_WEIGHTS.values())
    partitioner, topic = adaptive(Random(5), 5.0), many()
    observed = Counter(asked(partitioner, topic, choices, now=110.0))
    assert_spread(observed, {partition: choices * weight / total for partition, weight in MANY_WEIGHTS.items()})


def test_where_draws_find_none_all_weights_are_laid_out() -> None:
    topic = many()
    topic.load[0] = 3 * BATCH_SIZE
    script = Scripted([3] * DRAWS + [0])
    assert adaptive(script, 5.0).partition(topic, 1, 110.0) == 0
    assert script.stops == [4 * 100] * DRAWS + [sum(MANY_WEIGHTS.values()) - 3]


def test_many_queues_without_a_leader_make_the_others_no_less_likely() -> None:
    led = range(0, 200, 2)
    topic = FakeTopic(200, available=led, loads=dict.fromkeys(range(1, 200, 2), 50 * BATCH_SIZE))
    assert [adaptive(Scripted([n])).partition(topic, 1, 0.0) for n in range(100)] == list(led)


# availability timeout


def waiting_topic() -> FakeTopic:
    topic = FakeTopic(3, loads={0: BATCH_SIZE, 1: BATCH_SIZE})
    topic.waiting = {0: 100.0, 1: 104.0}
    return topic


def test_a_partition_whose_batch_waits_too_long_is_not_chosen() -> None:
    topic = waiting_topic()

    assert weights(topic, timeout=5.0, now=105.0) == [1, 1, 2]  # not longer than the timeout yet
    assert weights(topic, timeout=5.0, now=105.001) == [0, 1, 2]
    assert weights(topic, timeout=5.0, now=110.0) == [0, 0, 1]


def test_it_is_chosen_again_once_its_broker_accepts_a_batch() -> None:
    topic = waiting_topic()

    topic.waiting[0] = 109.0  # accepted; the batch behind it waits since
    assert weights(topic, timeout=5.0, now=108.0) == [1, 1, 2]
    del topic.waiting[0]
    assert weights(topic, timeout=5.0, now=110.0) == [1, 0, 2]


def test_a_partition_that_is_not_available_does_not_lengthen_the_longest_queue() -> None:
    topic = FakeTopic(3, loads={0: 90 * BATCH_SIZE, 1: BATCH_SIZE})
    topic.waiting = {0: 100.0}
    assert weights(topic, timeout=5.0, now=110.0) == [0, 1, 2]


def test_when_all_wait_too_long_the_timeout_is_ignored() -> None:
    topic = FakeTopic(3, loads={0: BATCH_SIZE, 1: 2 * BATCH_SIZE, 2: 3 * BATCH_SIZE})
    topic.waiting = {0: 1.0, 1: 1.0, 2: 1.0}
    assert weights(topic, timeout=5.0, now=100.0) == [3, 2, 1]


def test_timeout_zero_switches_it_off() -> None:
    assert weights(waiting_topic(), timeout=0.0, now=1e9) == [1, 1, 2]
