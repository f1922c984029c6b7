"""Outcomes added up, by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from forebay_pipeline.replay.intervals import Block
from forebay_pipeline.replay.results import blocks_of, results_of, unmerged
from forebay_pipeline.replay.settings import read_grid, variants
from forebay_policies.journal_rows import ObservedRow
from tests.pipeline.journals import rows_of
from tests.pipeline.rows import START_US, batch_row, observed_row


def test_what_was_observed_is_what_clients_saw_without_merging(spark: SparkSession, tmp_path: Path) -> None:
    rows = [
        observed_row(number=1, received_us=START_US, time_us=START_US + 2_000, records=3, bytes=300),
        observed_row(number=1, received_us=START_US, time_us=START_US + 2_000, records=1, bytes=100, partition=1),
        observed_row(number=2, received_us=START_US, time_us=START_US + 10_000, records=4, bytes=400),
        observed_row(number=3, acks=0, error_code=None, records=2, bytes=200),
        observed_row(number=4, error_code=6),
    ]
    found = unmerged(rows_of(spark, tmp_path, ObservedRow, rows))

    assert found is not None
    assert (found.requests, found.records, found.batch_records, found.batch_bytes) == (3, 10, 2.5, 250)
    assert found.average_ms == pytest.approx(6)
    assert found.p50_ms == pytest.approx(2, rel=0.1)
    assert found.p99_ms == pytest.approx(10, rel=0.1)


def test_without_any_there_is_nothing_to_tell(spark: SparkSession, tmp_path: Path) -> None:
    assert unmerged(rows_of(spark, tmp_path, ObservedRow, [batch_row()])) is None


def test_skew_and_gini_are_of_partitions(spark: SparkSession) -> None:
    """1, 2 and 6 records have Gini 2 · (1·1 + 2·2 + 3·6) / (3 · 9) - 4/3 = 10/27; the greatest is twice the mean."""
    shares = [{"topic": "t", "partition": number, "records": count} for number, count in enumerate((2, 6, 1))]
    even = [{"topic": "u", "partition": number, "records": 9} for number in range(3)]
    row = (0, 0, 36, 36_000, 1, 1, 100, 36, 4096, [{"bucket": 348, "records": 36}], [*shares, *even])
    outcomes = spark.createDataFrame([row], replayed_schema())
    [result] = results_of(outcomes, variants({}, {}))

    assert result.skew == pytest.approx((9 * 2 + 27 * 1) / 36)
    assert result.gini == pytest.approx((9 * 10 / 27 + 27 * 0) / 36)
    assert result.average_ms == pytest.approx(1)
    assert result.p50_ms == pytest.approx(1, rel=0.02)


def test_blocks_are_slices_in_a_row_and_requests_of_a_sample_are_scaled(spark: SparkSession) -> None:
    """Three slices that were chosen of ten; of one of them a variant has nothing."""
    share = [{"topic": "t", "partition": 0, "records": 1}]
    rows = [
        (variant, number, 10 + number, 1000, 4, 1, 100, 10, 4096, [{"bucket": 5, "records": 10 + number}], share)
        for variant in (0, 1)
        for number in (2, 5, 9)
        if (variant, number) != (1, 5)
    ]
    outcomes = spark.createDataFrame(rows, replayed_schema())
    assert blocks_of(outcomes, [2, 5, 9], [1, 0]) == [
        [Block(12, 1000, 4, {5: 12}), Block(0, 0, 0, {}), Block(19, 1000, 4, {5: 19})],
        [Block(number, 1000, 4, {5: number}) for number in (12, 15, 19)],
    ]
    found = results_of(outcomes, variants({}, read_grid(["linger.ms=-1,5"])), 460)
    assert [result.requests for result in found] == [12 * 460 // 46, round(8 * 460 / 31)]


def replayed_schema() -> str:
    return (
        "variant long, slice long, records long, latency_us long, requests long, batches long, batch_bytes long,"
        " batch_records long, pool_peak long, latencies array<struct<bucket: long, records: long>>,"
        " shares array<struct<topic: string, partition: long, records: long>>"
    )
