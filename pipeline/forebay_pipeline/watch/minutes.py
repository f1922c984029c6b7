"""The ledger as a stream of minutes: a stateful query, with its state in the checkpoint.

In: rows as a stream. Out: a row of TALLIES for each process, topic and minute, once that minute is judged:

    event time      a row's own
    watermark       the latest event time seen, less `late_s`: how much later than others a row may be read
    judged          minutes that end at the watermark or before; Spark drops, and counts, rows from before it

All of a minute comes out in the same batch, whatever process it is of, because the watermark is one for all. State is
kept by process and topic and is bounded: it has open minutes only, and goes with the last of them. Gauge rows, one a
second, move the watermark while nothing is sent, and tell which cluster a process serves: they make rows without a
topic.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec
import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout
from pyspark.sql.types import LongType, StringType, StructType

from forebay_pipeline.audit.ledger import fate
from forebay_pipeline.journal.columns import window_start
from forebay_pipeline.journal.schema import KIND, kind_of
from forebay_pipeline.journal.source import Kinds
from forebay_pipeline.watch.tally import Tally
from forebay_policies.journal_rows import GaugeRow, LedgerRow

KINDS: Final[Kinds] = (LedgerRow, GaugeRow)
"""The kinds of rows that it needs."""
COLUMNS: Final = (
    *("process", "topic", "topic_id", "cluster_id", "partition", "received_us"),
    *("records", "parts", "base_offset", "error_code", "batch_rows_total", "ledger_rows_total"),
)
"""And their columns, beside those that all rows have."""
MINUTE_US: Final = 60_000_000

TALLIES: Final = (
    StructType()
    .add("process", StringType())
    .add("topic", StringType())
    .add("topic_id", StringType())
    .add("minute_us", LongType())
    .add("tally", StringType())
)
"""`topic` and `topic_id` are empty where they are not known; `tally` is a Tally as JSON."""

_KEY: Final = ("process", "topic", "topic_id")
_STATE: Final = "minutes string"
_OPEN: Final = msgspec.json.Decoder(dict[int, Tally])


def stream_tallies(rows: DataFrame, late_s: int) -> DataFrame:
    """Rows of TALLIES, from the rows of journal.source.stream_rows."""
    sent = _counted(rows).withWatermark("time", f"{late_s} seconds")
    return sent.groupBy(*_KEY).applyInPandasWithState(
        tally, TALLIES, _STATE, "append", GroupStateTimeout.EventTimeTimeout
    )


def _counted(rows: DataFrame) -> DataFrame:
    """A row for each part of a ledger row, and for each gauge row: `records` are then its batches' rows, `first` the
    ledger's."""
    opened = rows.where(F.col(KIND).isin(*map(kind_of, KINDS))).select("*", F.explode_outer("parts").alias("sent"))
    first = F.coalesce("sent.base_offset", "base_offset")
    return opened.select(
        "process",
        *(F.coalesce(name, F.lit("")).alias(name) for name in ("topic", "topic_id", "cluster_id")),
        F.timestamp_micros("time_us").alias("time"),
        window_start(MINUTE_US).alias("minute_us"),
        fate(first).alias("fate"),
        *(
            F.coalesce(value, F.lit(0)).alias(name)
            for name, value in (
                ("partition", F.coalesce("sent.partition", "partition")),
                ("first", F.coalesce(first, "ledger_rows_total")),
                ("records", F.coalesce("sent.records", "records", "batch_rows_total")),
                ("took_us", F.col("time_us") - F.col("received_us")),
            )
        ),
    )


def tally(key: Any, frames: Iterable[pd.DataFrame], state: GroupState) -> Iterable[pd.DataFrame]:
    """Count the rows of one process and topic by minute; the rows of TALLIES of minutes that are over."""
    minutes = _OPEN.decode(state.get[0]) if state.exists else {}
    for frame in frames:
        count(minutes, frame)
    watermark_ms = max(0, state.getCurrentWatermarkMs())
    over = [(*key, minute_us, msgspec.json.encode(each).decode()) for minute_us, each in judged(minutes, watermark_ms)]
    if minutes:
        state.update((msgspec.json.encode(minutes).decode(),))
        # A timeout fires when the watermark has passed it, and must not be set behind the watermark.
        due_ms = (min(minutes) + MINUTE_US) // 1000
        state.setTimeoutTimestamp(max(due_ms - 1, watermark_ms + 1))
    elif state.exists:
        state.remove()
    if over:
        yield pd.DataFrame(over, columns=TALLIES.names)


def count(minutes: dict[int, Tally], frame: pd.DataFrame) -> None:
    """Add rows to the tallies of their minutes."""
    columns = ("minute_us", "topic", "cluster_id", "fate", "partition", "first", "records", "took_us")
    for minute_us, topic, cluster_id, *sent in zip(*(frame[name].tolist() for name in columns), strict=True):
        known = minutes.setdefault(minute_us, Tally())
        if topic:
            known.count(*sent)
        else:
            _, _, ledger, batches, _ = sent
            known.gauge(cluster_id, batches, ledger)


def judged(minutes: dict[int, Tally], watermark_ms: int) -> list[tuple[int, Tally]]:
    """Take out the minutes that are over at this watermark, the oldest first."""
    over = sorted(minute_us for minute_us in minutes if minute_us + MINUTE_US <= watermark_ms * 1000)
    return [(minute_us, minutes.pop(minute_us)) for minute_us in over]
