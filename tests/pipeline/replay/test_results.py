"""Outcomes added up, by hand."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from forebay_pipeline.replay.results import results_of
from forebay_pipeline.replay.settings import variants


def test_skew_and_gini_are_of_partitions(spark: SparkSession) -> None:
    """Worked in results.py: 1, 2 and 6 records have Gini 10/27; the greatest is twice the mean."""
    shares = [{"topic": "t", "partition": number, "records": count} for number, count in enumerate((2, 6, 1))]
    even = [{"topic": "u", "partition": number, "records": 9} for number in range(3)]
    row = (0, 36, 36_000, 1, 1, 100, 36, 4096, [{"bucket": 348, "records": 36}], [*shares, *even])
    outcomes = spark.createDataFrame([row], replayed_schema())
    [result] = results_of(outcomes, variants({}, {}))

    assert result.skew == pytest.approx((9 * 2 + 27 * 1) / 36)
    assert result.gini == pytest.approx((9 * 10 / 27 + 27 * 0) / 36)
    assert result.average_ms == pytest.approx(1)
    assert result.p50_ms == pytest.approx(1, rel=0.02)


def replayed_schema() -> str:
    return (
        "variant long, records long, latency_us long, requests long, batches long, batch_bytes long,"
        " batch_records long, pool_peak long, latencies array<struct<bucket: long, records: long>>,"
        " shares array<struct<topic: string, partition: long, records: long>>"
    )
