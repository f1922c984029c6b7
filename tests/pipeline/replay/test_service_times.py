"""Service times, fitted from rows that were made of known ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from statistics import fmean, quantiles

import pytest
from pyspark.sql import SparkSession

from forebay_pipeline.errors import CannotRun
from forebay_pipeline.journal.source import of_kind
from forebay_pipeline.replay.service_times import FEW, BrokerTimes, Empirical, fit
from forebay_policies.journal_rows import BatchRow, ObservedRow, Row
from tests.pipeline.journals import journal_of
from tests.pipeline.rows import START_US, batch_row, observed_row


def fitted(spark: SparkSession, folder: Path, rows: Sequence[Row]) -> dict[int, BrokerTimes]:
    journal = journal_of(spark, folder, rows)
    return fit(of_kind(journal, BatchRow), of_kind(journal, ObservedRow))


def drawn(times: BrokerTimes, size: int = 1000, *, waits: bool = False, busy: bool = False) -> list[float]:
    """In ms."""
    rng = Random(1)
    return [times.draw(size, rng, waits=waits, busy=busy) * 1000 for _ in range(5000)]


def answered_each(
    requests: int, gap_us: Callable[[], int], service_us: Callable[[], int], **of_row: object
) -> list[BatchRow]:
    """Requests of one batch each, on connections of their own."""
    rows = []
    sent = 0
    for number in range(requests):
        sent += gap_us()
        took = service_us()
        rows.append(batch_row(time_us=START_US + sent + took, upstream_us=took, partition=number % 50, **of_row))
    return rows


def test_those_that_found_others_under_way_are_told_apart(spark: SparkSession, tmp_path: Path) -> None:
    """As in the module, many times over: 39 ms for the one that was sent while another was under way, else 20 and 1."""
    rows = []
    for number in range(100):
        begins = START_US + number * 100_000
        for sent, answered in ((0, 20_000), (1_000, 40_000), (50_000, 51_000)):
            rows.append(batch_row(time_us=begins + answered, upstream_us=answered - sent))
    times = fitted(spark, tmp_path, rows)[0]

    assert set(map(round, drawn(times))) == {1, 20}
    assert fmean(drawn(times)) == pytest.approx((20 + 1) / 2, rel=0.05)
    assert min(drawn(times, busy=True)) == pytest.approx(39, rel=0.03)
    assert max(drawn(times, busy=True)) == pytest.approx(39, rel=0.03)


def test_one_that_is_under_way_for_long_keeps_the_broker_busy_for_all_that_are_sent_meanwhile(
    spark: SparkSession, tmp_path: Path
) -> None:
    """0 → 90, 10 → 12, 50 → 55: the third found the first, although the second was sent last and is over."""
    rows = [
        batch_row(time_us=START_US + number * 100_000 + answered * 1000, upstream_us=(answered - sent) * 1000)
        for number in range(50)
        for sent, answered in ((0, 90), (10, 12), (50, 55))
    ]
    times = fitted(spark, tmp_path, rows)[0]

    assert min(drawn(times)) == pytest.approx(90, rel=0.03)
    assert max(drawn(times)) == pytest.approx(90, rel=0.03)
    assert fmean(drawn(times, busy=True)) == pytest.approx((2 + 5) / 2, rel=0.05)


def test_acks_all_is_told_apart_and_makes_nothing_busy_for_acks_1(spark: SparkSession, tmp_path: Path) -> None:
    """acks=all from 0 to 60 ms, and acks=1 meanwhile, from 37 to 40: neither finds the other under way."""
    rows = [
        batch_row(time_us=START_US + number * 100_000 + 60_000 - late, upstream_us=took, acks=acks)
        for number in range(50)
        for late, took, acks in ((0, 60_000, -1), (20_000, 3_000, 1))
    ]
    times = fitted(spark, tmp_path, rows)[0]

    assert fmean(drawn(times)) == pytest.approx(3, rel=0.03)
    assert fmean(drawn(times, busy=True)) == pytest.approx(3, rel=0.03)
    assert fmean(drawn(times, waits=True)) == pytest.approx(60, rel=0.03)


def test_batches_of_both_acks_that_leave_together_are_two_requests(spark: SparkSession, tmp_path: Path) -> None:
    rows = [
        batch_row(time_us=START_US + number * 10_000, upstream_us=2_000, bytes=10_000, acks=acks)
        for number in range(50)
        for acks in (1, -1)
    ]
    rows += answered_each(50, lambda: 50_000, lambda: 9_000, bytes=20_000, process="there-1")
    times = fitted(spark, tmp_path, rows)[0]

    assert fmean(drawn(times, size=10_000)) == pytest.approx(2, rel=0.03)
    assert fmean(drawn(times, size=20_000)) == pytest.approx(9, rel=0.03)


@pytest.mark.parametrize("busy", [0.2, 0.9])
def test_times_at_random_are_found_again(spark: SparkSession, tmp_path: Path, busy: float) -> None:
    rng = Random(5)
    rows = answered_each(
        8000,
        lambda: round(rng.expovariate(busy / 2000)) + 250,  # further apart than batches of one request
        lambda: round(rng.lognormvariate(7.4, 0.5)),
    )
    times = fitted(spark, tmp_path, rows)[0]

    again = Random(6)
    true = sorted(again.lognormvariate(7.4, 0.5) / 1000 for _ in range(5000))
    found = sorted(drawn(times))
    among = sorted(drawn(times, busy=True))
    for each in (found, among):
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
    times = fitted(spark, tmp_path, rows)
    assert list(times) == [3]
    assert min(drawn(times[3])) == pytest.approx(5, rel=0.03)
    assert max(drawn(times[3], size=48_000)) == pytest.approx(5, rel=0.03)


def test_sizes_and_brokers_are_told_apart(spark: SparkSession, tmp_path: Path) -> None:
    rows = [
        *answered_each(100, lambda: 50_000, lambda: 1_000, bytes=1_000, leader=0),
        *answered_each(100, lambda: 50_000, lambda: 8_000, bytes=100_000, leader=0),
        *answered_each(100, lambda: 50_000, lambda: 3_000, bytes=1_000, leader=1),
        *answered_each(FEW - 1, lambda: 50_000, lambda: 30_000, bytes=100_000, leader=1),
    ]
    # Of two proxies, else they would find each other under way.
    processes = ["here-1"] * 100 + ["there-1"] * 100 + ["here-1"] * 100 + ["there-1"] * (FEW - 1)
    rows = [
        batch_row(**{**{name: getattr(row, name) for name in row.__struct_fields__}, "process": process})
        for row, process in zip(rows, processes, strict=True)
    ]
    times = fitted(spark, tmp_path, rows)

    assert fmean(drawn(times[0], size=1_000)) == pytest.approx(1, rel=0.03)
    assert fmean(drawn(times[0], size=100_000)) == pytest.approx(8, rel=0.03)
    assert fmean(drawn(times[0], size=1_000_000)) == pytest.approx(8, rel=0.03)
    assert fmean(drawn(times[1], size=100_000)) == pytest.approx(3, rel=0.03)


def test_clients_own_requests_tell_it_too(spark: SparkSession, tmp_path: Path) -> None:
    """Those that had something in front of them tell nothing of the time, but were under way."""
    rows = []
    for number in range(2 * FEW):
        came = START_US + number * 100_000
        rows += [
            observed_row(number=4 * number, received_us=came, time_us=came + 10_100, took_us=10_000),
            observed_row(number=4 * number + 1, received_us=came + 5_000, time_us=came + 25_000, took_us=-1),
            observed_row(number=4 * number + 2, received_us=came + 20_000, time_us=came + 50_100, took_us=30_000),
            observed_row(number=4 * number + 3, received_us=came + 60_000, time_us=came + 61_000, error_code=6),
        ]
    times = fitted(spark, tmp_path, rows)[0]

    assert set(map(round, drawn(times))) == {10}
    assert set(map(round, drawn(times, busy=True))) == {30}


def test_connections_that_were_lost_tell_nothing(spark: SparkSession, tmp_path: Path) -> None:
    rows = [
        *answered_each(50, lambda: 50_000, lambda: 2_000),
        batch_row(time_us=START_US + 60_000_000, upstream_us=30_000_000, fate="unknown"),
    ]
    assert max(drawn(fitted(spark, tmp_path, rows)[0])) < 2.1


def test_without_answers_nothing_is_known(spark: SparkSession, tmp_path: Path) -> None:
    rows = [batch_row(fate="unknown")]
    with pytest.raises(CannotRun, match="no answered batches"):
        fitted(spark, tmp_path, rows)


def test_a_spread_is_drawn_as_it_was_seen() -> None:
    times = Empirical({100: 1, 348: 99})
    rng = Random(1)
    found = [times.draw(rng) for _ in range(10_000)]

    assert sum(each < 0.0009 for each in found) == pytest.approx(100, abs=4 * 10)
    assert max(found) == pytest.approx(0.001, rel=0.02)
