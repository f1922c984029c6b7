"""Series over time, by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from forebay_pipeline.partitions.summary import Percentiles
from forebay_pipeline.report.series import (
    MAX_PARTITIONS,
    MAX_POINTS,
    GaugePoint,
    SharesPoint,
    TimePoint,
    TopicShares,
    bucket_us,
    coarser,
    gauge_points,
    time_points,
    topic_shares,
)
from forebay_policies.journal_rows import BatchRow, GaugeRow, Row
from tests.pipeline.journals import rows_of
from tests.pipeline.rows import START_US, batch_row, gauge_row

SECOND = 1_000_000


@pytest.mark.parametrize(
    ("seconds", "width_s"),
    [(0, 1), (199, 1), (200, 2), (3600, 30), (86_400, 600), (30 * 86_400, 14_400), (999 * 86_400, 5 * 86_400)],
)
def test_buckets_are_whole_units_and_not_too_many(seconds: int, width_s: int) -> None:
    last_us = START_US + seconds * SECOND
    assert bucket_us(START_US, last_us) == width_s * SECOND
    assert seconds / width_s <= MAX_POINTS


def test_times_in_buckets(spark: SparkSession, tmp_path: Path) -> None:
    rows: list[Row] = [
        batch_row(time_us=START_US + 3 * SECOND, linger_us=100, upstream_us=1000, bytes=10),
        batch_row(time_us=START_US + 9 * SECOND, linger_us=300, upstream_us=3000, bytes=30, fate="retried"),
        batch_row(time_us=START_US + 20 * SECOND, linger_us=500, upstream_us=0, bytes=50),
    ]
    assert time_points(rows_of(spark, tmp_path, BatchRow, rows), 10 * SECOND) == [
        TimePoint(START_US, Percentiles(100, 300, 300), Percentiles(1100, 3300, 3300), 20.0, 10, 30, 2, 20, 1),
        TimePoint(
            START_US + 20 * SECOND, Percentiles(500, 500, 500), Percentiles(500, 500, 500), 50.0, 50, 50, 1, 10, 0
        ),
    ]


def test_gauges_are_the_most_of_each_process_added_up(spark: SparkSession, tmp_path: Path) -> None:
    def gauge(second: int, process: int, queued: int, free: int) -> GaugeRow:
        return gauge_row(
            time_us=START_US + second * SECOND,
            process=f"here-{process}",
            queued_bytes=queued,
            pool_bytes=1000,
            pool_available_bytes=free,
        )

    rows: list[Row] = [gauge(0, 0, 5, 900), gauge(1, 0, 70, 990), gauge(1, 1, 20, 600), gauge(12, 1, 8, 1000)]
    assert gauge_points(rows_of(spark, tmp_path, GaugeRow, rows), 10 * SECOND) == [
        GaugePoint(START_US, 90, 500, 2000),
        GaugePoint(START_US + 10 * SECOND, 8, 0, 1000),
    ]


def test_a_process_that_took_the_place_of_another_is_not_added_to_it(spark: SparkSession, tmp_path: Path) -> None:
    """Two in a row, beside a third, all within an hour."""
    lives = {"here-1": range(3), "here-2": range(5, 8), "there-1": range(8)}
    rows: list[Row] = [
        gauge_row(time_us=START_US + second * SECOND, process=process, pool_bytes=1000, pool_available_bytes=900)
        for process, seconds in lives.items()
        for second in seconds
    ]
    (point,) = gauge_points(rows_of(spark, tmp_path, GaugeRow, rows), 3600 * SECOND)
    assert (point.pool_bytes, point.pool_used_bytes) == (2000, 200)


def test_one_that_follows_within_a_second_is_not_added_either(spark: SparkSession, tmp_path: Path) -> None:
    """The second one starts 0.1 s after the first one's last row, and writes its own 0.3 s later; a third is beside."""
    lives = {"here-7-a": (0.0, 2.0), "here-8-b": (2.1, 2.4), "there-7-a": (0.0, 0.5)}
    rows: list[Row] = [
        gauge_row(
            time_us=START_US + int(1_000_000 * (first + second)),
            process=process,
            started_us=START_US + int(1_000_000 * started),
            pool_bytes=1000,
        )
        for process, (started, first) in lives.items()
        for second in range(1 if process == "here-7-a" else 3)
    ]
    (point,) = gauge_points(rows_of(spark, tmp_path, GaugeRow, rows), 3600 * SECOND)
    assert point.pool_bytes == 2000


def test_gauges_of_a_longer_time_than_batches_are_plotted_at_as_many_points() -> None:
    """A day of them, and a burst of two minutes."""
    points = [GaugePoint(START_US + second * SECOND, second % 700, 86_400 - second, 1000) for second in range(86_400)]
    found, width = coarser(points, SECOND)
    assert (width, len(found)) == (600 * SECOND, 145)
    assert found[1] == GaugePoint(START_US + 200 * SECOND, 699, 86_200, 1000)
    assert coarser(points[:100], SECOND) == (points[:100], SECOND)


def test_shares_of_the_largest_partitions_and_of_the_others_together(spark: SparkSession, tmp_path: Path) -> None:
    rows: list[Row] = [batch_row(partition=number, bytes=100 + number) for number in range(9)]
    rows += [batch_row(time_us=START_US + 10 * SECOND, partition=8, bytes=892), batch_row(topic="u", partition=4)]
    found = topic_shares(rows_of(spark, tmp_path, BatchRow, rows), ["u", "t"], 10 * SECOND)
    assert found[0] == TopicShares("u", [4], [SharesPoint(START_US, {4: 1.0})])
    assert found[1].partitions == [8, 7, 6, 5, 4, 3, 2]
    assert len(found[1].partitions) == MAX_PARTITIONS
    first, second = found[1].points
    expected: dict[int | None, float] = {number: (100 + number) / 936 for number in range(2, 9)}
    assert first.shares == {**expected, None: 201 / 936}
    assert second == SharesPoint(START_US + 10 * SECOND, {8: 1.0})
