"""What an audit reads again of what an earlier one has read."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from forebay_pipeline.audit.ledger import AROUND_US, AuditScope
from forebay_pipeline.audit.reread import Reading, reading
from forebay_pipeline.audit.state import AuditState, ProcessMark
from forebay_pipeline.journal.brokers import Brokers
from forebay_pipeline.journal.source import JournalPlace
from forebay_pipeline.journal.span import Span
from tests.pipeline.rows import START_US, batch_row, write_journal

HOUR_US = 3_600_000_000


def state(*files: str) -> AuditState:
    return AuditState(processes={"here-1": ProcessMark(START_US, [])}, files=list(files))


def write(folder: Path, hours: int, name: str) -> str:
    return write_journal(folder, [batch_row(time_us=START_US + hours * HOUR_US)], name).name


def test_what_was_there_is_not_read_again(spark: SparkSession, tmp_path: Path) -> None:
    place, last = JournalPlace(str(tmp_path)), START_US + HOUR_US
    old, older = write(tmp_path, -8, "old"), write(tmp_path, -20, "older")
    new = write(tmp_path, 0, "new")
    write(tmp_path, -50, "of the day before")
    recent = Span(START_US - AROUND_US, last + AROUND_US)
    found = reading(spark, place, AuditScope(Span(last=last), state=state(old, older)))
    assert (found.span, sorted(found.files)) == (recent, sorted([old, older, new]))


def test_of_an_hour_only_the_files_that_were_not_over(spark: SparkSession, tmp_path: Path) -> None:
    """Of a writer with a file each five minutes, one was over when the last quarter of an hour began."""

    def writes(minutes: int) -> str:
        time_us = START_US + minutes * 60_000_000
        return write_journal(tmp_path, [batch_row(time_us=time_us)], f"here-1-0-{time_us:x}").name

    place, old = JournalPlace(str(tmp_path)), write(tmp_path, -8, "old")
    before = [writes(minutes) for minutes in (-25, -20, -15, -10, -5, 0)]
    new = writes(5)
    found = reading(spark, place, AuditScope(state=state(old, *before)))
    assert found.but == set(before[:2])
    assert sorted(found.files) == sorted([old, *before, new])


def test_everything_is_where_a_file_of_less_than_an_hour_ago_has_turned_up(spark: SparkSession, tmp_path: Path) -> None:
    """Its folder is among those of the last rows, but it was begun before them."""

    def writes(minutes: int) -> str:
        time_us = START_US + minutes * 60_000_000
        return write_journal(tmp_path, [batch_row(time_us=time_us)], f"here-1-0-{time_us:x}").name

    place, known = JournalPlace(str(tmp_path)), [writes(minutes) for minutes in (-10, 0)]
    writes(-14)
    scope = AuditScope(state=state(*known))
    assert reading(spark, place, scope).span == Span(START_US - AROUND_US)
    late = writes(-40)
    found = reading(spark, place, scope)
    assert (found.span, found.but, late in found.files) == (scope.around, (), True)


def test_everything_is_where_an_old_file_has_turned_up(spark: SparkSession, tmp_path: Path) -> None:
    place = JournalPlace(str(tmp_path))
    old, _, _ = write(tmp_path, -8, "old"), write(tmp_path, -20, "late"), write(tmp_path, 0, "new")
    for before in (state(old), state()):
        scope = AuditScope(state=before)
        assert reading(spark, place, scope).span == scope.around


def test_without_an_earlier_audit_all_is_read(spark: SparkSession, tmp_path: Path) -> None:
    name = write(tmp_path, 0, "a")
    place = JournalPlace(str(tmp_path))
    assert reading(spark, place, AuditScope()) == Reading(Span(), [])
    assert reading(spark, place, AuditScope(state=AuditState())) == Reading(Span(), [name])
    asked = AuditScope(Span(START_US), state=state(name))
    assert reading(spark, place, asked).span == asked.around


def test_in_a_topic_nothing_turns_up_late(spark: SparkSession) -> None:
    place = JournalPlace(topic="journal", brokers=Brokers("any:9092"))
    assert reading(spark, place, AuditScope(state=state())) == Reading(Span(START_US - AROUND_US), [])
