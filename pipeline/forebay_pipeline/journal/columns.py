"""What several jobs make of the columns of the journal's rows."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from forebay_pipeline.journal.span import DAY_US


def day_of(time_us: str) -> Column:
    """The date in UTC, whatever time zone the session has, of a column of microseconds since 1970."""
    return F.expr(f"date_add(DATE'1970-01-01', int({time_us} div {DAY_US}))")


def window_start(width_us: int) -> Column:
    """The start of the window that a row's `time_us` is in, in microseconds since 1970."""
    return F.col("time_us") - F.pmod("time_us", F.lit(width_us))


def wait() -> Column:
    """How long a batch took from its first record until its fate was known: linger and upstream, in microseconds."""
    return F.col("linger_us") + F.col("upstream_us")
