"""Spans of time, in microseconds since 1970, and which of a journal's rows are in them."""

from __future__ import annotations

import datetime
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from forebay_pipeline.journal.schema import DAY, KIND, TORN

HOUR_US: Final = 3_600_000_000
DAY_US: Final = 24 * HOUR_US
_LAST_DAY: Final = (datetime.date.max - datetime.date(1970, 1, 1)).days


class Span(NamedTuple):
    """[first, last) in microseconds since 1970; None leaves that end open."""

    first: int | None = None
    last: int | None = None

    @property
    def holds(self) -> Column:
        """Whether a row's `time_us` is within the span."""
        within = F.expr("true")
        if self.first is not None:
            within &= F.col("time_us") >= self.first
        if self.last is not None:
            within &= F.col("time_us") < self.last
        return within

    @property
    def days(self) -> Column:
        """Whether DAY is one that the span touches."""
        within = F.expr("true")
        if self.first is not None:
            within &= F.col(DAY) >= _day(self.first)
        if self.last is not None:
            within &= F.col(DAY) <= _day(self.last - 1)
        return within

    def of(self, rows: DataFrame) -> DataFrame:
        """The rows of the span, and all torn ones: those have no time."""
        return rows.where(self.holds | (F.col(KIND) == TORN))

    def of_days(self, rows: DataFrame) -> DataFrame:
        """The same of rows that have DAY, apart, so that either half is pruned by what its files and folders tell."""
        if self == ALL_TIME:
            return rows
        is_torn = F.col(KIND) == TORN
        return rows.where(~is_torn & self.days & self.holds).unionByName(rows.where(is_torn))


def _day(time_us: int) -> str:
    """The nearest one since 1970 that dates have: a span with a margin may go beyond them."""
    day = min(max(time_us // DAY_US, 0), _LAST_DAY)
    return f"{datetime.date(1970, 1, 1) + datetime.timedelta(day)}"


ALL_TIME: Final = Span()
