"""The runaway detector over a span of the journal: windows of each topic, counted by Spark, judged one after the other.

In: batch rows. Out: `topic_windows`, what each partition got in each window; `changes`, those of runaway_detector with
their topics; `episodes`, from where a partition ran away until it had recovered. A topic's windows pass through one
task in their order, a row at a time, so that neither spans nor topics have to fit into its memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from forebay_pipeline.partitions.runaway_detector import Change, Event, Portion, Thresholds, TopicWatch

_ARROW: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int64()),
        ("event", pa.string()),
        ("since_us", pa.int64()),
        ("window_us", pa.int64()),
        ("share", pa.float64()),
        ("times_fair", pa.float64()),
        ("wait_us", pa.float64()),
        ("others_wait_us", pa.float64()),
    ]
)
CHANGES: Final[StructType] = from_arrow_schema(_ARROW)
"""A topic, and the fields of a Change."""


class Episode(msgspec.Struct, frozen=True):
    """A partition that ran away, as it stood when that was certain."""

    topic: str
    partition: int
    since_us: int
    until_us: int | None
    """Beginning of the first window in which it did not; None: at the end of the span it still does."""
    share: float
    times_fair: float
    wait_us: float
    others_wait_us: float


def window_start(width_us: int) -> Column:
    """Of a row, by its `time_us`."""
    return F.col("time_us") - F.pmod("time_us", F.lit(width_us))


def wait() -> Column:
    """How long a batch row's records waited on this side: until it was sent, and until its fate was known."""
    return F.col("linger_us") + F.col("upstream_us")


def topic_windows(batches: DataFrame, width_us: int) -> DataFrame:
    """topic, window_us, partition, and the other fields of a Portion."""
    return batches.groupBy("topic", window_start(width_us).alias("window_us"), "partition").agg(
        F.count("*").alias("batches"), F.sum("bytes").alias("bytes"), F.sum(wait()).alias("wait_us")
    )


def changes(windows: DataFrame, thresholds: Thresholds) -> DataFrame:
    """`windows` as of topic_windows; out: CHANGES."""

    def judge(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        for topic, rows in groupby(_rows(batches), key=itemgetter(0)):
            yield pa.RecordBatch.from_pylist(list(_changes_of(topic, rows, thresholds)), schema=_ARROW)

    columns = ["topic", "window_us", *Portion._fields]
    ordered = windows.select(columns).repartition("topic").sortWithinPartitions("topic", "window_us", "partition")
    return ordered.mapInArrow(judge, CHANGES)


def change_row(topic: str, change: Change) -> dict[str, Any]:
    """In CHANGES."""
    return {"topic": topic, **msgspec.to_builtins(change)}


def episodes(found: Iterable[dict[str, Any]]) -> list[Episode]:
    """Rows of CHANGES, the earlier first, as episodes in the order in which they began."""
    known: dict[tuple[str, int], Episode] = {}
    ended = []
    for row in found:
        key = row["topic"], row["partition"]
        if row["event"] == Event.RUNAWAY:
            row = {name: row[name] for name in Episode.__struct_fields__ if name != "until_us"}
            known[key] = Episode(**row, until_us=None)
        elif key in known:
            ended.append(msgspec.structs.replace(known.pop(key), until_us=row["since_us"]))
    return sorted([*ended, *known.values()], key=lambda episode: (episode.since_us, episode.topic, episode.partition))


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[Any, ...]]:
    for batch in batches:
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _changes_of(topic: str, rows: Iterable[tuple[Any, ...]], thresholds: Thresholds) -> Iterator[dict[str, Any]]:
    watch = TopicWatch()
    for start_us, window in groupby(rows, key=itemgetter(1)):
        for change in watch.window(start_us, [Portion(*row[2:]) for row in window], thresholds):
            yield change_row(topic, change)
