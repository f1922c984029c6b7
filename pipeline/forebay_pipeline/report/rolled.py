"""All that the page shows, from rollups instead of a journal's rows.

In: a session, a folder of rollups, and a span of whole days. Out: Known, with the same counts; points in time are an
hour apart, or more where they would be too many. Raises CannotRun if there is nothing of the span.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from forebay_pipeline.advice.facts import Facts
from forebay_pipeline.errors import CannotRun
from forebay_pipeline.jobs.time_text import within
from forebay_pipeline.journal.columns import window_start
from forebay_pipeline.journal.span import DAY_US, HOUR_US, Span
from forebay_pipeline.report.sections import MAX_ROWS, Asked, Known, covered
from forebay_pipeline.report.series import Series, TimePoint, bucket_us, gauge_points, time_point, topic_shares
from forebay_pipeline.rollups import tables
from forebay_pipeline.rollups.days import DayCoverage, coverage, missing_us, span_of
from forebay_pipeline.rollups.rolled import Rolled, rolled
from forebay_pipeline.rollups.store import RollupStore
from forebay_pipeline.rollups.times import percentiles_of

_NAMED: Final = 5


def known_of_days(spark: SparkSession, folder: str, span: Span, asked: Asked) -> Known:
    """What the rollups in `folder` tell of the span."""
    store = RollupStore(spark, folder)
    days = coverage(store.days(), span)
    if not days.there:
        raise CannotRun(f"There are no rollups{within(span)} in {folder}.")
    with rolled(spark, store, days.there) as found:
        summary = found.summary(MAX_ROWS)
        names = [topic.topic for topic in summary.topics[: asked.topics]]
        drawn = series(found, summary.first_us, summary.last_us, names)
        drawn = drawn._replace(missing=frozenset(_unknown(days.missing, drawn.width_us)))
        known = Facts(summary, present=asked.present, replay=asked.replay, price_per_gb=asked.price_per_gb)
        facts = found.facts(known)
        told = Known(drawn, facts, asked.audit, list(_missing(days)))
        return told._replace(missing_us=missing_us(days.there, *covered(told)))


def series(found: Rolled, first_us: int, last_us: int, topics: Sequence[str]) -> Series:
    """The series of the report, as series.series has them."""
    width_us = max(HOUR_US, bucket_us(first_us, last_us))
    gauges, hours = found.read(tables.GAUGES), found.read(tables.PARTITION_HOURS)
    return Series(
        width_us, _time_points(found, width_us), gauge_points(gauges, width_us), topic_shares(hours, topics, width_us)
    )


def _time_points(found: Rolled, width_us: int) -> list[TimePoint]:
    def dated(rows: DataFrame) -> DataFrame:
        return rows.withColumn("at_us", window_start(width_us))

    sums = (F.sum(name).alias(name) for name in ("batches", "records", "failed", "bytes"))
    counted = dated(found.read(tables.HOURS)).groupBy("at_us").agg(*sums)
    levels = percentiles_of(dated(found.read(tables.HOUR_TIMES)), ["at_us"], ["linger_us", "wait_us", "bytes"])
    points = counted.withColumn("average", F.col("bytes") / F.col("batches")).drop("bytes")
    rows = points.join(levels.withColumnRenamed("bytes", "sizes"), "at_us").orderBy("at_us")
    return [time_point(row) for row in rows.collect()]


def _unknown(days: Sequence[str], width_us: int) -> Iterator[int]:
    """When the buckets begin that have some of these days."""
    for day in days:
        first_us, _ = span_of(day)
        assert first_us is not None
        yield from range(first_us - first_us % width_us, first_us + DAY_US, width_us)


def _missing(days: DayCoverage) -> Iterator[str]:
    if days.missing:
        named = ", ".join(days.missing[:_NAMED]) + (", …" if len(days.missing) > _NAMED else "")
        every = len(days.there) + len(days.missing)
        yield f"Of {len(days.missing):,} of {every:,} days there are no rollups: {named}."
