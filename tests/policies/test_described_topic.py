"""What follows from a topic's description, and that equal ones are kept once."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from forebay_codecs.error_codes import LEADER_NOT_AVAILABLE
from forebay_codecs.metadata import NO_TOPIC_ID, Partition, Topic, printable_id
from forebay_codecs.metadata_response import encode_topic
from forebay_policies.accumulator import NO_LEADER
from forebay_policies.described_topic import (
    MAX_PARTITIONS,
    NOWHERE,
    DescribedTopic,
    DescribedTopics,
    Placement,
    available,
)


def topic(leaders: Sequence[int], name: str = "orders", topic_id: bytes = NO_TOPIC_ID) -> Topic:
    """Partition i is led by `leaders[i]`, which is its only replica."""
    partitions = tuple(Partition(0, index, leader, 1, (leader,)) for index, leader in enumerate(leaders))
    return Topic(0, name, topic_id, is_internal=False, partitions=partitions)


def up(*nodes: int, **racks: int) -> frozenset[tuple[int, str]]:
    return frozenset([(node, "") for node in nodes] + [(node, rack) for rack, node in racks.items()])


# Where partitions are


def test_leaders_and_replicas_stand_at_their_partitions() -> None:
    assert DescribedTopic(topic([4, 2, 4])).placement == Placement((4, 2, 4), ((4,), (2,), (4,)), frozenset({2, 4}))


def test_a_partition_that_is_not_told_of_has_no_leader() -> None:
    gap = topic([1])._replace(partitions=(Partition(0, 2, 1, 0, (1,)),))
    assert DescribedTopic(gap).placement.leaders == (NO_LEADER, NO_LEADER, 1)


def test_impossible_partitions_are_nowhere() -> None:
    for index in (-1, MAX_PARTITIONS):
        assert DescribedTopic(topic([1])._replace(partitions=(Partition(0, index, 1, 0),))).placement is NOWHERE
    assert DescribedTopic(topic([])).placement is NOWHERE


def test_a_topic_is_sound_where_it_has_no_error_and_each_partition_a_leader() -> None:
    assert DescribedTopic(topic([1, 0])).sound
    assert not DescribedTopic(topic([1, NO_LEADER])).sound
    assert not DescribedTopic(topic([1])._replace(error_code=LEADER_NOT_AVAILABLE)).sound


# Who can be reached


def test_without_racks_all_are_in_one() -> None:
    assert available((1, 2, 1), up(1)) == ([0, 2], {"": [0, 2]})
    assert available((1, 2, 1), up()) == ((), {})


def test_partitions_stand_by_their_leaders_rack() -> None:
    assert available((1, 2, 1, 3), up(3, a=1, b=2)) == ([0, 1, 2, 3], {"a": [0, 2], "b": [1], "": [3]})


def test_what_is_available_stays_the_same_object_while_the_same_brokers_are_up() -> None:
    described = DescribedTopic(topic([1, 2]))
    first = described.available(up(1, 2))
    assert described.available(up(1, 2)) is first
    assert described.available(up(1)).partitions == [0]
    assert described.available(up(a=1)).racks == {"a": [0]}, "a rack is news, too"


@given(st.lists(st.integers(-1, 5)), st.sets(st.integers(0, 5)))
def test_available_is_whose_leader_is_up(leaders: list[int], nodes: set[int]) -> None:
    found = DescribedTopic(topic(leaders)).available(up(*nodes))
    assert list(found.partitions) == [index for index, leader in enumerate(leaders) if leader in nodes]
    assert sorted(index for rack in found.racks.values() for index in rack) == list(found.partitions)


# Sections


def test_only_v0_depends_on_the_brokers() -> None:
    described = DescribedTopic(topic([1, 2]))
    first = described.section(0, frozenset({1, 2}))
    assert described.section(0, frozenset({1, 2})) is first
    assert described.section(0, frozenset({1})) == encode_topic(described.topic, 0, (1,)) != first
    assert described.section(9, frozenset({1})) is described.section(9, frozenset({1, 2}))


def test_one_broker_for_all_has_sections_of_its_own() -> None:
    described = DescribedTopic(topic([1, 2]))
    one = described.section(9, frozenset(), one_broker=True)
    assert one is described.section(9, frozenset(), one_broker=True)
    assert one != described.section(9, frozenset())


# Descriptions that are shared


def test_equal_topics_have_one_description() -> None:
    topics = DescribedTopics(10)
    first = topics.of(topic([1, 2], topic_id=bytes(15) + b"\1"))
    assert topics.of(topic([1, 2], topic_id=bytes(15) + b"\1")) is first
    assert first.printable_id == printable_id(bytes(15) + b"\1")
    others = [topic([1, 3]), topic([1, 2]), topic([1, 2], "other")]
    assert len({id(topics.of(other)) for other in others} | {id(first)}) == 4


def test_those_that_were_described_last_are_kept() -> None:
    topics = DescribedTopics(2)
    a, b = topics.of(topic([1], "a")), topics.of(topic([1], "b"))
    assert topics.of(topic([1], "a")) is a
    topics.of(topic([1], "c"))
    assert len(topics) == 2
    assert topics.of(topic([1], "a")) is a
    assert topics.of(topic([1], "b")) is not b
    topics.clear()
    assert len(topics) == 0


def test_with_none_kept_each_has_its_own() -> None:
    topics = DescribedTopics()
    assert topics.of(topic([1])) is not topics.of(topic([1]))
    assert len(topics) == 0
