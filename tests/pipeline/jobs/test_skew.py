"""Skew and Gini, by hand."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from forebay_pipeline.jobs.skew import skews


def test_partitions_that_got_nothing_count_whether_they_are_told_or_not(spark: SparkSession) -> None:
    """0, 1 and 3, as in the module; 5 and 5; all in one of four; and a topic of which there is nothing."""
    rows = [("a", 2, 1), ("a", 1, 3), ("even", 0, 5), ("even", 1, 5), ("one", 3, 7), ("one", 0, 0), ("none", 0, 0)]
    sizes = spark.createDataFrame(rows, "topic string, partition long, bytes long")
    found = skews(sizes, ["topic"], "bytes", F.count("*").alias("rows")).orderBy("topic").collect()
    assert [(row.topic, row.partitions, row.bytes, row.largest, row.rows) for row in found] == [
        ("a", 3, 4, 1, 2),
        ("even", 2, 10, 0, 2),
        ("one", 4, 7, 3, 2),
    ]
    assert [row.max_to_mean for row in found] == pytest.approx([9 / 4, 1, 4])
    assert [row.gini for row in found] == pytest.approx([0.5, 0, 0.75])
