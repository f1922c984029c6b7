"""Batches, brokers and topics, by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from forebay_pipeline.advice.counts import batch_use, brokers, topics
from forebay_pipeline.advice.facts import BatchUse, BrokerUse, TopicUse
from forebay_policies.journal_rows import BatchRow, Row
from tests.pipeline.journals import rows_of
from tests.pipeline.rows import START_US, batch_row

SECOND = 1_000_000


def test_all_that_is_counted_of_batches(spark: SparkSession, tmp_path: Path) -> None:
    """Two queues of 10 batches in 10 s that waited 0.5 ms, and one of a full batch with keys that did not wait.

    Had they waited 1 ms: 2 · 10 / 1.0005 + 1 / 1.0001.
    """
    rows: list[Row] = [
        batch_row(time_us=START_US + second * SECOND, partition=partition, leader=partition, upstream_us=1500)
        for second in range(10)
        for partition in (0, 1)
    ]
    rows.append(
        batch_row(
            topic="u", movable=False, reason="full", records=5, bytes=9000, runs=1, linger_us=0, acks=-1, leader=1
        )
    )
    batches = rows_of(spark, tmp_path, BatchRow, rows)
    use = batch_use(batches, 10.0)
    assert use._replace(lingering={}) == BatchUse(
        batches=21,
        requests=21,
        runs=41,
        records=205,
        bytes=29_000,
        movable_records=200,
        movable_bytes=20_000,
        full=1,
        full_linger_us=0,
        latency_us=200 * 2000 + 5 * 1500,
    )
    assert use.lingering[1] == pytest.approx(20 / 1.0005 + 1 / 1.0001)
    assert use.lingering[10] == pytest.approx(20 / 1.0095 + 1 / 1.001)
    assert brokers(batches) == [
        BrokerUse(0, 10, 100, 100, 200_000, 1500),
        BrokerUse(1, 11, 105, 100, 207_500, 1500),
    ]
    assert topics(batches, 1) == {"t": TopicUse(200, 20_000, 20_000)}
    assert set(topics(batches, 9)) == {"t", "u"}


def test_batches_that_were_sent_together_are_one_request(spark: SparkSession, tmp_path: Path) -> None:
    sent_us = START_US - START_US % 200 + 20
    rows: list[Row] = [
        batch_row(time_us=sent_us + upstream_us, upstream_us=upstream_us, partition=partition, leader=leader)
        for partition, leader, upstream_us in ((0, 0, 900), (1, 0, 940), (2, 1, 900))
    ]
    assert batch_use(rows_of(spark, tmp_path, BatchRow, rows), 1.0).requests == 2


def test_who_has_waited_longer_gains_nothing_by_waiting(spark: SparkSession, tmp_path: Path) -> None:
    """Ten batches a second that waited 5 ms: 5 ms leave as many, 10 ms 10 / 1.05 of them."""
    rows: list[Row] = [batch_row(time_us=START_US + tenth * SECOND // 10, linger_us=5000) for tenth in range(10)]
    lingering = batch_use(rows_of(spark, tmp_path, BatchRow, rows), 1.0).lingering
    assert lingering == pytest.approx({1: 10, 2: 10, 5: 10, 10: 10 / 1.05})


def test_of_no_batches_there_are_none(spark: SparkSession, tmp_path: Path) -> None:
    none = rows_of(spark, tmp_path, BatchRow, [batch_row()]).where("false")
    assert batch_use(none, 1.0) == BatchUse(lingering={1: 0, 2: 0, 5: 0, 10: 0})
