"""Metadata cache, memory pressure, dropped rows, and what crossed racks.

In: gauge and metadata rows (the columns of journal_rows.GaugeRow and MetadataRow); of gauges also rows that stand for
several of them (`standing`). Out: the structs of summary.py.

Gauge rows carry totals that count from the start of their process. A span's part of them is, for each process, the last
total less the first; or the last total, if the process began in the span:

    worker 0, started at 09:00:00    hits 0 … 120     at 09:00:01 … 09:10:00    120
    worker 0, started at 09:10:03    hits 7 … 40      at 09:10:04 … 09:15:00     40
    worker 1, started at 08:00:00    hits 900 … 950   at 09:00:00 … 09:15:00     50     together 210

Where there are holes in the time, each stretch between them counts by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from forebay_pipeline.partitions.batches import as_percentiles, percentiles
from forebay_pipeline.partitions.summary import MetadataUse, RackUse, WorkerUse

FIRST_ROW_US: Final = 5_000_000
"""A process began in the span if its first row there came within this time of its start; it writes one a second."""

PROCESS: Final = ("process", "worker", "started_us")

TOTALS: Final = (
    "pool_waits_total",
    "metadata_hits_total",
    "metadata_misses_total",
    "metadata_waits_total",
    "rows_dropped_total",
    "same_rack_bytes_total",
    "other_rack_bytes_total",
    "unknown_rack_bytes_total",
)


def standing(gauges: DataFrame) -> DataFrame:
    """Rows that each stand for `seconds` gauge rows of one process, with their extremes; a gauge row stands for one.

    `seconds_waited`: those in which a client waited for memory, however shortly; `first_us`, `last_us`: the earliest
    and the latest time; `pool_used_bytes`: at most; of TOTALS the last value, and by `first_…` the first one;
    `stretch`: one of those that are told apart.
    """
    if "seconds" in gauges.columns:
        return gauges
    before = F.lag("pool_waits_total").over(Window.partitionBy(*PROCESS).orderBy("time_us"))
    own = {
        "seconds": F.lit(1),
        "seconds_waited": F.when((F.col("pool_waiters") > 0) | (F.col("pool_waits_total") > before), 1).otherwise(0),
        "first_us": F.col("time_us"),
        "last_us": F.col("time_us"),
        "pool_used_bytes": F.col("pool_bytes") - F.col("pool_available_bytes"),
        "stretch": F.lit(0),
    }
    return gauges.withColumns(own | {f"first_{name}": F.col(name) for name in TOTALS})


def totals() -> list[Column]:
    """Aggregates of standing rows: first_us and last_us, and the last and the first value of TOTALS."""
    firsts = ("first_us", *(f"first_{name}" for name in TOTALS))
    lasts = ("last_us", *TOTALS)
    return [*(F.max(name).alias(name) for name in lasts), *(F.min(name).alias(name) for name in firsts)]


def extremes() -> list[Column]:
    """Aggregates of standing rows: seconds, and the most and the least that was seen in them."""
    most = ("pool_bytes", "pool_used_bytes", "queued_bytes", "queued_batches", "in_flight_requests")
    return [
        *(F.sum(name).alias(name) for name in ("seconds", "seconds_waited")),
        *(F.max(name).alias(name) for name in most),
        F.min("pool_available_bytes").alias("pool_available_bytes"),
    ]


def counted(gauges: DataFrame) -> DataFrame:
    """A row for each process: worker, started_us, first_us, last_us, and TOTALS with what it counted in the span."""
    stretches = standing(gauges).groupBy(*PROCESS, "stretch").agg(*totals())
    began = F.col("first_us") - F.col("started_us") <= FIRST_ROW_US
    before = {name: F.when(began, 0).otherwise(F.col(f"first_{name}")) for name in TOTALS}
    times = F.min("first_us").alias("first_us"), F.max("last_us").alias("last_us")
    counts = (F.sum(F.col(name) - before[name]).alias(name) for name in TOTALS)
    return stretches.groupBy(*PROCESS).agg(*times, *counts).drop("process")


def workers(gauges: DataFrame) -> list[WorkerUse]:
    """Memory and queues of each worker, in the order of their numbers."""
    counts = (
        counted(gauges)
        .groupBy("worker")
        .agg(
            F.count("*").alias("starts"),
            F.sum("pool_waits_total").alias("pool_waits"),
            F.sum("rows_dropped_total").alias("rows_dropped"),
        )
    )
    names = {
        "pool_available_bytes": "least_available_bytes",
        "queued_bytes": "most_queued_bytes",
        "queued_batches": "most_queued_batches",
        "in_flight_requests": "most_in_flight",
    }
    stood = standing(gauges).groupBy("worker").agg(*extremes()).withColumnsRenamed(names)
    rows = stood.join(counts, "worker").orderBy("worker").select(*WorkerUse.__struct_fields__).collect()
    return [WorkerUse(**row.asDict()) for row in rows]


def metadata(gauges: DataFrame, requests: DataFrame) -> MetadataUse:
    """Use of the metadata cache; zeros without any rows."""
    (sent,) = requests.agg(*request_sums(), percentiles("took_us").alias("took_us")).collect()
    return metadata_use(gauges, sent.asDict())


def request_sums() -> list[Column]:
    """Aggregates of metadata rows: requests, failed, request_bytes, response_bytes."""
    return [
        F.count("*").alias("requests"),
        F.count_if(F.col("error") != "").alias("failed"),
        *(F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in ("request_bytes", "response_bytes")),
    ]


def metadata_use(gauges: DataFrame, sent: Mapping[str, Any]) -> MetadataUse:
    """Use of the metadata cache, where `sent` has what `request_sums` counts, and the percentiles `took_us`."""
    sums = {name: F.sum(f"metadata_{name}_total") for name in ("hits", "misses", "waits")}
    (asked,) = counted(gauges).agg(*(F.coalesce(sums[name], F.lit(0)).alias(name) for name in sums)).collect()
    topics = asked["hits"] + asked["misses"]
    return MetadataUse(
        hits=asked["hits"],
        misses=asked["misses"],
        hit_rate=asked["hits"] / topics if topics else None,
        waits=asked["waits"],
        requests=sent["requests"],
        failed=sent["failed"],
        took_us=as_percentiles(sent["took_us"]) if sent["requests"] else None,
        request_bytes=sent["request_bytes"],
        response_bytes=sent["response_bytes"],
    )


def racks(gauges: DataFrame) -> RackUse | None:
    """Bytes within and across racks; None where no process knew of racks."""
    names = ("same", "other", "unknown")
    sums = (F.sum(f"{name}_rack_bytes_total").alias(f"{name}_bytes") for name in names)
    times = F.min("first_us").alias("first_us"), F.max("last_us").alias("last_us")
    (found,) = counted(gauges).agg(*sums, *times).collect()
    return None if found["same_bytes"] is None else RackUse(**found.asDict())
