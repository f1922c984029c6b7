"""Tables in a catalog of a service, as its user tells Spark of it: who writes, maintains and reads them goes by it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from pyiceberg.catalog.rest import RestCatalog

from tests.kit.iceberg_catalog import IcebergCatalog
from tests.kit.object_store import ObjectStore
from tests.kit.spark import JVM_FLAGS, table_jar_folder
from tests.pipeline import duck
from tests.pipeline.rows import START_US, batch_row, gauge_row, write_journal

pytestmark = [pytest.mark.whole, pytest.mark.timeout(1200)]


@pytest.fixture
def catalog() -> Iterator[IcebergCatalog]:
    with IcebergCatalog() as catalog:
        yield catalog


@pytest.fixture
def store() -> Iterator[ObjectStore]:
    with ObjectStore() as store:
        yield store


def run(catalog: IcebergCatalog, job: str, *words: object, conf: Mapping[str, str] | None = None) -> str:
    """A process of its own: a session keeps the catalog that it has once used."""
    told = {
        "spark.sql.catalog.forebay": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.forebay.type": "rest",
        "spark.sql.catalog.forebay.uri": catalog.uri,
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.extraJavaOptions": JVM_FLAGS,
        **(conf or {}),
    }
    command = [sys.executable, "-m", "forebay_pipeline.cli", job, *map(str, words), "--format", "iceberg"]
    command += ["--master", "local[2]", "--jars", str(table_jar_folder("iceberg"))]
    command += [word for name, value in told.items() for word in ("--conf", f"{name}={value}")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def jobs_go_by(
    catalog: IcebergCatalog,
    reader: RestCatalog,
    journal: Path,
    lake: str,
    location: str,
    conf: Mapping[str, str] | None = None,
) -> None:
    """Written, maintained and read at `lake`, which the catalog calls `location`; `reader` knows the same catalog."""
    for number, topic in enumerate(("a", "b")):
        at = START_US + number
        write_journal(journal, [batch_row(topic=topic, time_us=at), gauge_row(time_us=at)], f"{number}")
        told = run(catalog, "compact", "--journal", journal, "--output", lake, conf=conf)
        assert told == f"2 rows written to {lake}\n"
    assert sorted(reader.list_tables("lake")) == [("lake", "batch"), ("lake", "gauge")]
    assert reader.load_table("lake.batch").location() == f"{location}/batch"
    assert duck.count_in_catalog(reader, "lake", "time_us") == {"batch": (2, 2), "gauge": (2, 2)}
    told = run(catalog, "maintain", "--journal", lake, conf=conf)
    assert told == "batch: 2 files, 1 now\ngauge: 2 files, 1 now\n"
    assert duck.count_in_catalog(reader, "lake", "time_us") == {"batch": (2, 2), "gauge": (2, 2)}
    assert len(list(reader.load_table("lake.batch").scan().plan_files())) == 1
    assert "2 batches" in run(catalog, "partitions", "--journal", lake, conf=conf)


def test_jobs_go_by_the_catalog(catalog: IcebergCatalog, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    reader = RestCatalog("forebay", uri=catalog.uri)
    jobs_go_by(catalog, reader, tmp_path / "journal", f"{lake}", f"file:{lake}")


def test_its_tables_may_be_in_an_object_store(store: ObjectStore, tmp_path: Path) -> None:
    lake = store.at("tables/lake")
    conf = {**store.of_command_line, "spark.sql.catalog.forebay.io-impl": "org.apache.iceberg.hadoop.HadoopFileIO"}
    with IcebergCatalog(store) as catalog:
        reader = RestCatalog("forebay", uri=catalog.uri, **store.of_iceberg)
        jobs_go_by(catalog, reader, tmp_path / "journal", lake, lake, conf)
