"""Days come there wholly or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from forebay_pipeline.errors import CannotRun
from forebay_pipeline.rollups.store import Mark, RollupStore
from forebay_pipeline.rollups.tables import RACKS, TORN, Table

MARK = Mark(batches=7, torn=1, follows=False)


def tables(spark: SparkSession, *racks: tuple[str, int]) -> dict[Table, DataFrame]:
    """In columns of another order and type than those declared."""
    rows = [(size, topic) for topic, size in racks]
    sized = spark.createDataFrame(rows, "same_bytes int, topic string")
    return {
        RACKS: sized.withColumns({"other_bytes": F.lit(0), "unknown_bytes": F.lit(None)}),
        TORN: spark.createDataFrame([], TORN.schema),
    }


def read(store: RollupStore, *days: str) -> list[tuple[object, ...]]:
    return sorted(tuple(row) for row in store.read(RACKS, days).collect())


def test_days_are_read_as_they_were_written(spark: SparkSession, tmp_path: Path) -> None:
    store = RollupStore(spark, f"{tmp_path}/rollups/")
    assert store.days() == []
    assert read(store) == []
    store.write("2026-11-19", tables(spark, ("t", 3)), MARK)
    store.write("2026-11-18", tables(spark, ("t", 1), ("a", 2)), MARK)
    again = RollupStore(spark, f"{tmp_path}/rollups")
    assert again.days() == ["2026-11-18", "2026-11-19"]
    assert read(again, "2026-11-18") == [("a", 2, 0, None), ("t", 1, 0, None)]
    assert read(again, "2026-11-18", "2026-11-19") == [("a", 2, 0, None), ("t", 1, 0, None), ("t", 3, 0, None)]
    assert again.read(TORN, again.days()).count() == 0
    assert again.mark("2026-11-18") == MARK
    again.mark_as("2026-11-18", Mark(batches=7, torn=1, follows=True))
    assert again.mark("2026-11-18").follows
    assert read(again, "2026-11-18") == [("a", 2, 0, None), ("t", 1, 0, None)]


def test_half_a_day_is_not_there_and_is_replaced(spark: SparkSession, tmp_path: Path) -> None:
    store = RollupStore(spark, str(tmp_path))
    given = tables(spark, ("t", 1))
    fails = spark.range(1).select(F.raise_error(F.lit("the machine went down")).cast("long").alias("error"))
    with pytest.raises((PySparkException, Py4JError)):
        store.write("2026-11-18", {**given, TORN: fails.withColumn("lines", F.lit(1))}, MARK)
    assert list(tmp_path.glob("v3/racks/dt=2026-11-18/*.parquet"))
    assert store.days() == []
    store.write("2026-11-18", tables(spark, ("u", 9)), MARK)
    assert store.days() == ["2026-11-18"]
    assert read(store, "2026-11-18") == [("u", 9, 0, None)]


def test_what_else_lies_there_is_no_day(spark: SparkSession, tmp_path: Path) -> None:
    store = RollupStore(spark, str(tmp_path))
    store.write("2026-11-18", tables(spark), MARK)
    for name in (".2026-11-19.json-0af1", "2026-11-19.json.bak", "notes.txt"):
        (tmp_path / "v3" / "days" / name).touch()
    (tmp_path / "v0" / "days").mkdir(parents=True)
    (tmp_path / "v0" / "days" / "2026-11-17.json").touch()
    assert store.days() == ["2026-11-18"]


def test_what_cannot_be_read_or_written_is_one_sentence(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    sentence = rf"^Cannot write {tmp_path}/file/\.rollup\.lock: .*\.$"
    with pytest.raises(CannotRun, match=sentence), RollupStore(spark, f"{tmp_path}/file").locked():
        raise AssertionError
    with pytest.raises(CannotRun, match=f"^Cannot read the rollups in {tmp_path}: "):
        RollupStore(spark, str(tmp_path)).read(RACKS, ["2026-11-18"])
