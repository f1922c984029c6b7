"""The runaway detector over the journal as a stream: a stateful query, with its state in the checkpoint.

In: rows as a stream. Out: changes in the columns of runaway_windows.CHANGES, each exactly once, when it is certain. The
detector is the same as over a span, but here a window must be known to be complete:

    event time      the start of a row's window
    watermark       the latest event time seen, less a window and `late_s`: how much later a row may be read
    judged          windows that start at the watermark or before; Spark drops later rows of theirs

What partitions got is added up where rows are decoded, before they go to the task of their topic: a row for each
window and partition of a file, however many batches there were. The state of a topic is one string: its open windows
and its TopicWatch. It is kept by topic because fair shares are. It is bounded: windows close as the watermark moves,
and a topic that is quiet for `thresholds.quiet_us` is forgotten, by timeout if it has no more rows. Gauge rows, one a
second, have no topic and no state, but they move the watermark: time passes while nothing is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

import msgspec
import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from forebay_pipeline.journal.columns import wait, window_start
from forebay_pipeline.journal.schema import KIND, kind_of
from forebay_pipeline.journal.source import Kinds
from forebay_pipeline.partitions.runaway_detector import Change, Portion, Thresholds, TopicWatch
from forebay_pipeline.partitions.runaway_windows import CHANGES, change_row
from forebay_policies.journal_rows import BatchRow, GaugeRow

KINDS: Final[Kinds] = (BatchRow, GaugeRow)
"""The kinds of rows that it needs."""
COLUMNS: Final = ("topic", "partition", "bytes", "linger_us", "upstream_us")
"""And their columns, beside those that all rows have."""
_ARROW: Final = pa.schema([("topic", pa.string()), *((name, pa.int64()) for name in ("window_us", *Portion._fields))])
_PORTIONS: Final = from_arrow_schema(_ARROW)
"""What a partition got in a window; of gauge rows, which have no topic, only the window counts."""
_STATE: Final = "topic_state string"
_Function = Callable[[Any, Iterable[pd.DataFrame], GroupState], Iterable[pd.DataFrame]]


class Watching(NamedTuple):
    """How the stream is watched; whole seconds."""

    window_s: int = 10
    late_s: int = 30
    """How long after a window's end it is judged."""
    thresholds: Thresholds = Thresholds()


def stream_changes(rows: DataFrame, watching: Watching) -> DataFrame:
    """The detector's changes in the columns of CHANGES, from the rows of journal.source.stream_rows."""
    width_us = watching.window_s * 1_000_000
    sent = rows.where(F.col(KIND).isin(*map(kind_of, KINDS))).select(
        "topic", window_start(width_us).alias("window_us"), "partition", "bytes", wait().alias("wait_us")
    )
    portions = (
        sent.mapInArrow(add_up, _PORTIONS)
        .withColumn("window", F.timestamp_micros("window_us"))
        .withWatermark("window", f"{watching.window_s + watching.late_s} seconds")
    )
    return portions.groupBy("topic").applyInPandasWithState(
        _judge(watching.thresholds), CHANGES, _STATE, "append", GroupStateTimeout.EventTimeTimeout
    )


class TopicState(msgspec.Struct):
    """What is remembered of a topic between triggers."""

    watch: TopicWatch
    open: dict[int, dict[int, Portion]]
    """Start of the window → partition → what it got so far."""

    def add(self, window_us: int, portion: Portion) -> None:
        """Add to what a partition got in the window that starts at `window_us`."""
        window = self.open.setdefault(window_us, {})
        number, batches, size, wait_us = portion
        known = window.get(number, Portion(number, 0, 0, 0))
        window[number] = Portion(number, known.batches + batches, known.bytes + size, known.wait_us + wait_us)

    def judge(self, watermark_us: int, thresholds: Thresholds) -> list[Change]:
        """Close the windows that are complete at this watermark; the changes that they bring."""
        changes = []
        for start_us in sorted(start_us for start_us in self.open if start_us <= watermark_us):
            changes += self.watch.window(start_us, list(self.open.pop(start_us).values()), thresholds)
        if not self.open and self.watch.quiet_at(thresholds) <= watermark_us:
            changes += self.watch.quiet()
        return changes

    def due_us(self, thresholds: Thresholds) -> int | None:
        """The watermark at which there is something to judge or to forget; None if the state is empty."""
        if self.open:
            return min(self.open)
        return self.watch.quiet_at(thresholds) if self.watch.last_us else None


def _judge(thresholds: Thresholds) -> _Function:
    def judge(key: Any, frames: Iterable[pd.DataFrame], state: GroupState) -> Iterable[pd.DataFrame]:
        (topic,) = key
        if topic is None:
            return
        known = msgspec.json.decode(state.get[0], type=TopicState) if state.exists else TopicState(TopicWatch(), {})
        for frame in frames:
            for window_us, portion in _portions(frame):
                known.add(window_us, portion)
        watermark_ms = max(0, state.getCurrentWatermarkMs())
        changes = known.judge(watermark_ms * 1000, thresholds)
        _put_away(known, state, watermark_ms, thresholds)
        if changes:
            yield pd.DataFrame([change_row(topic, change) for change in changes], columns=CHANGES.names)

    return judge


def _put_away(known: TopicState, state: GroupState, watermark_ms: int, thresholds: Thresholds) -> None:
    due_us = known.due_us(thresholds)
    if due_us is None:
        state.remove()
        return
    state.update((msgspec.json.encode(known).decode(),))
    # A timeout fires when the watermark has passed it, and must not be set behind the watermark.
    state.setTimeoutTimestamp(max(due_us // 1000 - 1, watermark_ms + 1))


def add_up(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Batches (topic, window_us, partition, bytes, wait_us) as portions of windows."""
    keys = ["topic", "window_us", "partition"]
    for batch in batches:
        sums = pa.table(batch).group_by(keys).aggregate([("bytes", "count"), ("bytes", "sum"), ("wait_us", "sum")])
        columns = [*keys, "bytes_count", "bytes_sum", "wait_us_sum"]
        yield from sums.select(columns).rename_columns(_ARROW.names).cast(_ARROW).to_batches()


def _portions(frame: pd.DataFrame) -> Iterator[tuple[int, Portion]]:
    for window_us, *portion in frame[["window_us", *Portion._fields]].itertuples(index=False, name=None):
        yield window_us, Portion(*portion)
