"""Leaders of partitions, and groups of topics."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from forebay_pipeline.journal.source import of_kind
from forebay_pipeline.replay.arrivals import of_ledger
from forebay_pipeline.replay.topics import groups_of, leaders_of
from forebay_policies.journal_rows import BatchRow, ChoiceRow, LedgerRow
from tests.pipeline.journals import journal_of
from tests.pipeline.rows import START_US, batch_row, choice_row, ledger_row, sized_part


def test_leaders_are_the_last_ones_and_the_unknown_are_dealt_out(spark: SparkSession, tmp_path: Path) -> None:
    rows = journal_of(
        spark,
        tmp_path,
        [
            batch_row(partition=0, leader=1),
            batch_row(partition=0, leader=5, time_us=START_US + 10),
            batch_row(partition=2, leader=7),
            choice_row(partitions=5),
            ledger_row([sized_part(1, 100, movable=False)], partition=1),
            ledger_row([sized_part(1, 100, movable=False)], topic="quiet", partition=3),
        ],
    )
    arrivals = of_ledger(of_kind(rows, LedgerRow))
    leaders = leaders_of(of_kind(rows, BatchRow), of_kind(rows, ChoiceRow), arrivals, [9, 5, 7])

    assert leaders == {"t": [5, 7, 7, 7, 5], "quiet": [5, 7, 9, 5]}


def test_topics_that_share_a_broker_are_one_group() -> None:
    leaders = {"b": [1, 2], "a": [3], "c": [2, 4], "d": [4], "e": [5]}

    assert groups_of(leaders) == {"a": "a", "b": "b", "c": "b", "d": "b", "e": "e"}
    assert groups_of({**leaders, "f": [3, 1]}) == {"a": "a", "b": "a", "c": "a", "d": "a", "f": "a", "e": "e"}
    assert groups_of(leaders, apart=True) == {topic: topic for topic in leaders}
