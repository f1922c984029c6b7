"""The same numbers, whether they are this process's own or its workers'."""

from __future__ import annotations

import pytest

from forebay_proxy.console import source as module
from forebay_proxy.console.source import OneProcess, Workers
from forebay_proxy.metrics.registry import MetricRegistry, decode
from forebay_proxy.metrics.topic_counts import MAX_TOPICS
from forebay_proxy.metrics.topics_seen import OTHERS, TopicNow
from tests.kit.event_loop import in_loop


def busy() -> MetricRegistry:
    stats = MetricRegistry()
    stats.counter("forebay_records_total", fate="moved").value += 5
    stats.topics.sent("ponds", 1, 5, 50)
    stats.topics_now = lambda: {"ponds": TopicNow([1, 2], {}, {})}
    stats.clients.connected("till-7", "10.0.0.1", None, None, 0.0).records += 5
    return stats


@in_loop
async def test_one_process() -> None:
    source = OneProcess(busy())
    now = source.now()
    assert now.counters["forebay_records_total", ("moved",)] == 5
    assert (now.topics, now.clients) == ([], [])
    details = await source.details()
    assert [(topic.name, topic.records, topic.leaders) for topic in details.topics] == [("ponds", 5, [1, 2])]
    assert [client.client_id for client in details.clients] == ["till-7"]


@in_loop
async def test_many_topics_are_read_in_slices_and_none_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SLICE", 7)
    stats = MetricRegistry()
    for number in range(MAX_TOPICS + 1):
        stats.topics.sent(f"t{number}", 0, 1, 1)
    details = await OneProcess(stats).details()
    assert len(details.topics) == MAX_TOPICS + 1
    assert details.topics[-1].name == OTHERS


@in_loop
async def test_workers_add_up() -> None:
    reports = [decode(busy().snapshot()) for _ in range(2)]
    refreshed = []

    async def refresh() -> None:
        refreshed.append(True)

    source = Workers(lambda: reports, refresh)
    now = source.now()
    assert now.counters["forebay_records_total", ("moved",)] == 10
    assert (now.topics, now.clients) == ([], [])
    details = await source.details()
    assert [(topic.name, topic.records) for topic in details.topics] == [("ponds", 10)]
    assert [client.records for client in details.clients] == [10]
    assert refreshed == [True]
    assert reports[0].topics[0].records == 5


@in_loop
async def test_topics_that_were_told_keep_their_places_when_another_worker_has_more() -> None:
    one, other = MetricRegistry(), MetricRegistry()
    other.topics.sent("ponds", 0, 5, 50)

    async def refresh() -> None:
        """They have told."""

    source = Workers(lambda: [decode(one.snapshot()), decode(other.snapshot())], refresh)
    await source.details()
    for number in range(MAX_TOPICS):
        one.topics.sent(f"t{number}", 0, 1, 1)
    for _ in range(2):
        topics = {topic.name: topic.records for topic in (await source.details()).topics}
        assert (topics["ponds"], topics[OTHERS], len(topics)) == (5, 1, MAX_TOPICS + 1)
