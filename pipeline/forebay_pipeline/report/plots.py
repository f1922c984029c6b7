"""The report's plots.

Each has a description with its numbers for readers who cannot see it. Series over time must not be empty.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import UTC
from typing import Final, NamedTuple

from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, DateFormatter
from matplotlib.ticker import EngFormatter, Formatter, FuncFormatter, MaxNLocator, NullFormatter

from forebay_pipeline.audit.result import Counts, Kind
from forebay_pipeline.journal.span import DAY_US
from forebay_pipeline.partitions.summary import Percentiles
from forebay_pipeline.replay.results import ReplayReport
from forebay_pipeline.report.series import GaugePoint, TimePoint, TopicShares
from forebay_pipeline.report.svg import OTHERS, PAGE, SERIES, Plot, plot

_BAD: Final = SERIES[5]
_DECADES: Final = 30
_TEN_MINUTES: Final = 10 / 1440


class _Scale(NamedTuple):
    """A y axis; if `logarithmic`, then only for values that are far apart."""

    label: str
    formatter: Callable[[], Formatter]
    logarithmic: bool


def _plain() -> Formatter:
    return FuncFormatter(lambda value, _: f"{value:,g}")


def _size() -> Formatter:
    return EngFormatter(unit="B", places=0)


_MS: Final = _Scale("ms", _plain, logarithmic=True)
_RATE: Final = _Scale("a second", _plain, logarithmic=False)
_SIZE: Final = _Scale("a batch", _size, logarithmic=True)
_MEMORY: Final = _Scale("at most", _size, logarithmic=False)


class _Timeline:
    """All buckets from the first to the last, including empty ones."""

    def __init__(self, times: Sequence[int], width_us: int) -> None:
        self.buckets = range(times[0], times[-1] + 1, width_us)
        self._width_us = width_us

    def middles(self) -> list[float]:
        return [_days(bucket + self._width_us // 2) for bucket in self.buckets]

    def edges(self) -> list[float]:
        """Start and end of each bucket."""
        return [_days(edge) for bucket in self.buckets for edge in (bucket, bucket + self._width_us)]

    def axis(self, axes: Axes) -> None:
        first_us, last_us = self.buckets[0], self.buckets[-1] + self._width_us
        days = _days(last_us - first_us)
        form = "%H:%M:%S" if days < _TEN_MINUTES else "%H:%M" if days < 2 else "%m-%d"
        axes.set_xlim(_days(first_us), _days(last_us))
        axes.xaxis.set_major_locator(AutoDateLocator(minticks=2, maxticks=5, tz=UTC))  # type: ignore[no-untyped-call]
        axes.xaxis.set_major_formatter(DateFormatter(form, tz=UTC))  # type: ignore[no-untyped-call]


def _days(time_us: int) -> float:
    """Microseconds as days, matplotlib's unit of time."""
    return time_us / DAY_US


def shares(number: int, topic: TopicShares, width_us: int) -> Plot:
    """The partitions' shares of one topic's bytes; `number` tells its plot from those of other topics."""
    timeline = _Timeline([point.time_us for point in topic.points], width_us)
    by_time = {point.time_us: point.shares for point in topic.points}
    names: dict[int | None, str] = {partition: f"partition {partition}" for partition in topic.partitions}
    if any(None in point.shares for point in topic.points):
        names[None] = "others"
    rows = [[100 * by_time.get(bucket, {}).get(key, 0.0) for bucket in timeline.buckets] for key in names]

    def draw(axes: Axes) -> None:
        axes.stackplot(
            timeline.edges(),
            [[value for value in row for _ in range(2)] for row in rows],
            labels=list(names.values()),
            colors=[OTHERS if key is None else SERIES[place] for place, key in enumerate(names)],
            edgecolor=PAGE,
            linewidth=0.4,
        )
        axes.set_ylim(0, 100)
        axes.set_ylabel("% of the bytes")
        timeline.axis(axes)

    told = ", ".join(f"{name} {_range(row)} %" for name, row in zip(names.values(), rows, strict=True))
    return plot(f"shares-{number}", f"Shares of {topic.topic}", f"Of the bytes sent, over time: {told}.", draw)


def rates(points: Sequence[TimePoint], width_us: int) -> Plot:
    """How many records were sent."""
    seconds = width_us / 1e6
    line = [point.records / seconds for point in points]
    told = f"Records a second, over time: {_range(line)}."
    times = [point.time_us for point in points]
    return _lines("rates", "Records sent", told, {"records": line}, times, width_us, _RATE)


def waits(points: Sequence[TimePoint], width_us: int) -> Plot:
    """Percentiles of how long batches took."""
    title = "Latency: from a batch's first record to its outcome"
    return _percentiles("waits", title, [point.wait_us for point in points], points, width_us)


def lingers(points: Sequence[TimePoint], width_us: int) -> Plot:
    """Percentiles of how long batches lingered."""
    title = "Linger: from a batch's first record until it is sent"
    return _percentiles("lingers", title, [point.linger_us for point in points], points, width_us)


def _percentiles(
    name: str, title: str, values: Sequence[Percentiles], points: Sequence[TimePoint], width_us: int
) -> Plot:
    lines = {
        "p99.9": [value.p999_us / 1000 for value in values],
        "p99": [value.p99_us / 1000 for value in values],
        "p50": [value.p50_us / 1000 for value in values],
    }
    told = ", ".join(f"{label} {_range(line)} ms" for label, line in lines.items())
    return _lines(name, title, f"Over time: {told}.", lines, [point.time_us for point in points], width_us, _MS)


def sizes(points: Sequence[TimePoint], width_us: int) -> Plot:
    """How large batches were."""
    lines = {
        "p99": [float(point.bytes_p99) for point in points],
        "average": [point.bytes_average for point in points],
        "p50": [float(point.bytes_p50) for point in points],
    }
    told = f"Bytes of a batch, over time: {', '.join(f'{label} {_range(line)}' for label, line in lines.items())}."
    return _lines("sizes", "Batch sizes", told, lines, [point.time_us for point in points], width_us, _SIZE)


def memory(points: Sequence[GaugePoint], width_us: int) -> Plot:
    """Memory held and bytes queued, over all workers."""
    lines = {
        "held by the pool": [float(point.pool_used_bytes) for point in points],
        "waiting for brokers": [float(point.queued_bytes) for point in points],
    }
    peak = max(points, key=lambda point: point.pool_used_bytes)
    told = (
        f"At most {peak.pool_used_bytes:,} of {peak.pool_bytes:,} bytes of buffer.memory were held; "
        f"at most {max(point.queued_bytes for point in points):,} bytes waited for their broker."
    )
    title = "Queue depth and memory of all workers"
    return _lines("memory", title, told, lines, [point.time_us for point in points], width_us, _MEMORY)


def _lines(
    name: str,
    title: str,
    description: str,
    lines: dict[str, list[float]],
    times: Sequence[int],
    width_us: int,
    scale: _Scale,
) -> Plot:
    timeline = _Timeline(times, width_us)

    def draw(axes: Axes) -> None:
        for place, (label, values) in enumerate(lines.items()):
            known = dict(zip(times, values, strict=True))
            found = [known.get(bucket, math.nan) for bucket in timeline.buckets]
            marker = "o" if len(times) == 1 else None
            axes.plot(timeline.middles(), found, label=label, color=SERIES[place], marker=marker)
        if scale.logarithmic and _far_apart([value for values in lines.values() for value in values]):
            axes.set_yscale("log")
            axes.yaxis.set_minor_formatter(NullFormatter())
        else:
            axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter(scale.formatter())
        axes.set_ylabel(scale.label)
        timeline.axis(axes)

    return plot(name, title, description, draw, legend=len(lines) > 1)


def _far_apart(values: Sequence[float]) -> bool:
    """Whether a logarithmic axis would have enough ticks."""
    return 0 < _DECADES * min(values) < max(values)


def _range(values: Sequence[float]) -> str:
    return f"{min(values):,.1f} to {max(values):,.1f}"


def audit(counts: Counts) -> Plot:
    """Bars are logarithmic: one missing record among a million must be visible."""
    bad = [kind.value for kind in Kind]
    numbers = {
        kind: int(getattr(counts, kind))
        for kind in ("present", *bad, "expired", "compacted", "unacknowledged", "not_followed")
    }

    def draw(axes: Axes) -> None:
        names = [kind.replace("_", " ") for kind in numbers]
        lengths = [math.log10(1 + number) for number in numbers.values()]
        axes.barh(names, lengths, color=[_BAD if kind in bad else SERIES[0] for kind in numbers], height=0.6)
        for place, (length, number) in enumerate(zip(lengths, numbers.values(), strict=True)):
            axes.annotate(f"{number:,}", (length, place), (4, 0), textcoords="offset points", va="center")
        axes.invert_yaxis()
        axes.set_xlim(0, 1.4 * max(1.0, *lengths))
        axes.tick_params(axis="x", bottom=False, labelbottom=False)
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=False)

    told = ", ".join(f"{kind.replace('_', ' ')} {number:,}" for kind, number in numbers.items())
    return plot("audit", "What became of the records", f"Lengths are logarithmic. Records: {told}.", draw, legend=False)


def grid(report: ReplayReport) -> Plot:
    """Latency and batch size: a point for each of the settings."""
    marks = {report.present: "present", report.recommended: "recommended"}
    if report.present == report.recommended:
        marks = {report.present: "present, recommended"}

    def draw(axes: Axes) -> None:
        others = [result for index, result in enumerate(report.results) if index not in marks]
        if others:
            x, y = [result.p99_ms for result in others], [result.batch_bytes for result in others]
            axes.scatter(x, y, s=22, color=SERIES[0], alpha=0.6, linewidths=0, label="others")
        for (index, label), colour, marker in zip(marks.items(), SERIES[1:], "sD", strict=False):
            result = report.results[index]
            axes.scatter([result.p99_ms], [result.batch_bytes], s=60, marker=marker, color=colour, label=label)
        axes.set_xlabel("p99 of the latency, ms")
        axes.set_ylabel("a batch")
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.xaxis.set_major_formatter(_plain())
        axes.yaxis.set_major_formatter(_size())
        axes.margins(0.1)

    told = "; ".join(
        f"{label}: p99 {report.results[index].p99_ms:,.2f} ms, {report.results[index].batch_bytes:,.0f} bytes a batch"
        for index, label in marks.items()
    )
    title = "Latency and batch size of the settings tried"
    return plot("grid", title, f"{len(report.results)} settings. {told}.", draw)
