"""Each batch is counted once, for its topic and partition where there is room, and whatever clients name is bounded."""

from __future__ import annotations

import pytest

from forebay_proxy.metrics import topic_counts
from forebay_proxy.metrics.topic_counts import MAX_PARTITIONS, MAX_TOPICS, TopicTable


def test_a_batch_counts_for_its_topic_and_partition() -> None:
    table = TopicTable()
    table.sent("ponds", 2, 10, 100)
    table.sent("ponds", 2, 1, 50)
    table.sent("ponds", 0, 5, 5)
    table.untouched("ponds", 7, 70)
    counts = table.topics["ponds"]
    assert (counts.records, counts.bytes) == (16, 155)
    assert (counts.partition_records, counts.partition_bytes) == ([5, 0, 11], [5, 0, 150])
    assert (counts.untouched_records, counts.untouched_bytes) == (7, 70)


def test_topics_beyond_the_bound_count_together() -> None:
    table = TopicTable()
    for number in range(MAX_TOPICS + 5):
        table.sent(f"t{number}", 0, 1, 10)
    assert len(table.topics) == MAX_TOPICS
    assert (table.others.records, table.others.bytes) == (5, 50)
    assert table.others.partition_records == []


def test_names_that_nobody_looked_up_leave_room_for_others() -> None:
    table = TopicTable()
    for number in range(MAX_TOPICS):
        table.untouched(f"made-up-{number}", 1, 1)
    table.sent("ponds", 0, 1, 1)
    assert "ponds" in table.topics
    assert table.others.untouched_records == MAX_TOPICS // 2


def test_names_too_long_for_kafka_are_not_kept() -> None:
    table = TopicTable()
    for length in (249, 250, 32_000):
        table.untouched("n" * length, 1, 10)
        table.sent("n" * length, 0, 2, 20)
    assert list(table.topics) == ["n" * 249]
    assert (table.others.untouched_records, table.others.records) == (2, 4)


def test_partitions_beyond_the_bound_count_for_their_topic() -> None:
    table = TopicTable()
    table.sent("ponds", MAX_PARTITIONS - 1, 1, 10)
    table.sent("lakes", 0, 2, 20)
    assert table.topics["lakes"].records == 2
    assert table.topics["lakes"].partition_records == []
    table.sent("ponds", 3, 1, 10)
    assert table.topics["ponds"].partition_records[3] == 1


@pytest.mark.parametrize("bound", ["MAX_TOPICS", "MAX_PARTITIONS"])
def test_bounds_are_small_enough_to_be_sent_each_second(bound: str) -> None:
    assert getattr(topic_counts, bound) <= 20_000
