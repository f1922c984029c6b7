"""What the journal itself lost: rows that were dropped, lines that cannot be read, rows and files that are not there.

In: rows of the journal (all kinds, OF_ALL_KINDS), and an AuditScope. Out: Losses, and for the next audit how far the
numbers of each process were followed (state.Followed).

Plan: the rows of a process and kind are numbered, and its gauge rows, once a second, say how many of each kind there
were until then. So what must be there is known at both ends of the time that is audited, and what is not, is missing:

    gauge: 7 ledger rows so far     ledger rows 8 9 11 12     gauge: 14 so far, and it is the last row of all
    expected 8 … 14                 missing 10, 13, 14

Rows of it from just before or after that time tell the same: what is not there between them and it is missing, too.

What was reported once is not reported again: the next audit expects what comes after. Of a process of which nothing at
all is there, others tell that came after it (vanished.py). One that kept no ledger is told by the batches it sent.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import Row as SparkRow
from pyspark.sql import functions as F

from forebay_pipeline.audit.ledger import AuditScope
from forebay_pipeline.audit.state import AuditState, Followed
from forebay_pipeline.audit.vanished import Life, vanished
from forebay_pipeline.journal import sequence
from forebay_pipeline.journal.schema import KIND, TORN, kind_of
from forebay_pipeline.journal.sequence import Numbers
from forebay_policies.journal_rows import ROWS, BatchFate, BatchRow, GaugeRow, LedgerRow

_GAUGE: Final = kind_of(GaugeRow)
_LEDGER: Final = kind_of(LedgerRow)
_BATCH: Final = kind_of(BatchRow)
_ACKNOWLEDGED: Final[BatchFate] = "acknowledged"
_KINDS: Final = [kind_of(row) for row in ROWS]
_COUNTED: Final = [kind for kind in _KINDS if kind != _GAUGE]
"""Kinds that a gauge row counts, in `<kind>_rows_total`."""
OF_ALL_KINDS: Final = (
    *("process", "seq", "topic", "fate", "started_us", "last", "cluster_id", "files_before", "rows_dropped_total"),
    *(f"{kind}_rows_total" for kind in _COUNTED),
)
"""The columns that `losses` looks at, beside those that all rows have."""
_OWN: Final = "own"
"""Instead of a kind: the row's own, which it counts by its number."""

_ANSWERED_US: Final = 60 * 1_000_000
"""A request's ledger rows follow its batches' rows within this time, once all of them are done or out of time."""


class Gap(NamedTuple):
    """Rows of a process and kind that are not there."""

    process: str
    kind: str
    numbers: Numbers

    @property
    def rows(self) -> int:
        """How many."""
        return sequence.count(self.numbers)


class Losses(NamedTuple):
    """What the journal itself lost."""

    dropped: int
    """Rows that the proxy dropped in the span."""
    totals: Mapping[str, int]
    """Process → rows that it had dropped since its start, at the end of the span."""
    torn: Mapping[str, int]
    """What could not be read → how many lines or files, whatever their time; what was reported before is left out."""
    gaps: list[Gap]
    """Rows that were written and are not there, dropped and torn ones among them."""
    beginnings: list[str]
    """Processes that ran before what is audited begins, and of which there are only later rows."""
    vanished: list[str]
    """Files of processes of which there is nothing else; what was reported before is left out."""
    ends: list[str]
    """Processes that are gone without a last row: after a crash, or their last files are not there."""
    unnumbered: int
    """Ledger rows without a number, as older proxies wrote them: whether one is missing, nobody can tell."""
    ledger_rows: int
    """Ledger rows of the audited topics that were read, whatever their time."""
    repeated: int
    """Ledger rows with the number of another one: copies of it, unless they differ."""
    without_ledger: list[str]
    """Processes that sent batches to the audited topics, which were acknowledged, and that keep no ledger."""
    cluster_id: str
    """Of the audited topics; empty if the journal names no cluster, or the brokers tell none."""
    others: Mapping[str, str]
    """Processes that were only in front of another cluster than the audited one → its id. All else says nothing of
    them."""
    only_others: bool
    """All processes that there are rows of are among `others`."""
    elsewhere: Mapping[str, int]
    """Those of `others` that there are rows of → the time of the newest, in microseconds since 1970."""
    followed: Mapping[str, Followed]
    """Process → how far it was followed by this audit and those before."""

    @property
    def missing(self) -> int:
        """Rows that were written and are not there."""
        return sum(gap.rows for gap in self.gaps)

    @property
    def lines_torn(self) -> int:
        """Lines and files that could not be read."""
        return sum(self.torn.values())


def losses(rows: DataFrame, scope: AuditScope, cluster_id: Callable[[], str]) -> Losses:
    """Read all rows once; what comes to the driver is small. `cluster_id` tells that of the audited topics, empty if
    unknown; it is asked if the journal has any.
    """
    found = _found(rows, scope)
    processes: dict[str, list[SparkRow]] = defaultdict(list)
    for each in found:
        if each[KIND] != TORN:
            processes[each.process].append(each)
    clusters = {name: {*chain(*(each.cluster_ids for each in found))} - {""} for name, found in processes.items()}
    ours = cluster_id() if any(clusters.values()) else ""
    others = {name: max(found) for name, found in clusters.items() if ours and found and ours not in found}
    followed = {name: _Process(name, each, scope) for name, each in processes.items() if name not in others}
    before = scope.before or AuditState()
    for name in set(before.followed) - set(followed) - set(others):
        followed[name] = _Process(name, [], scope)
    lives = {name: process.life for name, process in followed.items()}
    # Whose rows are of no concern here may have lived at any time.
    lives |= dict.fromkeys([*others, *before.elsewhere], Life(0, 0, ended=False))
    named = {name for each in found for name in each.files_before or []}
    torn = {each.error: each.rows - before.torn.get(each.error, 0) for each in found if each[KIND] == TORN}
    return Losses(
        dropped=sum(process.dropped for process in followed.values()),
        totals={name: process.dropped_total for name, process in followed.items() if process.has_gauges},
        torn={error: count for error, count in torn.items() if count > 0},
        gaps=[gap for name in sorted(followed) for gap in followed[name].gaps()],
        beginnings=sorted(name for name, process in followed.items() if process.begins_late),
        vanished=list(vanished(named.difference(before.vanished), lives, scope)),
        ends=sorted(name for name, process in followed.items() if process.ended_untold),
        unnumbered=sum(process.unnumbered for process in followed.values()),
        ledger_rows=sum(each.ledger_rows_read for name in followed for each in processes.get(name, [])),
        repeated=sum(process.repeated for process in followed.values()),
        without_ledger=sorted(name for name, process in followed.items() if process.keeps_no_ledger),
        cluster_id=ours,
        others=others,
        only_others=bool(others) and len(others) == len(processes),
        elsewhere={name: max(each.last_us for each in processes[name]) for name in others},
        followed={name: process.followed() for name, process in followed.items()},
    )


def _found(rows: DataFrame, scope: AuditScope) -> list[SparkRow]:
    """A row for each process, kind and bucket of numbers, for what has no numbers, and for torn rows."""
    known = rows.where(F.col(KIND).isin([*_KINDS, TORN]))
    number = F.when(F.col("seq") > 0, F.col("seq"))
    checked, gauge = scope.to_be_checked.holds, F.col(KIND) == _GAUGE
    ledger, torn = F.col(KIND) == _LEDGER, F.when(F.col(KIND) == TORN, F.col("error"))
    first_us, last_us = scope.to_be_checked
    earlier, later = F.col("time_us") < F.lit(first_us), F.col("time_us") >= F.lit(last_us)
    dropped = F.when(gauge, F.col("rows_dropped_total"))
    of_topics = F.col("topic").isin(list(scope.topics)) if scope.topics else F.expr("true")
    sent = (F.col(KIND) == _BATCH) & (F.col("fate") == _ACKNOWLEDGED) & checked & of_topics

    def within(column: Column) -> Column:
        return F.when(checked, column)

    totals = {kind: F.when(gauge, F.col(f"{kind}_rows_total")) for kind in _COUNTED}
    counts = {_OWN: (number - 1, number), **{kind: (total, total) for kind, total in totals.items()}}
    return (
        known.groupBy(KIND, "process", sequence.bucket(number).alias("bucket"), torn.alias("error"))
        .agg(
            F.count("*").alias("rows"),
            F.count_if(ledger & number.isNull() & checked).alias("unnumbered"),
            F.count_if(ledger & of_topics).alias("ledger_rows_read"),
            sequence.short(sequence.bitmap(number)).alias("seen"),
            sequence.short(sequence.bitmap(F.when(ledger, within(number)))).alias("audited"),
            F.min("time_us").alias("first_us"),
            F.max("time_us").alias("last_us"),
            F.min(F.when(gauge, F.col("started_us"))).alias("started_us"),
            F.coalesce(F.bool_or(F.when(gauge, F.col("last"))), F.expr("false")).alias("ended"),
            F.collect_set("cluster_id").alias("cluster_ids"),
            F.flatten(F.collect_list("files_before")).alias("files_before"),
            F.max(F.when(earlier, dropped)).alias("dropped_before"),
            F.min(within(dropped)).alias("min_dropped"),
            F.max(within(dropped)).alias("max_dropped"),
            F.min(F.when(sent, F.col("time_us"))).alias("first_sent_us"),
            F.max(F.when(sent, F.coalesce(number, F.lit(0)))).alias("last_sent"),
            F.max(F.when(gauge, F.col("ledger_rows_total"))).alias("ledger_rows"),
            *(F.max(F.when(earlier, with_it)).alias(f"{name}_before") for name, (_, with_it) in counts.items()),
            *(F.min(within(until)).alias(f"{name}_first") for name, (until, _) in counts.items()),
            *(F.max(within(with_it)).alias(f"{name}_last") for name, (_, with_it) in counts.items()),
            *(F.min(F.when(later, until)).alias(f"{name}_after") for name, (until, _) in counts.items()),
        )
        .collect()
    )


class _Process:
    """One process: what is there of it, and what should be."""

    def __init__(self, name: str, found: list[SparkRow], scope: AuditScope) -> None:
        self._name = name
        self._scope = scope
        self._found = found
        self._by_kind = {kind: [each for each in found if each[KIND] == kind] for kind in _KINDS}
        self._gauges = self._by_kind[_GAUGE]
        known = scope.before.followed.get(name) if scope.before is not None else None
        self._known = known or Followed()
        self._is_new = known is None
        self.unnumbered = sum(each.unnumbered for each in found)

    @property
    def _first_us(self) -> int | None:
        return min((each.first_us for each in self._found), default=None)

    @property
    def life(self) -> Life:
        """By its name, or by its rows where its clock was set back since."""
        first_us = min(self._began_us, self._first_us) if self._first_us is not None else self._began_us
        return Life(first_us, self._last_us, self._ended)

    @property
    def _last_us(self) -> int:
        last_us: int = max((self._known.last_us, *(each.last_us for each in self._found)))
        return last_us

    @property
    def _is_numbered(self) -> bool:
        return any(each.bucket is not None for each in self._found)

    @property
    def _began_us(self) -> int:
        """When it began, microseconds since 1970: the end of its name; 0 if that is no time."""
        try:
            return int(self._name.rpartition("-")[2], 16)
        except ValueError:
            return 0

    # Rows that it dropped

    @property
    def has_gauges(self) -> bool:
        return any(each.max_dropped is not None for each in self._gauges)

    @property
    def dropped_total(self) -> int:
        return max((each.max_dropped for each in self._gauges if each.max_dropped is not None), default=0)

    @property
    def dropped(self) -> int:
        """In the span."""
        if not self.has_gauges:
            return 0
        earliest_us = self._scope.earliest_us
        started_us = min(each.started_us for each in self._gauges)
        before = 0
        if earliest_us is not None and started_us < earliest_us:
            known = [each.dropped_before for each in self._gauges if each.dropped_before is not None]
            before = max(known or [min(each.min_dropped for each in self._gauges if each.min_dropped is not None)])
        if self._scope.before is not None:
            before = self._scope.before.dropped.get(self._name, before)
        return self.dropped_total - before

    # Rows that are not there

    def _counts(self, kind: str, when: str) -> list[int]:
        """How many rows of the kind there were, as they and the gauges tell: by those "before" the span, until the
        "first" and with the "last" ones in it, and until those "after" it."""
        counts = [each[f"{_OWN}_{when}"] for each in self._by_kind[kind]]
        if kind != _GAUGE:
            counts += [each[f"{kind}_{when}"] for each in self._gauges]
        return [count for count in counts if count is not None]

    def _last(self, kind: str) -> int:
        """The number of the last row that is expected; 0 if none is."""
        lasts = self._counts(kind, "last")
        if self._scope.state is None and (after := self._counts(kind, "after")):
            lasts.append(min(after))  # with a state, the next audit expects them
        return max(lasts, default=0)

    def _first(self, kind: str) -> int | None:
        """The number of the first row that is expected; None if nobody can tell."""
        if kind in self._known.numbers:
            return self._known.numbers[kind] + 1
        begin = self._scope.around.first
        if begin is None or self._began_us >= begin:
            return 1
        firsts = self._counts(kind, "first")
        if before := self._counts(kind, "before"):
            firsts.append(max(before))
        return min(firsts) + 1 if firsts else None

    def gaps(self) -> Iterator[Gap]:
        """What is expected of each kind, and is not there."""
        for kind in _KINDS:
            first = self._first(kind)
            if first is not None:
                seen = sequence.union(_numbers(self._by_kind[kind], "seen"))
                if lost := sequence.missing(first, self._last(kind), seen):
                    yield Gap(self._name, kind, lost)

    @property
    def begins_late(self) -> bool:
        """It ran before what is audited begins, by its name, and its first row is not there, nor one of that time."""
        begin, first_us = self._scope.earliest_us, self._first_us
        if not self._is_new or not self._is_numbered or begin is None or first_us is None:
            return False
        firsts = [number for number, _ in _numbers(self._gauges or self._found, "seen")]
        return self._began_us < begin < first_us and 1 not in firsts

    @property
    def _ended(self) -> bool:
        # One that was reported to be gone, and of which newer rows are there now, was not.
        gone = self._known.ended and self._last_us <= self._known.last_us
        return gone or any(each.ended for each in self._gauges)

    @property
    def ended_untold(self) -> bool:
        """It has no last row, and should have later ones than it has, had it not ended."""
        until = self._scope.due_us
        numbered = self._is_numbered or bool(self._known.numbers)
        return numbered and not self._ended and until is not None and self._last_us < until

    @property
    def repeated(self) -> int:
        """Rows of its ledger that are beyond one for each number."""
        numbered = [each for each in self._by_kind[_LEDGER] if each.bucket is not None]
        rows: int = sum(each.rows for each in numbered)
        return rows - sequence.count(_numbers(numbered, "seen"))

    # Rows that it never wrote

    @property
    def keeps_no_ledger(self) -> bool:
        """It sent batches that were acknowledged, of which no audit before knew, and has never had a ledger row."""
        if self._by_kind[_LEDGER] or self._known.numbers.get(_LEDGER) or any(each.ledger_rows for each in self._gauges):
            return False
        known = self._known.numbers.get(_BATCH, 0)
        sent = [each for each in self._by_kind[_BATCH] if each.last_sent is not None]
        first_us = min((each.first_sent_us for each in sent if self._is_new or each.last_sent > known), default=None)
        return first_us is not None and (self._ended or first_us <= self._last_us - _ANSWERED_US)

    def followed(self) -> Followed:
        """How far, after this audit and those before. What is reported is over; what a span leaves out is left out."""
        state = self._scope.state
        before = Followed() if state is None else state.followed.get(self._name, Followed())
        numbers = {kind: max(before.numbers.get(kind, 0), self._last(kind)) for kind in _KINDS}
        audited = sequence.union([*before.audited, *_numbers(self._by_kind[_LEDGER], "audited")])
        begin = self._scope.span.first
        if audited and begin is not None and self._began_us < begin:
            audited = sequence.union([(1, audited[0][0]), *audited])
        return Followed(
            numbers={kind: number for kind, number in numbers.items() if number},
            audited=audited,
            last_us=self._last_us,
            ended=self._ended or self.ended_untold,
        )


def _numbers(found: Iterable[SparkRow], bitmap: str) -> Iterator[tuple[int, int]]:
    for each in found:
        if each.bucket is not None:
            yield from sequence.numbers(each.bucket, each[bitmap])
