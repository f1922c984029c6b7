"""What is replayed: runs of records with their times of arrival, as a DataFrame.

In: the journal's ledger rows; its batch rows, if there is no ledger; its rows of what was only observed; or a Load that
describes made-up traffic. Out: a row for each run of records that stayed together, in the columns of SCHEMA.

Each process of the proxy is independent: it has its own pool, accumulator, partitioners and connections. Rows with the
same (process, number) came in one Produce request and are answered together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from random import Random
from typing import Final, NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

ARROW_SCHEMA: Final = pa.schema(
    [
        pa.field("process", pa.string()),
        pa.field("connection", pa.int64()),
        pa.field("number", pa.int64()),
        pa.field("at_us", pa.int64()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int64()),
        pa.field("place", pa.int64()),
        pa.field("movable", pa.bool_()),
        pa.field("records", pa.int64()),
        pa.field("bytes", pa.int64()),
        pa.field("acks", pa.int64()),
    ]
)
SCHEMA: Final[StructType] = from_arrow_schema(ARROW_SCHEMA)
"""`at_us` is in microseconds since 1970 (since the start, for a Load), `number` the request's, `partition` the client's
choice, `place` the run's place in its client batch; `bytes` are uncompressed."""

ORDER: Final = ("at_us", "number", "topic", "partition", "place")
"""The columns that order the rows of one process."""


def of_ledger(ledger: DataFrame) -> DataFrame:
    """Exactly what arrived, except requests that were passed on untouched: the ledger has no parts of them."""
    parts = ledger.select(
        "process",
        "connection",
        "number",
        F.col("received_us").alias("at_us"),
        "topic",
        "partition",
        "acks",
        F.posexplode("parts").alias("place", "part"),
    )
    return parts.select(
        "process",
        "connection",
        "number",
        "at_us",
        "topic",
        "partition",
        F.col("place").cast("long").alias("place"),
        "part.movable",
        "part.records",
        "part.bytes",
        "acks",
    )


def of_batches(batches: DataFrame) -> DataFrame:
    """Approximately what arrived: a batch's runs are taken to be alike, and spread evenly over its linger.

    A batch of 4 runs that was opened at 100 µs and sent at 140: runs at 100, 110, 120 and 130. Each is a request on a
    connection of its own, for the partition that it went to. Retries are left out.
    """
    opened = F.col("time_us") - F.col("upstream_us") - F.col("linger_us")
    number = F.xxhash64("process", "topic", "partition", "time_us", "base_offset", "place")
    runs = batches.where("tries = 0").withColumn("place", F.explode(F.expr("sequence(0, greatest(runs, 1) - 1)")))
    each = F.greatest(F.col("runs"), F.lit(1))
    return runs.select(
        "process",
        number.alias("connection"),
        number.alias("number"),
        (opened + F.floor(F.col("place") * F.col("linger_us") / each)).alias("at_us"),
        "topic",
        "partition",
        F.col("place").cast("long").alias("place"),
        "movable",
        _dealt("records", each).alias("records"),
        _dealt("bytes", each).alias("bytes"),
        "acks",
    )


def of_observed(observed: DataFrame) -> DataFrame:
    """Exactly what arrived, and went on untouched because it was only observed.

    A batch that has records with a key and others without is two runs, as if it had been merged. What a broker refused
    is left out: its client sent it again. Numbers are negative, since the ledger numbers its requests on its own.
    """
    taken = observed.where("coalesce(error_code, 0) = 0")
    stays = (F.col("records") - F.col("null_key_records"), F.col("bytes") - F.col("null_key_bytes"))
    moves = (F.col("null_key_records"), F.col("null_key_bytes"))
    return _runs(taken, 0, *stays, movable=False).union(_runs(taken, 1, *moves, movable=True))


def _runs(observed: DataFrame, place: int, records: Column, size: Column, *, movable: bool) -> DataFrame:
    """The part of each batch that has so many `records`, of `size` bytes, where there are any."""
    return observed.where(records > 0).select(
        "process",
        "connection",
        (-F.col("number")).alias("number"),
        F.col("received_us").alias("at_us"),
        "topic",
        "partition",
        F.lit(place).cast("long").alias("place"),
        F.lit(movable).alias("movable"),
        records.alias("records"),
        size.alias("bytes"),
        "acks",
    )


def _dealt(column: str, among: Column) -> Column:
    """The value of `column` divided among so many places: 7 among 3 is 3, 2, 2."""
    whole = F.col(column)
    return F.floor(whole / among) + (F.col("place") < whole % among).cast("long")


class Load(NamedTuple):
    """Made-up traffic: records without keys, at random times, to one topic whose partition i is led by broker i modulo
    `brokers`."""

    records_per_s: float = 2048.0
    record_bytes: int = 512
    records_a_run: int = 1
    connections: int = 3
    partitions: int = 3
    brokers: int = 3
    service_ms: float = 0.6
    """What a broker takes for a request."""
    slow_ms: float = 20.5
    """What broker 0 takes instead."""
    seconds: float = 60.0

    @property
    def leaders(self) -> list[int]:
        """The leader of each partition."""
        return [partition % self.brokers for partition in range(self.partitions)]


SYNTHETIC: Final = "synthetic"
"""The topic of a Load."""

_BLOCK_S: Final = 10.0
"""Each block has a seed of its own, so arrivals do not depend on how they are spread over tasks and slices."""

_ROWS: Final = 50_000
"""Rows of one Arrow batch."""


def of_load(spark: SparkSession, load: Load, seed: int) -> DataFrame:
    """The arrivals of a Load; the same for the same seed."""
    blocks = max(1, -int(-load.seconds // _BLOCK_S))
    numbers = spark.range(blocks).repartition(min(blocks, 64), "id")
    return numbers.mapInArrow(_generator(load, seed), SCHEMA)


def _generator(load: Load, seed: int) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def generate(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for block in batch["id"].to_pylist():
                yield from _block(load, seed, block)

    return generate


def _block(load: Load, seed: int, block: int) -> Iterator[pa.RecordBatch]:
    """Arrivals of the block that starts at `block` * _BLOCK_S; Poisson arrivals have no memory, so blocks are
    independent."""
    rng = Random(f"{seed}/arrivals/{block}")
    runs_per_s = load.records_per_s / load.records_a_run
    end = min(load.seconds, (block + 1) * _BLOCK_S)
    now = block * _BLOCK_S + rng.expovariate(runs_per_s)
    number = block << 40
    times: list[int] = []
    connections: list[int] = []
    while now < end:
        times.append(int(now * 1e6))
        connections.append(rng.randrange(load.connections))
        now += rng.expovariate(runs_per_s)
        if len(times) == _ROWS:
            yield _rows(load, number, times, connections)
            number += len(times)
            times, connections = [], []
    if times:
        yield _rows(load, number, times, connections)


def _rows(load: Load, number: int, times: list[int], connections: list[int]) -> pa.RecordBatch:
    count = len(times)

    def same(value: int) -> pa.Array:
        return pa.repeat(pa.scalar(value, pa.int64()), count)

    columns = {
        "process": pa.repeat(pa.scalar(SYNTHETIC), count),
        "connection": pa.array(connections, pa.int64()),
        "number": pa.array(range(number, number + count), pa.int64()),
        "at_us": pa.array(times, pa.int64()),
        "topic": pa.repeat(pa.scalar(SYNTHETIC), count),
        "partition": same(0),
        "place": same(0),
        "movable": pa.repeat(pa.scalar(value=True), count),
        "records": same(load.records_a_run),
        "bytes": same(load.records_a_run * load.record_bytes),
        "acks": same(1),
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=ARROW_SCHEMA)
