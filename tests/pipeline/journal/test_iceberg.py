"""What only Iceberg's tables have: a catalog. What both formats' have is in test_tables.py."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from forebay_pipeline.journal.iceberg import IcebergTables


def row(spark: SparkSession, number: int) -> DataFrame:
    return spark.range(number, number + 1).select(
        F.col("id").alias("time_us"), F.lit("2026-11-18").cast("date").alias("dt")
    )


def test_files_of_former_states_are_deleted(spark: SparkSession, tmp_path: Path) -> None:
    tables = IcebergTables(spark, str(tmp_path))
    for number in range(2):
        tables.append("batch", row(spark, number), "q", number)
    tables.rewrite("batch", ["time_us"])
    assert len(list(tmp_path.rglob("*.parquet"))) == 3
    tables.forget("batch", 0)
    assert len(list(tmp_path.rglob("*.parquet"))) == 1


def test_a_catalog_of_that_name_has_the_tables(spark: SparkSession, tmp_path: Path) -> None:
    """In a namespace called as the folder is, and still where the folder is."""
    named = "spark.sql.catalog.forebay"
    told = {"": "org.apache.iceberg.spark.SparkCatalog", ".type": "hadoop", ".warehouse": str(tmp_path)}
    for key, value in told.items():
        spark.conf.set(named + key, value)
    try:
        tables = IcebergTables(spark, str(tmp_path / "lake"))
        tables.append("batch", row(spark, 7), "q", 0)
        assert [each.time_us for each in spark.table("forebay.lake.batch").collect()] == [7]
        assert len(list((tmp_path / "lake" / "batch").rglob("*.parquet"))) == 1
    finally:
        for key in told:
            spark.conf.unset(named + key)
