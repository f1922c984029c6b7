"""The report's series over time, counted by Spark.

In: batch and gauge rows (the columns of journal_rows.BatchRow and GaugeRow), and the time that they cover. Out: points
in the order of time, one per bucket; buckets are wide enough for MAX_POINTS to suffice, and empty ones are left out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, Row, Window
from pyspark.sql import functions as F

from forebay_pipeline.journal.columns import wait, window_start
from forebay_pipeline.partitions.batches import as_percentiles, partition_bytes, percentiles
from forebay_pipeline.partitions.summary import ACCURACY, Percentiles
from forebay_pipeline.partitions.workers import PROCESS, standing

MAX_POINTS: Final = 200
MAX_PARTITIONS: Final = 7
"""Partitions shown of a topic, those with the most bytes; all others together are one more."""

GAUGE_US: Final = 1_000_000
"""How often a process writes a gauge row."""
_WHICH: Final = r"-[0-9]+-[0-9a-f]+$"
"""What tells a host's processes apart (journal.recorder, `process`)."""

_DAY_S: Final = 86_400
_WIDTHS_S: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600, 43_200, _DAY_S)


class TimePoint(NamedTuple):
    """The batches of a bucket."""

    time_us: int
    """Start of the bucket."""
    linger_us: Percentiles
    wait_us: Percentiles
    """Linger and upstream together."""
    bytes_average: float
    bytes_p50: int
    bytes_p99: int
    batches: int
    records: int
    failed: int
    """Batches that were not acknowledged."""


class GaugePoint(NamedTuple):
    """Memory and queues in a bucket: each process's maximum, summed over those that ran together."""

    time_us: int
    queued_bytes: int
    pool_used_bytes: int
    pool_bytes: int


class SharesPoint(NamedTuple):
    """How a topic's bytes are spread over partitions in a bucket."""

    time_us: int
    shares: dict[int | None, float]
    """By partition; None is all partitions that are not shown."""


class TopicShares(NamedTuple):
    """How a topic's bytes are spread over partitions."""

    topic: str
    partitions: list[int]
    """The partitions shown, most bytes first."""
    points: list[SharesPoint]


class Series(NamedTuple):
    """All series of the report; `width_us` is the width of a bucket."""

    width_us: int
    times: list[TimePoint]
    gauges: list[GaugePoint]
    shares: list[TopicShares]
    missing: Collection[int] = ()
    """When those buckets begin of which it is not known whether anything was sent: rollups lack a day of them."""


def series(batches: DataFrame, gauges: DataFrame, first_us: int, last_us: int, topics: Sequence[str]) -> Series:
    """All series from `first_us` to `last_us`, with the shares of the partitions of `topics`."""
    width = bucket_us(first_us, last_us)
    return Series(width, time_points(batches, width), gauge_points(gauges, width), topic_shares(batches, topics, width))


def bucket_us(first_us: int, last_us: int) -> int:
    """The width of a bucket: a round time, so that an hour, of which 200 points would take 18 s each, gets 30 s."""
    wanted_s = -(-(last_us - first_us + 1) // (MAX_POINTS * 1_000_000))
    fitting = (width for width in _WIDTHS_S if width >= wanted_s)
    return next(fitting, -(-wanted_s // _DAY_S) * _DAY_S) * 1_000_000


def time_points(batches: DataFrame, width_us: int) -> list[TimePoint]:
    """Times and sizes of batches."""
    counted = (
        batches.withColumn("wait_us", wait())
        .groupBy(window_start(width_us).alias("at_us"))
        .agg(
            percentiles("linger_us").alias("linger_us"),
            percentiles("wait_us").alias("wait_us"),
            F.avg("bytes").alias("average"),
            F.percentile_approx("bytes", [0.5, 0.99], ACCURACY).alias("sizes"),
            F.count("*").alias("batches"),
            F.sum("records").alias("records"),
            F.count_if(F.col("fate") != "acknowledged").alias("failed"),
        )
        .orderBy("at_us")
    )
    return [time_point(row) for row in counted.collect()]


def time_point(row: Row) -> TimePoint:
    """From at_us, average, batches, records and failed, and arrays of percentiles: linger_us, wait_us, sizes."""
    linger, waited = as_percentiles(row["linger_us"]), as_percentiles(row["wait_us"])
    p50, p99, *_ = row["sizes"]
    sent = row["batches"], row["records"], row["failed"]
    return TimePoint(row["at_us"], linger, waited, row["average"], p50, p99, *sent)


def gauge_points(gauges: DataFrame, width_us: int) -> list[GaugePoint]:
    """Memory and queues.

    A process counts from its first row in the bucket until a second after its last one, but no longer than until
    another one begins in its place, so that this is not added to it.
    """
    names = GaugePoint._fields[1:]
    peaks = standing(gauges).groupBy(window_start(width_us).alias("at_us"), *PROCESS)
    times = F.min("first_us").alias("from_us"), F.max("last_us").alias("last_us")
    place = Window.partitionBy("at_us", F.regexp_replace("process", _WHICH, ""), "worker").orderBy("from_us")
    next_us = F.lead("started_us").over(place)
    until_us = F.when(next_us > F.col("last_us"), next_us)  # least() ignores what is null
    ran = peaks.agg(*times, *(F.max(name).alias(name) for name in names)).withColumn(
        "until_us", F.least(until_us, F.col("last_us") + GAUGE_US)
    )
    begins = ran.select("at_us", F.col("from_us").alias("time_us"), *names)
    ends = ran.select("at_us", F.col("until_us").alias("time_us"), *((-F.col(name)).alias(name) for name in names))
    so_far = Window.partitionBy("at_us").orderBy("time_us")
    running = begins.union(ends).select("at_us", *(F.sum(name).over(so_far).alias(name) for name in names))
    most = running.groupBy("at_us").agg(*(F.max(name).alias(name) for name in names))
    return [GaugePoint(*row) for row in most.orderBy("at_us").collect()]


def coarser(points: Sequence[GaugePoint], width_us: int) -> tuple[list[GaugePoint], int]:
    """The points, one at least, in buckets so wide that MAX_POINTS suffice; and their width.

    Gauges go on while nothing is sent: there may be many more of them than of batches.
    """
    width = max(width_us, bucket_us(points[0].time_us, points[-1].time_us))
    buckets = groupby(points, lambda point: point.time_us - point.time_us % width)
    return [GaugePoint(at_us, *_most(list(within))) for at_us, within in buckets], width


def _most(points: Sequence[GaugePoint]) -> Iterator[int]:
    return (max(values) for values in list(zip(*points, strict=True))[1:])


def topic_shares(batches: DataFrame, topics: Sequence[str], width_us: int) -> list[TopicShares]:
    """How each topic's bytes are spread, in the order of `topics`."""
    wanted = batches.where(F.col("topic").isin(list(topics)))
    by_bytes = Window.partitionBy("topic").orderBy(F.desc("bytes"), "partition")
    placed = partition_bytes(wanted).withColumn("place", F.row_number().over(by_bytes))
    largest = placed.where(F.col("place") <= MAX_PARTITIONS)
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
