"""Counts what advice is made of: batches, brokers, topics, what crossed racks.

In: batch rows (the columns of journal_rows.BatchRow), rack rows. Out: the tuples of facts.py. Spark does the counting;
what reaches the driver is a row for each broker and topic.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from forebay_pipeline.advice.facts import LINGERS_MS, BatchUse, BrokerUse, TopicRacks, TopicUse
from forebay_policies.accumulator import ALL_REPLICAS

_SENT_US: Final = 200
"""Batches of one request are noted as sent within so much of each other; so its requests are counted to about 1 %."""
_QUEUE: Final = ("process", "topic", "partition", "codec", "movable")
"""With whether acks is all: batches that could have been one. (Those of different users could not.)"""


def batch_use(batches: DataFrame, seconds: float) -> BatchUse:
    """All batches together; zeros without any. `seconds` is the length of the span."""
    movable = F.col("movable")
    waited = F.col("linger_us") + F.col("upstream_us")
    full = F.col("reason") == "full"
    sent = F.floor((F.col("time_us") - F.col("upstream_us")) / _SENT_US)
    (row,) = batches.agg(
        F.count("*").alias("batches"),
        F.countDistinct("process", "leader", _waits(), sent).alias("requests"),
        _sum(F.col("runs")).alias("runs"),
        _sum(F.col("records")).alias("records"),
        _sum(F.col("bytes")).alias("bytes"),
        _sum(F.when(movable, F.col("records"))).alias("movable_records"),
        _sum(F.when(movable, F.col("bytes"))).alias("movable_bytes"),
        F.count_if(full).alias("full"),
        _sum(F.when(full, F.col("linger_us"))).alias("full_linger_us"),
        _sum(F.col("records") * waited).alias("latency_us"),
    ).collect()
    return BatchUse(**row.asDict(), lingering=_lingering(batches, seconds))


def _lingering(batches: DataFrame, seconds: float) -> Mapping[int, float]:
    """n batches of a queue in S seconds, each followed by n · L / S others while it waits L: n / (1 + n · L / S)."""
    queues = batches.groupBy(*_QUEUE, _waits()).agg(F.count("*").alias("n"))
    n = F.col("n")
    sums = [F.sum(n / (1 + n * (each / 1000 / seconds))).alias(str(each)) for each in LINGERS_MS]
    (row,) = queues.agg(*sums).collect()
    return {each: row[str(each)] or 0.0 for each in LINGERS_MS}


def _waits() -> Column:
    return (F.col("acks") == ALL_REPLICAS).alias("waits")


def _sum(column: Column) -> Column:
    return F.coalesce(F.sum(column), F.lit(0))


def brokers(batches: DataFrame) -> list[BrokerUse]:
    """Each broker that got batches, in the order of their ids."""
    counted = batches.groupBy("leader").agg(
        F.count("*").alias("batches"),
        F.sum("records").alias("records"),
        _sum(F.when(F.col("movable"), F.col("records"))).alias("movable_records"),
        F.sum(F.col("records") * (F.col("linger_us") + F.col("upstream_us"))).alias("latency_us"),
        F.percentile_approx("upstream_us", 0.5).alias("upstream_us"),
    )
    return [BrokerUse(**row.asDict()) for row in counted.orderBy("leader").collect()]


def topics(batches: DataFrame, most: int) -> dict[str, TopicUse]:
    """The `most` topics with the most bytes."""
    counted = batches.groupBy("topic").agg(
        F.sum("records").alias("records"),
        F.sum("bytes").alias("bytes"),
        _sum(F.when(F.col("movable"), F.col("bytes"))).alias("movable_bytes"),
    )
    found = counted.orderBy(F.desc("bytes"), "topic").limit(most).collect()
    return {row["topic"]: TopicUse(row["records"], row["bytes"], row["movable_bytes"]) for row in found}


def racks(rows: DataFrame, most: int) -> list[TopicRacks]:
    """What crossed racks by topic, from rack rows (RackRow): the `most` topics of which most crossed."""
    names = TopicRacks._fields[1:]
    counted = rows.groupBy("topic").agg(*(F.sum(name).alias(name) for name in names))
    return [TopicRacks(*row) for row in counted.orderBy(F.desc("other_bytes"), "topic").limit(most).collect()]
