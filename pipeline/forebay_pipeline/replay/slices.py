"""The simulation, spread over Spark: each group of topics and each slice of time is simulated by itself.

In: arrivals, a World, the variants of the settings. Out: a row for each variant and slice in the columns of OUTCOMES,
to be added up. Nothing is raised.

A slice begins with the arrivals of WARM_UP_S before it, which do not count: partitioners have measured by then, and
queues are about as long as they would be. What is lost is a backlog older than that, and what partitioners knew of
brokers for longer. At its end everything is answered without anything coming after it.

All chance is drawn from (seed, process, group, slice, variant): how the work is spread changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from random import Random
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from forebay_pipeline.replay.arrivals import ORDER
from forebay_pipeline.replay.settings import Simulated
from forebay_pipeline.replay.simulation import Outcome, Request, Run, Simulation, World, lane_of

WARM_UP_S: Final = 5.0

_ARROW_OUTCOMES: Final = pa.schema(
    [
        pa.field("variant", pa.int64()),
        pa.field("records", pa.int64()),
        pa.field("latency_us", pa.int64()),
        pa.field("requests", pa.int64()),
        pa.field("batches", pa.int64()),
        pa.field("batch_bytes", pa.int64()),
        pa.field("batch_records", pa.int64()),
        pa.field("pool_peak", pa.int64()),
        pa.field("latencies", pa.list_(pa.struct({"bucket": pa.int64(), "records": pa.int64()}))),
        pa.field("shares", pa.list_(pa.struct({"topic": pa.string(), "partition": pa.int64(), "records": pa.int64()}))),
    ]
)
OUTCOMES: Final[StructType] = from_arrow_schema(_ARROW_OUTCOMES)
"""`latency_us` is of all records together, `latencies` in buckets (replay_histogram)."""


class Slices(NamedTuple):
    """Time in slices of `seconds` from `first_us` on, `number` of them."""

    first_us: int
    seconds: float
    number: int

    @classmethod
    def over(cls, first_us: int, last_us: int, seconds: float) -> Slices:
        """Such that both moments are in it."""
        return cls(first_us, seconds, int((last_us - first_us) // (seconds * 1e6)) + 1)

    @property
    def length_us(self) -> int:
        return round(self.seconds * 1e6)

    @property
    def warm_up_us(self) -> int:
        return min(self.length_us, round(WARM_UP_S * 1e6))


class Task(NamedTuple):
    """What each task needs; sent to all of them."""

    world: World
    variants: Sequence[Simulated]
    stripes: int
    """Variants are dealt out to so many tasks a slice."""
    slices: Slices
    seed: int


def simulated(arrivals: DataFrame, groups: Mapping[str, str], task: Task) -> DataFrame:
    """`groups` as replay_topics makes them; arrivals of other topics are left out."""
    spark = arrivals.sparkSession
    named = spark.createDataFrame(sorted(groups.items()), "topic string, group string")
    grouped = arrivals.join(F.broadcast(named), "topic")
    keys = ("process", "group", "slice", "stripe")
    striped = sliced(grouped, task.slices).withColumn(
        "stripe", F.explode(F.sequence(F.lit(0), F.lit(task.stripes - 1)))
    )
    # Asked for by number, so that Spark does not make one task of several because their rows are few: each is long.
    tasks = min(2_000, 2 * task.slices.number * task.stripes)
    return striped.repartition(tasks, *keys).groupBy(*keys).applyInArrow(_simulator(task), OUTCOMES)


def sliced(arrivals: DataFrame, slices: Slices) -> DataFrame:
    """Every row with its `slice`, and once more with the next one where it is part of that one's warm-up."""
    since = F.col("at_us") - slices.first_us
    number = F.floor(since / slices.length_us).cast("int")
    warms_up = (since % slices.length_us >= slices.length_us - slices.warm_up_us) & (number + 1 < slices.number)
    both = F.when(warms_up, F.array(number, number + 1)).otherwise(F.array(number))
    return arrivals.withColumn("slice", F.explode(both))


def _simulator(task: Task) -> Callable[[tuple[Any, ...], pa.Table], pa.Table]:
    def simulate(key: tuple[Any, ...], table: pa.Table) -> pa.Table:
        process, group, number, stripe = (part.as_py() for part in key)
        counted_from = number * task.slices.length_us
        zero_us = counted_from - task.slices.warm_up_us
        ordered = table.sort_by([(name, "ascending") for name in ORDER])
        topics = sorted(pc.unique(ordered["topic"]).to_pylist())
        world = task.world._replace(leaders={topic: task.world.leaders[topic] for topic in topics})
        rows = []
        for index in range(stripe, len(task.variants), task.stripes):
            rng = Random(f"{task.seed}/{process}/{group}/{number}/{index}")
            simulation = Simulation(task.variants[index], world, rng, (counted_from - zero_us) / 1e6)
            requests = requests_of(ordered, task.slices.first_us + zero_us)
            rows.append(_row(index, simulation.run(requests)))
        return pa.Table.from_pylist(rows, schema=_ARROW_OUTCOMES)

    return simulate


_CHUNK: Final = 10_000
"""Rows that are Python's objects at a time: of the rest Arrow's memory is a tenth."""


def requests_of(ordered: pa.Table, zero_us: int) -> Iterator[Request]:
    """The rows of arrivals (columns as in arrivals.SCHEMA) of one process, in ORDER, as requests."""
    for (at_us, _, connection), rows in groupby(_rows(ordered), lambda row: row[:3]):
        runs = [
            Run(topic, partition, lane_of(acks, movable), records, size)
            for _, _, _, topic, partition, acks, movable, records, size in rows
        ]
        yield Request((at_us - zero_us) / 1e6, connection, runs)


def _rows(ordered: pa.Table) -> Iterator[tuple[Any, ...]]:
    names = ("at_us", "number", "connection", "topic", "partition", "acks", "movable", "records", "bytes")
    for batch in ordered.select(names).to_batches(_CHUNK):
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _row(variant: int, outcome: Outcome) -> dict[str, object]:
    return {
        "variant": variant,
        "records": outcome.records,
        "latency_us": outcome.latency_us,
        "requests": outcome.requests,
        "batches": outcome.batches,
        "batch_bytes": outcome.batch_bytes,
        "batch_records": outcome.batch_records,
        "pool_peak": outcome.pool_peak,
        "latencies": [{"bucket": bucket, "records": count} for bucket, count in sorted(outcome.latencies.items())],
        "shares": [
            {"topic": topic, "partition": partition, "records": count}
            for topic, counts in outcome.shares.items()
            for partition, count in enumerate(counts)
        ],
    }
