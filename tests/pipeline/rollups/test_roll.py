"""What is kept of a day. Whether it is right is told by report/test_rolled.py, which compares reports."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from forebay_pipeline.advice.gather import COLUMNS, KEPT
from forebay_pipeline.journal.source import JournalPlace
from forebay_pipeline.partitions.measures import kept_rows
from forebay_pipeline.rollups.days import span_of
from forebay_pipeline.rollups.roll import roll
from forebay_pipeline.rollups.tables import BATCHES, HOURS, METADATA, RUNAWAYS, TABLES, TORN, USES
from forebay_policies.journal_rows import Row
from tests.pipeline.rollups.made_up import DAY, FIRST, HOUR, SECOND
from tests.pipeline.rows import START_US, batch_row, gauge_row, write_journal

DAY_NAME = "2026-11-18"


def test_every_table_has_its_columns(spark: SparkSession, tmp_path: Path) -> None:
    write_journal(tmp_path, [batch_row(), gauge_row()])
    with kept_rows(spark, JournalPlace(str(tmp_path)), span_of(DAY_NAME), KEPT, of_these=COLUMNS) as rows:
        made = roll(rows, span_of(DAY_NAME), None)
        assert {table.name for table in made} == {table.name for table in TABLES}
        for table, found in made.items():
            assert set(table.columns) <= set(found.columns)


def test_a_day_is_sums(spark: SparkSession, tmp_path: Path) -> None:
    batches = [batch_row(time_us=FIRST + hour * HOUR + 5, bytes=hour, records=2) for hour in (3, 3, 4)]
    write_journal(tmp_path, [*batches, batch_row(time_us=FIRST + 4 * HOUR, fate="refused", error_code=9, bytes=8)])
    with kept_rows(spark, JournalPlace(str(tmp_path)), span_of(DAY_NAME), KEPT, of_these=COLUMNS) as rows:
        made = roll(rows, span_of(DAY_NAME), None)
        found = made[BATCHES].select("fate", "batches", "records", "bytes", "latency_us").orderBy("fate").collect()
        assert [tuple(row) for row in found] == [("acknowledged", 3, 6, 10, 12_000), ("refused", 1, 10, 8, 20_000)]
        hours = made[HOURS].select(*HOURS.columns).orderBy("time_us").collect()
        assert [tuple(row) for row in hours] == [
            (FIRST + 3 * HOUR, 2, 6, 4, 0, FIRST + 3 * HOUR + 5, FIRST + 3 * HOUR + 5),
            (FIRST + 4 * HOUR, 2, 12, 12, 1, FIRST + 4 * HOUR, FIRST + 4 * HOUR + 5),
        ]


def test_of_a_day_without_rows_there_is_nothing(spark: SparkSession, tmp_path: Path) -> None:
    write_journal(tmp_path, [gauge_row(time_us=START_US + 9 * DAY)])
    with kept_rows(spark, JournalPlace(str(tmp_path)), span_of(DAY_NAME), KEPT, of_these=COLUMNS) as rows:
        made = roll(rows, span_of(DAY_NAME), None)
        assert {table.name for table, found in made.items() if found.count()} == {USES.name, METADATA.name}
        assert made[USES].collect()[0]["requests"] == made[METADATA].collect()[0]["requests"] == 0
        assert made[TORN].count() == 0


def window(at_us: int, *, away: bool) -> list[Row]:
    return [
        batch_row(time_us=at_us + number * SECOND, partition=partition, bytes=size, upstream_us=upstream_us)
        for partition, size, upstream_us in (
            (0, 6000, 39_500) if away else (0, 1000, 1500),
            (1, 1000, 1500),
            (2, 1000, 1500),
        )
        for number in range(9)
    ]


@pytest.mark.whole  # the next test goes on over a day, too
@pytest.mark.parametrize("known", [True, False])
def test_the_detector_goes_on_where_it_was(spark: SparkSession, tmp_path: Path, known: bool) -> None:
    """A partition that is a runaway at midnight is one after it; it recovers, and has not run away anew."""
    rows: list[Row] = []
    for number in range(-4, 0):
        rows += window(FIRST + DAY + number * 10 * SECOND, away=True)
    for number in range(4):
        rows += window(FIRST + DAY + number * 10 * SECOND, away=number < 1)
    for hour in sorted({row.time_us // HOUR for row in rows}):
        write_journal(tmp_path, [row for row in rows if row.time_us // HOUR == hour])
    first, second = span_of(DAY_NAME), span_of("2026-11-19")
    place = JournalPlace(str(tmp_path))
    with (
        kept_rows(spark, place, first, KEPT, of_these=COLUMNS) as of_first,
        kept_rows(spark, place, second, KEPT, of_these=COLUMNS) as of_second,
    ):
        before = roll(of_first, first, None)[RUNAWAYS].persist()
        assert events(before) == ["runaway"]
        assert events(roll(of_second, second, before if known else None)[RUNAWAYS]) == (["recovered"] if known else [])


def test_a_runaway_whose_topic_is_silent_all_of_the_next_day(spark: SparkSession, tmp_path: Path) -> None:
    """It is over, and not taken along for ever."""
    rows = [row for number in range(-4, 0) for row in window(FIRST + DAY + number * 10 * SECOND, away=True)]
    write_journal(tmp_path, rows)
    first, second = span_of(DAY_NAME), span_of("2026-11-19")
    place = JournalPlace(str(tmp_path))
    with (
        kept_rows(spark, place, first, KEPT, of_these=COLUMNS) as of_first,
        kept_rows(spark, place, second, KEPT, of_these=COLUMNS) as of_second,
    ):
        before = roll(of_first, first, None)[RUNAWAYS].persist()
        found = roll(of_second, second, before)[RUNAWAYS]
        assert (events(before), events(found), found.count()) == (["runaway"], ["quiet"], 1)


def events(runaways: DataFrame) -> Sequence[str]:
    return [row["event"] for row in runaways.where(F.col("watch").isNull()).orderBy("window_us").collect()]
