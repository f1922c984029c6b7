"""All that `partitions` asks of a span of the journal, put together.

In: a span of a journal, and Questions. Out: a Summary. Wrong: CannotRun, where the span holds no batches.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from forebay_pipeline.errors import CannotRun
from forebay_pipeline.journal.schema import KIND, columns_of, kind_of
from forebay_pipeline.journal.source import TORN, JournalPlace, Span, of_kind, read_rows, torn
from forebay_pipeline.partitions import batches as partitions_batches
from forebay_pipeline.partitions import workers as partitions_workers
from forebay_pipeline.partitions.runaway_detector import Thresholds
from forebay_pipeline.partitions.runaway_windows import Episode, changes, episodes, topic_windows
from forebay_pipeline.partitions.summary import Summary
from forebay_policies.journal_rows import BatchRow, GaugeRow, MetadataRow

_KINDS: Final = (BatchRow, GaugeRow, MetadataRow)
MOST_CHANGES: Final = 1000
"""Beginnings and ends of runaways that are shown, the earliest."""


class Questions(NamedTuple):
    by: Sequence[str] = ("topic", "partition")
    most: int = 500
    """Groups and topics that are shown."""
    window_us: int = 10_000_000
    thresholds: Thresholds = Thresholds()


class Rows(NamedTuple):
    """Of a span, by kind."""

    batches: DataFrame
    gauges: DataFrame
    requests: DataFrame
    """For metadata."""
    torn: int
    """Lines and files that cannot be read."""


@contextmanager
def kept_rows(spark: SparkSession, place: JournalPlace, span: Span) -> Iterator[Rows]:
    """Read and decoded once for all questions: in memory, or on disk where it does not fit."""
    columns = dict.fromkeys(column for kind in _KINDS for column in columns_of(kind))
    kinds = [TORN, *(kind_of(kind) for kind in _KINDS)]
    narrow = read_rows(spark, place, span).where(F.col(KIND).isin(kinds)).select(*columns).persist()
    try:
        unread = torn(narrow).count()
        yield Rows(of_kind(narrow, BatchRow), of_kind(narrow, GaugeRow), of_kind(narrow, MetadataRow), unread)
    finally:
        narrow.unpersist()


def summarize(rows: Rows, place: JournalPlace, span: Span, questions: Questions) -> Summary:
    batches = rows.batches
    total = partitions_batches.total(batches)
    if total is None:
        unread = f" (lines or files of it that cannot be read: {rows.torn:,})" if rows.torn else ""
        raise CannotRun(f"There are no batches {_between(span)}in {place}{unread}.")
    (times,) = batches.agg(F.min("time_us"), F.max("time_us")).collect()
    groups, groups_left_out = partitions_batches.groups(batches, questions.by, total.bytes, questions.most)
    topics, topics_left_out = partitions_batches.topics(batches, questions.most)
    runaways, changes_left_out = _runaways(batches, questions)
    return Summary(
        journal=str(place),
        first_us=times[0],
        last_us=times[1],
        by=list(questions.by),
        total=total,
        groups=groups,
        groups_left_out=groups_left_out,
        topics=topics,
        topics_left_out=topics_left_out,
        reasons=partitions_batches.reasons(batches),
        fates=partitions_batches.fates(batches),
        runaways=runaways,
        runaway_changes_left_out=changes_left_out,
        metadata=partitions_workers.metadata(rows.gauges, rows.requests),
        workers=partitions_workers.workers(rows.gauges),
        torn=rows.torn,
    )


def _runaways(batches: DataFrame, questions: Questions) -> tuple[list[Episode], int]:
    found = changes(topic_windows(batches, questions.window_us), questions.thresholds).persist()
    try:
        first = found.orderBy("window_us", "topic", "partition", "event").limit(MOST_CHANGES).collect()
        return episodes(row.asDict() for row in first), found.count() - len(first)
    finally:
        found.unpersist()


def instant(time_us: int) -> str:
    """2026-11-21T14:00:05Z"""
    return datetime.datetime.fromtimestamp(time_us // 1_000_000, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _between(span: Span) -> str:
    if span.first is not None and span.last is not None:
        return f"between {instant(span.first)} and {instant(span.last)} "
    if span.first is not None:
        return f"from {instant(span.first)} on "
    return f"before {instant(span.last)} " if span.last is not None else ""
