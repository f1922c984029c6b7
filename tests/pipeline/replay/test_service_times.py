"""Service times, fitted from rows that were made of known ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from statistics import fmean, quantiles

import pytest
from pyspark.sql import SparkSession

from forebay_pipeline.errors import CannotRun
from forebay_pipeline.replay.service_times import FEW, BrokerTimes, Empirical, fit
from forebay_policies.journal_rows import BatchRow
from tests.pipeline.journals import rows_of
from tests.pipeline.rows import START_US, batch_row


def drawn(times: BrokerTimes, size: int = 1000, *, queued: bool = False) -> list[float]:
    """In ms."""
    rng = Random(1)
    return [times.draw(size, rng, queued=queued) * 1000 for _ in range(5000)]


def answered_in_turn(
    requests: int, gap_us: Callable[[], int], service_us: Callable[[], int], **of_row: object
) -> list[BatchRow]:
    """One connection's requests of one batch each, served one after the other."""
    rows = []
    sent = free = 0
    for number in range(requests):
        sent += gap_us()
        free = max(sent, free) + service_us()
        row = batch_row(time_us=START_US + free, upstream_us=free - sent, partition=number % 50, **of_row)
        rows.append(row)
    return rows


def test_what_a_request_waited_behind_others_is_not_its_own_time(spark: SparkSession, tmp_path: Path) -> None:
    """As in the module: upstream 20, 39 and 1 ms are 20, 20 and 1, many times over; half of them did not wait."""
    rows = []
    for number in range(100):
        begins = START_US + number * 100_000
        for sent, answered in ((0, 20_000), (1_000, 40_000), (50_000, 51_000)):
            rows.append(batch_row(time_us=begins + answered, upstream_us=answered - sent))
    times = fit(rows_of(spark, tmp_path, BatchRow, rows))[0]

    assert set(map(round, drawn(times))) == {1, 20}
    assert fmean(drawn(times)) == pytest.approx((20 + 1) / 2, rel=0.05)
    assert min(drawn(times, queued=True)) == pytest.approx(20, rel=0.03)
    assert max(drawn(times, queued=True)) == pytest.approx(20, rel=0.03)


@pytest.mark.parametrize("busy", [0.2, 0.9])
def test_times_at_random_are_found_again(spark: SparkSession, tmp_path: Path, busy: float) -> None:
    rng = Random(5)
    rows = answered_in_turn(
        8000,
        lambda: round(rng.expovariate(busy / 2000)) + 250,  # further apart than batches of one request
        lambda: round(rng.lognormvariate(7.4, 0.5)),
    )
    times = fit(rows_of(spark, tmp_path, BatchRow, rows))[0]

    again = Random(6)
    true = sorted(again.lognormvariate(7.4, 0.5) / 1000 for _ in range(5000))
    found = sorted(drawn(times))
    waited = sorted(drawn(times, queued=True))
    for each in (found, waited):
        assert fmean(each) == pytest.approx(fmean(true), rel=0.1)
        assert quantiles(each, n=100)[49] == pytest.approx(quantiles(true, n=100)[49], rel=0.1)
        assert quantiles(each, n=100)[98] == pytest.approx(quantiles(true, n=100)[98], rel=0.15)


def test_batches_of_one_request_are_one(spark: SparkSession, tmp_path: Path) -> None:
    """Three partitions' batches, told within 30 µs: one request of 48 KB that took 5 ms, not two that took 10 µs."""
    rows = [
        batch_row(
            time_us=START_US + number * 10_000 + later,
            upstream_us=5_000 + later,
            partition=partition,
            bytes=16_000,
            leader=3,
        )
        for number in range(50)
        for partition, later in enumerate((0, 10, 30))
    ]
    times = fit(rows_of(spark, tmp_path, BatchRow, rows))
    assert list(times) == [3]
    assert min(drawn(times[3])) == pytest.approx(5, rel=0.03)
    assert max(drawn(times[3], size=48_000)) == pytest.approx(5, rel=0.03)


def test_sizes_and_brokers_are_told_apart(spark: SparkSession, tmp_path: Path) -> None:
    rows = [
        *answered_in_turn(100, lambda: 50_000, lambda: 1_000, bytes=1_000, leader=0),
        *answered_in_turn(100, lambda: 50_000, lambda: 8_000, bytes=100_000, leader=0),
        *answered_in_turn(100, lambda: 50_000, lambda: 3_000, bytes=1_000, leader=1),
        *answered_in_turn(FEW - 1, lambda: 50_000, lambda: 30_000, bytes=100_000, leader=1),
    ]
    # Of two proxies, else they would stand in each other's way.
    processes = ["here-1"] * 100 + ["there-1"] * 100 + ["here-1"] * 100 + ["there-1"] * (FEW - 1)
    rows = [
        batch_row(**{**{name: getattr(row, name) for name in row.__struct_fields__}, "process": process})
        for row, process in zip(rows, processes, strict=True)
    ]
    times = fit(rows_of(spark, tmp_path, BatchRow, rows))

    assert fmean(drawn(times[0], size=1_000)) == pytest.approx(1, rel=0.03)
    assert fmean(drawn(times[0], size=100_000)) == pytest.approx(8, rel=0.03)
    assert fmean(drawn(times[0], size=1_000_000)) == pytest.approx(8, rel=0.03)
    assert fmean(drawn(times[1], size=100_000)) == pytest.approx(3, rel=0.03)


def test_connections_that_were_lost_tell_nothing(spark: SparkSession, tmp_path: Path) -> None:
    rows = [
        *answered_in_turn(50, lambda: 50_000, lambda: 2_000),
        batch_row(time_us=START_US + 60_000_000, upstream_us=30_000_000, fate="unknown"),
    ]
    assert max(drawn(fit(rows_of(spark, tmp_path, BatchRow, rows))[0])) < 2.1


def test_without_answers_nothing_is_known(spark: SparkSession, tmp_path: Path) -> None:
    rows = [batch_row(fate="unknown")]
    with pytest.raises(CannotRun, match="no answered batches"):
        fit(rows_of(spark, tmp_path, BatchRow, rows))


def test_a_spread_is_drawn_as_it_was_seen() -> None:
    times = Empirical({100: 1, 348: 99})
    rng = Random(1)
    found = [times.draw(rng) for _ in range(10_000)]

    assert sum(each < 0.0009 for each in found) == pytest.approx(100, abs=4 * 10)
    assert max(found) == pytest.approx(0.001, rel=0.02)
