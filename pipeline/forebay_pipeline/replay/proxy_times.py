"""What the proxy itself takes: a turn of its event loop, and a request's way to its batch and back.

In: BatchRows and the linger.ms with which they came about, LedgerRows. Out: how long they took, to be drawn from.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from forebay_pipeline.replay.histogram import bucket_column
from forebay_pipeline.replay.service_times import FEW, Constant, Empirical, Times

TURN: Final = Constant(0.0001)
"""Where nothing is known of it: about what a proxy with little to do takes."""

NO_WAY: Final = Constant(0.0)

_LONGEST_US: Final = 50_000
"""Longer ones are not the proxy's: a broker was connected to, or had no room for a request."""

_SAMPLE: Final = 50_000
"""Batches that are looked up in the ledger; more would say the same."""


def fit_turn(batches: DataFrame, linger_ms: int) -> Times:
    """By how much batches outstay `linger_ms` that nothing held up: from being due to being sent.

    Nothing did where the partition's batch before was answered by the time it was opened. Columns as in BatchRow.
    Where the loop was so busy that a batch waited for another turn (policies.linger), that turn is in it.
    """
    opened = F.col("time_us") - F.col("upstream_us") - F.col("linger_us")
    in_turn = Window.partitionBy("process", "topic", "partition").orderBy("time_us")
    free = F.lag("time_us").over(in_turn) <= opened
    seen = batches.withColumn("free", free).where(F.col("free") & (F.col("tries") == 0))
    return _spread(seen, F.col("linger_us") - max(0, linger_ms) * 1000) or TURN


def fit_way(ledger: DataFrame, batches: DataFrame) -> Times:
    """How much longer than its batch a request of one part took that opened one.

    Both have the same topic, partition and base offset. A request that took 1.8 ms, whose batch waited 0.2 ms to leave
    and 1.4 for its answer, spent 0.2 ms on its way from the client's socket to the batch and back.
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
    opening = batches.select(*place, (F.col("linger_us") + F.col("upstream_us")).alias("batch_us"))
    both = requests.where(sampled).join(opening.where((F.col("base_offset") >= 0) & sampled), list(place))
    return _spread(both, F.col("took_us") - F.col("batch_us")) or NO_WAY


def _spread(rows: DataFrame, us: Column) -> Times | None:
    """None of few."""
    taken = rows.select(us.alias("us")).where((F.col("us") > 0) & (F.col("us") <= _LONGEST_US))
    counted = taken.groupBy(bucket_column(F.col("us")).alias("bucket")).count().collect()
    times = Empirical({row["bucket"]: row["count"] for row in counted})
    return times if times.count >= FEW else None
