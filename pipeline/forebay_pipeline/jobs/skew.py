"""How evenly something is spread over the partitions of a topic.

In: a row for each partition that got anything. Out: for each topic max/mean, 1 where it is even, and the number of
partitions where all is in one; and Gini, 0 where it is even, close to 1 where all is in one of many.

Gini of x in ascending order, i from 1: 2 Σ i·x / (n Σ x) - (n + 1) / n. Of 0, 1 and 3:
2 · (1·0 + 2·1 + 3·3) / (3 · 4) - 4/3 = 0.5. Partitions that got nothing come first, so they only shift i.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F


def skews(sizes: DataFrame, keys: Sequence[str], size: str, *further: Column) -> DataFrame:
    """A row for each of the keys: `partitions`, all up to the highest; the column `size` added up; `largest`, the
    partition with the most of it, and its `max_size`; `max_to_mean` and `gini`; and `further` aggregates. No row where
    there is nothing of it."""
    whole = Window.partitionBy(*keys)
    ascending = whole.orderBy(size, F.desc("partition"))
    ranked = sizes.withColumns({"n": F.max("partition").over(whole) + 1, "seen": F.count("*").over(whole)}).withColumn(
        "i", F.col("n") - F.col("seen") + F.row_number().over(ascending)
    )
    n, everything = F.col("partitions"), F.col(size)
    return (
        ranked.groupBy(*keys)
        .agg(
            F.first("n").alias("partitions"),
            F.sum(size).alias(size),
            F.max_by("partition", "i").alias("largest"),
            F.max(size).alias("max_size"),
            F.sum(F.col("i") * F.col(size).cast("double")).alias("weighted"),
            *further,
        )
        .where(everything > 0)
        .withColumn("max_to_mean", F.col("max_size") * n / everything)
        .withColumn("gini", 2 * F.col("weighted") / (n * everything) - (n + 1) / n)
        .drop("weighted")
    )
