"""Few files afterwards, the same rows, and nothing lost of what is appended meanwhile."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from forebay_pipeline.errors import COULD_NOT_RUN
from forebay_pipeline.journal.table_writer import lock
from forebay_pipeline.journal.tables import Format, tables_in
from forebay_pipeline.maintain import maintain
from forebay_pipeline.storage import Storage
from tests.kit.spark import EITHER_TABLE
from tests.pipeline import command_line


def row(spark: SparkSession, number: int) -> DataFrame:
    rows = spark.range(number, number + 1).selectExpr("id AS time_us", f"'t{number % 7}' AS topic")
    return rows.withColumn("dt", F.lit("2026-11-18").cast("date")).coalesce(1)


@EITHER_TABLE
def test_the_command(spark: SparkSession, tmp_path: Path, table_format: Format) -> None:
    tables = tables_in(spark, str(tmp_path), table_format)
    for number in range(3):
        tables.append("batch", row(spark, number), "q", number)
    tables.append("gauge", row(spark, 0).drop("topic"), "q", 0)
    done = command_line.run("maintain", "--journal", tmp_path, "--format", table_format)
    assert (done.exit_code, done.stdout) == (0, "batch: 3 files, 1 now\ngauge: 1 file, 1 now\n")
    found = tables.read("batch")
    assert found is not None
    assert sorted(each.time_us for each in found.collect()) == [0, 1, 2]


@pytest.mark.whole
@pytest.mark.timeout(1800)
@EITHER_TABLE
def test_what_is_appended_meanwhile_stays(spark: SparkSession, tmp_path: Path, table_format: Format) -> None:
    """Batches beside maintenance that goes on and on; locked as compact does, as the disk is a local one. Each waits
    for a round of it, which takes Delta seconds."""
    folder, storage = str(tmp_path), Storage(spark)
    batches = 100 if table_format == "iceberg" else 25
    done = threading.Event()

    def keep() -> int:
        rounds = 0
        while not done.is_set() or not rounds:
            maintain(spark, folder, table_format, keep_days=1)
            rounds += 1
        return rounds

    tables = tables_in(spark, folder, table_format)
    tables.append("batch", row(spark, 0), "q", 0)
    with ThreadPoolExecutor() as pool:
        keeping = pool.submit(keep)
        try:
            for number in range(1, batches):
                with storage.locked(lock(folder, "batch")):
                    tables.append("batch", row(spark, number), "q", number)
        finally:
            done.set()
    assert keeping.result() > 1
    found = tables.read("batch")
    assert found is not None
    assert sorted(each.time_us for each in found.collect()) == list(range(batches))
    assert tables.files("batch") < batches


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--format", "delta"], "There is no journal in {folder}: it has no tables of delta."),
        (["--format", "parquet"], "'parquet' is not one of 'iceberg', 'delta'."),
        ([], "Missing option '--format'."),
        (["--format", "iceberg", "--keep-days", "0"], "0 is not in the range 1<=x<=36500."),
    ],
)
def test_what_it_cannot_do_is_one_sentence(spark: SparkSession, tmp_path: Path, words: list[str], said: str) -> None:
    done = command_line.run("maintain", "--journal", tmp_path, *words)
    assert done.exit_code == COULD_NOT_RUN
    assert said.format(folder=tmp_path) in done.stderr.replace("\n", " ")
