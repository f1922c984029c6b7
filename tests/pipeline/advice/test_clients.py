"""What clients sent, from a ledger and from what was only observed."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import Row as SparkRow

from forebay_pipeline.advice import clients as of_clients
from forebay_pipeline.advice.clients import KEPT, client_batches, client_tables
from forebay_pipeline.advice.facts import Clients, ClientUse, Picked, TopicReason
from forebay_pipeline.journal.source import JournalPlace
from forebay_pipeline.journal.span import ALL_TIME
from forebay_pipeline.partitions.measures import kept_rows
from forebay_pipeline.partitions.summary import Percentiles
from forebay_policies.journal_rows import LedgerRow, ObservedRow, Row
from tests.pipeline.rows import START_US, batch_row, ledger_row, observed_row, sized_part, write_journal

MINUTE = 60_000_000


def found(spark: SparkSession, folder: Path, rows: list[Row]) -> Clients:
    write_journal(folder, rows)
    with kept_rows(spark, JournalPlace(str(folder)), ALL_TIME, KEPT, of_these=("topic", "partition")) as kept:
        sent = client_batches(kept.others[LedgerRow], kept.others[ObservedRow])
        return of_clients.clients(client_tables(sent), kept.batches)


def test_each_client_and_how_it_is_treated(spark: SparkSession, tmp_path: Path) -> None:
    rows: list[Row] = [
        ledger_row([sized_part(3, 300), sized_part(1, 50, movable=False)], client_id="shop", number=1, reason="mixed"),
        ledger_row([sized_part(2, 200)], client_id="shop", number=1, partition=1, version=2, error_code=7),
        ledger_row([], client_id="shop", number=2, reason="idempotent", records=9, error_code=None, time_us=START_US),
        ledger_row([], client_id="shop", number=3, reason="observed", records=9, error_code=None),
        ledger_row([sized_part(1, 10)], client_id="shop", principal="User:alice", host="10.0.0.2"),
        observed_row(client_id="new", topic="u", opens=0),
        observed_row(client_id="new", topic="u", opens=-1, number=2, host="10.0.0.2", error_code=None),
    ]
    known = found(spark, tmp_path, rows)
    took = Percentiles(2000, 2000, 2000)
    assert known.clients == [
        ClientUse("shop", "", 1, 2, 3, 15, 1, took, [2, 3], {"mixed": 1, "null_key": 1, "idempotent": 1}),
        ClientUse("new", "", 2, 2, 2, 2, 0, Percentiles(1500, 1500, 1500), [7], {"observed": 2}),
        ClientUse("shop", "User:alice", 1, 1, 1, 1, 0, took, [3], {"null_key": 1}),
    ]
    assert known.left_out == 0
    assert known.reasons == [
        TopicReason("t", "null_key", 2, 0),
        TopicReason("u", "observed", 2, 1),
        TopicReason("t", "idempotent", 1, 0),
        TopicReason("t", "mixed", 1, 0),
    ]


def test_who_keeps_to_few_partitions_picks_them(spark: SparkSession, tmp_path: Path) -> None:
    """Two instances with a partition each: 12 · (1/12)^8 is less than a millionth, after six turns it is not. Of two
    that use two and one the latter is told."""

    def sent(client_id: str, host: str, partition: int, minute: int, version: int = 3) -> LedgerRow:
        return ledger_row(
            [sized_part(9, 40_000)],
            client_id=client_id,
            host=host,
            partition=partition,
            time_us=START_US + minute * MINUTE,
            version=version,
        )

    rows: list[Row] = [
        sent("shards", f"10.0.0.{instance}", instance, minute) for instance in (1, 2) for minute in range(8)
    ]
    rows += [sent("spread", "10.0.0.3", minute, minute) for minute in range(8)]
    rows += [
        sent("uneven", f"10.0.1.{instance}", minute % instance, minute) for instance in (2, 1) for minute in range(12)
    ]
    rows += [sent("early", "10.0.0.4", 1, minute) for minute in range(6)]
    rows += [sent("old", "10.0.0.5", 1, minute, version=2) for minute in range(8)]
    rows += [batch_row(partition=partition) for partition in range(12)]
    rows += [
        observed_row(
            client_id="agent",
            received_us=START_US + minute * MINUTE,
            topic="u",
            partitions=3,
            partition=2,
            null_key_bytes=40_000,
        )
        for minute in range(14)
    ]
    picked = {one.client_id: one.picked for one in found(spark, tmp_path, rows).clients}
    assert picked == {
        "shards": [Picked("t", 1, 12)],
        "uneven": [Picked("t", 1, 12)],
        "agent": [Picked("u", 1, 3)],
        "spread": (),
        "early": (),
        "old": (),
    }


def test_of_clients_that_are_not_told_nothing_is_collected(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some use a new id whenever they start; each of these picks a partition, too, from two addresses."""
    monkeypatch.setattr(of_clients, "MOST_CLIENTS", 2)
    rows: list[Row] = [batch_row(partition=partition) for partition in range(12)]
    for client in range(6):
        for minute in range(14 + client):
            told = {"client_id": f"c-{client}", "time_us": START_US + minute * MINUTE}
            rows += [ledger_row([sized_part(9, 40_000)], host=host, **told) for host in ("10.0.0.1", "10.0.0.2")]
    collect, collected = type(spark.range(0)).collect, list[int]()

    def counted(frame: DataFrame) -> list[SparkRow]:
        found = collect(frame)
        collected.append(len(found))
        return found

    monkeypatch.setattr(type(spark.range(0)), "collect", counted)
    known = found(spark, tmp_path, rows)
    assert [(one.client_id, one.reasons, one.picked) for one in known.clients] == [
        ("c-5", {"null_key": 38}, [Picked("t", 1, 12)]),
        ("c-4", {"null_key": 36}, [Picked("t", 1, 12)]),
    ]
    assert (known.left_out, max(collected)) == (4, 2)


def test_of_topics_that_are_not_told_there_are_sums(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of_clients, "MOST_TOPICS", 2)
    rows: list[Row] = [
        ledger_row([sized_part(9, 40_000)], topic=topic, number=number)
        for number, topic in enumerate(("a", "a", "a", "b", "b", "c"))
    ]
    rows += [observed_row(topic=topic, opens=1, number=number) for number, topic in enumerate("de", 6)]
    known = found(spark, tmp_path, rows)
    assert known.reasons == [
        TopicReason("a", "null_key", 3, 0),
        TopicReason("b", "null_key", 2, 0),
        TopicReason("", "null_key", 1, 0),
        TopicReason("", "observed", 2, 2),
    ]
    assert (known.batches("null_key"), known.batches("observed")) == (6, 2)


def test_a_journal_without_either_tells_of_no_clients(spark: SparkSession, tmp_path: Path) -> None:
    assert found(spark, tmp_path, [batch_row()]) == Clients()
