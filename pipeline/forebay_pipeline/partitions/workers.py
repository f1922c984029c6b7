"""Metadata cache, memory pressure, dropped rows, and what crossed racks.

In: gauge and metadata rows (the columns of journal_rows.GaugeRow and MetadataRow). Out: the structs of summary.py.

Gauge rows carry totals that count from the start of their process. A span's part of them is, for each process, the last
total less the first; or the last total, if the process began in the span:

    worker 0, started at 09:00:00    hits 0 … 120     at 09:00:01 … 09:10:00    120
    worker 0, started at 09:10:03    hits 7 … 40      at 09:10:04 … 09:15:00     40
    worker 1, started at 08:00:00    hits 900 … 950   at 09:00:00 … 09:15:00     50     together 210
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from forebay_pipeline.partitions.batches import as_percentiles, percentiles
from forebay_pipeline.partitions.summary import MetadataUse, RackUse, WorkerUse

FIRST_ROW_US: Final = 5_000_000
"""A process began in the span if its first row there came within this time of its start; it writes one a second."""

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


def counted(gauges: DataFrame) -> DataFrame:
    """A row for each process: worker, started_us, and the columns TOTALS with what it counted in the span."""
    extremes = [F.max(name).alias(name) for name in TOTALS] + [F.min(name).alias(f"first_{name}") for name in TOTALS]
    processes = gauges.groupBy("process", "worker", "started_us").agg(F.min("time_us").alias("first_us"), *extremes)
    began = F.col("first_us") - F.col("started_us") <= FIRST_ROW_US
    before = {name: F.when(began, 0).otherwise(F.col(f"first_{name}")) for name in TOTALS}
    return processes.select("worker", "started_us", *((F.col(name) - before[name]).alias(name) for name in TOTALS))


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
    stood = gauges.groupBy("worker").agg(
        F.count("*").alias("seconds"),
        F.count_if(F.col("pool_waiters") > 0).alias("seconds_waited"),
        F.max("pool_bytes").alias("pool_bytes"),
        F.min("pool_available_bytes").alias("least_available_bytes"),
        F.max("queued_bytes").alias("most_queued_bytes"),
        F.max("queued_batches").alias("most_queued_batches"),
        F.max("in_flight_requests").alias("most_in_flight"),
    )
    rows = stood.join(counts, "worker").orderBy("worker").select(*WorkerUse.__struct_fields__).collect()
    return [WorkerUse(**row.asDict()) for row in rows]


def metadata(gauges: DataFrame, requests: DataFrame) -> MetadataUse:
    """Use of the metadata cache; zeros without any rows."""
    sums = {name: F.sum(f"metadata_{name}_total") for name in ("hits", "misses", "waits")}
    (asked,) = counted(gauges).agg(*(F.coalesce(sums[name], F.lit(0)).alias(name) for name in sums)).collect()
    (sent,) = requests.agg(
        F.count("*").alias("requests"),
        F.count_if(F.col("error") != "").alias("failed"),
        percentiles("took_us").alias("took_us"),
        F.coalesce(F.sum("request_bytes"), F.lit(0)).alias("request_bytes"),
        F.coalesce(F.sum("response_bytes"), F.lit(0)).alias("response_bytes"),
    ).collect()
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
    (sums,) = counted(gauges).agg(*(F.sum(f"{name}_rack_bytes_total").alias(name) for name in names)).collect()
    if sums["same"] is None:
        return None
    return RackUse(**{f"{name}_bytes": sums[name] for name in names})
