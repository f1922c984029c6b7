"""The time that the proxy itself takes: for a turn of its event loop, and for a request's way to its batch and back.

In: batch rows and the linger.ms they were made with, ledger rows. Out: Times to draw from.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from forebay_pipeline.jobs.histogram import bucket_column
from forebay_pipeline.journal.columns import wait
from forebay_pipeline.replay.service_times import FEW, STRETCH_US, Constant, Empirical, Times
from forebay_policies.accumulator import ALL_REPLICAS

TURN: Final = Constant(0.0001)
"""The turn of an idle proxy, if the journal does not tell."""

NO_WAY: Final = Constant(0.0)
"""The way, if the journal does not tell."""

_MAX_US: Final = 50_000
"""Longer times are not the proxy's: it was connecting to a broker, or had as many requests in flight as allowed."""

_SAMPLE: Final = 50_000
"""Batches to look up in the ledger; more would say the same."""


def fit_turn(batches: DataFrame, linger_ms: int) -> Times:
    """How long batches take from being due to being sent, if nothing holds them up; TURN if too few tell.

    Nothing holds a batch up if the previous batch of its queue (a partition has two) was answered before it was opened.
    If the loop was so busy that a batch waited for another turn (forebay_policies.linger), that turn is included.
    """
    opened = F.col("time_us") - F.col("upstream_us") - F.col("linger_us")
    queue = ("process", "topic", "partition", F.col("acks") == ALL_REPLICAS, F.floor(F.col("time_us") / STRETCH_US))
    in_turn = Window.partitionBy(*queue).orderBy("time_us")
    free = F.lag("time_us").over(in_turn) <= opened
    seen = batches.withColumn("free", free).where(F.col("free") & (F.col("tries") == 0))
    return _spread(seen, F.col("linger_us") - max(0, linger_ms) * 1000) or TURN


def fit_way(ledger: DataFrame, batches: DataFrame) -> Times:
    """How much longer requests take than their batches, for requests of one part that opened one; NO_WAY if too few do.

    The two have the same topic, partition and base offset. A request that took 1.8 ms, whose batch lingered for 0.2 ms
    and was answered after 1.4 ms, spent 0.2 ms on its way from the client's socket to the batch and back.
    """
    place = ("topic", "partition", "base_offset")
    every = F.lit(max(1, batches.count() // _SAMPLE))
    sampled = F.pmod(F.xxhash64(*place), every) == 0
    part = F.get("parts", F.lit(0))
    requests = ledger.where(F.size("parts") == 1).select(
        "topic",
        part["partition"].alias("partition"),
        part["base_offset"].alias("base_offset"),
        (F.col("time_us") - F.col("received_us")).alias("took_us"),
    )
    opening = batches.select(*place, wait().alias("batch_us"))
    both = requests.where(sampled).join(opening.where((F.col("base_offset") >= 0) & sampled), list(place))
    return _spread(both, F.col("took_us") - F.col("batch_us")) or NO_WAY


def _spread(rows: DataFrame, us: Column) -> Times | None:
    """The distribution of `us`; None if there are too few."""
    taken = rows.select(us.alias("us")).where((F.col("us") > 0) & (F.col("us") <= _MAX_US))
    counted = taken.groupBy(bucket_column(F.col("us")).alias("bucket")).count().collect()
    times = Empirical({row["bucket"]: row["count"] for row in counted})
    return times if times.count >= FEW else None
