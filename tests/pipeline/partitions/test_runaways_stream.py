"""The detector as a stream: triggers, restarts, quiet topics; real Structured Streaming over journal files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession

from forebay_pipeline.journal.source import JournalPlace, of_kind, read_rows, stream_rows
from forebay_pipeline.partitions import runaways
from forebay_pipeline.partitions.runaway_detector import Portion, Thresholds, TopicWatch
from forebay_pipeline.partitions.runaway_windows import changes, topic_windows
from forebay_pipeline.partitions.runaways_stream import TopicState, Watching, stream_changes
from forebay_policies.journal_rows import BatchRow, Row
from tests.pipeline.partitions.windows import AWAY, EVEN, WIDTH, window
from tests.pipeline.rows import START_US, gauge_row, write_journal

WATCHING = Watching(window_s=10, late_s=20)


class Stream:
    """A journal, and what the job tells of it. Each `run` is a process of its own, as far as the query knows."""

    def __init__(self, spark: SparkSession, folder: Path, watching: Watching = WATCHING) -> None:
        # What other tests' commands leave behind is what a machine with more cores needs.
        spark.conf.set("spark.sql.shuffle.partitions", "2")
        self._spark = spark
        self._watching = watching
        self._journal, self.output = folder / "journal", folder / "output"
        self._files = 0
        self.query: Any = None

    def write(self, *rows: Row) -> None:
        self._files += 1
        write_journal(self._journal, rows, name=f"{self._files:03}")

    def run(self) -> list[dict[str, Any]]:
        """Everything told so far, after what is there was read."""
        rows = stream_rows(self._spark, JournalPlace(str(self._journal)), files_a_trigger=2)
        self.query = runaways.start(stream_changes(rows, self._watching), str(self.output), None, None)
        assert self.query.awaitTermination(240)
        lines = b"".join(path.read_bytes() for path in self.output.glob("part-*.json")).splitlines()
        return sorted(map(msgspec.json.decode, lines), key=lambda told: (told["window_us"], told["topic"]))

    def told(self) -> list[tuple[str, int, str, int]]:
        """(topic, partition, event, number of the window)."""
        return [
            (told["topic"], told["partition"], told["event"], (told["window_us"] - START_US) // WIDTH)
            for told in self.run()
        ]

    def states(self) -> int:
        (operator,) = self.query.lastProgress["stateOperators"]
        return int(operator["numRowsTotal"])

    def over_the_span(self, thresholds: Thresholds) -> list[dict[str, Any]]:
        batches = of_kind(read_rows(self._spark, JournalPlace(str(self._journal))), BatchRow)
        found = changes(topic_windows(batches, WIDTH), thresholds).orderBy("window_us", "topic").collect()
        return [row.asDict() for row in found]


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> Stream:
    return Stream(spark, tmp_path)


@pytest.mark.whole
def test_over_several_triggers_and_a_restart_each_change_is_told_once(stream: Stream) -> None:
    stream.write(*window(0, EVEN), *window(1, AWAY), gauge_row())
    stream.write(*window(2, AWAY))
    assert stream.told() == []  # two windows of the run are known, and only one is whole

    stream.write(*window(3, AWAY), *window(0, EVEN, "calm"))
    stream.write(*window(4, AWAY), *window(1, EVEN, "calm"))
    stream.write(*window(5, AWAY))
    began = ("t", 0, "runaway", 3)
    assert stream.told() == [began]
    assert stream.told() == [began]

    stream.write(*window(6, EVEN), *window(7, EVEN), *window(8, EVEN))
    stream.write(*window(9, EVEN), *window(10, EVEN))
    assert stream.told() == [began, ("t", 0, "recovered", 8)]
    stream.write(*window(12, EVEN))
    told = stream.run()
    assert [one["event"] for one in told] == ["runaway", "recovered"]
    assert told == stream.over_the_span(WATCHING.thresholds)
    assert told[0]["since_us"] == START_US + WIDTH
    assert (told[0]["times_fair"], told[0]["wait_us"], told[0]["others_wait_us"]) == (2.25, 40_000, 2_000)


def test_files_out_of_order_are_put_in_order(stream: Stream) -> None:
    rows = [row for number in range(6) for row in window(number, AWAY if number else EVEN)]
    stream.write(*rows[1::2])
    stream.write(*rows[::2])
    stream.write(*window(9, EVEN))
    assert stream.told() == [("t", 0, "runaway", 3)]


def test_rows_that_come_too_late_are_counted_and_change_nothing(stream: Stream) -> None:
    stream.write(*(row for number in range(6) for row in window(number, EVEN)))
    assert stream.told() == []
    stream.write(*window(1, AWAY), *window(2, AWAY), *window(3, AWAY))
    assert stream.told() == []
    assert runaways.too_late(stream.query) == 90


def test_time_goes_on_while_nothing_is_sent_and_a_quiet_topic_is_forgotten(spark: SparkSession, tmp_path: Path) -> None:
    stream = Stream(spark, tmp_path, Watching(10, 20, Thresholds(quiet_us=3 * WIDTH)))
    stream.write(*(row for number in range(4) for row in window(number, AWAY)))
    assert stream.told() == []
    stream.write(gauge_row(time_us=START_US + 5 * WIDTH))
    began = ("t", 0, "runaway", 2)
    assert stream.told() == [began]
    assert stream.states() == 1
    stream.write(gauge_row(time_us=START_US + 9 * WIDTH))
    assert stream.told() == [began, ("t", 0, "quiet", 3)]
    assert stream.states() == 0


def test_portions_of_a_window_add_up_over_triggers() -> None:
    state = TopicState(TopicWatch(), {})
    state.add(10, Portion(3, 1, 100, 5))
    state.add(20, Portion(3, 9, 900, 9))
    state.add(10, Portion(3, 2, 50, 7))
    state.add(10, Portion(4, 1, 1, 1))
    assert state.open == {
        10: {3: Portion(3, 3, 150, 12), 4: Portion(4, 1, 1, 1)},
        20: {3: Portion(3, 9, 900, 9)},
    }
    again = msgspec.json.decode(msgspec.json.encode(state), type=TopicState)
    assert again == state
    assert again.due_us(Thresholds()) == 10
    again.judge(20, Thresholds())
    assert again.due_us(Thresholds()) is None
