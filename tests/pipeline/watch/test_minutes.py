"""Minutes as a stream: triggers, restarts, late rows, silence; real Structured Streaming over journal files."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import DataFrame, SparkSession

from forebay_pipeline.journal.source import JournalPlace, stream_rows
from forebay_pipeline.watch.minutes import COLUMNS, KINDS, judged, stream_tallies
from forebay_pipeline.watch.tally import Offsets, Tally
from forebay_policies.journal_rows import Row
from tests.pipeline.rows import gauge_row, ledger_row, sized_part, write_journal
from tests.pipeline.watch.made_up import FIRST, MINUTE, SECOND, sent

LATE_S = 30


class Stream:
    """A journal, and the tallies that come of it. Each `run` is a process of its own, as far as the query knows."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._journal, self._checkpoint = folder / "journal", folder / "checkpoint"
        self._files = 0
        self.query: Any = None
        self.batches: dict[int, list[tuple[str, int, Tally]]] = {}

    def write(self, *rows: Row) -> None:
        self._files += 1
        write_journal(self._journal, rows, name=f"{self._files:03}")

    def run(self) -> None:
        """Reads what is there."""
        rows = stream_rows(self._spark, JournalPlace(str(self._journal)), 2, kinds=KINDS, columns=COLUMNS)
        writer = stream_tallies(rows, LATE_S).writeStream.foreachBatch(self._keep)
        self.query = writer.option("checkpointLocation", str(self._checkpoint)).trigger(availableNow=True).start()
        assert self.query.awaitTermination(240)

    def _keep(self, tallies: DataFrame, number: int) -> None:
        self.batches[number] = [
            (row.topic, (row.minute_us - FIRST) // MINUTE, msgspec.json.decode(row.tally, type=Tally))
            for row in tallies.collect()
        ]

    def told(self) -> Counter[tuple[str, int]]:
        """(topic, number of the minute) → acknowledged records, of all batches until now."""
        self.run()
        counted: Counter[tuple[str, int]] = Counter()
        for batch in self.batches.values():
            for topic, number, tally in batch:
                assert (topic, number) not in counted or not topic
                counted[topic, number] += tally.acknowledged
        return counted

    def states(self) -> int:
        (operator,) = self.query.lastProgress["stateOperators"]
        return int(operator["numRowsTotal"])


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> Stream:
    return Stream(spark, tmp_path)


def gauge(second: float, **given: object) -> Row:
    return gauge_row(time_us=FIRST + int(second * SECOND), **given)


@pytest.mark.whole  # test_command.py has a restart, the next test several triggers
def test_a_minute_is_judged_once_and_whole_over_triggers_and_restarts(stream: Stream) -> None:
    stream.write(sent(5), sent(70), sent(6, topic="u"))
    assert stream.told() == {}
    stream.write(sent(59.9), sent(85, topic="u"))
    assert stream.told() == {}
    stream.write(sent(95))
    assert stream.told() == {("t", 0): 20, ("u", 0): 10}
    assert stream.told() == {("t", 0): 20, ("u", 0): 10}
    (batch,) = [batch for batch in stream.batches.values() if batch]
    assert {topic for topic, _, _ in batch} == {"t", "u"}
    stream.write(sent(400))
    assert stream.told() == {("t", 0): 20, ("u", 0): 10, ("t", 1): 20, ("u", 1): 10}
    assert stream.states() == 1


@pytest.mark.whole  # test_time_goes_on… has a minute that is over
def test_rows_that_come_too_late_are_counted_and_change_nothing(stream: Stream) -> None:
    stream.write(sent(5), sent(95))
    assert stream.told() == {("t", 0): 10}
    stream.write(sent(50), sent(64), sent(66))
    assert stream.told() == {("t", 0): 10}
    (dropped,) = [
        operator["numRowsDroppedByWatermark"]
        for progress in stream.query.recentProgress
        for operator in progress["stateOperators"]
        if operator["numRowsDroppedByWatermark"]
    ]
    assert dropped == 2
    stream.write(gauge(200))
    assert stream.told()["t", 1] == 20


def test_time_goes_on_while_nothing_is_sent_and_state_is_forgotten(stream: Stream) -> None:
    stream.write(sent(5), gauge(5, cluster_id="c"))
    assert stream.told() == {}
    assert stream.states() == 2
    stream.write(gauge(100, cluster_id="c"))
    assert stream.told() == {("t", 0): 10, ("", 0): 0}
    assert stream.states() == 1
    clusters = [tally.cluster_id for batch in stream.batches.values() for topic, _, tally in batch if not topic]
    assert clusters == ["c"]


def test_what_a_row_says(stream: Stream) -> None:
    """Two parts of it went to two partitions; another was passed on; one was refused; one had two parts refused.

    Beside it rows of another process, and of the topic that had its name before.
    """
    at = {"time_us": FIRST + 5000, "received_us": FIRST, "process": "here-0", "topic_id": "i"}
    stream.write(
        ledger_row([sized_part(10, 1, 3, base_offset=100), sized_part(5, 1, 4, base_offset=7)], **at),
        ledger_row([], **at, records=4, error_code=None),
        ledger_row([], **at, records=2, base_offset=50, partition=3),
        ledger_row([sized_part(3, 1), sized_part(1, 1)], **at, error_code=7),
        sent(1, topic_id="i", process="there-0"),
        sent(2, topic_id="j"),
        gauge(100),
    )
    stream.run()
    (batch,) = [batch for batch in stream.batches.values() if batch]
    tally, *others = sorted((tally for _, _, tally in batch), key=lambda tally: -tally.acknowledged)
    assert [other.acknowledged for other in others] == [10, 10]
    assert (tally.acknowledged, tally.unacknowledged, tally.not_followed) == (17, 4, 4)
    assert tally.offsets == {3: Offsets(50, 110, 12), 4: Offsets(7, 12, 5)}
    (bucket,) = tally.latencies
    assert 1.02**bucket == pytest.approx(5000, rel=0.02)


def test_minutes_are_over_at_their_end() -> None:
    minutes = {FIRST + number * MINUTE: Tally(acknowledged=number) for number in (2, 0, 1)}
    end_ms = (FIRST + 2 * MINUTE) // 1000
    assert [tally.acknowledged for _, tally in judged(minutes, end_ms - 1)] == [0]
    assert [tally.acknowledged for _, tally in judged(minutes, end_ms)] == [1]
    assert [tally.acknowledged for tally in minutes.values()] == [2]
