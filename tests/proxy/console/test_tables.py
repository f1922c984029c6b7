"""Tables show what was seen, a page at a time."""

from __future__ import annotations

from typing import Any

import pytest

from forebay_policies.eligibility import Reason
from forebay_policies.own_choices import TopicChoices
from forebay_proxy.console import tables
from forebay_proxy.console.paging import WrongQuery
from forebay_proxy.metrics.clients_seen import SeenClient
from forebay_proxy.metrics.topics_seen import SeenTopic
from tests.kit.event_loop import in_loop
from tests.proxy.console.seen import Seen


def column(answer: dict[str, Any], name: str) -> list[Any]:
    return [row[name] for row in answer["rows"]]


@in_loop
async def test_brokers() -> None:
    seen = Seen()
    stats = seen.source.stats
    stats.gauge_of_brokers("forebay_broker_up", lambda: {10: 1, 2: 0, 1: 1})
    seen.step()
    stats.counter("forebay_broker_records_total", node="1").value += 30
    stats.counter("forebay_broker_records_total", node="10").value += 10
    stats.histogram("forebay_broker_latency_seconds", node="1").observe(0.02)
    seen.step()
    found = tables.brokers(seen.collector, {})
    assert column(found, "node") == [1, 2, 10]
    assert column(found, "share") == [0.75, 0, 0.25]
    assert column(found, "up") == [1, 0, 1]
    assert found["rows"][0]["window_p99"] == pytest.approx(0.02, rel=0.2)
    assert column(tables.brokers(seen.collector, {"sort": "-records", "size": "1"}), "node") == [1]
    assert column(tables.brokers(seen.collector, {"sort": "-latency_p99"}), "node")[0] == 1


@in_loop
async def test_topics_and_their_cells() -> None:
    seen = Seen()
    seen.source.topics = [SeenTopic("ponds"), SeenTopic("lakes")]
    await seen.closely(1.0)
    seen.source.topics = [
        SeenTopic("ponds", 40, 400, 0, 0, [30, 10], [300, 100], [1, 2]),
        SeenTopic("lakes", 5, 50, 0, 0, [5], [50], [1, 1]),
    ]
    await seen.closely(10.0)
    found = tables.topics(seen.collector, {"cells": "1"})
    assert (column(found, "topic"), column(found, "records")) == (["ponds", "lakes"], [4, 0.5])
    assert column(found, "cells") == [[1.5, 0.5], [2.0, 0.0]]
    assert "cells" not in tables.topics(seen.collector, {})["rows"][0]
    assert column(tables.topics(seen.collector, {"q": "LAK"}), "topic") == ["lakes"]


@in_loop
async def test_one_topic_in_full() -> None:
    seen = Seen()
    partitions = 1000
    seen.source.topics = [SeenTopic("ponds", 1, 9, 0, 0, [1], [9], [3] * partitions, {1: 7}, {1: 0.25})]
    await seen.closely()
    found = tables.topics(seen.collector, {"name": "ponds"})
    assert (found["total"], len(found["rows"]), found["topic"]["records_total"]) == (partitions, 50, 1)
    assert found["rows"][1] == {
        "partition": 1,
        "leader": 3,
        "records": 0.0,
        "share": 0.0,
        "queued_bytes": 7,
        "wait": 0.25,
        "records_total": 0,
        "bytes_total": 0,
    }
    assert column(tables.topics(seen.collector, {"name": "ponds", "page": "20"}), "partition") == list(range(950, 1000))
    assert tables.topics(seen.collector, {"name": "nowhere"})["topic"] is None


class Counting(dict[int, float]):
    """How often it was looked up."""

    looked_up = 0

    def get(self, key: int, default: Any = None) -> Any:
        self.looked_up += 1
        return super().get(key, default)


@in_loop
async def test_of_a_topic_of_many_partitions_only_those_on_the_page_are_made_into_rows() -> None:
    seen = Seen()
    partitions, waits = 5000, Counting()
    seen.source.topics = [SeenTopic("ponds", 0, 0, 0, 0, [], [], [1] * partitions, {}, waits)]
    await seen.closely(1.0)
    records = [7 * index % partitions for index in range(partitions)]
    seen.source.topics = [SeenTopic("ponds", 9, 9, 0, 0, records, records, [1] * partitions, {}, waits)]
    await seen.closely()
    for sort in ("partition", "-records", "share", "leader"):
        waits.looked_up = 0
        found = tables.topics(seen.collector, {"name": "ponds", "size": "50", "sort": sort})
        assert (found["total"], len(found["rows"]), waits.looked_up) == (partitions, 50, 50)
    busiest = tables.topics(seen.collector, {"name": "ponds", "size": "3", "sort": "-records"})
    assert column(busiest, "records_total") == [4999, 4998, 4997]
    assert len(tables.topics(seen.collector, {"cells": "1"})["rows"][0]["cells"]) == tables.CELLS
    assert column(tables.topics(seen.collector, {"name": "ponds", "q": "042"}), "partition")[:2] == [42, 420]


@in_loop
async def test_clients() -> None:
    seen = Seen()
    old = SeenClient("till-7", "10.0.0.1", None, None, 1, 50, 5.0, requests={1: 9})
    old.batches = {"null_key": 3, "idempotent": 1}
    new = SeenClient("app", "10.0.0.2", "java", "4", 0, 10, 9.0, requests={9: 9}, errors=3)
    new.batches = {"idempotent": 2}
    new.choices = {"orders": TopicChoices(12, 50, [1])}
    seen.source.clients = [old, new]
    await seen.closely()
    found = tables.clients(seen.collector, {})
    assert column(found, "client_id") == ["app", "till-7"]
    assert (column(found, "untouched"), column(found, "errors")) == ([1.0, 0.25], [3, 0])
    assert column(tables.clients(seen.collector, {"too_old": "1"}), "client_id") == ["till-7"]
    assert column(tables.clients(seen.collector, {"picks": "1"}), "client_id") == ["app"]
    assert column(tables.clients(seen.collector, {"open": "1"}), "client_id") == ["till-7"]
    assert column(tables.clients(seen.collector, {"id": found["rows"][0]["id"]}), "client_id") == ["app"]
    assert tables.clients(seen.collector, {"id": "nobody"})["rows"] == []
    assert column(tables.clients(seen.collector, {"q": "0.1"}), "client_id") == ["till-7"]


@in_loop
async def test_batches_of_a_client_are_untouched_where_they_go_on_as_they_came() -> None:
    seen = Seen()
    for reason in Reason:
        client = SeenClient(reason, "h", None, None, requests={})
        client.batches = {reason: 1}
        seen.source.clients.append(client)
    await seen.closely()
    found = tables.clients(seen.collector, {"size": "200"})
    touched = {row["client_id"] for row in found["rows"] if not row["untouched"]}
    assert touched == {Reason.NULL_KEY, Reason.KEYED, Reason.MIXED, Reason.EMPTY}


@in_loop
async def test_no_answer_has_more_rows_than_a_page() -> None:
    seen = Seen()
    seen.source.topics = [SeenTopic(f"t{number}", 1) for number in range(1000)]
    seen.source.clients = [SeenClient(f"c{number}", "h", None, None, requests={}) for number in range(1000)]
    await seen.closely()
    for table in (tables.topics, tables.clients):
        answer = table(seen.collector, {"size": "200"})
        assert (len(answer["rows"]), answer["total"]) == (200, 1000)


@pytest.mark.parametrize("query", [{"sort": "x"}, {"size": "201"}, {"cells": "2"}, {"x": "1"}])
def test_what_cannot_be_asked(query: dict[str, str]) -> None:
    with pytest.raises(WrongQuery):
        tables.topics(Seen().collector, query)
