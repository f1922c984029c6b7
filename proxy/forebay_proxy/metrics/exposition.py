"""A snapshot in Prometheus's text format.

Each histogram appears
as a Prometheus histogram with one bucket per doubling (its own are finer); a windowed one also as gauges <name>_max,
_p50, _p99 and _p999 and its rate, all over the last window (see registry.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, TypeVar

import msgspec
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from forebay_proxy.metrics.catalog import METRICS, Metric
from forebay_proxy.metrics.registry import HistogramData, Key, LabelValues, Snapshot, percentile
from forebay_proxy.metrics.topics_seen import NamedTopics

T = TypeVar("T")

PERCENTILES: Final = {"p50": 0.5, "p99": 0.99, "p999": 0.999}


def expose(snapshot: Snapshot, version: str, named: NamedTopics | None = None) -> tuple[bytes, str]:
    """(body, content type) of one scrape; `version` is Forebay's, `named` the topics with metrics of their own."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector(snapshot, version, named))
    return generate_latest(registry), CONTENT_TYPE_LATEST


def collector(snapshot: Snapshot, version: str, named: NamedTopics | None = None) -> SnapshotCollector:
    """The same, as metric families."""
    if named is not None:
        snapshot = msgspec.structs.replace(snapshot, counters=snapshot.counters | named.counters(snapshot.topics))
    return SnapshotCollector(snapshot, version)


class SnapshotCollector(Collector):
    """Yields every metric of a snapshot once, in the order of the catalog."""

    def __init__(self, snapshot: Snapshot, version: str) -> None:
        self._snapshot = snapshot
        self._version = version

    def collect(self) -> Iterator[Family]:
        """Metric families, as prometheus_client wants them; forebay_build_info comes first."""
        build = GaugeMetricFamily("forebay_build_info", "Forebay's version, as a label; always 1.", labels=["version"])
        build.add_metric([self._version], 1)
        yield build
        yield from _simple(self._snapshot.counters, CounterMetricFamily)
        yield from _simple(self._snapshot.gauges, GaugeMetricFamily)
        for metric, samples in _by_metric(self._snapshot.histograms):
            yield _histogram(metric, samples)
            if metric.windowed:
                yield from _window(metric, samples)


def _by_metric(values: Mapping[Key, T]) -> Iterator[tuple[Metric, list[tuple[LabelValues, T]]]]:
    for name, metric in METRICS.items():
        samples = [(labels, value) for (key_name, labels), value in values.items() if key_name == name]
        if samples:
            yield metric, samples


def _simple(
    values: Mapping[Key, float], family_of: type[CounterMetricFamily] | type[GaugeMetricFamily]
) -> Iterator[Family]:
    for metric, samples in _by_metric(values):
        family = family_of(metric.name, metric.help, labels=list(metric.labels))
        for labels, value in samples:
            family.add_metric(list(labels), value)
        yield family


def _histogram(metric: Metric, samples: list[tuple[LabelValues, HistogramData]]) -> Family:
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


def _window(metric: Metric, samples: list[tuple[LabelValues, HistogramData]]) -> Iterator[Family]:
    names = list(metric.labels)
    greatest = GaugeMetricFamily(f"{metric.name}_max", f"{metric.help} Maximum of the last window.", labels=names)
    for labels, data in samples:
        greatest.add_metric(list(labels), data.recent_max)
    yield greatest
    for suffix, share in PERCENTILES.items():
        about = f"{metric.help} Percentile of the last window."
        family = GaugeMetricFamily(f"{metric.name}_{suffix}", about, labels=names)
        for labels, data in samples:
            family.add_metric(list(labels), percentile(data.recent, metric.buckets, data.recent_max, share))
        yield family
    if metric.rate:
        family = GaugeMetricFamily(metric.rate, "Batches flushed per second over the last window.", labels=names)
        for labels, data in samples:
            family.add_metric(list(labels), data.rate)
        yield family
