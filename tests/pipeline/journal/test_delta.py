"""What only Delta's tables have to be told. What both formats' have in common is in test_tables.py."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from forebay_pipeline.journal.delta import DeltaTables


def row(spark: SparkSession, number: int, day: str) -> DataFrame:
    return spark.range(number, number + 1).select(F.col("id").alias("time_us"), F.lit(day).cast("date").alias("dt"))


@pytest.mark.whole  # test_tables.py has what both formats do
def test_only_days_with_small_files_are_rewritten_and_former_files_deleted(spark: SparkSession, tmp_path: Path) -> None:
    tables = DeltaTables(spark, f"{tmp_path}/")
    for number, day in enumerate(("2026-11-18", "2026-11-18", "2026-11-19")):
        tables.append("batch", row(spark, number, day), "q", number)
    (lonely,) = (tmp_path / "batch" / "dt=2026-11-19").glob("*.parquet")
    tables.rewrite("batch", ["time_us"])
    assert len(list((tmp_path / "batch" / "dt=2026-11-18").glob("*.parquet"))) == 3
    tables.forget("batch", 0)
    assert len(list((tmp_path / "batch" / "dt=2026-11-18").glob("*.parquet"))) == 1
    assert list((tmp_path / "batch" / "dt=2026-11-19").glob("*.parquet")) == [lonely]
