"""What days tell together, where it is not just a sum. The rest is told by report/test_rolled.py."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from forebay_pipeline.errors import CannotRun
from forebay_pipeline.journal.source import ALL_TIME, JournalPlace
from forebay_pipeline.rollups.command import rollup
from forebay_pipeline.rollups.rolled import rolled
from forebay_pipeline.rollups.store import RollupStore
from forebay_policies.journal_rows import Row
from tests.pipeline.rollups.made_up import DAY, FIRST, HOUR, SECOND
from tests.pipeline.rows import batch_row, gauge_row, write_journal, write_lines

LATER = FIRST + 9 * DAY


def store_of(spark: SparkSession, journal: Path, folder: Path) -> RollupStore:
    write_journal(journal, [gauge_row(time_us=FIRST + 5 * DAY)], name="later")
    assert list(rollup(spark, JournalPlace(str(journal)), ALL_TIME, str(folder), LATER))
    return RollupStore(spark, str(folder))


@pytest.mark.whole  # report/test_rolled.py has one over midnight
def test_a_runaway_that_began_before_the_first_day(spark: SparkSession, tmp_path: Path) -> None:
    rows: list[Row] = [
        batch_row(
            time_us=FIRST + DAY + (10 * window + number) * SECOND,
            partition=partition,
            bytes=6000 if partition == 0 else 1000,
            upstream_us=39_500 if partition == 0 else 1500,
        )
        for window in range(-5, 3)
        for partition in range(3)
        for number in range(9)
    ]
    for hour in sorted({row.time_us // HOUR for row in rows}):
        write_journal(tmp_path / "journal", [row for row in rows if row.time_us // HOUR == hour])
    store = store_of(spark, tmp_path / "journal", tmp_path / "rollups")
    for days in (["2026-11-18", "2026-11-19"], ["2026-11-19"]):
        with rolled(spark, store, days) as found:
            (one,) = found.summary(50).runaways
            assert (one.since_us, one.until_us) == (FIRST + DAY - 50 * SECOND, None)


def test_what_could_not_be_read_counts_once(spark: SparkSession, tmp_path: Path) -> None:
    """The file is begun within an hour of both days, so both have read it."""
    journal = tmp_path / "journal"
    write_journal(journal, [batch_row(time_us=FIRST + DAY - HOUR)])
    write_journal(journal, [batch_row(time_us=FIRST + DAY)])
    write_lines(journal, b"{\n{\n", FIRST + DAY, name="torn")
    store = store_of(spark, journal, tmp_path / "rollups")
    with rolled(spark, store, store.days()) as found:
        assert found.summary(50).torn == 2


@pytest.mark.whole  # report/test_command.py has a page of such a time
def test_of_days_without_batches_there_is_no_summary(spark: SparkSession, tmp_path: Path) -> None:
    write_journal(tmp_path / "journal", [gauge_row(time_us=FIRST)])
    store = store_of(spark, tmp_path / "journal", tmp_path / "rollups")
    with (
        rolled(spark, store, ["2026-11-18"]) as found,
        pytest.raises(CannotRun, match=f"^There are no batches in the rollups in {tmp_path}/rollups.$"),
    ):
        found.summary(50)
