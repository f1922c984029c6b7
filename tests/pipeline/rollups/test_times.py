"""Histograms as rows, added up, and percentiles of them."""

from __future__ import annotations

from random import Random

import pytest
from pyspark.sql import SparkSession

from forebay_pipeline.rollups.times import buckets, percentiles_of


def test_percentiles_of_histograms_added_up(spark: SparkSession) -> None:
    """Of two parts of the same times, each rolled up by itself, those of all of them."""
    rng = Random(4)
    times = [(key, int(rng.lognormvariate(7, 2))) for _ in range(500) for key in "ab"]
    rows = spark.createDataFrame([(key, us, us * 10) for key, us in times], "key string, took_us long, bytes long")
    parts = [buckets(rows.where(f"took_us % 3 {which} 0"), ["key"], ["took_us", "bytes"]) for which in ("=", "!=")]
    found = percentiles_of(parts[0].unionByName(parts[1]), ["key"], ["took_us", "bytes"]).orderBy("key").collect()
    assert [row["key"] for row in found] == ["a", "b"]
    for row in found:
        exact = sorted(us for key, us in times if key == row["key"])
        wanted = [exact[249], exact[494], exact[499]]
        assert row["took_us"] == pytest.approx(wanted, rel=0.011, abs=1)
        assert row["bytes"] == pytest.approx([10 * us for us in wanted], rel=0.011)


def test_what_has_no_time_is_in_no_bucket(spark: SparkSession) -> None:
    rows = spark.createDataFrame([("a", None), ("a", 0), ("b", None)], "key string, took_us long")
    counted = buckets(rows, ["key"], ["took_us"])
    assert [tuple(row) for row in counted.collect()] == [("a", "took_us", 0, 1)]
    assert [tuple(row) for row in percentiles_of(counted, ["key"], ["took_us"]).collect()] == [("a", [1, 1, 1])]


def test_without_keys_there_is_always_one_row(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(3, 40)], "took_us long, wait_us long")
    counted = buckets(rows, [], ["took_us", "wait_us"])
    assert [tuple(row) for row in percentiles_of(counted, [], ["wait_us", "took_us"]).collect()] == [
        ([40, 40, 40], [3, 3, 3])
    ]
    assert [tuple(row) for row in percentiles_of(counted.where("false"), [], ["took_us"]).collect()] == [(None,)]
