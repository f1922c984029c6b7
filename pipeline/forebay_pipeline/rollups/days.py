"""Days in UTC, as 2026-11-21: which of a journal are over, and which a report wants.

A day is over once the journal has rows that are LATE_US later than its end: then what was written meanwhile has been
closed, copied or compacted, in the order in which it was written. By the clock alone a day would be over while a
`compact` that lags has half of it. But the clock has a say as well, so that a proxy whose clock is days ahead does not
end the present day.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from forebay_pipeline.errors import CannotRun
from forebay_pipeline.journal.schema import KIND, TORN
from forebay_pipeline.journal.source import JournalPlace, days, read_rows
from forebay_pipeline.journal.span import DAY_US, HOUR_US, Span
from forebay_policies.journal_rows import BatchRow, GaugeRow

LATE_US: Final = HOUR_US
"""No file of the proxy's is open for longer: journal.roll.ms allows no more."""


def span_of(day: str) -> Span:
    """All of the day."""
    first = int(datetime.datetime.fromisoformat(f"{day}T00:00+00:00").timestamp()) * 1_000_000
    return Span(first, first + DAY_US)


def span_of_all(days: Sequence[str]) -> tuple[int, int]:
    """The first microsecond of the first day, and the last one of the last; there is one at least."""
    first_us, end_us = span_of(days[0]).first, span_of(days[-1]).last
    assert first_us is not None
    assert end_us is not None
    return first_us, end_us - 1


def missing_us(days: Collection[str], first_us: int, last_us: int) -> int:
    """How long of that time is of days that are not among these."""
    every = range(first_us - first_us % DAY_US, last_us + 1, DAY_US)
    return DAY_US * sum(day_at(time_us) not in days for time_us in every)


def stretch(days: Collection[str]) -> Column:
    """Where the stretch of adjacent days began that `time_us` is in: each is after days that are not among these."""
    firsts = [span_of_all([day])[0] for day in days if before(day) not in days]
    return F.array_max(F.array(*(F.when(F.col("time_us") >= first, first) for first in firsts)))


def day_at(time_us: int) -> str:
    """The day of a time in microseconds since 1970."""
    return f"{datetime.datetime.fromtimestamp(time_us // 1_000_000, datetime.UTC):%Y-%m-%d}"


def before(day: str) -> str:
    """The day before."""
    first, _ = span_of(day)
    assert first is not None
    return day_at(first - DAY_US)


def after(day: str) -> str:
    """The day after."""
    _, end = span_of(day)
    assert end is not None
    return day_at(end)


def over(spark: SparkSession, place: JournalPlace, span: Span, now_us: int) -> list[str]:
    """The days that are over, and of which the span has all, in order. Raises CannotRun if there is no journal."""
    found = [day for day in days(spark, place) if _within(span, span_of(day))]
    while found and not _is_over(spark, place, found[-1], now_us):
        found.pop()
    return found


def _within(span: Span, day: Span) -> bool:
    assert day.first is not None
    assert day.last is not None
    return (span.first is None or span.first <= day.first) and (span.last is None or day.last <= span.last)


def _is_over(spark: SparkSession, place: JournalPlace, day: str, now_us: int) -> bool:
    _, end_us = span_of(day)
    assert end_us is not None
    if now_us < end_us + LATE_US:
        return False
    later = read_rows(spark, place, Span(end_us + LATE_US, None), [BatchRow, GaugeRow])
    return _has_rows(later.where(F.col(KIND) != TORN))


def _has_rows(rows: DataFrame) -> bool:
    return bool(rows.take(1))


class DayCoverage(NamedTuple):
    """Days of a span."""

    there: Sequence[str]
    missing: Sequence[str]
    """Between the first and the last."""


def coverage(there: Collection[str], span: Span) -> DayCoverage:
    """The days of the span, of those that are there; without ends, from the first of these to the last.

    Raises CannotRun unless the span begins and ends with a day.
    """
    for option, time_us in (("--from", span.first), ("--to", span.last)):
        if time_us is not None and time_us % DAY_US:
            raise CannotRun(f"{option} must be the beginning of a day in UTC: rollups are of whole days.")
    found = sorted(day for day in there if _within(span, span_of(day)))
    if not found:
        return DayCoverage([], [])
    first = span.first if span.first is not None else span_of(found[0]).first
    last = span.last if span.last is not None else span_of(found[-1]).last
    assert first is not None
    assert last is not None
    every = [day_at(time_us) for time_us in range(first, last, DAY_US)]
    return DayCoverage(found, [day for day in every if day not in set(found)])
