"""Metrics pushed to an OpenTelemetry collector, by OTLP over HTTP: the names and numbers of /metrics.

In: all metric families as of now, when asked; an address. Out: an export each interval, of totals since this process
began. No request waits for a collector: the export is sent by a thread, and while one is under way the next is left
out. How else the collector is to be reached, OpenTelemetry's own variables say (OTEL_EXPORTER_OTLP_HEADERS,
_CERTIFICATE, _COMPRESSION, _TIMEOUT), and who this is, OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES. Headers may be
secret: no log has one.

It needs the extra `otlp`: without it importing this raises ImportError.
"""

from __future__ import annotations

import asyncio
import logging
import re
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from itertools import pairwise
from math import inf
from typing import Any, Final

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client.metrics_core import Metric as Family

from forebay_proxy.config.secret import HIDDEN
from forebay_proxy.logs import RateLimited, get_logger
from forebay_proxy.metrics.registry import MetricRegistry

Families = Callable[[], Awaitable[Iterable[Family]]]

_CUMULATIVE: Final = AggregationTemporality.CUMULATIVE
_UNITS: Final = {"_seconds": "s", "_bytes": "By"}
_OF_HEADER: Final = re.compile(r"(header (?:name|value)\W*?) .*", re.DOTALL)
_SLICE: Final = 200
"""Numbers that are made into points before others have their turn: about a millisecond."""
_UNKNOWN: Final[Any] = None
"""The least and the greatest that a histogram has seen: OTLP need not be told."""


class OtlpExport:
    """Exports to `endpoint` every `interval` seconds while it runs. `stats` counts what became of each export."""

    def __init__(self, endpoint: str, interval: float, families: Families, stats: MetricRegistry, version: str) -> None:
        self._interval = interval
        self._families = families
        self._outcomes = {
            outcome: stats.counter("forebay_otlp_exports_total", outcome=outcome)
            for outcome in ("accepted", "failed", "skipped")
        }
        ours = {"service.name": "forebay", "service.version": version}
        self._resource = Resource.create({**ours, **OTELResourceDetector().detect().attributes})
        self._scope = InstrumentationScope("forebay", version)
        self._began = time.time_ns()
        self._log = RateLimited(get_logger())
        self._said = _Said()
        self._exporter = OTLPMetricExporter(endpoint)
        self._under_way = False

    async def run(self) -> None:
        """Never returns."""
        while True:
            await asyncio.sleep(self._interval)
            await self.export()

    async def export(self) -> None:
        """Begin an export of all that is counted by now, unless the one before is under way."""
        if self._under_way:
            self._outcomes["skipped"].value += 1
            self._log.warning("metrics are not exported: the collector has not taken the last ones yet")
            return
        metrics = await exported(await self._families(), self._began, time.time_ns())
        data = MetricsData([ResourceMetrics(self._resource, [ScopeMetrics(self._scope, metrics, "")], "")])
        self._under_way = True
        # A daemon, since a process that ends must not wait for a collector.
        threading.Thread(
            target=self._send, args=(data, asyncio.get_running_loop()), name="otlp export", daemon=True
        ).start()

    def _send(self, data: MetricsData, loop: asyncio.AbstractEventLoop) -> None:
        """In a thread of its own."""
        try:
            accepted = self._exporter.export(data) is MetricExportResult.SUCCESS
        except Exception as error:  # the libraries beneath promise nothing: this is one more export that failed
            self._said.hear(str(error))
            accepted = False
        try:
            loop.call_soon_threadsafe(self._ended, accepted)
        except RuntimeError:
            pass  # the loop has ended meanwhile

    def _ended(self, accepted: bool) -> None:  # noqa: FBT001 - call_soon_threadsafe passes no keywords
        self._under_way = False
        self._outcomes["accepted" if accepted else "failed"].value += 1
        if not accepted:
            self._log.warning("metrics were not exported", error=self._said.last)


class _Said(logging.Handler):
    """What OpenTelemetry's exporter says to the standard library's log, the last of it; it does not get to ours.

    To be there before the exporter is: what reads the variables complains right away, with what it has read.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.last = ""
        logger = logging.getLogger("opentelemetry.exporter")
        logger.handlers = [self]
        logger.propagate = False
        logging.getLogger("opentelemetry.util.re").addFilter(_without_header)

    def emit(self, record: logging.LogRecord) -> None:
        self.hear(record.getMessage())

    def hear(self, text: str) -> None:
        """This is the last."""
        self.last = _OF_HEADER.sub(rf"\1 {HIDDEN}", text)


def _without_header(record: logging.LogRecord) -> bool:
    record.msg, record.args = "a part of OTEL_EXPORTER_OTLP_HEADERS or _METRICS_HEADERS is no name=value", ()
    return True


async def exported(families: Iterable[Family], began: int, now: int) -> list[Metric]:
    """The same as OTLP has them, those of one name together; `began` and `now` are nanoseconds since 1970.

    Whoever else has something to do in this loop does it meanwhile.
    """
    found: dict[tuple[str, str], tuple[Family, list[Any]]] = {}
    samples = 0
    await asyncio.sleep(0)
    for family in families:
        points = found.setdefault((family.name, family.type), (family, []))[1]
        if family.type == "histogram":
            points += _distributions(family, began, now)
        else:
            points += [NumberDataPoint(dict(it.labels), began, now, float(it.value)) for it in family.samples]
        samples += len(family.samples)
        if samples >= _SLICE:
            await asyncio.sleep(0)
            samples = 0
    return [_metric(family, points) for family, points in found.values()]


def _metric(family: Family, points: list[Any]) -> Metric:
    name = f"{family.name}_total" if family.type == "counter" else family.name
    unit = next((unit for suffix, unit in _UNITS.items() if family.name.endswith(suffix)), "")
    if family.type == "histogram":
        data: Sum | Gauge | Histogram = Histogram(points, _CUMULATIVE)
    else:
        data = Sum(points, _CUMULATIVE, is_monotonic=True) if family.type == "counter" else Gauge(points)
    return Metric(name, family.documentation, unit, data)


def _distributions(family: Family, began: int, now: int) -> Iterator[HistogramDataPoint]:
    """A point for each set of labels. Prometheus counts what is up to a bound, OTLP what is between two."""
    of: dict[tuple[tuple[str, str], ...], dict[float, float]] = {}
    sums: dict[tuple[tuple[str, str], ...], float] = {}
    for sample in family.samples:
        labels = dict(sample.labels)
        bound = labels.pop("le", None)
        key = tuple(labels.items())
        if bound is not None:
            of.setdefault(key, {})[float(bound)] = sample.value
        elif sample.name.endswith("_sum"):
            sums[key] = sample.value
    for key, reached in of.items():
        counts = [int(upper - lower) for lower, upper in pairwise([0.0, *reached.values()])]
        yield HistogramDataPoint(
            dict(key),
            began,
            now,
            count=sum(counts),
            sum=sums[key],
            bucket_counts=counts,
            explicit_bounds=[bound for bound in reached if bound < inf],
            min=_UNKNOWN,
            max=_UNKNOWN,
        )
