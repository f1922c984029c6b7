"""What workers count of topics adds up, and no counter of a topic ever falls."""

from __future__ import annotations

from forebay_proxy.metrics import topics_seen
from forebay_proxy.metrics.registry import MetricRegistry, decode, merge
from forebay_proxy.metrics.topic_counts import MAX_TOPICS, TopicTable
from forebay_proxy.metrics.topics_seen import OTHERS, NamedTopics, SeenTopic, TopicNow


def test_a_snapshot_joins_counts_with_what_is_known_now() -> None:
    table = TopicTable()
    table.sent("ponds", 1, 10, 100)
    (seen,) = topics_seen.snapshot(table, {"ponds": TopicNow([1, 2], {1: 50}, {1: 0.5})})
    assert (seen.name, seen.records, seen.bytes, seen.partition_records) == ("ponds", 10, 100, [0, 10])
    assert (seen.leaders, seen.queued, seen.waits) == ([1, 2], {1: 50}, {1: 0.5})


def test_topics_that_found_no_place_are_one_more() -> None:
    table = TopicTable()
    for number in range(MAX_TOPICS + 1):
        table.sent(f"t{number}", 0, 1, 1)
    assert topics_seen.snapshot(table, {})[-1].name == OTHERS


def test_workers_add_up() -> None:
    one = SeenTopic("ponds", 3, 30, 1, 10, [1, 2], [10, 20], [1, 2], {0: 5, 1: 7}, {0: 0.1})
    other = SeenTopic("ponds", 4, 40, 2, 20, [4], [40], [], {1: 3}, {0: 0.3})
    (seen,) = topics_seen.merge([[one], [other]])
    assert (seen.records, seen.bytes, seen.untouched_records, seen.untouched_bytes) == (7, 70, 3, 30)
    assert (seen.partition_records, seen.partition_bytes) == ([5, 2], [50, 20])
    assert (seen.leaders, seen.queued, seen.waits) == ([1, 2], {0: 5, 1: 10}, {0: 0.3})
    assert (one.records, one.partition_records) == (3, [1, 2])


def test_many_workers_have_no_more_topics_than_one() -> None:
    snapshots = [[SeenTopic(f"w{worker}-{n}", 1) for n in range(MAX_TOPICS)] for worker in range(2)]
    seen = topics_seen.merge(snapshots)
    assert len(seen) == MAX_TOPICS + 1
    assert (seen[-1].name, seen[-1].records) == (OTHERS, MAX_TOPICS)


def test_topics_to_keep_have_their_places_whatever_comes_before_them() -> None:
    crowd = [SeenTopic(OTHERS, 5), *(SeenTopic(f"t{n}", 1) for n in range(MAX_TOPICS))]
    seen = topics_seen.merge([crowd, [SeenTopic("ponds", 2)]], {"ponds"})
    assert {topic.name: topic.records for topic in seen if topic.records > 1} == {"ponds": 2, OTHERS: 6}
    assert len(seen) == MAX_TOPICS + 1


def test_a_registry_carries_them_to_another_process_and_past_its_end() -> None:
    stats = MetricRegistry()
    stats.topics.sent("ponds", 0, 3, 30)
    stats.topics_now = lambda: {"ponds": TopicNow([1], {0: 30}, {})}
    taken = decode(stats.snapshot())
    assert taken.topics == [SeenTopic("ponds", 3, 30, 0, 0, [3], [30], [1], {0: 30}, {})]
    past = taken.without_present()
    assert past.topics == [SeenTopic("ponds", 3, 30, 0, 0, [3], [30])]
    assert merge([taken, past]).topics[0].records == 6


def test_as_many_topics_as_allowed_have_metrics_and_the_rest_count_together() -> None:
    named = NamedTopics(1)
    first = named.counters([SeenTopic("ponds", 1, 10, 2, 20), SeenTopic("lakes", 4, 40), SeenTopic(OTHERS, 8, 80)])
    assert first["forebay_topic_records_total", ("ponds", "merged")] == 1
    assert first["forebay_topic_records_total", ("ponds", "untouched")] == 2
    assert first["forebay_topic_bytes_total", ("ponds", "untouched")] == 20
    assert first["forebay_topic_records_total", (OTHERS, "merged")] == 12
    assert {topic for _, (topic, _) in first} == {"ponds", OTHERS}


def test_topics_that_have_metrics_keep_them() -> None:
    named = NamedTopics(1)
    named.counters([SeenTopic("ponds", 1)])
    again = named.counters([SeenTopic("lakes", 4), SeenTopic("ponds", 1)])
    assert again["forebay_topic_records_total", ("ponds", "merged")] == 1
    assert again["forebay_topic_records_total", (OTHERS, "merged")] == 4


def test_nobody_has_metrics_unless_it_is_asked_for() -> None:
    assert NamedTopics(0).counters([SeenTopic("ponds", 1)]) == {}


def test_what_several_in_one_process_know_of_topics_is_joined() -> None:
    stats = MetricRegistry()
    parts = [stats.part(), stats.part()]
    for part in parts:
        part.topics.sent("ponds", 0, 1, 10)
    stats.topics_now = lambda: {"ponds": TopicNow([1], {0: 5}, {})}
    parts[0].topics_now = lambda: {"ponds": TopicNow([1, 2], {0: 1, 1: 7}, {0: 0.1})}
    parts[1].topics_now = lambda: {"ponds": TopicNow([], {}, {0: 0.3})}
    (seen,) = stats.take().topics
    assert (seen.records, seen.leaders, seen.queued, seen.waits) == (2, [1, 2], {0: 6, 1: 7}, {0: 0.3})
    stats.end(parts[0])
    (seen,) = stats.take().topics
    assert (seen.records, seen.leaders, seen.queued) == (2, [1], {0: 5})
