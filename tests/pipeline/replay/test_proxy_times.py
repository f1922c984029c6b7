"""The proxy's own times, fitted from rows that were made of known ones."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from forebay_pipeline.journal.source import of_kind
from forebay_pipeline.replay.proxy_times import NO_WAY, TURN, fit_turn, fit_way
from forebay_pipeline.replay.service_times import FEW
from forebay_policies.journal_rows import BatchRow, LedgerRow
from tests.pipeline.journals import journal_of, rows_of
from tests.pipeline.rows import START_US, batch_row, ledger_row, sized_part


@pytest.mark.parametrize(("linger_ms", "linger_us"), [(-1, 180), (0, 180), (5, 5180)])
def test_a_turn_is_what_batches_wait_that_nothing_holds_up(
    spark: SparkSession, tmp_path: Path, linger_ms: int, linger_us: int
) -> None:
    """Every second batch was opened while the one before was away, and waited for it."""
    rows = []
    for number in range(60):
        begins = START_US + number * 100_000
        rows.append(batch_row(time_us=begins, linger_us=linger_us, upstream_us=1_000))
        rows.append(batch_row(time_us=begins + 10_000, linger_us=9_500, upstream_us=9_000))
    turn = fit_turn(rows_of(spark, tmp_path, BatchRow, rows), linger_ms)
    assert all(turn.draw(Random(seed)) == pytest.approx(180e-6, rel=0.03) for seed in range(9))


def test_batches_are_ordered_within_ten_minutes(spark: SparkSession, tmp_path: Path) -> None:
    """So that those of one partition are not all in one task. The first of each stretch, two here, tells nothing."""
    apart = [batch_row(time_us=START_US + number * 20_000_000, linger_us=180) for number in range(FEW + 2)]
    batches = rows_of(spark, tmp_path, BatchRow, apart)
    assert fit_turn(batches, 0) != TURN
    assert fit_turn(batches.where(F.col("time_us") < apart[-1].time_us), 0) == TURN


def test_where_nothing_is_known_a_turn_is_short(spark: SparkSession, tmp_path: Path) -> None:
    assert fit_turn(rows_of(spark, tmp_path, BatchRow, [batch_row()]), -1) == TURN


def test_the_way_of_a_request_is_what_its_batch_did_not_take(spark: SparkSession, tmp_path: Path) -> None:
    """As in the function: 1.8 ms, of which the batch took 0.2 and 1.4. The second run of each batch tells nothing."""
    rows: list[BatchRow | LedgerRow] = []
    for number in range(40):
        rows.append(batch_row(base_offset=number * 10, linger_us=200, upstream_us=1_400))
        for first, took_us in ((0, 1_800), (4, 1_700)):
            part = sized_part(4, 400, base_offset=number * 10 + first)
            rows.append(ledger_row([part], received_us=START_US, time_us=START_US + took_us))
    journal = journal_of(spark, tmp_path, rows)
    ledger, batches = of_kind(journal, LedgerRow), of_kind(journal, BatchRow)

    way = fit_way(ledger, batches)
    assert all(way.draw(Random(seed)) == pytest.approx(200e-6, rel=0.03) for seed in range(9))
    assert fit_way(ledger.where("number < 0"), batches) == NO_WAY
