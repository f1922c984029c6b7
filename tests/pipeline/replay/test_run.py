"""A replay as a whole: a journal whose brokers' times are known is simulated."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from pyspark.sql import DataFrame, SparkSession

from forebay_pipeline.journal.source import JournalPlace, read_rows
from forebay_pipeline.replay.results import ReplayReport
from forebay_pipeline.replay.run import Plan, replay_journal
from forebay_pipeline.replay.settings import read_grid, variants
from tests.pipeline.replay.simulated import Journaled, settings, steady, world
from tests.pipeline.rows import START_US, batch_row, gauge_row, ledger_row, observed_row, sized_part, write_journal

PART = sized_part(1, 100, base_offset=0)
FOUND = variants({}, read_grid(["partitioner=adaptive,expected_wait linger.ms=-1"]))


def rows_of(spark: SparkSession, folder: Path) -> DataFrame:
    return read_rows(spark, JournalPlace(folder=str(folder)))


@pytest.fixture(scope="module")
def whole(spark: SparkSession, recorded: Path) -> ReplayReport:
    return replay_journal(rows_of(spark, recorded), Plan(FOUND))


def test_what_was_recorded_is_found_again(whole: ReplayReport) -> None:
    measured, present, other = whole.measured, *whole.results
    assert measured is not None
    assert whole.records == measured.records == present.records
    assert present.average_ms == pytest.approx(measured.average_ms, rel=0.1)
    assert present.p50_ms == pytest.approx(measured.p50_ms, rel=0.1)
    assert present.p99_ms == pytest.approx(measured.p99_ms, rel=0.1)
    assert other.p99_ms < present.p99_ms / 10
    assert whole.recommended == 1
    assert whole.source == "recorded"


@pytest.mark.whole  # test_arrivals.py has the guess
def test_without_a_ledger_arrivals_are_guessed_and_it_is_said(
    spark: SparkSession, recorded: Path, whole: ReplayReport
) -> None:
    guessed = replay_journal(rows_of(spark, recorded).where("kind != 'ledger'"), Plan(FOUND))

    assert guessed.measured is None
    assert any("there is no ledger" in line for line in guessed.assumed)
    assert not any("there is no ledger" in line for line in whole.assumed)
    assert guessed.records == whole.records
    assert guessed.results[0].p50_ms == pytest.approx(whole.results[0].p50_ms, rel=0.25)
    assert guessed.results[0].p99_ms == pytest.approx(whole.results[0].p99_ms, rel=0.25)
    assert guessed.recommended == whole.recommended


@pytest.mark.whole
def test_topics_share_their_brokers_unless_they_are_to_be_apart(spark: SparkSession, tmp_path: Path) -> None:
    """Two topics on one broker that takes 4 ms, each with 110 requests/s: they wait for each other's requests where it
    has one at a time, and not where it has several, each on a connection of its own."""
    rng = Random(2)
    ledger = []
    for number in range(4400):
        came = START_US + rng.randrange(20_000_000)
        ledger.append(
            ledger_row(
                [PART], topic="ab"[number % 2], number=number, connection=number, received_us=came, time_us=came + 5000
            )
        )
    batches = [
        batch_row(time_us=START_US + number * 50_000, upstream_us=4_000, topic=topic, runs=1, records=1)
        for number, topic in enumerate("ab" * 50)
    ]
    write_journal(tmp_path, [*ledger, *batches])
    journal = rows_of(spark, tmp_path)
    for in_flight, waits in ("1", True), ("5", False):
        one = variants({"max.in.flight.requests.per.connection": in_flight}, {})
        together = replay_journal(journal, Plan(one)).results[0]
        apart = replay_journal(journal, Plan(one, apart=True))
        assert (together.average_ms > 1.05 * apart.results[0].average_ms) is waits
        assert together.records == apart.results[0].records == 4400
    assert any("topics were simulated apart" in line for line in apart.assumed)


def test_what_was_merged_is_not_compared_with_a_simulation_of_what_was_observed_too(
    spark: SparkSession, tmp_path: Path
) -> None:
    """As in a rollout in which some topics move: here one record in ten was only observed."""
    made = Journaled(settings(), world([0], 10, turn_ms=0.15), Random(7))
    made.run(steady(50, 2))
    observed = [observed_row(received_us=START_US + number * 200_000) for number in range(10)]
    write_journal(tmp_path, [*made.rows, *observed])
    report = replay_journal(rows_of(spark, tmp_path), Plan(FOUND[:1]))

    assert report.measured is not None
    assert report.unmerged is not None
    assert report.records == report.measured.records + report.unmerged.records
    assert [each.ranking_only for each in report.results] == [True]


@pytest.mark.whole  # the first test has a prediction that holds
def test_the_gain_is_predicted_where_nothing_was_merged(spark: SparkSession, tmp_path: Path) -> None:
    """20 clients, each a record every 10 ms for 20 s, each in a request of its own, which its broker takes 4 ms for."""
    rows = []
    for number in range(40_000):
        came = START_US + number * 500
        where = {"partition": number % 3, "leader": number % 3, "connection": number % 20, "number": number}
        rows.append(observed_row(received_us=came, time_us=came + 4_100, took_us=4_000, **where))
    write_journal(tmp_path, rows)
    report = replay_journal(rows_of(spark, tmp_path), Plan(FOUND))

    assert report.records == 40_000
    assert report.measured is None
    assert report.unmerged is not None
    assert (report.unmerged.requests, report.unmerged.batch_records) == (40_000, 1.0)
    assert report.unmerged.average_ms == pytest.approx(4.1)
    assert not any("there is no ledger" in line for line in report.assumed)
    assert any("only observed" in line for line in report.assumed)
    assert report.results[0].requests < 40_000 / 2
    assert report.results[0].records == 40_000


@pytest.mark.whole
def test_brokers_that_answered_nothing_and_a_second_cluster_are_told(spark: SparkSession, tmp_path: Path) -> None:
    rows = []
    for number in range(300):
        at = START_US + number * 100_000
        fate, code = ("unknown", 7) if number % 3 == 2 else ("acknowledged", 0)
        place = {"partition": number % 3, "movable": False}
        rows.append(batch_row(time_us=at, leader=number % 3, fate=fate, error_code=code, base_offset=number, **place))
    write_journal(tmp_path, [*rows, gauge_row(cluster_id="A"), gauge_row(cluster_id="B", process="another")])
    report = replay_journal(rows_of(spark, tmp_path), Plan(FOUND[:1]))

    assert report.results[0].records == report.records
    assert any("The journal is of 2 clusters (A, B)" in line for line in report.assumed)
    assert any("brokers that answered nothing (2) are left out" in line for line in report.assumed)
