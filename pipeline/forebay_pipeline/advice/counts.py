"""Counts what advice is made of: batches, brokers, topics, what crossed racks.

In: batch rows (the columns of journal_rows.BatchRow), rack rows, or rows that stand for several of them. Out: the
tuples of facts.py. Spark does the counting; what reaches the driver is a row for each broker and topic.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from forebay_pipeline.advice.facts import LINGERS_MS, BatchUse, BrokerUse, TopicRacks, TopicUse
from forebay_pipeline.partitions.batches import tallied
from forebay_policies.accumulator import ALL_REPLICAS

COLUMNS: Final = ("runs", "codec", "movable", "acks")
"""Those of batch rows that are needed here and not for a Summary (measures.SUMMARIZED)."""
_SENT_US: Final = 200
"""Batches of one request are noted as sent within so much of each other; so its requests are counted to about 1 %."""
LINGERED: Final = tuple(f"after_{each}_ms" for each in LINGERS_MS)
"""The columns of `lingering`."""
_QUEUE: Final = ("process", "topic", "partition", "codec", "movable")
"""With whether acks is all: batches that could have been one. (Those of different users could not.)"""


def batch_use(batches: DataFrame, seconds: float) -> BatchUse:
    """All batches together; zeros without any. `seconds` is the length of the span."""
    (lingered,) = lingering(batches, seconds).collect()
    return sums(batches, requests())._replace(lingering=lingered_as(lingered))


def sums(batches: DataFrame, *further: Column) -> BatchUse:
    """What can be added up of tallied rows (batches.tallied), and the results of further aggregates."""
    names = ("batches", "runs", "records", "bytes", "latency_us")
    movable, full = F.col("movable"), F.col("reason") == "full"
    (row,) = (
        tallied(batches)
        .agg(
            *(_sum(F.col(name)).alias(name) for name in names),
            *(_sum(F.when(movable, F.col(name))).alias(f"movable_{name}") for name in ("records", "bytes")),
            _sum(F.when(full, F.col("batches"))).alias("full"),
            _sum(F.when(full, F.col("linger_us"))).alias("full_linger_us"),
            *further,
        )
        .collect()
    )
    return BatchUse(**row.asDict())


def requests() -> Column:
    """An aggregate of batch rows: the requests that carried them."""
    sent = F.floor((F.col("time_us") - F.col("upstream_us")) / _SENT_US)
    return F.countDistinct("process", "leader", _waits(), sent).alias("requests")


def lingering(batches: DataFrame, seconds: float) -> DataFrame:
    """One row of batch rows: for each of LINGERS_MS the batches, had each waited for at least so long.

    n batches of a queue in S seconds, each of which waited w on average: had they waited L, each would have taken in
    the n · (L − w) / S that were opened in the time that is new, and n / (1 + n · (L − w) / S) would be left.
    """
    queues = batches.groupBy(*_QUEUE, _waits()).agg(F.count("*").alias("n"), F.avg("linger_us").alias("waited_us"))
    n = F.col("n")
    longer = (F.greatest(F.lit(0.0), each * 1000 - F.col("waited_us")) / (seconds * 1_000_000) for each in LINGERS_MS)
    return queues.agg(*(F.sum(n / (1 + n * more)).alias(name) for more, name in zip(longer, LINGERED, strict=True)))


def lingered_as(row: Row) -> Mapping[int, float]:
    """BatchUse's `lingering`, of LINGERED."""
    return {each: row[name] or 0.0 for each, name in zip(LINGERS_MS, LINGERED, strict=True)}


def _waits() -> Column:
    return (F.col("acks") == ALL_REPLICAS).alias("waits")


def _sum(column: Column) -> Column:
    return F.coalesce(F.sum(column), F.lit(0))


def brokers(batches: DataFrame) -> list[BrokerUse]:
    """Each broker that got batches, in the order of their ids."""
    median = F.percentile_approx("upstream_us", 0.5).alias("upstream_us")
    return as_brokers(tallied(batches).groupBy("leader").agg(*broker_sums(), median))


def broker_sums() -> list[Column]:
    """Aggregates of tallied rows: what a BrokerUse has, but for the median."""
    return [
        F.sum("batches").alias("batches"),
        F.sum("records").alias("records"),
        _sum(F.when(F.col("movable"), F.col("records"))).alias("movable_records"),
        F.sum("latency_us").alias("latency_us"),
    ]


def as_brokers(counted: DataFrame) -> list[BrokerUse]:
    """From a row for each broker."""
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
