"""Journal, output, checkpoint, state and results in an object store that speaks S3."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession
from pyspark.testing import assertDataFrameEqual

from forebay_pipeline import storage as module
from forebay_pipeline.audit import command as audit
from forebay_pipeline.errors import CannotRun
from forebay_pipeline.journal.source import JournalPlace, Span, closed_files, read_rows
from forebay_pipeline.storage import Storage
from forebay_pipeline.watch import command as watch
from tests.kit.object_store import ObjectStore
from tests.pipeline import rows as make
from tests.pipeline.audit.world import World
from tests.pipeline.command_line import run
from tests.pipeline.rows import START_US, write_journal
from tests.pipeline.watch.made_up import FIRST, SECOND, Topics, sent, topic


@pytest.fixture(scope="module")
def store(spark: SparkSession) -> Iterator[ObjectStore]:
    with ObjectStore() as store:
        for name, value in store.settings.items():
            spark.conf.set(name, value)
        yield store


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


@pytest.mark.whole  # tests/pipeline/audit carries on, and a store is read and written above
def test_an_audit_carries_on_from_a_state_in_an_object_store(
    store: ObjectStore, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(spark, tmp_path)
    monkeypatch.setattr(audit, "KafkaTopics", lambda brokers: world)
    world.send(world.made(5))
    world.rows.append(make.gauge_row(process="here-1", last=True))
    world.close_files()
    store.put_all(tmp_path, "audited")
    words = ["--journal", store.at("audited"), "--bootstrap-servers", "any:9092", "--to", "2026-12-01"]
    words += ["--state", store.at("state/audit.state"), "--output", store.at("audit.json")]
    for there in (5, 0):
        done = CliRunner().invoke(audit.command, words)
        assert (done.exit_code, done.stderr) == (0, "")
        assert f"Clean: {there} of {there}" in done.stdout
    assert Storage(spark).names(store.at("state")) == ["audit.state"]


@pytest.mark.whole  # tests/pipeline/watch has the same in files
def test_watch_over_an_object_store(
    store: ObjectStore, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Journal, output, checkpoint and metrics: a minute is told once, though the job runs twice."""
    monkeypatch.setattr(watch, "KafkaTopics", lambda brokers: Topics({"t": topic(15, topic_id="i")}))
    write_journal(tmp_path, [sent(5, 10, topic_id="i"), make.gauge_row(time_us=FIRST + 95 * SECOND, cluster_id="c")])
    store.put_all(tmp_path, "watched")
    words = ["--journal", store.at("watched"), "--bootstrap-servers", "a:1", "--once", "--late", 30]
    words += ["--output", store.at("told"), "--prometheus", store.at("forebay.prom")]
    for exit_code in (1, 0):
        done = run("watch", *words)
        assert (done.exit_code, done.stdout, done.stderr) == (exit_code, "", "")
    storage = Storage(spark)
    (name,) = (name for name in storage.names(store.at("told")) if name.endswith(".jsonl"))
    line = storage.read(store.at(f"told/{name}"))
    assert line is not None
    assert msgspec.json.decode(line)["lost"] == 5
    metrics = storage.read(store.at("forebay.prom"))
    assert metrics is not None
    assert b"forebay_watch_lost_records_total" in metrics


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


def test_what_is_not_there_is_one_sentence(store: ObjectStore, spark: SparkSession) -> None:
    storage = Storage(spark)
    assert storage.read(store.at("none")) is None
    for journal in (store.at("none"), "s3a://none-such/journal"):
        done = run("compact", "--journal", journal, "--output", store.at("p"))
        assert done.exit_code == 2
        (line,) = done.stderr.splitlines()
        assert line.startswith("forebay-pipeline: ")
        assert journal in line
