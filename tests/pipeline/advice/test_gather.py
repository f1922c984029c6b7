"""Facts from a journal's rows."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from forebay_pipeline.advice.facts import TopicRacks
from forebay_pipeline.advice.gather import COLUMNS, KEPT, gather
from forebay_pipeline.advice.present import Present
from forebay_pipeline.journal.source import JournalPlace
from forebay_pipeline.journal.span import ALL_TIME
from forebay_pipeline.partitions.measures import Questions, kept_rows, summarize
from forebay_policies.journal_rows import Row
from tests.pipeline.rows import START_US, batch_row, gauge_row, ledger_row, rack_row, sized_part, write_journal


def test_everything_is_there(spark: SparkSession, tmp_path: Path) -> None:
    rows: list[Row] = [
        batch_row(),
        batch_row(time_us=START_US + 10_000_000, leader=1),
        gauge_row(),
        ledger_row([sized_part(1, 10)]),
        ledger_row([sized_part(1, 10)], time_us=START_US - 59 * 60_000_000),
        rack_row(same_bytes=10, other_bytes=5),
        rack_row(same_bytes=1, other_bytes=2, unknown_bytes=3, process="another"),
        rack_row(topic="u", other_bytes=9),
    ]
    write_journal(tmp_path, rows)
    place = JournalPlace(str(tmp_path))
    present = Present({})
    with kept_rows(spark, place, ALL_TIME, KEPT, of_these=COLUMNS) as kept:
        summary = summarize(kept, place, ALL_TIME, Questions())
        found = gather(kept, summary, present, price_per_gb=0.02)
    assert found.summary is summary
    assert (found.present, found.price_per_gb, found.seconds) == (present, 0.02, 10)
    assert (found.batches.batches, [one.leader for one in found.brokers], list(found.topics)) == (2, [0, 1], ["t"])
    assert found.topic_racks == [TopicRacks("u", 0, 9, 0), TopicRacks("t", 11, 7, 3)]
    assert [one.client_id for one in found.clients.clients] == ["producer-1"]
    assert (found.clients.first_us, found.clients.last_us) == (START_US - 59 * 60_000_000, START_US + 2000)
