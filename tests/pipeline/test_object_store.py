"""Journal, output, checkpoint, state and results in an object store that speaks S3."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.testing import assertDataFrameEqual

from forebay_pipeline import storage as module
from forebay_pipeline.errors import CannotRun
from forebay_pipeline.journal.source import JournalPlace, closed_files, read_rows
from forebay_pipeline.journal.span import Span
from forebay_pipeline.storage import Storage
from tests.kit.object_store import ObjectStore
from tests.pipeline import rows as make
from tests.pipeline.command_line import run
from tests.pipeline.elsewhere import Elsewhere
from tests.pipeline.rollups import made_up
from tests.pipeline.rows import START_US, write_journal


@pytest.fixture(scope="module")
def store(spark: SparkSession) -> Iterator[ObjectStore]:
    with ObjectStore() as store:
        for name, value in store.settings.items():
            spark.conf.set(name, value)
        yield store


@pytest.mark.whole
def test_jobs_over_an_object_store(store: ObjectStore, spark: SparkSession, tmp_path: Path) -> None:
    """`compact`, in two runs, whose output `report` reads."""
    journal, output, page = store.at("j"), store.at("parquet"), store.at("pages/report.html")
    write_journal(tmp_path, [make.batch_row(topic="a"), make.gauge_row()])
    store.put_all(tmp_path, "j")
    store.put("j/dt=2026-11-18/hour=11/.open.jsonl.zst", b"being written")
    for said in ("2 rows written", "0 rows written"):
        done = run("compact", "--journal", journal, "--output", output)
        assert (done.exit_code, done.stdout) == (0, f"{said} to {output}\n")
    here = read_rows(spark, JournalPlace(str(tmp_path)))
    assertDataFrameEqual(read_rows(spark, JournalPlace(journal), Span(START_US)), here)
    assertDataFrameEqual(read_rows(spark, JournalPlace(output)), here)
    assert len(closed_files(spark, JournalPlace(journal), Span())) == 1
    done = run("report", "--journal", output, "--output", page)
    assert (done.exit_code, done.stderr) == (0, "")
    written = Storage(spark).read(page)
    assert written is not None
    assert b"<!doctype html>" in written.lower()


@pytest.fixture
def elsewhere(store: ObjectStore, spark: SparkSession) -> Elsewhere:
    def put(folder: Path) -> str:
        store.put_all(folder, folder.name)
        return store.at(folder.name)

    return Elsewhere(spark, store.at, put)


@pytest.mark.whole  # tests/pipeline/audit carries on, and a store is read and written above
def test_an_audit_carries_on_from_a_state_in_an_object_store(
    elsewhere: Elsewhere, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere.audit_carries_on(tmp_path, monkeypatch)


@pytest.mark.whole  # tests/pipeline/watch has the same in files
def test_watch_over_an_object_store(elsewhere: Elsewhere, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere.watch_tells_a_minute_once(tmp_path, monkeypatch)


@pytest.mark.whole
@pytest.mark.timeout(1800)
def test_rollups_in_an_object_store_are_those_of_a_local_disk(elsewhere: Elsewhere, tmp_path: Path) -> None:
    folder = tmp_path / "days"
    made_up.write(folder / "journal", made_up.rows(3))
    jobs = (
        "rollup --journal {0}/journal --output {0}/rollups",
        "report --rollups {0}/rollups --output {0}/months.html",
        "rollup --journal {0}/journal --output {0}/rollups",
    )
    elsewhere.jobs_find_the_same(folder, jobs, ["months.html"])


def test_a_write_that_fails_leaves_what_was_there(
    store: ObjectStore, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even half of it shows nothing: it is the end of an upload that makes a file of it."""
    storage, place = Storage(spark), store.at("state/half")
    storage.write(place, b"old")
    fill = module._fill

    class Failing:
        def __init__(self, stream: Any) -> None:
            self._stream = stream
            self.abort, self.close = stream.abort, stream.close

        def write(self, data: bytes) -> None:
            self._stream.write(data[:2])
            raise CannotRun("It broke.")

    monkeypatch.setattr(module, "_fill", lambda stream, data, *, whole: fill(Failing(stream), data, whole=whole))
    with pytest.raises(CannotRun, match="It broke"):
        storage.write(place, b"new")
    assert storage.read(place) == b"old"


def test_what_is_not_there_is_one_sentence(elsewhere: Elsewhere) -> None:
    elsewhere.what_is_not_there_is_one_sentence("s3a://none-such/journal")
