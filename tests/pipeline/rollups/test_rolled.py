"""What days tell together, where it is not just a sum. The rest is told by report/test_rolled.py."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
import pytest
from pyspark.sql import SparkSession

from forebay_pipeline.errors import CannotRun
from forebay_pipeline.journal.source import JournalPlace
from forebay_pipeline.journal.span import ALL_TIME
from forebay_pipeline.partitions import workers
from forebay_pipeline.partitions.runaway_detector import Portion, Thresholds, TopicWatch
from forebay_pipeline.partitions.runaway_windows import Watch
from forebay_pipeline.rollups import tables
from forebay_pipeline.rollups.command import rollup
from forebay_pipeline.rollups.rolled import Rolled, rolled
from forebay_pipeline.rollups.store import Mark, RollupStore
from forebay_policies.journal_rows import Row
from tests.pipeline.rollups.made_up import DAY, FIRST, HOUR, SECOND
from tests.pipeline.rows import batch_row, gauge_row, write_journal, write_lines

LATER = FIRST + 9 * DAY
GB = 10**9


def store_of(spark: SparkSession, journal: Path, folder: Path) -> RollupStore:
    write_journal(journal, [gauge_row(time_us=FIRST + 5 * DAY)], name="later")
    assert list(rollup(spark, JournalPlace(str(journal)), ALL_TIME, str(folder), LATER))
    return RollupStore(spark, str(folder))


def straining(windows: Iterable[int]) -> list[Row]:
    """In these windows, counted from the end of the first day, partition 0 runs away."""
    return [
        batch_row(
            time_us=FIRST + DAY + (10 * window + number) * SECOND,
            partition=partition,
            bytes=6000 if partition == 0 else 1000,
            upstream_us=39_500 if partition == 0 else 1500,
        )
        for window in windows
        for partition in range(3)
        for number in range(9)
    ]


def write_hours(journal: Path, rows: Sequence[Row]) -> None:
    for hour in sorted({row.time_us // HOUR for row in rows}):
        write_journal(journal, [row for row in rows if row.time_us // HOUR == hour])


def test_a_process_counts_nothing_for_days_that_are_not_there(spark: SparkSession, tmp_path: Path) -> None:
    """It has run since before the first one, and a gigabyte a day goes to another rack; one of four days is missing."""
    store = RollupStore(spark, str(tmp_path))
    days = ["2026-11-18", "2026-11-19", "2026-11-21"]
    nothing = dict.fromkeys(tables.GAUGES.columns, 0)
    for number, day in zip((0, 1, 3), days, strict=True):
        first_us = FIRST + number * DAY
        total = {"first_other_rack_bytes_total": number * GB, "other_rack_bytes_total": (number + 1) * GB}
        times = {"time_us": first_us, "first_us": first_us, "last_us": first_us + DAY - SECOND}
        row = nothing | {"process": "p", "cluster_id": "", "started_us": FIRST - DAY} | times | total
        store.write(
            day,
            {tables.GAUGES: spark.createDataFrame([tuple(row.values())], tables.GAUGES.schema)},
            Mark(0, 0, follows=True),
        )
    found = Rolled(spark, store, days, spark.range(0)).gauges()
    racks = workers.racks(found)
    assert racks is not None
    assert (racks.other_bytes, racks.first_us, racks.last_us) == (3 * GB, FIRST, FIRST + 4 * DAY - SECOND)
    assert [each.starts for each in workers.workers(found)] == [1]


@pytest.mark.whole  # report/test_rolled.py has one over midnight
def test_a_runaway_that_began_before_the_first_day(spark: SparkSession, tmp_path: Path) -> None:
    """Its topic is quiet from then on."""
    write_hours(tmp_path / "journal", straining(range(-5, 3)))
    store = store_of(spark, tmp_path / "journal", tmp_path / "rollups")
    for days in (["2026-11-18", "2026-11-19"], ["2026-11-19"]):
        with rolled(spark, store, days) as found:
            (one,) = found.summary(50).runaways
            assert (one.since_us, one.until_us) == (FIRST + DAY - 50 * SECOND, FIRST + DAY + 20 * SECOND)


@pytest.mark.whole
def test_a_runaway_ends_where_a_day_is_missing(spark: SparkSession, tmp_path: Path) -> None:
    """Until the last window in which it is known of; of the last day it goes on."""
    write_hours(tmp_path / "journal", [*straining(range(-5, 0)), batch_row(time_us=FIRST + 2 * DAY)])
    store = store_of(spark, tmp_path / "journal", tmp_path / "rollups")
    assert store.days() == ["2026-11-18", "2026-11-20"]
    for days, until_us in ((store.days(), FIRST + DAY - 10 * SECOND), (store.days()[:1], None)):
        with rolled(spark, store, days) as found:
            (one,) = found.summary(50).runaways
            assert (one.since_us, one.until_us) == (FIRST + DAY - 50 * SECOND, until_us)


@pytest.mark.parametrize("follows", [True, False])
def test_a_runaway_ends_where_the_next_day_was_rolled_up_first(
    spark: SparkSession, tmp_path: Path, *, follows: bool
) -> None:
    """That one knows nothing of it, and would tell of another one, from midnight on."""
    store, days, state = RollupStore(spark, str(tmp_path)), ["2026-11-18", "2026-11-19"], TopicWatch()
    portions = [Portion(0, 9, 54_000, 9 * 40_000), Portion(1, 9, 9000, 9 * 2000), Portion(2, 9, 9000, 9 * 2000)]
    ends = [FIRST + DAY - 10 * SECOND * (3 - number) for number in range(3)]
    (began,) = (change for end in ends for change in state.window(end, portions, Thresholds()))
    told = {"topic": "t", "watch": msgspec.json.encode(Watch(state, {0: began})).decode()}
    row = dict.fromkeys(tables.RUNAWAYS.columns) | told
    rows = spark.createDataFrame([tuple(row.values())], tables.RUNAWAYS.schema)
    for day in days:
        store.write(day, {tables.RUNAWAYS: rows}, Mark(0, 0, follows=follows))
    both, second = (Rolled(spark, store, those, spark.range(0)) for those in (days, days[1:]))
    assert [(end["event"], end["since_us"]) for end in both._cut_off()] == ([] if follows else [("quiet", ends[-1])])
    assert list(second._lasting()) == ([("t", began)] if follows else [])


@pytest.mark.whole
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
