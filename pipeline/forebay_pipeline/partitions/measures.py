"""Computes the Summary of a span of the journal.

In: a span of a journal, and Questions. Out: a Summary. Raises CannotRun if the span has nothing to tell of.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from forebay_pipeline.errors import CannotRun
from forebay_pipeline.jobs.time_text import within
from forebay_pipeline.journal.clusters import clusters
from forebay_pipeline.journal.schema import KIND, columns_of, kind_of
from forebay_pipeline.journal.source import JournalPlace, read_rows, torn
from forebay_pipeline.journal.span import Span
from forebay_pipeline.partitions import batches as partitions_batches
from forebay_pipeline.partitions import workers as partitions_workers
from forebay_pipeline.partitions.runaway_detector import Change, Thresholds
from forebay_pipeline.partitions.runaway_windows import Episode, change_row, changes, episodes, topic_windows
from forebay_pipeline.partitions.summary import NOTHING, Summary
from forebay_policies.journal_rows import BatchRow, GaugeRow, MetadataRow

_KINDS: Final = (BatchRow, GaugeRow, MetadataRow)
SUMMARIZED: Final = (
    *("time_us", "worker", "process"),
    *("topic", "partition", "leader", "reason", "records", "bytes", "linger_us", "upstream_us", "fate", "error_code"),
    *("started_us", "pool_bytes", "pool_available_bytes", "pool_waiters", "queued_bytes", "queued_batches"),
    *("in_flight_requests", "cluster_id", *partitions_workers.TOTALS),
    *("took_us", "request_bytes", "response_bytes"),
)
"""The columns that `summarize` looks at."""
MAX_CHANGES: Final = 1000
"""Beginnings and ends of runaways to show; the earliest ones."""


class Questions(NamedTuple):
    """What the Summary is to contain."""

    by: Sequence[str] = ("topic", "partition")
    """Some of batches.KEYS."""
    max_rows: int = 500
    """Groups, and topics, to show."""
    window_us: int = 10_000_000
    """Width of the runaway detector's windows."""
    thresholds: Thresholds = Thresholds()


class Rows(NamedTuple):
    """The rows of a span, by kind."""

    batches: DataFrame
    """BatchRow."""
    gauges: DataFrame
    """GaugeRow."""
    requests: DataFrame
    """MetadataRow."""
    torn: int
    """Unreadable lines and files."""
    errors: DataFrame
    """A row for each of these, with one column: `error`."""
    others: Mapping[type[msgspec.Struct], DataFrame]
    """Further kinds, where they were asked for."""


@contextmanager
def kept_rows(
    spark: SparkSession,
    place: JournalPlace,
    span: Span,
    others: Mapping[type[msgspec.Struct], Mapping[str, str]] = MappingProxyType({}),
    *,
    of_these: Sequence[str],
) -> Iterator[Rows]:
    """The rows of a span, read once while the context lasts and kept in memory, or on disk if they do not fit.

    Batches, gauges and metadata requests have those of their columns that are in `of_these`: each takes its time and
    memory. `others`: further kinds of rows, with the columns that are wanted of each: name → SQL. Raises CannotRun if
    there is no journal.
    """
    columns = {column: column for column in (KIND, "error", *of_these)}
    for wanted in others.values():
        columns |= wanted
    named = {word for sql in columns.values() for word in re.findall(r"\w+", sql)}
    rows = read_rows(spark, place, span, [*_KINDS, *others], sorted(named))
    narrow = rows.selectExpr(*(f"{sql} AS {name}" for name, sql in columns.items())).persist()
    try:
        errors = torn(narrow)
        batches, gauges, requests = (
            narrow.where(F.col(KIND) == kind_of(kind)).select([each for each in columns_of(kind) if each in columns])
            for kind in _KINDS
        )
        yield Rows(
            batches,
            gauges,
            requests,
            errors.count(),
            errors,
            {kind: narrow.where(F.col(KIND) == kind_of(kind)).select(*wanted) for kind, wanted in others.items()},
        )
    finally:
        narrow.unpersist()


def summarize(
    rows: Rows, place: JournalPlace, span: Span, questions: Questions, passed_on: Sequence[DataFrame] = ()
) -> Summary:
    """The Summary of `rows`, which are those of `span` at `place`.

    Where there are no batches, the time is that of rows `passed_on`, about what went on as it came. Raises CannotRun if
    there are none of these either.
    """
    batches = rows.batches
    total = partitions_batches.total(batches) or NOTHING
    times = _covered(passed_on if total is NOTHING else [batches])
    if times is None:
        unread = f" (unreadable lines or files: {rows.torn:,})" if rows.torn else ""
        raise CannotRun(f"There are no batches{within(span)} in {place}{unread}.")
    groups, groups_left_out = partitions_batches.groups(batches, questions.by, total.bytes, questions.max_rows)
    topics, topics_left_out = partitions_batches.topics(batches, questions.max_rows)
    found = changes(topic_windows(batches, questions.window_us), questions.thresholds, times[1])
    runaways, changes_left_out = runaways_of(found)
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
        racks=partitions_workers.racks(rows.gauges),
        torn=rows.torn,
        clusters=clusters(rows.gauges),
    )


def _covered(of: Sequence[DataFrame]) -> tuple[int, int] | None:
    """The first and the last time of these rows; None without any."""
    if not of:
        return None
    every = reduce(DataFrame.unionAll, (rows.select("time_us") for rows in of))
    (row,) = every.agg(F.min("time_us"), F.max("time_us")).collect()
    return None if row[0] is None else (row[0], row[1])


def runaways_of(found: DataFrame, earlier: Iterable[tuple[str, Change]] = ()) -> tuple[list[Episode], int]:
    """The episodes that rows of CHANGES tell, and how many changes were left out, the latest ones.

    `earlier`: topics and changes before these, of runaways that lasted.
    """
    found = found.persist()
    try:
        # In a topic's last window a partition may run away before the topic goes quiet: "runaway" comes before "quiet".
        first = found.orderBy("window_us", "topic", "partition", F.desc("event")).limit(MAX_CHANGES).collect()
        told = [*(change_row(topic, change) for topic, change in earlier), *(row.asDict() for row in first)]
        return episodes(told), found.count() - len(first)
    finally:
        found.unpersist()
