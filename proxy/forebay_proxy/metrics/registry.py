"""Counting, at next to no cost on the hot path; adding up the counts of several workers.

    stats = MetricRegistry()
    moved = stats.counter("forebay_records_total", fate="moved")    # once, at the start; KeyError if not in catalog
    moved.value += 12                                               # per batch
    linger = stats.histogram("forebay_batch_linger_time_seconds")
    linger.observe(0.4)
    stats.gauge("forebay_queued_bytes", lambda: accumulator.bytes)  # read by each snapshot

    merge([decode(stats.snapshot()), …])                            # in the process that serves /metrics

The hot path takes no lock and reads no clock. A MetricRegistry belongs to one event loop.

Windows: gauges like _max and _p99 cover the recent past, as Kafka's metrics do: two windows of 30 seconds
(metrics.sample.window.ms × metrics.num.samples), so they look back 30 to 60 seconds, less after the start. `tick`
advances the windows and must be called every few seconds (taking a snapshot does so).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

import msgspec

from forebay_proxy.metrics import clients_seen, topics_seen
from forebay_proxy.metrics.catalog import METRICS, OF_THE_CLUSTER, Metric
from forebay_proxy.metrics.clients_seen import ClientsSeen, SeenClient
from forebay_proxy.metrics.instruments import Counter, Histogram
from forebay_proxy.metrics.topic_counts import MAX_PARTITIONS, TopicTable
from forebay_proxy.metrics.topics_seen import Now, SeenTopic, TopicNow

WINDOW_S: Final = 30.0

LabelValues = tuple[str, ...]
Key = tuple[str, LabelValues]
"""A metric's name and the values of its labels, in the order of the catalog."""


class HistogramData(msgspec.Struct, array_like=True):
    """A histogram at one moment. `recent` (by bucket), `recent_max` and `rate` (per second): over the last window."""

    counts: list[int]
    sum: float
    recent: list[int]
    recent_max: float
    rate: float

    @classmethod
    def of(cls, histogram: Histogram, now: float) -> HistogramData:
        """A copy of its present state."""
        recent = [count - before for count, before in zip(histogram.counts, histogram.before, strict=True)]
        seconds = now - histogram.before_at
        return cls(
            counts=list(histogram.counts),
            sum=histogram.sum,
            recent=recent,
            recent_max=max(histogram.max, histogram.max_before, 0.0),
            rate=sum(recent) / seconds if seconds > 0 else 0.0,
        )

    def add(self, other: HistogramData) -> None:
        """Add another worker's observations; the buckets are the same."""
        self.counts = [mine + theirs for mine, theirs in zip(self.counts, other.counts, strict=True)]
        self.recent = [mine + theirs for mine, theirs in zip(self.recent, other.recent, strict=True)]
        self.sum += other.sum
        self.recent_max = max(self.recent_max, other.recent_max)
        self.rate += other.rate


class Snapshot(msgspec.Struct, array_like=True):
    """Everything that one worker has counted, or several together."""

    counters: dict[Key, float] = {}
    gauges: dict[Key, float] = {}
    histograms: dict[Key, HistogramData] = {}
    clients: list[SeenClient] = []
    topics: list[SeenTopic] = []

    def without_present(self) -> Snapshot:
        """What remains when its worker has died: its counts, but no gauges and nothing recent."""
        past = {
            key: HistogramData(
                counts=data.counts, sum=data.sum, recent=[0] * len(data.counts), recent_max=0.0, rate=0.0
            )
            for key, data in self.histograms.items()
        }
        return Snapshot(
            counters=self.counters,
            gauges={},
            histograms=past,
            clients=clients_seen.past(self.clients),
            topics=topics_seen.past(self.topics),
        )


_decoder: Final = msgspec.msgpack.Decoder(Snapshot)
_encoder: Final = msgspec.msgpack.Encoder()


def decode(data: bytes) -> Snapshot:
    """What `MetricRegistry.snapshot` encoded. Raises msgspec.DecodeError for anything else."""
    return _decoder.decode(data)


class MetricRegistry:
    """One process's metrics. Only those in the catalog exist: other names, labels or values are a KeyError at once.

    `clock` in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._window_began = clock()
        self._counters: dict[Key, Counter] = {}
        self._counters_elsewhere: dict[Key, Callable[[], float]] = {}
        self._histograms: dict[Key, Histogram] = {}
        self._gauges: dict[Key, list[Callable[[], float]]] = {}
        self._gauges_of_brokers: dict[str, Callable[[], Mapping[int, float]]] = {}
        self._parts: dict[MetricRegistry, None] = {}
        self._left: dict[Key, float] = {}
        """What parts that are gone had counted elsewhere."""
        self.clients = ClientsSeen(self._window_began)
        self.topics = TopicTable()
        self.topics_now: Now = dict
        """What is known of topics besides their counts; whoever knows puts it here."""

    def part(self) -> MetricRegistry:
        """For one of several that count alike, and that may end: counters are this registry's, gauges are added up."""
        part = MetricRegistry(self._clock)
        part._counters, part._histograms = self._counters, self._histograms
        part.clients, part.topics = self.clients, self.topics
        self._parts[part] = None
        return part

    def end(self, part: MetricRegistry) -> None:
        """It has no gauges any more. What it has counted stays counted."""
        for key, read in part._counters_elsewhere.items():
            self._left[key] = self._left.get(key, 0) + read()
        del self._parts[part]

    def counter(self, name: str, **labels: str) -> Counter:
        """The counter of that name and labels; always the same one."""
        return self._counters.setdefault(_key(name, "counter", labels), Counter())

    def counter_from(self, name: str, read: Callable[[], float], **labels: str) -> None:
        """Register a counter that is kept elsewhere: each snapshot calls `read`, whose result never falls."""
        self._counters_elsewhere[_key(name, "counter", labels)] = read

    def histogram(self, name: str, **labels: str) -> Histogram:
        """The histogram of that name and labels; always the same one."""
        key = _key(name, "histogram", labels)
        return self._histograms.setdefault(key, Histogram(METRICS[name].buckets, self._clock()))

    def gauge(self, name: str, read: Callable[[], float], **labels: str) -> None:
        """Register a gauge: each snapshot calls `read`; several of one name and labels are added up."""
        self._gauges.setdefault(_key(name, "gauge", labels), []).append(read)

    def gauge_of_brokers(self, name: str, read: Callable[[], Mapping[int, float]]) -> None:
        """Register a gauge by node id: each snapshot calls `read`, and has those brokers and no others."""
        _key(name, "gauge", {"node": "0"})
        self._gauges_of_brokers[name] = read

    def value(self, name: str, **labels: str) -> float:
        """The present value of a counter or gauge; KeyError if none was registered."""
        key = _key(name, METRICS[name].kind, labels)
        if key in self._counters:
            return self._counters[key].value
        if (counted := self._counted_elsewhere(key)) is not None:
            return counted
        return sum(read() for read in self._gauges[key]) + sum(
            read() for part in self._parts for read in part._gauges.get(key, ())
        )

    def _counted_elsewhere(self, key: Key) -> float | None:
        reads = [part._counters_elsewhere[key] for part in (self, *self._parts) if key in part._counters_elsewhere]
        return sum(read() for read in reads) + self._left.get(key, 0) if reads or key in self._left else None

    def _of_brokers(self) -> dict[Key, float]:
        """Levels are added up; of whether brokers can be reached, and whatever else is a `least` one, the least."""
        found: dict[Key, float] = {}
        for part in (self, *self._parts):
            for name, read in part._gauges_of_brokers.items():
                for node_id, level in read().items():
                    key = name, (str(node_id),)
                    found[key] = float(level) if key not in found else _together(name, found[key], level)
        return found

    def current_topics(self) -> Mapping[str, TopicNow]:
        """What all parts know of topics now besides counts; no further parts once MAX_PARTITIONS were looked at."""
        found: dict[str, TopicNow] = {}
        partitions = 0
        for part in (self, *self._parts):
            for name, topic in part.topics_now().items():
                partitions += len(topic.leaders)
                found[name] = topics_seen.together(found[name], topic) if name in found else topic
            if partitions >= MAX_PARTITIONS:
                break
        return found

    def tick(self) -> None:
        """Begin a new window if the present one has lasted WINDOW_S."""
        now = self._clock()
        if now - self._window_began >= WINDOW_S:
            self.clients.turn(now)
            self._window_began = now
            for histogram in self._histograms.values():
                histogram.turn(now)

    def current_clients(self) -> list[SeenClient]:
        """All clients with their present rates. The objects are those that count on."""
        return self.clients.snapshot(self._clock())

    def take(self, *, details: bool = True) -> Snapshot:
        """Everything, as of now; without `details`, all but clients and topics, which are many."""
        self.tick()
        now = self._clock()
        gauges: dict[Key, float] = {}
        elsewhere = dict(self._left)
        for part in (self, *self._parts):
            for key, reads in part._gauges.items():
                gauges[key] = gauges.get(key, 0.0) + sum(read() for read in reads)
            for key, count in part._counters_elsewhere.items():
                elsewhere[key] = elsewhere.get(key, 0) + count()
        return Snapshot(
            counters={key: counter.value for key, counter in self._counters.items()} | elsewhere,
            gauges=gauges | self._of_brokers(),
            histograms={key: HistogramData.of(histogram, now) for key, histogram in self._histograms.items()},
            clients=self.clients.snapshot(now) if details else [],
            topics=topics_seen.snapshot(self.topics, self.current_topics()) if details else [],
        )

    def snapshot(self, *, details: bool = True) -> bytes:
        """`take`, encoded for another process; `decode` reads it."""
        return _encoder.encode(self.take(details=details))


def _key(name: str, kind: str, labels: dict[str, str]) -> Key:
    metric: Metric = METRICS[name]
    if metric.kind != kind:
        raise KeyError(f"{name} is a {metric.kind}, not a {kind}")
    if labels.keys() != metric.labels.keys():
        raise KeyError(f"{name} has the labels {sorted(metric.labels)}, not {sorted(labels)}")
    for label, value in labels.items():
        if metric.labels[label] != OF_THE_CLUSTER and value not in metric.labels[label]:
            raise KeyError(f"{name}: {label} is one of {', '.join(metric.labels[label])}, not {value}")
    return name, tuple(labels[label] for label in metric.labels)


def merge(snapshots: Iterable[Snapshot], topics_kept: Collection[str] = ()) -> Snapshot:
    """Several workers' snapshots as one: sums, but the maximum of gauges named *_max, the minimum of `least` ones.

    `topics_kept` keep a place of their own, however many topics there are.
    """
    snapshots = list(snapshots)
    clients = clients_seen.merge(snapshot.clients for snapshot in snapshots)
    topics = topics_seen.merge((snapshot.topics for snapshot in snapshots), topics_kept)
    merged = Snapshot({}, {}, {}, clients, topics)
    for snapshot in snapshots:
        for key, count in snapshot.counters.items():
            merged.counters[key] = merged.counters.get(key, 0) + count
        for key, level in snapshot.gauges.items():
            so_far = merged.gauges.get(key)
            if so_far is None:
                merged.gauges[key] = level
            else:
                merged.gauges[key] = _together(key[0], so_far, level)
        for key, data in snapshot.histograms.items():
            if key in merged.histograms:
                merged.histograms[key].add(data)
            else:
                merged.histograms[key] = HistogramData(*msgspec.structs.astuple(data))
    return merged


def _together(name: str, one: float, other: float) -> float:
    if name in METRICS and METRICS[name].least:
        return min(one, other)
    return max(one, other) if name.endswith("_max") else one + other


def percentile(counts: list[int], bounds: tuple[float, ...], greatest: float, share: float) -> float:
    """The upper bound of the bucket in which `share` (0 to 1) of all observations is reached; at most `greatest`.

    Example: bounds 1 2 4, counts 90 9 1 0, greatest 3.5: p50 → 1, p99 → 2, p999 → 3.5. Without observations: 0.
    """
    wanted = share * sum(counts)
    reached = 0
    for bound, count in zip((*bounds, math.inf), counts, strict=True):
        reached += count
        if count and reached >= wanted:
            return min(bound, greatest)
    return 0.0
