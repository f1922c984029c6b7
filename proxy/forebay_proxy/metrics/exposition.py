"""A snapshot in Prometheus's text format.

Each histogram appears
as a Prometheus histogram with one bucket per doubling (its own are finer); a windowed one also as gauges <name>_max,
_p50, _p99 and _p999 and its rate, all over the last window (see registry.py).

A metric of many series comes in pieces: families of one name, one after the other. So whoever passes records on in the
same loop can have these go on between two of them (scrapes.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Final, TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from forebay_proxy.metrics.catalog import METRICS, Metric
from forebay_proxy.metrics.registry import HistogramData, Key, LabelValues, Snapshot, percentile
from forebay_proxy.metrics.topics_seen import NamedTopics

T = TypeVar("T")
Samples = list[tuple[LabelValues, T]]

PERCENTILES: Final = {"p50": 0.5, "p99": 0.99, "p999": 0.999}
_SERIES: Final = 50
"""Of a piece: half a millisecond."""
_HISTOGRAMS: Final = 4
"""The same: each has dozens of numbers."""


def expose(snapshot: Snapshot, version: str, named: NamedTopics | None = None) -> tuple[bytes, str]:
    """(body, content type) of one scrape; `version` is Forebay's, `named` the topics with metrics of their own."""
    return b"".join(texts(families(snapshot, version, named))), CONTENT_TYPE_LATEST


def texts(pieces: Iterable[Family]) -> Iterator[bytes]:
    """The text of each piece. What a metric is, only its first one says."""
    before = None
    for piece in pieces:
        text = generate_latest(_Only(piece))
        yield text.split(b"\n", 2)[2] if (piece.name, piece.type) == before else text
        before = piece.name, piece.type


class _Only(Collector):
    def __init__(self, family: Family) -> None:
        self._family = family

    def collect(self) -> Iterable[Family]:
        return (self._family,)


def families(snapshot: Snapshot, version: str, named: NamedTopics | None = None) -> Iterator[Family]:
    """The same as metric families, in the order of the catalog; forebay_build_info comes first."""
    build = GaugeMetricFamily("forebay_build_info", "Forebay's version, as a label; always 1.", labels=["version"])
    build.add_metric([version], 1)
    yield build
    counters = snapshot.counters if named is None else snapshot.counters | named.counters(snapshot.topics)
    yield from _simple(counters, CounterMetricFamily)
    yield from _simple(snapshot.gauges, GaugeMetricFamily)
    for metric, samples in _by_metric(snapshot.histograms):
        for piece in _pieces(samples, _HISTOGRAMS):
            yield _histogram(metric, piece)
        if metric.windowed:
            yield from _window(metric, samples)


def _by_metric(values: Mapping[Key, T]) -> Iterator[tuple[Metric, Samples[T]]]:
    found: dict[str, Samples[T]] = {}
    for (name, labels), value in values.items():
        found.setdefault(name, []).append((labels, value))
    for name, metric in METRICS.items():
        if name in found:
            yield metric, found[name]


def _pieces(samples: Samples[T], most: int = _SERIES) -> Iterator[Samples[T]]:
    for at in range(0, len(samples), most):
        yield samples[at : at + most]


def _simple(
    values: Mapping[Key, float], family_of: type[CounterMetricFamily] | type[GaugeMetricFamily]
) -> Iterator[Family]:
    for metric, samples in _by_metric(values):
        for piece in _pieces(samples):
            family = family_of(metric.name, metric.help, labels=list(metric.labels))
            for labels, value in piece:
                family.add_metric(list(labels), value)
            yield family


def _histogram(metric: Metric, samples: Samples[HistogramData]) -> Family:
    family = HistogramMetricFamily(metric.name, metric.help, labels=list(metric.labels))
    for labels, data in samples:
        family.add_metric(list(labels), list(_cumulated(metric, data)), data.sum)
    return family


def _cumulated(metric: Metric, data: HistogramData) -> Iterator[tuple[str, float]]:
    """(upper bound, observations up to it) for every bound that is shown, +Inf last."""
    reached = 0
    for index, bound in enumerate(metric.buckets):
        reached += data.counts[index]
        if index % metric.shown_every == 0:
            yield str(bound), reached
    yield "+Inf", reached + data.counts[-1]


def _window(metric: Metric, samples: Samples[HistogramData]) -> Iterator[Family]:
    of = f"{metric.help} Maximum of the last window."
    yield from _gauges(f"{metric.name}_max", of, metric, samples, lambda data: data.recent_max)
    for suffix, share in PERCENTILES.items():
        of = f"{metric.help} Percentile of the last window."
        yield from _gauges(f"{metric.name}_{suffix}", of, metric, samples, partial(_percentile, metric, share))
    if metric.rate:
        of = "Batches flushed per second over the last window."
        yield from _gauges(metric.rate, of, metric, samples, lambda data: data.rate)


def _percentile(metric: Metric, share: float, data: HistogramData) -> float:
    return percentile(data.recent, metric.buckets, data.recent_max, share)


def _gauges(
    name: str, of: str, metric: Metric, samples: Samples[HistogramData], value: Callable[[HistogramData], float]
) -> Iterator[Family]:
    for piece in _pieces(samples):
        family = GaugeMetricFamily(name, of, labels=list(metric.labels))
        for labels, data in piece:
            family.add_metric(list(labels), value(data))
        yield family
