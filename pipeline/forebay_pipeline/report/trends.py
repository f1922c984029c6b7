"""What has changed between the beginning and the end of the time: the first quarter of it against the last.

In: the report's series. Out: a Trend for each number that is told over time; none of a time with fewer than LEAST
buckets. The first and the last bucket do not count: they are seldom whole. Nor do those of which nothing is known.

A trend is clear where the medians differ by CLEARLY and the middle halves of the two quarters do not overlap:

    first quarter   9  10  11  12      median 10.5, middle half 9.75 to 11.25
    last quarter   13  15  16  30      median 15.5, middle half 14.5 to 19.5      +48 %, clear
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median, quantiles
from typing import Final, NamedTuple

from forebay_pipeline.report.series import Series

LEAST: Final = 14
CLEARLY: Final = 0.2


class Trend(NamedTuple):
    """One number, at first and at last."""

    name: str
    unit: str
    """After the number; empty: none."""
    first: float
    last: float
    clear: bool

    @property
    def change(self) -> float | None:
        """As a part of what it was at first; None if that was 0."""
        return self.last / self.first - 1 if self.first else None

    @property
    def verdict(self) -> str:
        """rose, fell or steady."""
        if not self.clear:
            return "steady"
        return "rose" if self.last > self.first else "fell"


def trends(series: Series) -> Iterator[Trend]:
    """All that can be told."""
    if not series.times:
        return
    seconds = series.width_us / 1e6
    every = range(series.times[0].time_us + series.width_us, series.times[-1].time_us, series.width_us)
    whole = [at for at in every if at not in series.missing]
    if len(whole) < LEAST - 2:
        return
    points = {point.time_us: point for point in series.times}
    gauges = {point.time_us: point for point in series.gauges}
    sent = [points[at] for at in whole if at in points]
    told = [gauges[at] for at in whole if at in gauges]
    rates = [points[at].records / seconds if at in points else 0.0 for at in whole]
    for name, unit, values in (
        ("Records a second", "", rates),
        ("Bytes of a batch", "", [point.bytes_average for point in sent]),
        ("Latency, p50", "ms", [point.wait_us.p50_us / 1000 for point in sent]),
        ("Latency, p99", "ms", [point.wait_us.p99_us / 1000 for point in sent]),
        ("Linger, p99", "ms", [point.linger_us.p99_us / 1000 for point in sent]),
        ("Batches not acknowledged", "%", [100 * point.failed / point.batches for point in sent]),
        ("Memory held", "bytes", [float(point.pool_used_bytes) for point in told]),
        ("Waiting for brokers", "bytes", [float(point.queued_bytes) for point in told]),
    ):
        quarter = len(values) // 4
        if quarter >= (LEAST - 2) // 4:
            yield _trend(name, unit, values[:quarter], values[-quarter:])


def _trend(name: str, unit: str, first: Sequence[float], last: Sequence[float]) -> Trend:
    before, after = median(first), median(last)
    low, high = (first, last) if before <= after else (last, first)
    apart = quantiles(low, n=4, method="inclusive")[2] < quantiles(high, n=4, method="inclusive")[0]
    return Trend(name, unit, before, after, clear=apart and abs(after - before) >= CLEARLY * before)
