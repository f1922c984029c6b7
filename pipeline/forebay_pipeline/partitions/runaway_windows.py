"""The runaway detector over a span of the journal: Spark counts each topic's windows, the detector judges them.

In: batch rows. Out: `topic_windows`, what each partition got in each window; `changes`, the detector's, with their
topics; `episodes`, each from when a partition ran away until it recovered. A topic's windows pass through one task in
order, a row at a time, so neither a span nor a topic has to fit into memory.
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
"""The topic, and the fields of a Change."""


class Episode(msgspec.Struct, frozen=True):
    """A partition that ran away; numbers are those of the window that decided it."""

    topic: str
    partition: int
    since_us: int
    until_us: int | None
    """Start of the first window in which it did not; None if it still does at the end of the span."""
    share: float
    times_fair: float
    wait_us: float
    others_wait_us: float


def window_start(width_us: int) -> Column:
    """The start of the window that a row's `time_us` is in, in microseconds since 1970."""
    return F.col("time_us") - F.pmod("time_us", F.lit(width_us))


def wait() -> Column:
    """How long a batch took from its first record until its fate was known: linger and upstream, in microseconds."""
    return F.col("linger_us") + F.col("upstream_us")


def topic_windows(batches: DataFrame, width_us: int) -> DataFrame:
    """A row for each window and partition that got a batch: topic, window_us, and the fields of a Portion."""
    return batches.groupBy("topic", window_start(width_us).alias("window_us"), "partition").agg(
        F.count("*").alias("batches"), F.sum("bytes").alias("bytes"), F.sum(wait()).alias("wait_us")
    )


def changes(windows: DataFrame, thresholds: Thresholds) -> DataFrame:
    """The detector's changes in the columns of CHANGES, from the rows of topic_windows."""

    def judge(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        for topic, rows in groupby(_rows(batches), key=itemgetter(0)):
            yield pa.RecordBatch.from_pylist(list(_changes_of(topic, rows, thresholds)), schema=_ARROW)

    columns = ["topic", "window_us", *Portion._fields]
    ordered = windows.select(columns).repartition("topic").sortWithinPartitions("topic", "window_us", "partition")
    return ordered.mapInArrow(judge, CHANGES)


def change_row(topic: str, change: Change) -> dict[str, Any]:
    """A Change as a row of CHANGES."""
    return {"topic": topic, **msgspec.to_builtins(change)}


def episodes(found: Iterable[dict[str, Any]]) -> list[Episode]:
    """Episodes in the order in which they began, from rows of CHANGES in the order of time."""
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
