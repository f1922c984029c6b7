"""The ledger as an audit sees it: a row for each part of a client's request, its fate, and whether to check it.

In: rows of the journal (LedgerRow at least) and an AuditScope. Out: `parts`; what they claim of the topics; how
far each process's rows are audited.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from msgspec.structs import astuple
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from forebay_pipeline.audit.ranges import Claimed
from forebay_pipeline.audit.state import HORIZON_US, AuditState, ProcessMark
from forebay_pipeline.journal.source import of_kind
from forebay_pipeline.journal.span import Span
from forebay_policies.eligibility import Reason
from forebay_policies.journal_rows import LedgerRow

ACKNOWLEDGED: Final = "acknowledged"
UNACKNOWLEDGED: Final = "unacknowledged"
NOT_FOLLOWED: Final = "not_followed"
_OF_NONE: Final = Reason.EMPTY.value
"""Why a batch without records was not touched."""

AROUND_US: Final = 15 * 60 * 1_000_000
"""Rows this long before and after what is audited are read as well: they tell who claims its neighbours, what was sent
before, and what was sent again. By default, clients give up on a record after two minutes."""


class AuditScope(NamedTuple):
    """What to audit. The state says where to begin, unless the span does."""

    span: Span = Span()
    topics: tuple[str, ...] = ()
    state: AuditState | None = None
    due_us: int | None = None
    """Rows of before this moment should be there by now; None if nobody can tell."""

    @property
    def before(self) -> AuditState | None:
        """The state that this audit continues from; None if the span says where to begin."""
        return self.state if self.span.first is None else None

    @property
    def earliest_us(self) -> int | None:
        """No row before this time is checked, in microseconds since 1970; None is no limit."""
        if self.before is None or self.before.newest_us is None:
            return self.span.first
        return self.before.newest_us - HORIZON_US

    @property
    def to_be_checked(self) -> Span:
        """The span of the rows that may have to be checked."""
        return Span(self.earliest_us, self.span.last)

    @property
    def around(self) -> Span:
        """The span of the rows to read."""
        first, last = self.to_be_checked
        return Span(first - AROUND_US if first is not None else None, last + AROUND_US if last is not None else None)


def parts(rows: DataFrame, scope: AuditScope, *, copied: bool = False) -> DataFrame:
    """A row for each part of a request; a request passed on untouched is one part without CRCs. `copied`: ledger rows
    may be there several times, and count once.

    Columns: process, number, connection, client_id, principal (empty: served as nobody in particular), time_us, seq,
    topic, client_partition (the client's choice), partition (where the records went), base_offset, end_offset, records,
    crc, first_crc, first_xxh64, movable, topic_id (empty if it is not known), keys, tombstones, fate (ACKNOWLEDGED,
    UNACKNOWLEDGED or NOT_FOLLOWED), uncounted (it may be of records, but does not say of how many), unplaced (it was
    acknowledged by a broker that did not say where it is, and so NOT_FOLLOWED), part (an id among
    parts at one offset), first_of_row (each ledger row has one), times (how often that row is there), row_key (its id
    within the process and time), checked (whether this audit is to check it).
    """
    ledger = of_kind(rows, LedgerRow)
    if scope.topics:
        ledger = ledger.where(F.col("topic").isin(list(scope.topics)))
    ledger = _once(ledger) if copied else ledger.withColumn("times", F.lit(1))
    opened = ledger.select("*", F.posexplode_outer("parts").alias("position", "sent"))
    base, records = _of_part("base_offset"), _of_part("records")
    lines = opened.select(
        "process",
        "number",
        "connection",
        "client_id",
        F.coalesce("principal", F.lit("")).alias("principal"),
        "time_us",
        "seq",
        "topic",
        F.col("partition").alias("client_partition"),
        _of_part("partition").alias("partition"),
        base.alias("base_offset"),
        (base + records).alias("end_offset"),
        records.alias("records"),
        F.col("sent.crc").alias("crc"),
        F.col("sent.first_crc").alias("first_crc"),
        F.col("sent.first_xxh64").alias("first_xxh64"),
        F.coalesce("sent.movable", F.expr("false")).alias("movable"),
        F.coalesce("topic_id", F.lit("")).alias("topic_id"),
        F.col("sent.keys").alias("keys"),
        F.col("sent.tombstones").alias("tombstones"),
        fate(base).alias("fate"),
        ((records == 0) & ~F.col("reason").isin(_OF_NONE) & (fate(base) != UNACKNOWLEDGED)).alias("uncounted"),
        (F.col("position").isNotNull() & (F.col("error_code") == 0) & (base < 0)).alias("unplaced"),
        F.xxhash64("process", "number", "topic", "partition", "position").alias("part"),
        (F.coalesce("position", F.lit(0)) == 0).alias("first_of_row"),
        "times",
        F.concat_ws("/", "number", "partition", "topic").alias("row_key"),
    )
    return _with_checked(lines, scope)


def _once(ledger: DataFrame) -> DataFrame:
    """Copies agree in all columns; another row that has only the number is none."""
    return ledger.groupBy(*ledger.columns).agg(F.count("*").alias("times"))


def _of_part(name: str) -> Column:
    """The part's field, or the row's if the request was passed on untouched."""
    return F.coalesce(F.col(f"sent.{name}"), F.col(name))


def fate(base: Column) -> Column:
    """What the client was told of records of a ledger row that were put at `base`: one of the three above."""
    error = F.col("error_code")
    return (
        F.when(error.isNull(), NOT_FOLLOWED)
        .when(error != 0, UNACKNOWLEDGED)
        .when(base >= 0, ACKNOWLEDGED)
        .otherwise(NOT_FOLLOWED)
    )


def _with_checked(lines: DataFrame, scope: AuditScope) -> DataFrame:
    checked, before = scope.to_be_checked.holds, scope.before
    if before is None or not (before.processes or before.followed):
        return lines.withColumn("checked", checked)
    nothing = ProcessMark(-1, [])
    numbered = {name: followed.audited for name, followed in before.followed.items()}
    marks = lines.sparkSession.createDataFrame(
        [
            (name, *astuple(before.processes.get(name, nothing)), numbered.get(name))
            for name in sorted({*before.processes, *numbered})
        ],
        "process string, marked_us bigint, marked_rows array<string>, audited array<struct<first:bigint,last:bigint>>",
    )
    time, marked, number = F.col("time_us"), F.col("marked_us"), F.col("seq")
    by_time = (time < marked) | ((time == marked) & F.array_contains("marked_rows", F.col("row_key")))
    by_number = F.exists("audited", lambda numbers: number.between(numbers["first"], numbers["last"]))
    audited = F.when(number.isNull() | F.col("audited").isNull(), by_time).otherwise(by_number)
    return (
        lines.join(F.broadcast(marks), "process", "left")
        .withColumn("checked", checked & ~F.coalesce(audited, F.expr("false")))
        .drop("marked_us", "marked_rows", "audited")
    )


def rows_of(parts: DataFrame) -> tuple[int, int]:
    """How many ledger rows they are parts of, whether to be checked or not; and how many more are copies of those."""
    count, times = F.count("*"), F.coalesce(F.sum("times"), F.lit(0))
    ((rows, with_copies),) = parts.where("first_of_row").agg(count, times).collect()
    return rows, with_copies - rows


class Survey(NamedTuple):
    """The rows to be checked: how many, of which topics, their first and last time, and the offsets they claim of each
    partition."""

    rows: int
    uncounted: int
    """Of them, those of who knows how many records."""
    unplaced: int
    """Records that were acknowledged by brokers that did not say where they are."""
    first_us: int
    last_us: int
    topics: set[str]
    claimed: list[Claimed]


def survey(parts: DataFrame, before: AuditState | None = None) -> Survey | None:
    """None if there are no rows to be checked. Late are those that were answered long after all that were audited
    `before`: the records of those were in their topics earlier."""
    claims = (F.col("fate") == ACKNOWLEDGED) & (F.col("records") > 0)
    newest_us = before.newest_us if before is not None else None
    late = F.col("time_us") > newest_us + AROUND_US if newest_us is not None else F.expr("false")
    found = (
        parts.where("checked")
        .groupBy("topic", "partition")
        .agg(
            F.count_if("first_of_row").alias("rows"),
            F.count_if("uncounted").alias("uncounted"),
            F.sum(F.when(F.col("unplaced"), F.col("records")).otherwise(0)).alias("unplaced"),
            F.min("time_us").alias("first_us"),
            F.max("time_us").alias("last_us"),
            F.min(F.when(claims, F.col("base_offset"))).alias("first"),
            F.max(F.when(claims, F.col("end_offset"))).alias("end"),
            F.min(F.when(claims & late, F.col("base_offset"))).alias("late"),
        )
        .collect()
    )
    if not found:
        return None
    return Survey(
        sum(each.rows for each in found),
        sum(each.uncounted for each in found),
        sum(each.unplaced for each in found),
        min(each.first_us for each in found),
        max(each.last_us for each in found),
        {each.topic for each in found},
        [
            Claimed(each.topic, each.partition, each.first, each.end, each.late)
            for each in found
            if each.first is not None
        ],
    )


def marks(parts: DataFrame) -> dict[str, ProcessMark]:
    """Process → how far its rows are audited once `parts` are."""
    checked = parts.where("checked")
    last = checked.groupBy("process").agg(F.max("time_us").alias("time_us"))
    found = (
        checked.join(last, ["process", "time_us"])
        .groupBy("process", "time_us")
        .agg(F.sort_array(F.collect_set("row_key")))
    )
    return {process: ProcessMark(time_us, rows) for process, time_us, rows in found.collect()}
