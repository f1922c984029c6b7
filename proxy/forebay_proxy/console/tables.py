"""Brokers, topics and clients as rows of JSON: what a page of a table shows, and one of them in full.

In: what the collector has seen, and which part of it is wanted. Out: {"rows": […], "total", "page", "size", "second"}.
Rows are only made for the part that is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from forebay_policies import own_choices
from forebay_policies.eligibility import Reason
from forebay_proxy.console.collector import ClientView, Collector, TopicView, client_key
from forebay_proxy.console.history import BROKER, rounded
from forebay_proxy.console.paging import Key, Wanted, number, part, wanted
from forebay_proxy.metrics import clients_seen
from forebay_proxy.metrics.catalog import TIMES_S
from forebay_proxy.metrics.registry import percentile
from forebay_proxy.metrics.topics_seen import SeenTopic

T = TypeVar("T")

CELLS: Final = 64
"""Partitions of a topic that a row of the heat map has."""

UNTOUCHED: Final = frozenset(
    {
        Reason.TRANSACTIONAL,
        Reason.IDEMPOTENT,
        Reason.TOPIC_EXCLUDED,
        Reason.CLIENT_EXCLUDED,
        Reason.OWN_LOGIN,
        Reason.SETTINGS_CHANGED,
        Reason.OBSERVED,
        Reason.INTERNAL_TOPIC,
        Reason.UNKNOWN_ATTRIBUTES,
        Reason.NO_METADATA,
        Reason.CORRUPT,
        Reason.INVALID,
        Reason.TOO_LARGE,
    }
)


def _by(column: str) -> Key[dict[str, Any]]:
    return lambda row: row[column] or 0


def brokers(seen: Collector, query: Mapping[str, str]) -> dict[str, Any]:
    """One row a broker; by default in the order of their node ids. Raises WrongQuery."""
    keys = {name: _by(name) for name in ("node", "share", *BROKER)}
    asked = wanted(query, keys, "node")
    all_records = sum(row[0] for row in seen.rows.brokers.values())
    rows = []
    for node, numbers in seen.rows.brokers.items():
        row: dict[str, Any] = {"node": int(node)}
        row |= {name: _number(value) for name, value in zip(BROKER, numbers, strict=True)}
        row["share"] = _number(numbers[0] / all_records) if all_records else 0.0
        row |= _of_window(seen, "forebay_broker_latency_seconds", node)
        rows.append(row)
    return _answer(seen, asked, *part(rows, asked, keys, lambda row: str(row["node"])))


def _of_window(seen: Collector, name: str, *labels: str) -> dict[str, float]:
    """Percentiles of the last half minute or minute, as /metrics has them."""
    data = seen.snapshot.histograms.get((name, labels))
    if data is None:
        return {}
    found = {"p50": 0.5, "p99": 0.99}
    shown = {each: percentile(data.recent, TIMES_S, data.recent_max, share) for each, share in found.items()}
    return {f"window_{each}": rounded(value) for each, value in shown.items()}


_TOPIC_KEYS: Final[dict[str, Key[TopicView]]] = {
    "topic": lambda view: view.seen.name,
    "records": lambda view: view.records_rate,
    "bytes": lambda view: view.bytes_rate,
    "untouched": lambda view: view.untouched_rate,
    "partitions": lambda view: view.partitions,
    "queued_bytes": lambda view: view.queued,
    "skew": lambda view: view.skew,
}


def topics(seen: Collector, query: Mapping[str, str]) -> dict[str, Any]:
    """One row a topic, the busiest first; with `cells=1` each with the shares of its first CELLS partitions.

    With `name` that topic alone, and a row for each partition of the page. Raises WrongQuery.
    """
    if "name" in query:
        return _topic(seen, query)
    asked = wanted(query, _TOPIC_KEYS, "-records", ("cells",))
    cells = number(query, "cells", 0, 0, 1)
    views, total = part(seen.topics.values(), asked, _TOPIC_KEYS, _TOPIC_KEYS["topic"])
    rows = []
    for view in views:
        row = _topic_row(view)
        if cells:
            row["cells"] = [*map(_share(view), range(min(view.partitions, CELLS)))]
        rows.append(row)
    return _answer(seen, asked, rows, total)


def _topic_row(view: TopicView) -> dict[str, Any]:
    return {
        "topic": view.seen.name,
        "records": rounded(view.records_rate),
        "bytes": rounded(view.bytes_rate),
        "untouched": rounded(view.untouched_rate),
        "partitions": view.partitions,
        "queued_bytes": view.queued,
        "skew": rounded(view.skew),
        "records_total": view.seen.records,
        "bytes_total": view.seen.bytes,
        "untouched_total": view.seen.untouched_records,
    }


def _share(view: TopicView) -> Callable[[int], float]:
    """Of a partition: its share of the topic's records ÷ the fair share. 3 of 12 records on one of 4 partitions: 1."""
    rates, partitions, total = view.partition_rates, view.partitions, sum(view.partition_rates)
    return lambda index: rounded(_at(rates, index, 0.0) * partitions / total) if total else 0.0


def _at(values: Sequence[T], index: int, otherwise: T) -> T:
    return values[index] if index < len(values) else otherwise


def _partition_keys(view: TopicView) -> dict[str, Key[int]]:
    """What each column says of a partition."""
    topic = view.seen
    return {
        "partition": lambda index: index,
        "leader": lambda index: _at(topic.leaders, index, -1),
        "records": lambda index: rounded(_at(view.partition_rates, index, 0.0)),
        "share": _share(view),
        "queued_bytes": lambda index: topic.queued.get(index, 0),
        "wait": lambda index: rounded(topic.waits.get(index, 0.0)),
        "records_total": lambda index: _at(topic.partition_records, index, 0),
        "bytes_total": lambda index: _at(topic.partition_bytes, index, 0),
    }


_NO_TOPIC: Final = TopicView(SeenTopic(""), None, 1.0)


def _topic(seen: Collector, query: Mapping[str, str]) -> dict[str, Any]:
    view = seen.topics.get(query["name"], _NO_TOPIC)
    keys = _partition_keys(view)
    asked = wanted(query, keys, "partition", ("name",))
    shown, total = part(range(view.partitions), asked, keys, lambda index: f"{index:09}")
    rows = [{name: of(index) for name, of in keys.items()} for index in shown]
    return {**_answer(seen, asked, rows, total), "topic": None if view is _NO_TOPIC else _topic_row(view)}


_CLIENT_KEYS: Final[dict[str, Key[ClientView]]] = {
    "client_id": lambda view: view.seen.client_id or "",
    "address": lambda view: view.seen.address,
    "connections": lambda view: view.seen.connections,
    "records": lambda view: view.seen.rate,
    "records_total": lambda view: view.seen.records,
    "errors": lambda view: view.errors,
    "too_old": lambda view: view.too_old,
    "untouched": lambda view: _untouched(view),
    "last_seen": lambda view: view.seen.last_seen,
}


def _untouched(view: ClientView) -> float:
    """The part of its batches that Forebay did not touch."""
    batches = view.seen.batches
    total = sum(batches.values())
    return sum(count for reason, count in batches.items() if reason in UNTOUCHED) / total if total else 0.0


def clients(seen: Collector, query: Mapping[str, str]) -> dict[str, Any]:
    """One row a client, the busiest first; with `too_old=1` those that Kafka 4 would refuse, with `picks=1` those that
    seem to pick partitions themselves, with `open=1` those that are connected; with `id` that one alone, and how its
    batches were treated. Raises WrongQuery."""
    asked = wanted(query, _CLIENT_KEYS, "-records", ("too_old", "picks", "open", "id"))
    views = list(seen.clients.values())
    if "id" in query:
        found = seen.clients.get(query["id"])
        views = [found] if found is not None else []
    if number(query, "too_old", 0, 0, 1):
        views = [view for view in views if view.too_old]
    if number(query, "picks", 0, 0, 1):
        views = [view for view in views if own_choices.picked(view.seen.choices)]
    if number(query, "open", 0, 0, 1):
        views = [view for view in views if view.seen.connections]
    shown, total = part(views, asked, _CLIENT_KEYS, lambda view: f"{view.seen.client_id or ''} {view.seen.address}")
    return _answer(seen, asked, [_client_row(view) for view in shown], total)


def _client_row(view: ClientView) -> dict[str, Any]:
    (row,) = clients_seen.rows([view.seen])
    return {
        "id": client_key(view.seen),
        **row,
        "records_per_second": rounded(view.seen.rate),
        "batches": dict(view.seen.batches),
        "untouched": rounded(_untouched(view)),
        "errors": view.errors,
        "errors_per_second": rounded(view.errors_rate),
    }


def _answer(seen: Collector, asked: Wanted, rows: list[Any], total: int) -> dict[str, Any]:
    return {"rows": rows, "total": total, "page": asked.page, "size": asked.size, "second": seen.second}


def _number(value: float) -> float | None:
    return None if value != value else rounded(value)
