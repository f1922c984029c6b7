"""The job `rollup` as a person runs it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from glob import glob
from pathlib import Path

import msgspec
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from forebay_pipeline.journal.source import JournalPlace
from forebay_pipeline.journal.span import ALL_TIME
from forebay_pipeline.rollups.command import rollup
from tests.kit.spark import JVM_FLAGS
from tests.pipeline.command_line import run
from tests.pipeline.rollups import made_up
from tests.pipeline.rollups.made_up import DAY, FIRST, HOUR
from tests.pipeline.rows import batch_row, gauge_row, write_journal


def files(folder: Path) -> dict[Path, int]:
    """With the time at which each was written."""
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def test_each_day_once(spark: SparkSession, tmp_path: Path) -> None:
    journal, folder = tmp_path / "journal", tmp_path / "rollups"
    write_journal(journal, [batch_row(time_us=FIRST + HOUR), batch_row(time_us=FIRST + HOUR + 1)])
    write_journal(journal, [gauge_row(time_us=FIRST + DAY + 2 * HOUR)])
    first = run("rollup", "--journal", journal, "--output", folder)
    assert (first.exit_code, first.stdout, first.stderr) == (0, "2026-11-18: 2 batches\n", "")
    there = files(folder)
    again = run("rollup", "--journal", journal, "--output", folder)
    assert (again.exit_code, again.stdout) == (0, "Nothing to do: every finished day is rolled up.\n")
    assert files(folder) == there
    # What has been rolled up is not read again: its rows may be gone.
    for path in journal.glob("dt=2026-11-18/*/*"):
        path.write_bytes(b"what is this?")
    write_journal(journal, [gauge_row(time_us=FIRST + 2 * DAY + 2 * HOUR)])
    next_day = run("rollup", "--journal", journal, "--output", folder)
    assert (next_day.exit_code, next_day.stdout) == (0, "2026-11-19: 0 batches\n")
    marks = [msgspec.json.decode(path.read_bytes()) for path in sorted(folder.glob("v3/days/*.json"))]
    assert [mark["follows"] for mark in marks] == [False, True]
    assert files(folder).items() >= there.items() - {(folder / ".rollup.lock", there[folder / ".rollup.lock"])}
    part = run("rollup", "--journal", journal, "--output", folder, "--to", "2026-11-20T12:00Z")
    assert part.exit_code == 0
    assert part.stdout == "Nothing to do: every whole and finished day of that time is rolled up.\n"


def test_a_day_that_is_made_anew_is_not_what_the_next_one_goes_on_from(spark: SparkSession, tmp_path: Path) -> None:
    """A runaway that was open at its end, of which the next day knows nothing, would last for ever."""
    journal, folder = tmp_path / "journal", tmp_path / "rollups"
    for number in range(3):
        write_journal(journal, [gauge_row(time_us=FIRST + number * DAY + 2 * HOUR)])

    def follow() -> list[bool]:
        assert run("rollup", "--journal", journal, "--output", folder).exit_code == 0
        return [msgspec.json.decode(path.read_bytes())["follows"] for path in sorted(folder.glob("v3/days/*.json"))]

    assert follow() == [False, True]
    (folder / "v3" / "days" / "2026-11-18.json").unlink()
    assert follow() == [False, False]


def test_what_it_cannot_do_is_one_sentence(spark: SparkSession, tmp_path: Path) -> None:
    nowhere = run("rollup", "--journal", tmp_path / "none", "--output", tmp_path / "rollups")
    assert (nowhere.exit_code, nowhere.stderr) == (
        2,
        f"forebay-pipeline: There is no journal in {tmp_path}/none: no such folder.\n",
    )
    (tmp_path / "file").touch()
    write_journal(tmp_path / "journal", [batch_row()])
    wrong = run("rollup", "--journal", tmp_path / "journal", "--output", tmp_path / "file")
    assert wrong.exit_code == 2
    (line,) = wrong.stderr.splitlines()
    assert line.startswith(f"forebay-pipeline: Cannot write {tmp_path}/file/.rollup.lock: ")


def rows(spark: SparkSession, table: Path) -> list[str]:
    """In order; sums of fractions depend on the order of these in the last digits."""
    found = spark.read.parquet(str(table))
    rounded = (F.round(name, 6).alias(name) if kind == "double" else F.col(name) for name, kind in found.dtypes)
    return sorted(map(str, found.select(*rounded).collect()))


@pytest.mark.whole
@pytest.mark.timeout(1200)
def test_killed_at_any_moment_it_goes_on_where_it_was(spark: SparkSession, tmp_path: Path) -> None:
    """After each kill the days that are there have all that they have without one."""
    journal, whole, folder = tmp_path / "journal", tmp_path / "whole", tmp_path / "rollups"
    made_up.write(journal, made_up.rows(3))
    assert list(rollup(spark, JournalPlace(str(journal)), ALL_TIME, str(whole), made_up.LATER))
    folder.mkdir()
    command = [sys.executable, "-m", "forebay_pipeline.cli", "rollup", "--master", "local[2]"]
    command += ["--conf", "spark.ui.enabled=false", "--conf", f"spark.driver.extraJavaOptions={JVM_FLAGS}"]
    command += ["--journal", str(journal), "--output", str(folder)]
    for at in (1, 9, 20, 40, 70, None):
        process = subprocess.Popen(
            command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        while process.poll() is None and (at is None or len(glob(f"{folder}/**/*.parquet", recursive=True)) < at):
            try:
                process.wait(0.1)
            except subprocess.TimeoutExpired:
                continue
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for mark in folder.glob("v3/days/*.json"):
            for table in (whole / "v3").glob(f"*/dt={mark.stem}"):
                of_it = table.relative_to(whole)
                assert rows(spark, folder / of_it) == rows(spark, whole / of_it)
    assert process.returncode == 0
    assert sorted(path.stem for path in folder.glob("v3/days/*.json")) == made_up.NAMES
