"""Journal, output, checkpoint, state and results in HDFS: jobs find there what they find on the local disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.testing import assertDataFrameEqual

from forebay_pipeline import storage as module
from forebay_pipeline.errors import CannotRun
from forebay_pipeline.journal.source import JournalPlace, read_rows
from forebay_pipeline.storage import Storage
from tests.kit.hdfs import Hdfs
from tests.kit.ports import LOOPBACK, free_port
from tests.pipeline import found_by_all
from tests.pipeline.elsewhere import Elsewhere
from tests.pipeline.rollups import made_up

pytestmark = [pytest.mark.whole, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def hdfs() -> Iterator[Hdfs]:
    with Hdfs() as hdfs:
        yield hdfs


@pytest.fixture
def elsewhere(hdfs: Hdfs, spark: SparkSession) -> Elsewhere:
    return Elsewhere(spark, hdfs.at, hdfs.put)


JOBS = (
    "compact --journal {0}/journal --output {0}/parquet",
    "compact --journal {0}/journal --output {0}/parquet",
    "compact --journal {0}/journal --output {0}/iceberg --format iceberg",
    "maintain --journal {0}/iceberg --format iceberg",
    "compact --journal {0}/journal --output {0}/delta --format delta",
    "maintain --journal {0}/delta --format delta",
    "partitions --journal {0}/journal --by topic,partition,hour --output {0}/of-journal.json",
    "partitions --journal {0}/iceberg --format iceberg --output {0}/of-iceberg.json",
    "partitions --journal {0}/delta --format delta --output {0}/of-delta.json",
    "rollup --journal {0}/parquet --output {0}/rollups",
    "report --journal {0}/parquet --output {0}/report.html",
    "report --rollups {0}/rollups --output {0}/months.html",
    "runaways --journal {0}/another --once --late 0 --output {0}/changes",
    "replay --journal {0}/another --grid partitioner=adaptive,expected_wait --slice 5 --output {0}/replay.json",
)
WRITTEN = (
    "of-journal.json",
    "of-iceberg.json",
    "of-delta.json",
    "report.html",
    "months.html",
    "changes",
    "replay.json",
)


def test_jobs_find_the_same_as_on_a_local_disk(elsewhere: Elsewhere, spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "local"
    made_up.write(folder / "journal", made_up.rows(3))
    (folder / "journal" / "dt=2026-11-18" / "hour=11" / ".open.jsonl.zst").write_bytes(b"being written")
    found_by_all.write(folder / "another")
    places = elsewhere.jobs_find_the_same(folder, JOBS, WRITTEN)
    for journal in ("journal", "parquet"):
        local_rows, rows = (read_rows(spark, JournalPlace(f"{place}/{journal}")) for place in places)
        assertDataFrameEqual(rows.groupBy("kind", "topic").count(), local_rows.groupBy("kind", "topic").count())


def test_an_audit_carries_on_from_its_state(
    elsewhere: Elsewhere, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere.audit_carries_on(tmp_path, monkeypatch)


def test_watch_tells_a_minute_once(elsewhere: Elsewhere, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere.watch_tells_a_minute_once(tmp_path, monkeypatch)


def test_a_write_replaces_what_was_there_or_leaves_it(
    hdfs: Hdfs, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, place = Storage(spark), hdfs.at("results/of-it")
    for content in (b"old", b"newer"):
        storage.write(place, content)
        assert storage.read(place) == content
    fill = module._fill

    def failing(stream: Any, data: bytes, *, whole: bool) -> None:
        fill(stream, data[:2], whole=whole)
        raise CannotRun("It broke.")

    monkeypatch.setattr(module, "_fill", failing)
    with pytest.raises(CannotRun, match="It broke"):
        storage.write(place, b"newest")
    assert storage.read(place) == b"newer"
    assert storage.names(hdfs.at("results")) == ["of-it"]


def test_what_is_not_there_is_one_sentence(elsewhere: Elsewhere) -> None:
    elsewhere.what_is_not_there_is_one_sentence(f"hdfs://{LOOPBACK}:{free_port()}/journal")
