"""The detector as a stream: triggers, restarts, quiet topics; real Structured Streaming over journal files."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result
from pyspark.sql import Row as SparkRow
from pyspark.sql import SparkSession

from forebay_pipeline.cli import main
from forebay_pipeline.journal.source import JournalPlace, of_kind, read_rows, stream_rows
from forebay_pipeline.partitions import runaways
from forebay_pipeline.partitions.runaway_detector import Portion, Thresholds, TopicWatch
from forebay_pipeline.partitions.runaway_windows import changes, topic_windows
from forebay_pipeline.partitions.runaways_stream import TopicState, Watching, stream_changes
from forebay_policies.journal_rows import BatchRow, Row
from tests.kit.server import Server
from tests.pipeline.rows import START_US, batch_row, gauge_row, write_journal

SECOND = 1_000_000
WIDTH = 10 * SECOND
WATCHING = Watching(window_s=10, late_s=20)

EVEN = {0: (1000, 1500), 1: (1000, 1500), 2: (1000, 1500)}
"""Partition → bytes and upstream time of each of ten batches."""
AWAY = {0: (6000, 39_500), 1: (1000, 1500), 2: (1000, 1500)}


def window(number: int, given: dict[int, tuple[int, int]], topic: str = "t") -> list[Row]:
    return [
        batch_row(
            time_us=START_US + number * WIDTH + batch * SECOND,
            topic=topic,
            partition=partition,
            bytes=size,
            upstream_us=upstream_us,
        )
        for partition, (size, upstream_us) in given.items()
        for batch in range(10)
    ]


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


def test_a_sentence_for_people() -> None:
    change = {
        "topic": "t",
        "partition": 0,
        "event": "runaway",
        "since_us": START_US,
        "window_us": START_US + 2 * WIDTH,
        "share": 0.741,
        "times_fair": 2.223,
        "wait_us": 40_100.0,
        "others_wait_us": 2_000.0,
    }
    assert runaways.sentence(SparkRow(**change)) == (
        "2026-11-18T11:07:00Z t partition 0 runs away since 2026-11-18T11:06:40Z: 74.1 % of the bytes, "
        "2.22 × its fair share; waits 40.1 ms, the others 2.0 ms"
    )
    assert "has recovered since" in runaways.sentence(SparkRow(**{**change, "event": "recovered"}))
    assert "its topic is quiet" in runaways.sentence(SparkRow(**{**change, "event": "quiet"}))


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


def run(*arguments: object) -> Result:
    """The session of the tests is shared, and its number of shuffles stays what it is."""
    options = ["--once", "--late", 20, "--conf", "spark.sql.shuffle.partitions=2"]
    return CliRunner().invoke(main, ["runaways", *map(str, [*options, *arguments])], prog_name="forebay-pipeline")


def test_the_command_tells_sentences(spark: SparkSession, tmp_path: Path) -> None:
    rows = [row for number in range(6) for row in window(number, AWAY)]
    write_journal(tmp_path / "journal", rows)
    result = run("--journal", tmp_path / "journal")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == (
        "2026-11-18T11:07:00Z t partition 0 runs away since 2026-11-18T11:06:40Z: 75.0 % of the bytes, "
        "2.25 × its fair share; waits 40.0 ms, the others 2.0 ms\n"
    )
    assert run("--journal", tmp_path / "journal", "--share", 2.3).stdout == ""


def test_it_goes_on_until_it_is_stopped(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    write_journal(journal, [row for number in range(6) for row in window(number, AWAY)], "a")
    command = [sys.executable, "-m", "forebay_pipeline.cli", "runaways", "--journal", str(journal)]
    command += ["--every", "1", "--late", "20", "--master", "local[1]", "--conf", "spark.ui.enabled=false"]
    server = Server("runaways", command, tmp_path / "log")
    try:
        server.wait_until(lambda: "partition 0 runs away" in server.tail(), 120)
        write_journal(journal, [row for number in range(6, 12) for row in window(number, EVEN)], "b")
        server.wait_until(lambda: "partition 0 has recovered" in server.tail(), 60)
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(60) == 0
    finally:
        server.kill()
    assert [word for word in ("Traceback", "Error", "FutureWarning") if word in server.tail()] == []


@pytest.mark.parametrize(
    ("folder", "sentence"),
    [
        ("other", "There is no journal in {place}: it has no closed files yet (dt=…/hour=…)."),
        ("kind=batch", "{place} is what `compact` made: runaways reads what the proxy writes (dt=…/hour=…)."),
    ],
)
def test_what_it_cannot_do_is_one_sentence(spark: SparkSession, tmp_path: Path, folder: str, sentence: str) -> None:
    (tmp_path / folder).mkdir()
    result = run("--journal", tmp_path)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"forebay-pipeline: {sentence.format(place=tmp_path)}\n"
