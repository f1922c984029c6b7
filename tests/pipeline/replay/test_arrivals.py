"""Arrivals: exact ones of a ledger, approximate ones of batches, made-up ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from forebay_pipeline.journal.source import of_kind
from forebay_pipeline.replay.arrivals import SCHEMA, Load, of_batches, of_ledger, of_load, of_observed
from forebay_policies.journal_rows import BatchRow, LedgerRow, ObservedRow
from tests.pipeline.journals import journal_of
from tests.pipeline.rows import START_US, batch_row, ledger_row, observed_row, sized_part


def in_order(arrivals: DataFrame) -> list[tuple[object, ...]]:
    columns = ("process", "connection", "number", "topic", "partition", "place", "movable", "records", "bytes", "acks")
    rows = arrivals.select(F.col("at_us") - START_US, *columns)
    assert arrivals.schema.names == SCHEMA.names
    return sorted(tuple(row) for row in rows.collect())


def test_a_ledger_s_arrivals_are_its_parts(spark: SparkSession, tmp_path: Path) -> None:
    parts = [sized_part(2, 200, movable=False), sized_part(3, 300, partition=4)]
    mixed = ledger_row(parts, number=5, connection=9, partition=1, acks=-1)
    later = ledger_row([sized_part(1, 100)], number=6, connection=9, received_us=START_US + 50)
    untouched = ledger_row([], number=7, reason="idempotent")
    rows = journal_of(spark, tmp_path, [mixed, later, untouched, batch_row()])

    assert in_order(of_ledger(of_kind(rows, LedgerRow))) == [
        (0, "here-1", 9, 5, "t", 1, 0, False, 2, 200, -1),
        (0, "here-1", 9, 5, "t", 1, 1, True, 3, 300, -1),
        (50, "here-1", 9, 6, "t", 0, 0, True, 1, 100, 1),
    ]


def test_a_batch_s_arrivals_are_spread_over_its_linger(spark: SparkSession, tmp_path: Path) -> None:
    """Opened at 100 µs, sent at 140, answered at 1,140; the retry of it is not an arrival."""
    batch = batch_row(
        time_us=START_US + 1140, upstream_us=1000, linger_us=40, runs=4, records=10, bytes=1003, partition=2
    )
    again = batch_row(time_us=START_US + 9000, tries=1)
    arrivals = of_batches(of_kind(journal_of(spark, tmp_path, [batch, again]), BatchRow))

    found = in_order(arrivals)
    assert [(row[0], *row[4:]) for row in found] == [
        (100, "t", 2, 0, True, 3, 251, 1),
        (110, "t", 2, 1, True, 3, 251, 1),
        (120, "t", 2, 2, True, 2, 251, 1),
        (130, "t", 2, 3, True, 2, 250, 1),
    ]
    assert {row[1] for row in found} == {batch.process}
    assert len({row[3] for row in found}) == len({row[2] for row in found}) == 4


def test_what_was_observed_arrived_as_its_runs_would_have(spark: SparkSession, tmp_path: Path) -> None:
    mixed = observed_row(
        number=5, connection=9, partition=1, acks=-1, records=5, bytes=500, null_key_records=3, null_key_bytes=310
    )
    keyed = observed_row(number=6, connection=9, received_us=START_US + 50, null_key_records=0, null_key_bytes=0)
    unheard = observed_row(number=7, connection=9, received_us=START_US + 60, acks=0, error_code=None, took_us=-1)
    refused = observed_row(number=8, error_code=6)
    rows = journal_of(spark, tmp_path, [mixed, keyed, unheard, refused, batch_row()])

    assert in_order(of_observed(of_kind(rows, ObservedRow))) == [
        (0, mixed.process, 9, -5, "t", 1, 0, False, 2, 190, -1),
        (0, mixed.process, 9, -5, "t", 1, 1, True, 3, 310, -1),
        (50, mixed.process, 9, -6, "t", 0, 0, False, 1, 100, 1),
        (60, mixed.process, 9, -7, "t", 0, 1, True, 1, 100, 0),
    ]


def test_made_up_arrivals_are_those_of_their_seed(spark: SparkSession) -> None:
    load = Load(records_per_s=1000, records_a_run=4, record_bytes=100, connections=2, seconds=25)
    found = in_order(of_load(spark, load, seed=1))

    assert found == in_order(of_load(spark, load, seed=1).repartition(3))
    assert found != in_order(of_load(spark, load, seed=2))
    # 6,250 runs of a Poisson process: a standard deviation is 79.
    assert len(found) == pytest.approx(6250, abs=4 * 79)
    assert {row[2] for row in found} == {0, 1}
    assert {row[7:] for row in found} == {(True, 4, 400, 1)}
    times = [row[0] + START_US for row in found]  # type: ignore[operator]
    assert 0 < times[0] < times[-1] < 25_000_000
    assert len({row[3] for row in found}) == len(found)
