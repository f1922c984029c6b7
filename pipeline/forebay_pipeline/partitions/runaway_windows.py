"""The runaway detector over a span of the journal: Spark counts each topic's windows, the detector judges them.

In: batch rows. Out: `topic_windows`, what each partition got in each window; `changes`, the detector's, with their
topics; `episodes`, each from when a partition ran away until it recovered. A topic's windows pass through one task in
order, a row at a time, so neither a span nor a topic has to fit into memory. A span may be judged where another one
ended: `watched` takes and gives what the detector remembers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from forebay_pipeline.journal.columns import wait, window_start
from forebay_pipeline.partitions.runaway_detector import Change, Event, Portion, Thresholds, TopicWatch

_CHANGES: Final = pa.schema(
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
CHANGES: Final[StructType] = from_arrow_schema(_CHANGES)
"""The topic, and the fields of a Change."""
_WATCHED: Final = _CHANGES.append(pa.field("watch", pa.string()))
WATCHED: Final[StructType] = from_arrow_schema(_WATCHED)
"""The same, and in rows without a Change `watch`: a Watch as JSON."""


class Watch(msgspec.Struct):
    """What is to be known of a topic to go on watching it."""

    state: TopicWatch
    open: dict[int, Change] = {}
    """Partition → the beginning of its runaway, which lasts."""


class Episode(msgspec.Struct, frozen=True):
    """A partition that ran away; numbers are those of the window that decided it."""

    topic: str
    partition: int
    since_us: int
    until_us: int | None
    """Start of the first window in which it did not, or of the last one before its topic went quiet; None if it still
    does at the end of the span."""
    share: float
    times_fair: float
    wait_us: float
    others_wait_us: float


def topic_windows(batches: DataFrame, width_us: int) -> DataFrame:
    """A row for each window and partition that got a batch: topic, window_us, and the fields of a Portion."""
    return batches.groupBy("topic", window_start(width_us).alias("window_us"), "partition").agg(
        F.count("*").alias("batches"), F.sum("bytes").alias("bytes"), F.sum(wait()).alias("wait_us")
    )


def changes(windows: DataFrame, thresholds: Thresholds, end_us: int = 0) -> DataFrame:
    """The detector's changes until `end_us` in the columns of CHANGES, from the rows of topic_windows."""
    return watched(windows, thresholds, end_us=end_us).where(F.col("watch").isNull()).select(CHANGES.names)


def watched(windows: DataFrame, thresholds: Thresholds, before: DataFrame | None = None, end_us: int = 0) -> DataFrame:
    """The changes, and what is to be known of topics afterwards, in WATCHED.

    `before`: topic and watch, of what was before the windows. Of a topic that is quiet at `end_us` nothing is to be
    known any more.
    """

    def judge(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        for topic, rows in groupby(_rows(batches), key=itemgetter(0)):
            yield pa.RecordBatch.from_pylist(list(_judged(topic, rows, thresholds, end_us)), schema=_WATCHED)

    columns = ["topic", "window_us", *Portion._fields]
    rows = windows.select(*columns, F.lit(None).cast("string").alias("watch"))
    if before is not None:
        rows = rows.union(before.select("topic", *(F.lit(-1).cast("long") for _ in columns[1:]), "watch"))
    ordered = rows.repartition("topic").sortWithinPartitions("topic", "window_us", "partition")
    return ordered.mapInArrow(judge, WATCHED)


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


def _judged(
    topic: str, rows: Iterable[tuple[Any, ...]], thresholds: Thresholds, end_us: int
) -> Iterator[dict[str, Any]]:
    known = Watch(TopicWatch())
    for start_us, window in groupby(rows, key=itemgetter(1)):
        if start_us < 0:
            known = msgspec.json.decode(next(window)[-1], type=Watch)
            continue
        for change in known.state.window(start_us, [Portion(*row[2:-1]) for row in window], thresholds):
            known.open.pop(change.partition, None)
            if change.event is Event.RUNAWAY:
                known.open[change.partition] = change
            yield change_row(topic, change)
    if known.state.quiet_at(thresholds) > end_us:
        yield {"topic": topic, "watch": msgspec.json.encode(known).decode()}
    else:
        yield from (change_row(topic, change) for change in known.state.quiet())
