"""Files of a journal that the job's user may not read. Root may read all, so the system's answer is made up."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from forebay_pipeline.errors import CannotRun
from forebay_pipeline.journal import readable
from forebay_pipeline.journal.source import JournalPlace, read_rows, stream_rows
from forebay_pipeline.journal.span import Span
from tests.pipeline.command_line import run
from tests.pipeline.rows import START_US, batch_row, write_journal

DAY_US = 24 * 3600 * 1_000_000


@pytest.fixture
def forbid(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    allowed = os.access

    def forbidden(secret: Path) -> None:
        monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != secret and allowed(path, mode))

    return forbidden


def test_a_file_that_may_not_be_read_is_named(
    spark: SparkSession, tmp_path: Path, forbid: Callable[[Path], None]
) -> None:
    place = JournalPlace(str(tmp_path / "journal"))
    write_journal(tmp_path / "journal", [batch_row()])
    file = write_journal(tmp_path / "journal", [batch_row()], name="secret")
    forbid(file)
    for read in (read_rows, stream_rows):
        with pytest.raises(CannotRun, match=f"^Cannot read {file}: run the job as a user who may read all files"):
            read(spark, place)
    done = run("compact", "--journal", tmp_path / "journal", "--output", tmp_path / "parquet")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith(f"forebay-pipeline: Cannot read {file}: ")
    assert read_rows(spark, place, Span(START_US + DAY_US)).count() == 0


def test_on_a_cluster_a_file_that_is_not_found_was_not_read(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deleted, or on the disk of another host: tasks cannot tell."""
    file = write_journal(tmp_path, [batch_row()])
    place = JournalPlace(str(tmp_path))
    alone = read_rows(spark, place)
    monkeypatch.setattr(readable, "_has_hosts", lambda _: True)
    rows = read_rows(spark, place)
    assert rows.count() == 1
    file.unlink()
    assert alone.count() == 0
    with pytest.raises(Py4JError, match=file.name):
        rows.count()


def test_on_a_cluster_no_executor_is_asked_which_files_there_are(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of those that it does not have it would say that they are deleted."""
    content = write_journal(tmp_path, [batch_row()]).read_bytes()
    for hour in range(40):
        folder = tmp_path / f"dt=2026-12-{1 + hour // 24:02}" / f"hour={hour % 24:02}"
        folder.mkdir(parents=True)
        (folder / f"{hour}.jsonl.zst").write_bytes(content)
    monkeypatch.setattr(readable, "_has_hosts", lambda _: True)
    spark.conf.unset("spark.sql.sources.parallelPartitionDiscovery.threshold")
    spark.sparkContext.setJobGroup("asked", "")
    read_rows(spark, JournalPlace(str(tmp_path)))
    asked = spark.sparkContext.statusTracker().getJobIdsForGroup("asked")
    spark.sparkContext.setJobGroup("others", "")
    assert len(asked) == 1, "whether all have the folder"


def test_a_folder_that_may_not_be_read_is_named(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_journal(tmp_path, [batch_row()])

    def forbidden(folder: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(folder))

    monkeypatch.setattr(os, "scandir", forbidden)
    with pytest.raises(CannotRun, match=rf"^Cannot read {file.parent}: Permission denied\.$"):
        read_rows(spark, JournalPlace(str(tmp_path)))


def test_what_is_no_file_of_the_journal_may_be_secret(
    spark: SparkSession, tmp_path: Path, forbid: Callable[[Path], None]
) -> None:
    """An open file is hidden; and what retention has deleted may not be read either."""
    file = write_journal(tmp_path, [batch_row()])
    hidden = file.with_name(".open.jsonl.zst")
    hidden.write_bytes(file.read_bytes())
    forbid(hidden)
    assert read_rows(spark, JournalPlace(str(tmp_path))).count() == 1
    file.with_name("gone.jsonl.zst").symlink_to(tmp_path / "none")
    assert read_rows(spark, JournalPlace(str(tmp_path))).count() == 1
