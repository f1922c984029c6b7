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
from tests.pipeline.command_line import run
from tests.pipeline.elsewhere import Elsewhere
from tests.pipeline.rollups import made_up

pytestmark = [pytest.mark.whole, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def hdfs() -> Iterator[Hdfs]:
    with Hdfs() as hdfs:
        yield hdfs


@pytest.fixture(scope="module")
def places(hdfs: Hdfs, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A folder on the local disk, and one in HDFS; in both the same journal of two days, in `journal`."""
    local = tmp_path_factory.mktemp("local")
    made_up.write(local / "journal", made_up.rows(3))
    (local / "journal" / "dt=2026-11-18" / "hour=11" / ".open.jsonl.zst").write_bytes(b"being written")
    return str(local), hdfs.put(local)


JOBS = (
    "compact --journal {}/journal --output {}/parquet",
    "compact --journal {}/journal --output {}/parquet",
    "compact --journal {}/journal --output {}/lake --format iceberg",
    "maintain --journal {}/lake --format iceberg",
    "partitions --journal {}/journal --by topic,partition,hour --output {}/of-journal.json",
    "partitions --journal {}/lake --format iceberg --output {}/of-tables.json",
    "rollup --journal {}/parquet --output {}/rollups",
    "report --journal {}/parquet --output {}/report.html",
    "report --rollups {}/rollups --output {}/months.html",
)


def test_jobs_find_the_same_as_on_a_local_disk(spark: SparkSession, places: tuple[str, str]) -> None:
    storage = Storage(spark)
    for job in JOBS:
        local, there = (run(*job.format(place, place).split()) for place in places)
        assert (there.exit_code, there.stderr) == (0, local.stderr.replace(*places)), job
        assert there.stdout == local.stdout.replace(*places), job
    for journal in ("journal", "parquet"):
        local_rows, rows = (read_rows(spark, JournalPlace(f"{place}/{journal}")) for place in places)
        assertDataFrameEqual(rows.groupBy("kind", "topic").count(), local_rows.groupBy("kind", "topic").count())
    for name in ("of-journal.json", "of-tables.json", "report.html", "months.html"):
        local_file, file = (storage.read(f"{place}/{name}") for place in places)
        assert file is not None, name
        assert local_file is not None, name
        assert file.decode() == local_file.decode().replace(*places), name


@pytest.fixture
def elsewhere(hdfs: Hdfs, spark: SparkSession) -> Elsewhere:
    return Elsewhere(spark, hdfs.at, hdfs.put)


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
