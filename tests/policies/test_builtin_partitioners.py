"""What all that stick have in common when leaders come and go; making a partitioner by name."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay_policies.builtin_partitioners import (
    AdaptivePartitioner,
    RoundRobinPartitioner,
    StickyPartitioner,
    make_partitioner,
    patience_s,
)
from forebay_policies.expected_wait import ABANDONED_S, ExpectedWaitPartitioner
from forebay_policies.partitioner import PartitionerOptions
from forebay_policies.uniform_partitioner import UniformPartitioner
from tests.policies.fakes import FakeTopic, Scripted, asked

KB = 1024
BATCH_SIZE = 16 * KB


# leaders, for all that stick


@pytest.mark.parametrize("name", ["uniform", "adaptive", "sticky"])
def test_a_sticky_partition_that_loses_its_leader_is_left_at_once(name: str) -> None:
    topic = FakeTopic(5)
    partitioner = make_partitioner(name, rng=Scripted([2, 2]), batch_size=BATCH_SIZE)

    assert partitioner.partition(topic, 1, 0.0) == 2
    topic.available = (0, 1, 3, 4)
    assert asked(partitioner, topic, 3) == [3, 3, 3]


@pytest.mark.parametrize("name", ["uniform", "adaptive", "sticky"])
def test_a_sticky_partition_stays_while_others_come_and_go(name: str) -> None:
    topic = FakeTopic(5)
    partitioner = make_partitioner(name, rng=Scripted([2]), batch_size=BATCH_SIZE)

    for available in [(0, 1, 2, 3, 4), (2, 3), (2,), (0, 1, 2), (0, 2, 4)]:
        topic.available = available
        assert asked(partitioner, topic, 2) == [2, 2]


@pytest.mark.parametrize("name", ["uniform", "adaptive", "expected_wait", "sticky", "round_robin"])
def test_with_no_leader_at_all_any_partition_may_be_chosen(name: str) -> None:
    topic = FakeTopic(5, available=(), loads={1: 100})
    seen = set()
    for number in range(5):
        seen.add(make_partitioner(name, rng=Scripted([number]), batch_size=BATCH_SIZE).partition(topic, 1, 0.0))
    assert seen == {0, 1, 2, 3, 4}


@pytest.mark.parametrize("name", ["uniform", "adaptive", "sticky"])
def test_a_choice_without_leaders_is_kept_until_there_are_some(name: str) -> None:
    topic = FakeTopic(5, available=())
    partitioner = make_partitioner(name, rng=Scripted([4, 1, 0]), batch_size=BATCH_SIZE)

    assert asked(partitioner, topic, 2) == [4, 4]
    topic.partition_count = 3  # created anew, smaller
    assert asked(partitioner, topic, 2) == [1, 1]
    topic.available = (1, 2)
    assert asked(partitioner, topic, 2) == [1, 1]
    topic.available = (0, 2)
    assert asked(partitioner, topic, 2) == [0, 0]


@given(
    st.sampled_from(["uniform", "adaptive", "expected_wait", "sticky", "round_robin"]),
    st.integers(0, 99),
    st.lists(
        st.tuples(st.sets(st.integers(0, 7)), st.dictionaries(st.integers(0, 7), st.integers(0, 99_999))),
        min_size=1,
        max_size=20,
    ),
)
def test_a_choice_always_has_a_leader_where_any_has(
    name: str,
    seed: int,
    steps: list[tuple[set[int], dict[int, int]]],
) -> None:
    topic = FakeTopic(8)
    partitioner = make_partitioner(
        name, rng=Random(seed), batch_size=1000, sticky_batch_size=2, availability_timeout_s=1.0
    )
    for now, (available, loads) in enumerate(steps):
        topic.available = tuple(sorted(available))
        topic.load = loads
        topic.waiting = {partition: 0.0 for partition in loads if partition % 2}
        chosen = partitioner.partition(topic, 1, float(now))
        partitioner.on_acknowledged(chosen, 1 + now % 3)
        assert chosen in (available or range(8))
        if partitioner.on_new_batch(topic, chosen):
            assert partitioner.partition(topic, 1, float(now)) in (available or range(8))


# making one


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("adaptive", AdaptivePartitioner),
        ("expected_wait", ExpectedWaitPartitioner),
        ("uniform", UniformPartitioner),
        ("sticky", StickyPartitioner),
        ("round_robin", RoundRobinPartitioner),
    ],
)
def test_make_partitioner(name: str, kind: type) -> None:
    assert type(make_partitioner(name, rng=Random(1), batch_size=1)) is kind


def test_make_partitioner_names_what_it_knows() -> None:
    with pytest.raises(
        ValueError, match=r"unknown partitioner 'rand'.*adaptive, expected_wait, round_robin, sticky, uniform"
    ):
        make_partitioner("rand", rng=Random(1), batch_size=1)


def test_adaptive_that_is_switched_off_is_uniform() -> None:
    topic = FakeTopic(3, loads={0: 99 * BATCH_SIZE})
    for number in range(3):
        partitioner = make_partitioner(
            "adaptive", rng=Scripted([number]), batch_size=BATCH_SIZE, adaptive_enabled=False
        )
        assert partitioner.partition(topic, 1, 0.0) == number


@pytest.mark.parametrize(("setting", "calls"), [(0, 4), (512, 2), (4 * KB, 16)])
def test_sticky_batch_size_zero_means_batch_size(setting: int, calls: int) -> None:
    partitioner = make_partitioner("uniform", rng=Scripted([0, 1]), batch_size=KB, sticky_batch_size=setting)
    assert asked(partitioner, FakeTopic(2), calls + 1, size=256) == [0] * calls + [1]


def test_every_choice_is_counted() -> None:
    partitioner = make_partitioner("adaptive", rng=Random(1), batch_size=BATCH_SIZE, sticky_batch_size=4)
    asked(partitioner, FakeTopic(3), 10)
    assert partitioner.choices() == {"sticky": 7, "switch": 3}


@pytest.mark.parametrize(
    ("name", "timeout", "patience"),
    [
        ("adaptive", 5.0, 5.0),
        ("adaptive", 0.0, 0.0),
        ("expected_wait", 5.0, 5.0),
        ("expected_wait", 0.0, ABANDONED_S),
        ("uniform", 5.0, 0.0),
        ("a plug-in", 5.0, 0.0),
    ],
)
def test_those_that_look_at_queues_have_the_timeouts_patience(name: str, timeout: float, patience: float) -> None:
    rng = Random(1)
    options = PartitionerOptions(rng=rng, batch_size=1, availability_timeout_s=timeout)
    assert patience_s(name, options) == patience
    switched_off = PartitionerOptions(rng=rng, batch_size=1, availability_timeout_s=timeout, adaptive_enabled=False)
    assert patience_s(name, switched_off) == (0.0 if name == "adaptive" else patience)
