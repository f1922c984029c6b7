"""Tables of either format: a batch once, new columns, few files; and what a folder is told to be."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from forebay_pipeline.errors import CannotRun
from forebay_pipeline.journal.tables import Format, Tables, check_format, format_of, tables_in
from forebay_pipeline.storage import Storage
from tests.kit.spark import TABLE_FORMATS

EITHER = pytest.mark.parametrize("table_format", TABLE_FORMATS)


def rows(spark: SparkSession, *topics: str, day: str | None = "2026-11-18") -> DataFrame:
    made = [(day, topic, number) for number, topic in enumerate(topics)]
    return spark.createDataFrame(made, "dt string, topic string, time_us long").withColumn("dt", F.to_date("dt"))


def topics(tables: Tables, name: str = "batch") -> list[str]:
    found = tables.read(name)
    assert found is not None
    return sorted(row.topic for row in found.collect())


@EITHER
def test_a_batch_of_a_query_is_appended_once(spark: SparkSession, tmp_path: Path, table_format: Format) -> None:
    folder = str(tmp_path / "it's a lake")
    assert tables_in(spark, folder, table_format).read("batch") is None
    for number, topic in ((0, "a"), (1, "b"), (0, "twice")):
        tables_in(spark, folder, table_format).append("batch", rows(spark, topic), "q", number)
    tables = tables_in(spark, folder, table_format)
    assert topics(tables) == ["a", "b"]
    tables.append("batch", rows(spark, "c").withColumn("later", F.lit(7)), "r", 0)
    found = tables.read("batch")
    assert found is not None
    assert {row.topic: row.later for row in found.collect()} == {"a": None, "b": None, "c": 7}


@pytest.mark.whole  # test_maintain.py has the command
@EITHER
def test_small_files_become_large_ones(spark: SparkSession, tmp_path: Path, table_format: Format) -> None:
    """Those of each day, and of none; a batch is known as appended even when nothing else tells of it."""
    tables = tables_in(spark, str(tmp_path), table_format)
    for number, day in enumerate(("2026-11-18", "2026-11-18", None, None)):
        tables.append("batch", rows(spark, "b", "a", day=day).coalesce(1), "q", number)
    assert tables.files("batch") == 4
    tables.rewrite("batch", ["topic", "time_us"])
    tables.forget("batch", 0)
    assert tables.files("batch") == 2
    assert topics(tables) == ["a"] * 4 + ["b"] * 4
    again = tables_in(spark, str(tmp_path), table_format)
    again.append("batch", rows(spark, "twice"), "q", 3)
    assert topics(again) == topics(tables)


@EITHER
def test_of_a_table_that_is_not_there_there_are_no_files(
    spark: SparkSession, tmp_path: Path, table_format: Format
) -> None:
    assert tables_in(spark, str(tmp_path), table_format).files("batch") == 0


@pytest.mark.parametrize(
    ("made", "told"),
    [
        ("kind=batch/dt=2026-11-18", "parquet"),
        ("_spark_metadata", "parquet"),
        ("ledger/_delta_log", "delta"),
        ("other/metadata", "iceberg"),
        ("dt=2026-11-18/hour=11", None),
        ("batch", None),
        ("mine/_delta_log", None),
    ],
)
def test_a_folder_is_known_by_what_is_in_it(
    spark: SparkSession, tmp_path: Path, made: str, told: Format | None
) -> None:
    (tmp_path / made).mkdir(parents=True)
    storage = Storage(spark)
    assert format_of(storage, str(tmp_path), storage.names(str(tmp_path))) == told


def test_another_format_is_refused_and_the_right_one_named(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "batch" / "_delta_log").mkdir(parents=True)
    with pytest.raises(CannotRun, match=f"^{tmp_path} was written by `compact --format delta`: give --format delta.$"):
        tables_in(spark, str(tmp_path), "iceberg")
    check_format(Storage(spark), str(tmp_path), "delta")
    check_format(Storage(spark), str(tmp_path / "nothing"), "iceberg")
