"""Which days are over, and which a report wants."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from forebay_pipeline.compact import await_compacted, compact
from forebay_pipeline.errors import CannotRun
from forebay_pipeline.journal.source import JournalPlace
from forebay_pipeline.journal.span import ALL_TIME, Span
from forebay_pipeline.journal.tables import Format
from forebay_pipeline.rollups.days import LATE_US, DayCoverage, before, coverage, day_at, missing_us, over, span_of
from tests.kit.spark import TABLE_FORMATS
from tests.pipeline.rollups.made_up import DAY, FIRST, HOUR
from tests.pipeline.rows import batch_row, gauge_row, rack_row, write_journal

NOW = FIRST + 30 * DAY


def test_a_day_is_utc() -> None:
    assert span_of("2026-11-18") == Span(FIRST, FIRST + DAY)
    assert (day_at(FIRST), day_at(FIRST - 1), before("2026-03-01")) == ("2026-11-18", "2026-11-17", "2026-02-28")


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """Of the 18th, the 20th, and the beginning of the 21st."""
    for number, time_us in enumerate((FIRST + 5 * HOUR, FIRST + 2 * DAY + HOUR, FIRST + 3 * DAY + LATE_US - 1)):
        write_journal(tmp_path / "journal", [batch_row(time_us=time_us)], name=str(number))
    return tmp_path / "journal"


def test_a_day_is_over_once_there_are_rows_of_an_hour_later(spark: SparkSession, journal: Path) -> None:
    place = JournalPlace(str(journal))
    assert over(spark, place, ALL_TIME, NOW) == ["2026-11-18"]
    write_journal(journal, [rack_row(time_us=FIRST + 3 * DAY + LATE_US)], name="of-no-use")
    assert over(spark, place, ALL_TIME, NOW) == ["2026-11-18"]
    write_journal(journal, [gauge_row(time_us=FIRST + 3 * DAY + LATE_US)], name="later")
    assert over(spark, place, ALL_TIME, NOW) == ["2026-11-18", "2026-11-20"]


def test_a_clock_that_is_ahead_ends_no_day(spark: SparkSession, journal: Path) -> None:
    write_journal(journal, [gauge_row(time_us=FIRST + 9 * DAY)], name="ahead")
    place = JournalPlace(str(journal))
    assert over(spark, place, ALL_TIME, FIRST + 3 * DAY + LATE_US - 1) == ["2026-11-18"]
    assert over(spark, place, ALL_TIME, FIRST + 3 * DAY + LATE_US) == ["2026-11-18", "2026-11-20"]


def test_only_whole_days_of_the_span_are_taken(spark: SparkSession, journal: Path) -> None:
    write_journal(journal, [gauge_row(time_us=FIRST + 9 * DAY)], name="later")
    place = JournalPlace(str(journal))
    assert over(spark, place, Span(FIRST + 1, None), NOW) == ["2026-11-20", "2026-11-21"]
    assert over(spark, place, Span(FIRST, FIRST + 4 * DAY - 1), NOW) == ["2026-11-18", "2026-11-20"]


@pytest.mark.parametrize(
    "table_format", ["parquet", *(pytest.param(each, marks=pytest.mark.whole) for each in TABLE_FORMATS)]
)
def test_days_of_what_compact_wrote(spark: SparkSession, journal: Path, tmp_path: Path, table_format: Format) -> None:
    write_journal(journal, [gauge_row(time_us=FIRST + 4 * DAY)], name="later")
    output = str(tmp_path / "compacted")
    await_compacted(compact(spark, JournalPlace(str(journal)), output, output_format=table_format))
    place = JournalPlace(output, format=table_format)
    assert over(spark, place, ALL_TIME, NOW) == ["2026-11-18", "2026-11-20"]


def test_the_days_of_a_report() -> None:
    there = ["2026-11-18", "2026-11-20", "2026-11-21"]
    assert coverage(there, ALL_TIME) == DayCoverage(there, ["2026-11-19"])
    assert coverage(there, Span(FIRST + DAY, FIRST + 3 * DAY)) == DayCoverage(["2026-11-20"], ["2026-11-19"])
    assert coverage(there, Span(FIRST - DAY, FIRST + DAY)) == DayCoverage(["2026-11-18"], ["2026-11-17"])
    assert coverage(there, Span(FIRST + 30 * DAY, None)) == DayCoverage([], [])
    for option, span in (("--from", Span(FIRST + HOUR, None)), ("--to", Span(None, FIRST + HOUR))):
        with pytest.raises(CannotRun, match=f"^{option} must be the beginning of a day in UTC"):
            coverage(there, span)


def test_how_long_is_missing_of_a_time() -> None:
    days = ["2026-11-18", "2026-11-21"]
    assert missing_us(days, FIRST + HOUR, FIRST + 3 * DAY) == 2 * DAY
    assert missing_us(days, FIRST, FIRST + DAY - 1) == 0
