"""What a journal's folder has of a span."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from forebay_pipeline.errors import CannotRun
from forebay_pipeline.journal.folder import JournalFolder, began_before, over_at
from forebay_pipeline.journal.span import ALL_TIME, Span
from forebay_pipeline.storage import Storage
from tests.pipeline.rows import START_US

HOUR_US = 3_600_000_000
DAY = "dt=2026-11-18"
"""START_US is at eleven of it."""


def folder(spark: SparkSession, path: Path, *files: str) -> JournalFolder:
    for file in files:
        (path / file).parent.mkdir(parents=True, exist_ok=True)
        (path / file).touch()
    return JournalFolder(Storage(spark), str(path))


def test_the_hours_around(spark: SparkSession, tmp_path: Path) -> None:
    files = [f"{DAY}/hour={hour:02}/a.jsonl.zst" for hour in range(24)]
    others = [f"{DAY}/what/a.jsonl.zst", f"{DAY}/hour=x/a.jsonl.zst", "dt=x/hour=01/a.jsonl.zst", "notes.txt"]
    days = ["dt=2026-11-17/hour=23/a.jsonl.zst", "dt=2026-11-19/hour=00/a.jsonl.zst"]
    journal = folder(spark, tmp_path, *files, *others, *days)
    assert journal.format is None
    assert list(journal.hours(Span(START_US, START_US + 1))) == [
        f"{tmp_path}/{DAY}/hour={hour}" for hour in (10, 11, 12)
    ]
    assert list(journal.hours(Span(None, START_US - 11 * HOUR_US))) == [
        f"{tmp_path}/dt=2026-11-17/hour=23",
        f"{tmp_path}/{DAY}/hour=00",
        f"{tmp_path}/{DAY}/hour=01",
    ]
    assert list(journal.hours(Span(START_US + 13 * HOUR_US)))[-1] == f"{tmp_path}/dt=2026-11-19/hour=00"
    assert len(list(journal.hours(ALL_TIME))) == 26
    assert journal.days() == ["2026-11-17", "2026-11-18", "2026-11-19"]


def test_what_compact_wrote(spark: SparkSession, tmp_path: Path) -> None:
    journal = folder(spark, tmp_path, f"kind=batch/{DAY}/topic=t/part-0.parquet")
    assert journal.format == "parquet"
    journal = folder(spark, tmp_path, "kind=gauge/dt=2026-11-17/topic=t/a.parquet", "kind=_torn/dt=__HIVE__/a.parquet")
    assert journal.days() == ["2026-11-17", "2026-11-18"]
    assert list(journal.hours(ALL_TIME)) == []


def test_without_a_journal(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(CannotRun, match=f"^There is no journal in {tmp_path}: it has no closed files yet"):
        folder(spark, tmp_path, "notes.txt")
    with pytest.raises(CannotRun, match=f"^There is no journal in {tmp_path}/none: no such folder.$"):
        folder(spark, tmp_path / "none")
    with pytest.raises(CannotRun, match="no such folder"):
        folder(spark, tmp_path / "notes.txt")


def test_files_are_over_when_their_writer_begins_the_next_one() -> None:
    def name(writer: str, minutes: int) -> str:
        return f"{writer}-{START_US + minutes * 60_000_000:x}.jsonl.zst"

    one, other = [name("host-1-0", minutes) for minutes in (0, 5, 9)], [name("host-1-1", minutes) for minutes in (1, 7)]
    foreign = ["rows-0.jsonl.zst", "rows-1.jsonl.zst", f"a-0-{START_US:x}.jsonl.zst", f"a-0-{START_US + 1:x}.jsonl.zst"]
    names = [*one[::-1], *other, *foreign]
    assert over_at(names, START_US + 5 * 60_000_000 - 1) == set()
    assert over_at(names, START_US + 5 * 60_000_000) == {one[0]}
    assert over_at(names, START_US + 3_600_000_000) == {one[0], one[1], other[0]}


def test_files_may_have_rows_from_a_minute_before_they_were_begun() -> None:
    one, other = f"host-1-0-{START_US:x}.jsonl.zst", f"host-1-1-{START_US + 1:x}.jsonl.zst"
    names = [one, other, "rows-0.jsonl.zst"]
    assert began_before(names, START_US - 60_000_000) == set()
    assert began_before(names, START_US - 60_000_000 + 1) == {one}
