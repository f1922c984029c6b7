"""Histograms of times as rows, which can be added up, and percentiles of them.

In: rows with times in microseconds, or sizes in bytes. Out: a row for each key, `measure` (the name of the column) and
`bucket` (jobs.histogram), with how many `batches` it has; and of such rows, percentiles, within 1 %.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from forebay_pipeline.jobs.histogram import bucket_column, middle_column
from forebay_pipeline.partitions.batches import LEVELS


def buckets(rows: DataFrame, keys: Sequence[str], measures: Sequence[str]) -> DataFrame:
    """A row for each bucket that any of the columns `measures` is in; what is null is in none."""
    each = F.explode(F.array(*map(_measured, measures))).alias("one")
    counted = rows.select(*keys, each).select(*keys, "one.*").where(F.col("bucket").isNotNull())
    return counted.groupBy(*keys, "measure", "bucket").agg(F.count("*").alias("batches"))


def _measured(name: str) -> Column:
    bucket = F.when(F.col(name).isNotNull(), bucket_column(F.col(name)))
    return F.struct(F.lit(name).alias("measure"), bucket.alias("bucket"))


def percentiles_of(times: DataFrame, keys: Sequence[str], measures: Sequence[str]) -> DataFrame:
    """A row for each of the keys, with an array of the percentiles LEVELS for each measure; null without a time.

    A percentile is the middle of the bucket in which so large a part of the batches is reached. Of two batches in
    bucket 3 and two in bucket 9, p50 is in 3, p99 in 9.
    """
    of_all = Window.partitionBy(*keys, "measure")
    counted = times.groupBy(*keys, "measure", "bucket").agg(F.sum("batches").alias("batches"))
    reached = counted.withColumns(
        {"seen": F.sum("batches").over(of_all.orderBy("bucket")), "all": F.sum("batches").over(of_all)}
    )
    levels = (F.min(F.when(F.col("seen") >= level * F.col("all"), F.col("bucket"))) for level in LEVELS)
    found = reached.groupBy(*keys, "measure").agg(F.array(*map(middle_column, levels)).alias("levels"))
    # One of each measure, so that it is its own maximum.
    each = (F.max(F.when(F.col("measure") == name, F.col("levels"))).alias(name) for name in measures)
    return found.groupBy(*keys).agg(*each)
