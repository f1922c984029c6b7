"""Columns of rows, by hand."""

from __future__ import annotations

from pyspark.sql import SparkSession

from forebay_pipeline.journal.columns import day_of, wait, window_start
from forebay_pipeline.journal.span import DAY_US


def test_days_windows_and_waits(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(DAY_US - 1, 5, 7), (DAY_US, 1, 2)], "time_us long, linger_us long, upstream_us long")
    found = rows.select(day_of("time_us").cast("string"), window_start(10), wait()).collect()
    assert [tuple(row) for row in found] == [("1970-01-01", DAY_US - 10, 12), ("1970-01-02", DAY_US, 3)]
