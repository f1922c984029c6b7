"""Counting, at next to no cost on the hot path; adding up what several workers counted.

    stats = Stats()
    moved = stats.counter("forebay_records_total", fate="moved")    # once, at the start: KeyError if there is no such
    moved.value += 12                                               # per batch
    linger = stats.histogram("forebay_batch_linger_time_ms")
    linger.observe(0.4)
    stats.gauge("forebay_queued_bytes", lambda: accumulator.bytes)  # read when asked for

    merge([decode(stats.snapshot()), …])                            # in whoever serves /metrics

Nothing here takes a lock or the time of day in the hot path. A Stats belongs to one event loop.

Windows: gauges like _max and _p99 are about the recent past, as Kafka's metrics are: two windows of 30 seconds
(metrics.sample.window.ms × metrics.num.samples), so what they show is 30 to 60 seconds deep, less after the start.
`tick` turns the windows; it must be called at least every few seconds (a snapshot does it).
"""

from __future__ import annotations

import math
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from forebay_proxy.metrics import clients_seen
from forebay_proxy.metrics.catalog import METRICS, Metric
from forebay_proxy.metrics.clients_seen import ClientsSeen, SeenClient

WINDOW_S: Final = 30.0

LabelValues = tuple[str, ...]
Key = tuple[str, LabelValues]
"""A metric's name and the values of its labels in the order of the table."""


class Counter:
    """A number that only grows: `counter.value += n`."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0


class Histogram:
    """How values are spread over fixed buckets, since the start and over the last window."""

    __slots__ = (
        "_before",
        "_before_at",
        "_bounds",
        "_mark",
        "_mark_at",
        "_max_before",
        "counts",
        "max",
        "sum",
    )

    def __init__(self, bounds: tuple[float, ...], now: float) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        """Observations up to each bound, the last one for those beyond all; not cumulated."""
        self.sum = 0.0
        self.max = -math.inf
        self._max_before = -math.inf
        # Counts as they stood when the window before this one began, and when this one did.
        self._before, self._before_at = list(self.counts), now
        self._mark, self._mark_at = list(self.counts), now

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self._bounds, value)] += 1
        self.sum += value
        if value > self.max:
            self.max = value

    def turn(self, now: float) -> None:
        """A new window begins."""
        self._before, self._before_at = self._mark, self._mark_at
        self._mark, self._mark_at = list(self.counts), now
        self._max_before, self.max = self.max, -math.inf

    def data(self, now: float) -> HistogramData:
        recent = [count - before for count, before in zip(self.counts, self._before, strict=True)]
        seconds = now - self._before_at
        return HistogramData(
            counts=list(self.counts),
            sum=self.sum,
            recent=recent,
            recent_max=max(self.max, self._max_before, 0.0),
            rate=sum(recent) / seconds if seconds > 0 else 0.0,
        )


class HistogramData(msgspec.Struct, array_like=True):
    """What a histogram held at one moment. `recent` and what follows are about the window."""

    counts: list[int]
    sum: float
    recent: list[int]
    recent_max: float
    rate: float

    def add(self, other: HistogramData) -> None:
        self.counts = [mine + theirs for mine, theirs in zip(self.counts, other.counts, strict=True)]
        self.recent = [mine + theirs for mine, theirs in zip(self.recent, other.recent, strict=True)]
        self.sum += other.sum
        self.recent_max = max(self.recent_max, other.recent_max)
        self.rate += other.rate


class Snapshot(msgspec.Struct, array_like=True):
    """Everything that one worker, or several together, counted."""

    counters: dict[Key, int] = {}
    gauges: dict[Key, float] = {}
    histograms: dict[Key, HistogramData] = {}
    clients: list[SeenClient] = []

    def without_present(self) -> Snapshot:
        """What remains of a worker that is gone: what it counted, but no state and nothing recent."""
        past = {
            key: HistogramData(data.counts, data.sum, [0] * len(data.counts), 0.0, 0.0)
            for key, data in self.histograms.items()
        }
        return Snapshot(self.counters, {}, past, clients_seen.past(self.clients))


_decoder: Final = msgspec.msgpack.Decoder(Snapshot)
_encoder: Final = msgspec.msgpack.Encoder()


def decode(data: bytes) -> Snapshot:
    return _decoder.decode(data)


class Stats:
    """One process's metrics, by the names and labels of the table; others are a KeyError where they are asked for."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._window_began = clock()
        self._counters: dict[Key, Counter] = {}
        self._counters_elsewhere: dict[Key, Callable[[], int]] = {}
        self._histograms: dict[Key, Histogram] = {}
        self._gauges: dict[Key, list[Callable[[], float]]] = {}
        self.clients = ClientsSeen(self._window_began)

    def counter(self, name: str, **labels: str) -> Counter:
        """The one counter of that name and labels."""
        return self._counters.setdefault(_key(name, "counter", labels), Counter())

    def counter_from(self, name: str, read: Callable[[], int], **labels: str) -> None:
        """A counter that is kept elsewhere: `read` is called whenever a snapshot is taken, and never falls."""
        self._counters_elsewhere[_key(name, "counter", labels)] = read

    def histogram(self, name: str, **labels: str) -> Histogram:
        key = _key(name, "histogram", labels)
        return self._histograms.setdefault(key, Histogram(METRICS[name].buckets, self._clock()))

    def gauge(self, name: str, read: Callable[[], float], **labels: str) -> None:
        """`read` is called whenever a snapshot is taken; several under one name are added up."""
        self._gauges.setdefault(_key(name, "gauge", labels), []).append(read)

    def value(self, name: str, **labels: str) -> float:
        """What a counter or gauge stands at now; KeyError where nothing has asked for it yet."""
        key = _key(name, METRICS[name].kind, labels)
        if key in self._counters:
            return self._counters[key].value
        if key in self._counters_elsewhere:
            return self._counters_elsewhere[key]()
        return sum(read() for read in self._gauges[key])

    def tick(self) -> None:
        """Begin a new window when it is time."""
        now = self._clock()
        if now - self._window_began >= WINDOW_S:
            self.clients.turn(now)
            self._window_began = now
            for histogram in self._histograms.values():
                histogram.turn(now)

    def take(self) -> Snapshot:
        """Everything as it stands."""
        self.tick()
        now = self._clock()
        return Snapshot(
            counters={key: counter.value for key, counter in self._counters.items()}
            | {key: read() for key, read in self._counters_elsewhere.items()},
            gauges={key: float(sum(read() for read in reads)) for key, reads in self._gauges.items()},
            histograms={key: histogram.data(now) for key, histogram in self._histograms.items()},
            clients=self.clients.snapshot(now),
        )

    def snapshot(self) -> bytes:
        """The same for another process: `decode` reads it."""
        return _encoder.encode(self.take())


def _key(name: str, kind: str, labels: dict[str, str]) -> Key:
    metric: Metric = METRICS[name]
    if metric.kind != kind:
        raise KeyError(f"{name} is a {metric.kind}, not a {kind}")
    if labels.keys() != metric.labels.keys():
        raise KeyError(f"{name} has the labels {sorted(metric.labels)}, not {sorted(labels)}")
    for label, value in labels.items():
        if value not in metric.labels[label]:
            raise KeyError(f"{name}: {label} is one of {', '.join(metric.labels[label])}, not {value}")
    return name, tuple(labels[label] for label in metric.labels)


def merge(snapshots: Iterable[Snapshot]) -> Snapshot:
    """Several workers' as one: sums, but for gauges named *_max the greatest."""
    snapshots = list(snapshots)
    merged = Snapshot({}, {}, {}, clients_seen.merge(snapshot.clients for snapshot in snapshots))
    for snapshot in snapshots:
        for key, count in snapshot.counters.items():
            merged.counters[key] = merged.counters.get(key, 0) + count
        for key, level in snapshot.gauges.items():
            so_far = merged.gauges.get(key)
            if so_far is None:
                merged.gauges[key] = level
            else:
                merged.gauges[key] = max(so_far, level) if key[0].endswith("_max") else so_far + level
        for key, data in snapshot.histograms.items():
            if key in merged.histograms:
                merged.histograms[key].add(data)
            else:
                merged.histograms[key] = HistogramData(*msgspec.structs.astuple(data))
    return merged


def percentile(counts: list[int], bounds: tuple[float, ...], greatest: float, share: float) -> float:
    """The upper bound of the bucket in which that share of all observations is reached, at most the greatest one.

    Example: bounds 1 2 4, counts 90 9 1 0, greatest 3.5: p50 → 1, p99 → 2, p999 → 3.5. Of nothing: 0.
    """
    wanted = share * sum(counts)
    reached = 0
    for bound, count in zip((*bounds, math.inf), counts, strict=True):
        reached += count
        if count and reached >= wanted:
            return min(bound, greatest)
    return 0.0
