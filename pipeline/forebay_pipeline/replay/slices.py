"""The simulation spread over Spark: each process, group of topics and slice of time is simulated by itself.

In: arrivals, a World, the variants of the settings. Out: a row for each of these and each variant in the columns of
OUTCOMES, to be added up.

A slice starts WARM_UP_S early, and arrivals before it do not count: by then partitioners have measured, and queues are
about as long as they would be. What is lost is an older backlog, and what partitioners had learned before. At the end
of a slice everything is answered, with no arrivals to follow.

All randomness comes from (seed, process, group, slice, variant): how the work is spread changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby, pairwise
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
        pa.field("slice", pa.int64()),
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
"""`latency_us` is the sum over all records; `latencies` has records by bucket (histogram)."""


_KEYS: Final = ("process", "group", "slice", "stripe")
"""What is simulated by itself."""


class Slices(NamedTuple):
    """Time from `first_us` on, in `number` slices of `seconds` each."""

    first_us: int
    seconds: float
    number: int

    @classmethod
    def over(cls, first_us: int, last_us: int, seconds: float) -> Slices:
        """As many as it takes to contain both times."""
        return cls(first_us, seconds, int((last_us - first_us) // (seconds * 1e6)) + 1)

    @property
    def length_us(self) -> int:
        """Of one slice."""
        return round(self.seconds * 1e6)

    @property
    def warm_up_us(self) -> int:
        """How much earlier than a slice its simulation starts; at most one slice."""
        return min(self.length_us, round(WARM_UP_S * 1e6))


class Task(NamedTuple):
    """What is sent to every task."""

    world: World
    variants: Sequence[Simulated]
    stripes: int
    """Tasks that share the variants of a slice."""
    slices: Slices
    seed: int
    chosen: Sequence[int] | None = None
    """The slices to simulate; None: all."""

    @property
    def slices_simulated(self) -> int:
        """How many there are."""
        return self.slices.number if self.chosen is None else len(self.chosen)


LEAST_CHOSEN: Final = 8
"""Fewer slices are no sample."""


def busy(arrivals: DataFrame, slices: Slices) -> list[int]:
    """The numbers of the slices in which anything arrives, ascending."""
    number = F.floor((F.col("at_us") - slices.first_us) / slices.length_us).cast("int").alias("slice")
    return sorted(row["slice"] for row in arrivals.select(number).distinct().collect())


def sample(numbers: Sequence[int], share: float, seed: int) -> list[int] | None:
    """A `share` of `numbers`, which are ascending, one at random of each stretch; None, which is all, where that would
    be too few.

    A tenth of 85 slices are 8, one of the first ten or eleven, one of the next …
    """
    count = int(len(numbers) * share)
    if share >= 1 or count < LEAST_CHOSEN:
        return None
    rng = Random(f"{seed}/sample")
    edges = [len(numbers) * number // count for number in range(count + 1)]
    return [numbers[rng.randrange(first, end)] for first, end in pairwise(edges)]


def simulated(arrivals: DataFrame, groups: Mapping[str, str], task: Task) -> DataFrame:
    """Simulate `arrivals` (arrivals.SCHEMA); rows in OUTCOMES.

    `groups` are those of topics.groups_of; arrivals of topics without a group are left out.
    """
    spark = arrivals.sparkSession
    named = spark.createDataFrame(sorted(groups.items()), "topic string, group string")
    grouped = arrivals.join(F.broadcast(named), "topic")
    wanted = sliced(grouped, task.slices)
    if task.chosen is not None:
        wanted = wanted.where(F.col("slice").isin(list(task.chosen)))
    striped = wanted.withColumn("stripe", F.explode(F.sequence(F.lit(0), F.lit(task.stripes - 1))))
    # With an explicit number, Spark does not merge tasks that have few rows: each takes long.
    tasks = min(2_000, 2 * task.slices_simulated * task.stripes)
    # Not applyInArrow of groups, which Spark 3.5 has not.
    return striped.repartition(tasks, *_KEYS).sortWithinPartitions(*_KEYS).mapInArrow(_simulator(task), OUTCOMES)


def sliced(arrivals: DataFrame, slices: Slices) -> DataFrame:
    """Each row with its number of `slice`, and once more with the next one's if it belongs to that one's warm-up."""
    since = F.col("at_us") - slices.first_us
    number = F.floor(since / slices.length_us).cast("int")
    warms_up = (since % slices.length_us >= slices.length_us - slices.warm_up_us) & (number + 1 < slices.number)
    both = F.when(warms_up, F.array(number, number + 1)).otherwise(F.array(number))
    return arrivals.withColumn("slice", F.explode(both))


def _simulator(task: Task) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def simulate(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for key, table in tables_of(batches):
            yield _simulated(key, table, task)

    return simulate


def tables_of(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[tuple[Any, ...], pa.Table]]:
    """The rows of each key and the key, from batches in the order of keys; one of them at a time is in memory."""
    parts = (part for batch in batches for part in _parts(batch))
    for key, same in groupby(parts, key=lambda part: tuple(part[name][0].as_py() for name in _KEYS)):
        yield key, pa.Table.from_batches(same)


def _parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The batch cut wherever a key begins: of keys a a b b b those from 0 and 2 on."""
    ends = sorted({end for name in _KEYS for end in pc.run_end_encode(batch[name]).run_ends.to_pylist()})
    for begin, end in pairwise([0, *ends]):
        yield batch.slice(begin, end - begin)


def _simulated(key: tuple[Any, ...], table: pa.Table, task: Task) -> pa.RecordBatch:
    process, group, number, stripe = key
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
        rows.append(_row(index, number, simulation.run(requests)))
    return pa.RecordBatch.from_pylist(rows, schema=_ARROW_OUTCOMES)


_CHUNK: Final = 10_000
"""Rows that are Python objects at a time; in Arrow they take a tenth of the memory."""


def requests_of(ordered: pa.Table, zero_us: int) -> Iterator[Request]:
    """The arrivals of one process as requests, with times counted from `zero_us`; `ordered` by arrivals.ORDER."""
    for (at_us, _, connection), rows in groupby(_rows(ordered), lambda row: row[:3]):
        runs = [
            Run(topic, partition, lane_of(acks, movable=movable), records, size)
            for _, _, _, topic, partition, acks, movable, records, size in rows
        ]
        yield Request((at_us - zero_us) / 1e6, connection, runs)


def _rows(ordered: pa.Table) -> Iterator[tuple[Any, ...]]:
    names = ("at_us", "number", "connection", "topic", "partition", "acks", "movable", "records", "bytes")
    for batch in ordered.select(names).to_batches(_CHUNK):
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _row(variant: int, number: int, outcome: Outcome) -> dict[str, object]:
    return {
        "variant": variant,
        "slice": number,
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
