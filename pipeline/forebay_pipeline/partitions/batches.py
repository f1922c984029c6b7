"""KIP-794's table, skew, reasons and fates.

In: batch rows (the columns of journal_rows.BatchRow), or, where there is nothing to be said of percentiles, rows that
stand for several of them (`tallied`). Out: the structs of summary.py. Spark does the counting; only rows to be shown
reach the driver.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as F

from forebay_pipeline.jobs.skew import skews
from forebay_pipeline.journal.columns import wait
from forebay_pipeline.partitions.summary import ACCURACY, Fate, Group, Percentiles, Reason, TopicSkew

LEVELS: Final = [0.5, 0.99, 0.999]
"""What Percentiles has."""
TIMES: Final = ("linger_us", "upstream_us")
"""Of which a Group has percentiles."""
_CLOCK: Final = {"minute": "yyyy-MM-dd'T'HH:mm", "hour": "yyyy-MM-dd'T'HH", "date": "yyyy-MM-dd"}
KEYS: Final = ("topic", "partition", "leader", "worker", "reason", *_CLOCK)
"""Keys that batches can be grouped by."""
_WHOLES: Final = ("topic", *_CLOCK)
"""Keys that divide the whole: shares are of the topic's bytes in that time."""


def tallied(batches: DataFrame) -> DataFrame:
    """Rows that each stand for `batches` batches which have the other columns in common, or add these up; a batch row
    stands for one. Added up are records, bytes, runs, linger_us and latency_us: over records, how long they waited."""
    if "batches" in batches.columns:
        return batches
    return batches.withColumns({"batches": F.lit(1), "latency_us": F.col("records") * wait()})


def percentiles(column: str) -> Column:
    """An aggregate: an array of p50, p99 and p999, null over no rows."""
    return F.percentile_approx(column, LEVELS, ACCURACY)


def as_percentiles(values: Sequence[int]) -> Percentiles:
    """From the array that `percentiles` collects."""
    return Percentiles(*map(int, values))


def total(batches: DataFrame) -> Group | None:
    """All batches as one group; None if there are none."""
    (row,) = _measured(batches, []).collect()
    return as_group(row.asDict(), [], 1.0) if row["batches"] else None


def groups(batches: DataFrame, by: Sequence[str], whole_bytes: int, max_groups: int) -> tuple[list[Group], int]:
    """The groups with the most bytes, in the order of their keys, and how many were left out.

    `by` are some of KEYS; `whole_bytes` are the bytes of all batches.
    """
    keyed = batches
    for name in by:
        if name in _CLOCK:
            keyed = keyed.withColumn(name, F.date_format(F.timestamp_micros("time_us"), _CLOCK[name]))
    found, left_out = largest(_measured(keyed, by), by, whole_bytes, max_groups)
    return [as_group(row.asDict(), by, row["share"]) for row in found], left_out


def largest(measured: DataFrame, by: Sequence[str], whole_bytes: int, max_groups: int) -> tuple[list[Row], int]:
    """Of a row for each group those with the most bytes, with their `share`, in the order of their keys; and how many
    others there are."""
    shared = measured.withColumn("share", F.col("bytes") / _whole(by, whole_bytes)).persist()
    try:
        found = shared.orderBy(F.desc("bytes"), *by).limit(max_groups).collect()
        left_out = shared.count() - len(found)
    finally:
        shared.unpersist()
    return sorted(found, key=lambda row: [row[name] for name in by]), left_out


def _whole(by: Sequence[str], whole_bytes: int) -> Column:
    wholes = [name for name in by if name in _WHOLES]
    if not wholes or len(wholes) == len(by):
        return F.lit(whole_bytes)
    return F.sum("bytes").over(Window.partitionBy(*wholes))


def _measured(batches: DataFrame, by: Sequence[str]) -> DataFrame:
    times = (percentiles(name).alias(name) for name in TIMES)
    return tallied(batches).groupBy(*by).agg(*counts(), *times)


def counts() -> list[Column]:
    """Aggregates of tallied rows: batches, bytes, records, and failed, those that were not acknowledged."""
    failed = F.when(F.col("fate") != "acknowledged", F.col("batches")).otherwise(0)
    sums = [F.sum(name).alias(name) for name in ("batches", "bytes", "records")]
    return [*sums, F.sum(failed).alias("failed")]


def as_group(row: Mapping[str, Any], by: Sequence[str], share: float) -> Group:
    """From the keys `by`, what `counts` counts, and arrays of percentiles of TIMES."""
    return Group(
        key={name: row[name] for name in by},
        batches=row["batches"],
        bytes=row["bytes"],
        records=row["records"],
        bytes_per_batch=row["bytes"] / row["batches"],
        records_per_batch=row["records"] / row["batches"],
        share=share,
        failed=row["failed"],
        linger_us=as_percentiles(row["linger_us"]),
        upstream_us=as_percentiles(row["upstream_us"]),
    )


def partition_bytes(batches: DataFrame) -> DataFrame:
    """A row for each partition: topic, partition, batches, bytes."""
    sums = (F.sum(name).alias(name) for name in ("batches", "bytes"))
    return tallied(batches).groupBy("topic", "partition").agg(*sums)


def skew(partitions: DataFrame) -> DataFrame:
    """A row for each topic with the fields of TopicSkew, from the rows of partition_bytes."""
    found = skews(partitions, ["topic"], "bytes", F.sum("batches").alias("batches"))
    shared = found.withColumn("largest_share", F.col("max_size") / F.col("bytes"))
    return shared.select(*TopicSkew.__struct_fields__)


def topics(batches: DataFrame, max_topics: int) -> tuple[list[TopicSkew], int]:
    """The topics with the most bytes, and how many were left out."""
    skewed = skew(partition_bytes(batches)).persist()
    try:
        found = skewed.orderBy(F.desc("bytes"), "topic").limit(max_topics).collect()
        return [TopicSkew(**row.asDict()) for row in found], skewed.count() - len(found)
    finally:
        skewed.unpersist()


def reasons(batches: DataFrame) -> list[Reason]:
    """Why batches were sent, the most frequent reason first."""
    return [Reason(**row.asDict()) for row in _largest_first(batches, ["reason"], "batches", "bytes", "records")]


def fates(batches: DataFrame) -> list[Fate]:
    """What became of batches, the most frequent outcome first."""
    return [Fate(**row.asDict()) for row in _largest_first(batches, ["fate", "error_code"], "batches", "records")]


def _largest_first(batches: DataFrame, keys: Sequence[str], *summed: str) -> list[Row]:
    counted = tallied(batches).groupBy(*keys).agg(*(F.sum(name).alias(name) for name in summed))
    return counted.orderBy(F.desc("batches"), *keys).collect()
