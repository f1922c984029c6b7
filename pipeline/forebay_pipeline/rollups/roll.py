"""Rolls a day up.

In: its rows, and what the runaway detector remembers of the day before. Out: the rows of tables.TABLES.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from forebay_pipeline.advice import clients, counts
from forebay_pipeline.advice.facts import length_s
from forebay_pipeline.journal.columns import wait, window_start
from forebay_pipeline.journal.span import HOUR_US, Span
from forebay_pipeline.partitions import batches as of_batches
from forebay_pipeline.partitions import workers
from forebay_pipeline.partitions.measures import Questions, Rows
from forebay_pipeline.partitions.runaway_windows import topic_windows, watched
from forebay_pipeline.rollups import tables
from forebay_pipeline.rollups.tables import Table
from forebay_pipeline.rollups.times import buckets
from forebay_policies.journal_rows import LedgerRow, ObservedRow, RackRow

_HOUR: Final = ["time_us"]
_PARTITION: Final = ["topic", "partition"]
_RUNAWAYS: Final = Questions()
"""As a report of the rows would have asked."""


def roll(rows: Rows, span: Span, before: DataFrame | None) -> dict[Table, DataFrame]:
    """The tables of the day that `span` is. `before`: the table RUNAWAYS of the day before, None if it is not known."""
    return {**_of_batches(rows.batches, span, before), **_of_workers(rows), **_of_clients(rows)}


def _of_batches(rows: DataFrame, span: Span, before: DataFrame | None) -> dict[Table, DataFrame]:
    batches = of_batches.tallied(rows).withColumn("wait_us", wait())
    hourly = _hourly(batches.withColumn("at_us", F.col("time_us")))
    first_us, last_us = F.min("at_us").alias("first_us"), F.max("at_us").alias("last_us")
    return {
        tables.BATCHES: tables.BATCHES.summed(batches),
        tables.BATCH_TIMES: buckets(batches, _PARTITION, of_batches.TIMES),
        tables.BROKER_TIMES: buckets(batches, ["leader"], ["upstream_us"]),
        tables.HOURS: hourly.groupBy(*_HOUR).agg(*of_batches.counts(), first_us, last_us),
        tables.HOUR_TIMES: buckets(hourly, _HOUR, [*of_batches.TIMES, "wait_us", "bytes"]),
        tables.PARTITION_HOURS: tables.PARTITION_HOURS.summed(hourly),
        tables.USES: _uses(rows),
        tables.RUNAWAYS: _runaways(rows, span, before),
    }


def _uses(batches: DataFrame) -> DataFrame:
    (times,) = batches.agg(F.min("time_us"), F.max("time_us")).collect()
    return batches.agg(counts.requests()).crossJoin(counts.lingering(batches, length_s(times[0] or 0, times[1] or 0)))


def _runaways(batches: DataFrame, span: Span, before: DataFrame | None) -> DataFrame:
    watches = None if before is None else before.where(F.col("watch").isNotNull())
    windows = topic_windows(batches, _RUNAWAYS.window_us)
    assert span.last is not None
    return watched(windows, _RUNAWAYS.thresholds, watches, span.last)


def _of_workers(rows: Rows) -> dict[Table, DataFrame]:
    standing = _hourly(workers.standing(rows.gauges)).groupBy(*tables.GAUGES.keys)
    return {
        tables.GAUGES: standing.agg(*workers.totals(), *workers.extremes()),
        tables.METADATA: rows.requests.agg(*workers.request_sums()),
        tables.METADATA_TIMES: buckets(rows.requests, [], ["took_us"]),
        tables.RACKS: tables.RACKS.summed(rows.others[RackRow]),
        tables.TORN: rows.errors.groupBy(F.xxhash64("error").alias("error")).agg(F.count("*").alias("lines")),
    }


def _of_clients(rows: Rows) -> dict[Table, DataFrame]:
    sent = clients.client_batches(rows.others[LedgerRow], rows.others[ObservedRow])
    return {
        tables.CLIENTS: clients.treated(sent),
        tables.CLIENT_REQUESTS: sent.groupBy(*clients.CLIENT).agg(clients.requests()),
        tables.CLIENT_TIMES: buckets(sent, clients.CLIENT, ["took_us"]),
        tables.CHOICES: clients.choices(sent),
    }


def _hourly(rows: DataFrame) -> DataFrame:
    return rows.withColumn("time_us", window_start(HOUR_US))
