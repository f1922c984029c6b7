"""What is sent of each topic, carried from workers to whoever shows it; and which topics have metrics of their own.

In: a process's TopicTable and what its cluster knows now. Out: `snapshot`, which MetricRegistry carries; `merge` of
several; `counters` for /metrics, of as many topics as a setting allows, the rest summed as OTHERS.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

import msgspec

from forebay_proxy.metrics.topic_counts import MAX_TOPICS, TopicCounts, TopicTable

OTHERS: Final = "(other)"
"""Cannot be a topic's name: Kafka allows letters, digits, '.', '_' and '-'."""

TopicKey = tuple[str, tuple[str, str]]


class SeenTopic(msgspec.Struct, array_like=True):
    """One topic in one or several workers. By partition: records and bytes sent, the leader's node id (−1: not known),
    bytes queued or on their way, and the longest wait of a ready batch, in seconds."""

    name: str
    records: int = 0
    bytes: int = 0
    untouched_records: int = 0
    untouched_bytes: int = 0
    partition_records: list[int] = []
    partition_bytes: list[int] = []
    leaders: list[int] = []
    queued: dict[int, int] = {}
    waits: dict[int, float] = {}

    def add(self, other: SeenTopic) -> None:
        """Add the same topic's numbers from another worker."""
        self.records += other.records
        self.bytes += other.bytes
        self.untouched_records += other.untouched_records
        self.untouched_bytes += other.untouched_bytes
        self.partition_records = _sums(self.partition_records, other.partition_records)
        self.partition_bytes = _sums(self.partition_bytes, other.partition_bytes)
        mine = TopicNow(self.leaders, self.queued, self.waits)
        now = together(mine, TopicNow(other.leaders, other.queued, other.waits))
        self.leaders, self.queued, self.waits = now.leaders, now.queued, now.waits


class TopicNow(msgspec.Struct, array_like=True):
    """What is known of a topic's partitions now, as in SeenTopic."""

    leaders: list[int]
    queued: dict[int, int]
    waits: dict[int, float]


Now = Callable[[], Mapping[str, TopicNow]]


def together(one: TopicNow, other: TopicNow) -> TopicNow:
    """A topic as two see it who both send to it: what is queued is added up, of waits the longer one counts."""
    queued = {index: one.queued.get(index, 0) + other.queued.get(index, 0) for index in {**one.queued, **other.queued}}
    waits = {index: max(one.waits.get(index, 0), other.waits.get(index, 0)) for index in {**one.waits, **other.waits}}
    return TopicNow(max(one.leaders, other.leaders, key=len), queued, waits)


def snapshot(table: TopicTable, now: Mapping[str, TopicNow], names: Iterable[str] | None = None) -> list[SeenTopic]:
    """Topics of the table: those that are named; all, and the others together as OTHERS, if there are any."""
    if names is not None:
        return [_seen(name, table.topics[name], now.get(name)) for name in names]
    seen = [_seen(name, counts, now.get(name)) for name, counts in table.topics.items()]
    return [*seen, *others(table)]


def others(table: TopicTable) -> list[SeenTopic]:
    """The topics that found no place, as one, if there are any."""
    if table.others.records or table.others.untouched_records:
        return [_seen(OTHERS, table.others, None)]
    return []


def _seen(name: str, counts: TopicCounts, now: TopicNow | None) -> SeenTopic:
    return SeenTopic(
        name,
        counts.records,
        counts.bytes,
        counts.untouched_records,
        counts.untouched_bytes,
        list(counts.partition_records),
        list(counts.partition_bytes),
        now.leaders if now is not None else [],
        now.queued if now is not None else {},
        now.waits if now is not None else {},
    )


def _sums(mine: list[int], theirs: list[int]) -> list[int]:
    if len(theirs) > len(mine):
        mine, theirs = theirs, mine
    return [number + theirs[index] if index < len(theirs) else number for index, number in enumerate(mine)]


def merge(snapshots: Iterable[list[SeenTopic]], keep: Collection[str] = ()) -> list[SeenTopic]:
    """Several workers' as one, of new objects: at most MAX_TOPICS and OTHERS. Those to `keep`, at most as many, have a
    place whatever comes before them; then the first ones have."""
    merged: dict[str, SeenTopic] = {}
    room = MAX_TOPICS - len(keep)
    for seen in snapshots:
        for topic in seen:
            name = topic.name
            if name not in merged and name not in keep and name != OTHERS:
                if room:
                    room -= 1
                else:
                    name = OTHERS
            known = merged.get(name)
            if known is None:
                merged[name] = msgspec.structs.replace(topic, name=name)
            else:
                known.add(topic)
    return list(merged.values())


def past(seen: list[SeenTopic]) -> list[SeenTopic]:
    """What remains of a worker that has died: its counts, and nothing queued."""
    return [msgspec.structs.replace(topic, leaders=[], queued={}, waits={}) for topic in seen]


class NamedTopics:
    """Which topics have metrics of their own: the first `most` that were seen, and the same ones from then on, since
    counters must not fall."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.names: set[str] = set()
        """They are not to be without a place of their own when workers' topics are merged."""

    def counters(self, topics: Iterable[SeenTopic]) -> dict[TopicKey, float]:
        """Counters by name and labels, as in a Snapshot; none where no topic may have its own."""
        found: dict[TopicKey, float] = {}
        if not self._most:
            return found
        for topic in topics:
            if topic.name != OTHERS and len(self.names) < self._most:
                self.names.add(topic.name)
            name = topic.name if topic.name in self.names else OTHERS
            for metric, path, more in (
                ("forebay_topic_records_total", "merged", topic.records),
                ("forebay_topic_records_total", "untouched", topic.untouched_records),
                ("forebay_topic_bytes_total", "merged", topic.bytes),
                ("forebay_topic_bytes_total", "untouched", topic.untouched_bytes),
            ):
                key = metric, (name, path)
                found[key] = found.get(key, 0) + more
        return found
