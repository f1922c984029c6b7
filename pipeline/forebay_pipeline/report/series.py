"""What the report's plots show over time: a few hundred points, counted by Spark.

In: batch and gauge rows, the time that they cover. Out: points in the order of time. A bucket is so wide that there are
at most MOST_POINTS of them; buckets in which nothing was are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, Row, Window
from pyspark.sql import functions as F

from forebay_pipeline.partitions.batches import as_percentiles, partition_bytes, percentiles
from forebay_pipeline.partitions.runaway_windows import wait, window_start
from forebay_pipeline.partitions.summary import ACCURACY, Percentiles

MOST_POINTS: Final = 200
MOST_PARTITIONS: Final = 7
"""Of a topic, those with the most bytes; the others together are one more."""

_DAY_S: Final = 86_400
_WIDTHS_S: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600, 43_200, _DAY_S)


class TimePoint(NamedTuple):
    """The batches of a bucket."""

    time_us: int
    """Its beginning."""
    linger_us: Percentiles
    wait_us: Percentiles
    """Until their fates: linger and upstream."""
    bytes_average: float
    bytes_p50: int
    bytes_p99: int


class GaugePoint(NamedTuple):
    """Of all processes together: the most of each in the bucket."""

    time_us: int
    queued_bytes: int
    pool_used_bytes: int
    pool_bytes: int


class SharesPoint(NamedTuple):
    time_us: int
    shares: dict[int | None, float]
    """By partition; None: all others."""


class TopicShares(NamedTuple):
    topic: str
    partitions: list[int]
    """Those that are told apart, the one with the most bytes first."""
    points: list[SharesPoint]


class Series(NamedTuple):
    width_us: int
    times: list[TimePoint]
    gauges: list[GaugePoint]
    shares: list[TopicShares]


def series(batches: DataFrame, gauges: DataFrame, first_us: int, last_us: int, topics: Sequence[str]) -> Series:
    """`topics`: whose partitions' shares are wanted."""
    width = bucket_us(first_us, last_us)
    return Series(width, time_points(batches, width), gauge_points(gauges, width), topic_shares(batches, topics, width))


def bucket_us(first_us: int, last_us: int) -> int:
    """Whole seconds, minutes, hours or days: an hour in 200 points would be 18 s each, so it is 30 s."""
    wanted_s = -(-(last_us - first_us + 1) // (MOST_POINTS * 1_000_000))
    fitting = (width for width in _WIDTHS_S if width >= wanted_s)
    return next(fitting, -(-wanted_s // _DAY_S) * _DAY_S) * 1_000_000


def time_points(batches: DataFrame, width_us: int) -> list[TimePoint]:
    counted = (
        batches.withColumn("wait_us", wait())
        .groupBy(window_start(width_us).alias("at_us"))
        .agg(
            percentiles("linger_us").alias("linger_us"),
            percentiles("wait_us").alias("wait_us"),
            F.avg("bytes").alias("average"),
            F.percentile_approx("bytes", [0.5, 0.99], ACCURACY).alias("sizes"),
        )
        .orderBy("at_us")
    )
    return [_time_point(row) for row in counted.collect()]


def _time_point(row: Row) -> TimePoint:
    linger, waited = as_percentiles(row["linger_us"]), as_percentiles(row["wait_us"])
    return TimePoint(row["at_us"], linger, waited, row["average"], *row["sizes"])


def gauge_points(gauges: DataFrame, width_us: int) -> list[GaugePoint]:
    most = gauges.groupBy(window_start(width_us).alias("at_us"), "process").agg(
        F.max("queued_bytes").alias("queued_bytes"),
        F.max(F.col("pool_bytes") - F.col("pool_available_bytes")).alias("pool_used_bytes"),
        F.max("pool_bytes").alias("pool_bytes"),
    )
    together = most.groupBy("at_us").agg(*(F.sum(name).alias(name) for name in GaugePoint._fields[1:]))
    return [GaugePoint(*row) for row in together.orderBy("at_us").collect()]


def topic_shares(batches: DataFrame, topics: Sequence[str], width_us: int) -> list[TopicShares]:
    """In the order of `topics`."""
    wanted = batches.where(F.col("topic").isin(list(topics)))
    by_bytes = Window.partitionBy("topic").orderBy(F.desc("bytes"), "partition")
    placed = partition_bytes(wanted).withColumn("place", F.row_number().over(by_bytes))
    largest = placed.where(F.col("place") <= MOST_PARTITIONS)
    named = largest.select("topic", "partition", F.col("partition").alias("shown"))
    counted = (
        wanted.join(F.broadcast(named), ["topic", "partition"], "left")
        .groupBy("topic", window_start(width_us).alias("at_us"), "shown")
        .agg(F.sum("bytes").alias("bytes"))
        .orderBy("at_us")
    )
    buckets: dict[str, dict[int, dict[int | None, int]]] = {topic: {} for topic in topics}
    for row in counted.collect():
        buckets[row["topic"]].setdefault(row["at_us"], {})[row["shown"]] = row["bytes"]
    places: dict[str, list[int]] = {topic: [] for topic in topics}
    for row in largest.orderBy("place").collect():
        places[row["topic"]].append(row["partition"])
    return [TopicShares(topic, places[topic], _points(buckets[topic])) for topic in topics]


def _points(buckets: dict[int, dict[int | None, int]]) -> list[SharesPoint]:
    return [
        SharesPoint(at_us, {partition: size / sum(sizes.values()) for partition, size in sizes.items()})
        for at_us, sizes in buckets.items()
    ]
