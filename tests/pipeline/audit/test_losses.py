"""What of a journal is not there: each process has lost something else, or nothing."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from forebay_pipeline.audit.ledger import AuditScope
from forebay_pipeline.audit.losses import Gap, losses
from forebay_pipeline.audit.state import HORIZON_US, AuditState, Followed, ProcessMark
from forebay_pipeline.journal.source import JournalPlace, read_rows
from forebay_pipeline.journal.span import Span
from forebay_policies.journal_rows import Row
from tests.pipeline.journals import journal_of
from tests.pipeline.rows import START_US, batch_row, gauge_row, ledger_row, observed_row, write_lines

SECOND_US = 1_000_000
BEGIN_US = START_US
DUE_US = START_US + 100 * SECOND_US
BEFORE = f"{START_US - 3000 * SECOND_US:x}"
"""The end of the name of a process that ran long before the time span; START's is that of one begun in it."""
START = f"{START_US + SECOND_US:x}"


def gauges(process: str, numbers: range, **given: object) -> list[Row]:
    """One each second, the first one when the time span begins."""
    return [
        gauge_row(process=process, seq=number, time_us=BEGIN_US + at * SECOND_US, ledger_rows_total=0, **given)
        for at, number in enumerate(numbers)
    ]


def ledger(process: str, *numbers: int | None) -> list[Row]:
    return [
        ledger_row([], process=process, seq=number, time_us=BEGIN_US + 50 * SECOND_US + at)
        for at, number in enumerate(numbers)
    ]


def last(process: str, number: int, rows: int) -> Row:
    return gauge_row(
        process=process, seq=number, time_us=DUE_US - SECOND_US, ledger_rows_total=rows, last=True, cluster_id="here"
    )


ROWS: list[Row] = [
    *gauges(f"whole-{START}", range(1, 9)),
    *ledger(f"whole-{START}", 1, 2),
    last(f"whole-{START}", 9, 2),
    *gauges(f"running-{BEFORE}", range(40, 142)),
    *gauges(f"crashed-{START}", range(1, 5)),
    gauge_row(process=f"beheaded-{BEFORE}", seq=9, time_us=BEGIN_US + SECOND_US),
    last(f"beheaded-{BEFORE}", 10, 0),
    *gauges(f"first-{BEFORE}", range(40, 48)),
    *ledger(f"first-{BEFORE}", 2, 3),
    last(f"first-{BEFORE}", 48, 3),
    *gauges(f"middle-{START}", range(1, 4)),
    *ledger(f"middle-{START}", 1, 3, 7),
    last(f"middle-{START}", 5, 8),
    *ledger("older-1", None, None),
    *ledger(f"copied-{START}", 1, 2, 2, 3, 3, 3),
    *[last(f"copied-{START}", 1, 3)] * 2,
    *ledger(f"elsewhere-{START}", 1, 1),
    gauge_row(process=f"elsewhere-{START}", seq=7, cluster_id="there"),
]


def test_what_is_not_there(spark: SparkSession, tmp_path: Path) -> None:
    rows = journal_of(spark, tmp_path, ROWS)
    found = losses(rows, AuditScope(Span(BEGIN_US), due_us=DUE_US), lambda: "here")
    assert found.gaps == [
        Gap(f"first-{BEFORE}", "ledger", [(1, 1)]),
        Gap(f"middle-{START}", "gauge", [(4, 4)]),
        Gap(f"middle-{START}", "ledger", [(2, 2), (4, 6), (8, 8)]),
    ]
    assert found.missing == 7
    assert found.beginnings == [f"beheaded-{BEFORE}"]
    assert found.ends == [f"crashed-{START}"]
    assert (found.unnumbered, found.repeated) == (2, 3)
    assert (found.cluster_id, found.others, found.only_others) == ("here", {f"elsewhere-{START}": "there"}, False)
    assert found.followed[f"middle-{START}"].audited == [(1, 1), (3, 3), (7, 7)]
    assert found.followed[f"crashed-{START}"].ended


def lived(process: str, ticks: range, lost: range = range(0)) -> list[Row]:
    """A row of the ledger and a gauge each ten seconds, in which it drops a row; those of some ticks are lost."""
    return [
        row
        for number, tick in enumerate(ticks, 1)
        if tick not in lost
        for row in (
            ledger_row([], process=process, seq=number, time_us=BEGIN_US + 10 * tick * SECOND_US),
            gauge_row(
                process=process,
                seq=number,
                time_us=BEGIN_US + (10 * tick + 5) * SECOND_US,
                ledger_rows_total=number,
                rows_dropped_total=number,
                last=tick == ticks[-1],
            ),
        )
    ]


@pytest.mark.parametrize("state", [None, AuditState()])
def test_what_is_lost_at_an_edge_of_the_span(spark: SparkSession, tmp_path: Path, state: AuditState | None) -> None:
    """Rows from before and after it tell. What comes after the last row is left to the next audit, if there is one."""
    lost = {"whole": range(0), "begin": range(3), "end": range(7, 10), "all": range(-5, 15)}
    rows = journal_of(
        spark, tmp_path, [row for name, ticks in lost.items() for row in lived(f"{name}-0", range(-90, 90), ticks)]
    )
    scope = AuditScope(Span(BEGIN_US, DUE_US), state=state, due_us=DUE_US)
    found = losses(scope.around.of(rows), scope, str)
    expected = {"begin": [(91, 93)]} if state else {"all": [(86, 105)], "begin": [(91, 93)], "end": [(98, 100)]}
    assert found.gaps == [
        Gap(f"{name}-0", kind, numbers) for name, numbers in expected.items() for kind in ("gauge", "ledger")
    ]
    assert found.dropped == 10 + 10 + 7  # there are no gauges of one
    assert found.followed["end-0"].numbers["ledger"] == (97 if state else 100)


def test_whatever_is_lost_of_the_span_is_told_and_nothing_else(spark: SparkSession, tmp_path: Path) -> None:
    """Of processes that begin, end, and lose nothing or something at any time around it."""
    chosen, rows, lost = random.Random(1), list[Row](), dict[str, range]()
    for number in range(100):
        begin, end = sorted(chosen.sample(range(-120, 130), 2))
        first, after = sorted(chosen.sample(range(begin, end + 1), 2))
        process = f"{number}-{BEGIN_US + 10 * begin * SECOND_US:x}"
        lost[process] = range(first, after) if number % 2 else range(0)
        rows += lived(process, range(begin, end), lost[process])
    scope = AuditScope(Span(BEGIN_US, DUE_US), due_us=DUE_US)
    found = losses(scope.around.of(journal_of(spark, tmp_path, rows)), scope, str)
    told = {*found.beginnings, *found.ends, *(gap.process for gap in found.gaps)}
    assert told >= {process for process, ticks in lost.items() if set(ticks) & set(range(10))}
    assert told <= {process for process, ticks in lost.items() if ticks}


def test_a_journal_of_another_cluster_alone(spark: SparkSession, tmp_path: Path) -> None:
    rows = journal_of(spark, tmp_path, [*gauges("p-1", range(1, 3), cluster_id="there"), *ledger("p-1", 1)])
    before = AuditState(followed={"ours-1": Followed({"gauge": 6}, [], DUE_US)})
    found = losses(rows, AuditScope(state=before), lambda: "here")
    assert (found.others, found.only_others) == ({"p-1": "there"}, True)
    found = losses(rows, AuditScope(state=before), lambda: "there")
    assert (found.cluster_id, found.others, found.only_others) == ("there", {}, False)


def test_a_process_that_changed_clusters_while_it_ran(spark: SparkSession, tmp_path: Path) -> None:
    """Whichever of the ids is the greater one, it was in front of the audited cluster as well."""
    changes = {"p-1": ("a", "here"), "p-2": ("here", "z"), "p-3": ("z", "here"), "p-4": ("a", "z")}
    rows = [gauge_row(process=name, cluster_id=each) for name, ids in changes.items() for each in ("", *ids)]
    found = losses(journal_of(spark, tmp_path, rows), AuditScope(), lambda: "here")
    assert (found.others, sorted(found.followed)) == ({"p-4": "z"}, ["p-1", "p-2", "p-3"])


def test_a_process_of_which_nothing_is_there(spark: SparkSession, tmp_path: Path) -> None:
    """Others know of it. Of one that is in front of another cluster nothing is wanted, be its rows there or not."""

    def file(writer: str) -> str:
        return f"{writer}-0-{BEGIN_US + 5 * SECOND_US:x}"

    named = [file(writer) for writer in ("gone-7", "told-8", "elsewhere-4", "known-5", "here-1")]
    rows = journal_of(
        spark,
        tmp_path,
        [
            *gauges(f"here-1-{START}", range(1, 3), cluster_id="here"),
            *gauges(f"elsewhere-4-{START}", range(1, 2), cluster_id="there"),
            *gauges(f"later-2-{START}", range(1, 2), files_before=named),
            *gauges(f"later-3-{START}", range(1, 2), files_before=named[:1]),
        ],
    )
    before = AuditState(
        processes={"here-1": ProcessMark(BEGIN_US + HORIZON_US, [])},
        vanished=[file("told-8")],
        elsewhere={f"known-5-{START}": BEGIN_US},
    )
    found = losses(rows, AuditScope(state=before, due_us=DUE_US), lambda: "here")
    assert found.vanished == [file("gone-7")]
    assert found.elsewhere == {f"elsewhere-4-{START}": BEGIN_US}


def test_what_was_reported_is_not_reported_again(spark: SparkSession, tmp_path: Path) -> None:
    """Nor what could not be read; what comes after it is expected, of a process that is no more seen, too."""
    write_lines(tmp_path, b'{"kind":"ledger","time', name="torn")
    journal_of(spark, tmp_path, [*ledger("p-1", 3, 5, 8), *gauges("p-1", range(2, 3))])
    rows = read_rows(spark, JournalPlace(str(tmp_path)))
    torn = losses(rows, AuditScope(), str).torn
    before = AuditState(
        processes={"p-1": ProcessMark(BEGIN_US, [])},
        followed={
            "p-1": Followed({"ledger": 6, "gauge": 2}, [(3, 3), (5, 5)], DUE_US),
            "gone-2": Followed({"gauge": 6}, [], DUE_US - 1),
            "over-3": Followed({"gauge": 6}, [], DUE_US - 1, ended=True),
        },
        torn=dict(torn),
    )
    found = losses(rows, AuditScope(state=before, due_us=DUE_US), str)
    assert (found.gaps, found.ends, found.torn) == ([Gap("p-1", "ledger", [(7, 7)])], ["gone-2"], {})
    assert sum(torn.values()) == 1
    assert found.followed["p-1"].audited == [(3, 3), (5, 5), (8, 8)]
    assert found.followed["gone-2"].ended


def test_what_was_told_as_gone_and_has_newer_rows_is_expected_again(spark: SparkSession, tmp_path: Path) -> None:
    """Of one, its files had only been late; of the other, later ones than those are not there."""
    rows = journal_of(spark, tmp_path, [*gauges("back-1", range(7, 110)), *gauges("gone-2", range(7, 9))])
    told = Followed({"gauge": 6}, [], BEGIN_US - SECOND_US, ended=True)
    before = AuditState(processes={"back-1": ProcessMark(BEGIN_US, [])}, followed={"back-1": told, "gone-2": told})
    found = losses(rows, AuditScope(state=before, due_us=DUE_US), str)
    assert found.ends == ["gone-2"]
    assert [found.followed[name].ended for name in ("back-1", "gone-2")] == [False, True]


def sent(process: str, number: int | None, at_s: int = 2, **given: object) -> Row:
    return batch_row(process=process, seq=number, time_us=BEGIN_US + at_s * SECOND_US, **given)


def test_processes_without_a_ledger(spark: SparkSession, tmp_path: Path) -> None:
    """But not those that had nothing to write in one: nothing of these topics, or of this time, was acknowledged."""

    def ended(process: str, rows: int = 0) -> Row:
        return last(process, 9, rows)

    rows = journal_of(
        spark,
        tmp_path,
        [
            *[sent(f"ended-{START}", 1, 99), ended(f"ended-{START}")],
            *[sent(f"runs-{START}", 1), *gauges(f"runs-{START}", range(1, 64))],
            sent("old", None),
            gauge_row(process="old", time_us=DUE_US, ledger_rows_total=None),
            *[sent(f"unanswered-{START}", 1), *gauges(f"unanswered-{START}", range(1, 62))],
            *[sent(f"kept-{BEFORE}", 7), ended(f"kept-{BEFORE}", 5)],
            *[sent(f"seen-{START}", 1), *ledger(f"seen-{START}", 1), gauge_row(process=f"seen-{START}", last=True)],
            *[sent(f"refused-{START}", 1, fate="refused"), ended(f"refused-{START}")],
            *[sent(f"former-{BEFORE}", 1, -9), ended(f"former-{BEFORE}")],
            *[sent(f"else-{START}", 1, topic="u"), ended(f"else-{START}")],
            observed_row(process=f"observes-{START}"),
            ended(f"observes-{START}"),
            sent(f"there-{START}", 1),
            gauge_row(process=f"there-{START}", last=True, cluster_id="there"),
        ],
    )
    scope = AuditScope(Span(BEGIN_US), topics=("t",), due_us=DUE_US)
    assert losses(rows, scope, lambda: "here").without_ledger == [f"ended-{START}", "old", f"runs-{START}"]
    scope = AuditScope(Span(BEGIN_US), due_us=DUE_US)
    assert f"else-{START}" in losses(rows, scope, lambda: "here").without_ledger


def test_a_process_without_a_ledger_is_told_again_only_of_later_batches(spark: SparkSession, tmp_path: Path) -> None:
    processes = ["told-1", "goes-on-2", "kept-3"]
    rows = journal_of(
        spark,
        tmp_path,
        [row for each in processes for row in (sent(each, 1), sent(each, 2), gauge_row(process=each, time_us=DUE_US))],
    )
    before = AuditState(
        processes={"other": ProcessMark(BEGIN_US, [])},
        followed={
            "told-1": Followed({"batch": 2}, [], BEGIN_US),
            "goes-on-2": Followed({"batch": 1}, [], BEGIN_US),
            "kept-3": Followed({"batch": 1, "ledger": 1}, [], BEGIN_US),
        },
    )
    assert losses(rows, AuditScope(state=before), str).without_ledger == ["goes-on-2"]
