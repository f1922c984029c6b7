"""The detector as a stream: triggers, restarts, quiet topics; real Structured Streaming over journal files."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from forebay_pipeline.jobs.driver_sink import DriverSink
from forebay_pipeline.jobs.json_lines import JsonLines
from forebay_pipeline.journal.source import JournalPlace, of_kind, read_rows, stream_rows
from forebay_pipeline.partitions.runaway_detector import Portion, Thresholds, TopicWatch
from forebay_pipeline.partitions.runaway_windows import changes, topic_windows
from forebay_pipeline.partitions.runaways import Changes
from forebay_pipeline.partitions.runaways_stream import COLUMNS, KINDS, TopicState, Watching, add_up, stream_changes
from forebay_pipeline.storage import Storage
from forebay_policies.journal_rows import BatchRow, Row
from tests.pipeline.partitions.windows import AWAY, EVEN, WIDTH, window
from tests.pipeline.rows import START_US, gauge_row, write_journal

WATCHING = Watching(window_s=10, late_s=10)


class Stream:
    """A journal, and what the job tells of it. Each `run` is a process of its own, as far as the query knows."""

    def __init__(self, spark: SparkSession, folder: Path, watching: Watching = WATCHING) -> None:
        # What other tests' commands leave behind is what a machine with more cores needs.
        spark.conf.set("spark.sql.shuffle.partitions", "2")
        self._spark = spark
        self._watching = watching
        self._journal, self._checkpoint = folder / "journal", folder / "checkpoint"
        self.output = folder / "output"
        self._files = 0
        self.batches = DriverSink(lambda number, rows: None)

    def write(self, *rows: Row) -> None:
        self._files += 1
        write_journal(self._journal, rows, name=f"{self._files:03}")

    def run(self) -> list[dict[str, Any]]:
        """Everything told so far, after what is there was read."""
        rows = stream_rows(self._spark, JournalPlace(str(self._journal)), 2, kinds=KINDS, columns=COLUMNS)
        lines = JsonLines(Storage(self._spark), str(self.output), "changes", str(self._checkpoint))
        self.batches = DriverSink(Changes(lines).told)
        self.batches.start(stream_changes(rows, self._watching), str(self._checkpoint), None)
        self.batches.await_end()
        told = b"".join(path.read_bytes() for path in self.output.glob("*.jsonl")).splitlines()
        return sorted(map(msgspec.json.decode, told), key=lambda told: (told["window_us"], told["topic"]))

    def told(self) -> list[tuple[str, int, str, int]]:
        """(topic, partition, event, number of the window)."""
        return [
            (told["topic"], told["partition"], told["event"], (told["window_us"] - START_US) // WIDTH)
            for told in self.run()
        ]

    @property
    def _progress(self) -> Any:
        """Of the last trigger."""
        assert self.batches._query is not None
        return self.batches._query.lastProgress

    def states(self) -> int:
        (operator,) = self._progress["stateOperators"]
        return int(operator["numRowsTotal"])

    def judging_tasks(self) -> set[int]:
        """In how many tasks each of the last triggers judged its topics."""
        tracker = self._spark.sparkContext.statusTracker()
        jobs = filter(None, map(tracker.getJobInfo, tracker.getJobIdsForGroup(self._progress["runId"])))
        stages = filter(None, (tracker.getStageInfo(max(job.stageIds)) for job in jobs))
        return {stage.numTasks for stage in stages}

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
    assert stream.judging_tasks() == {2}  # spark.sql.shuffle.partitions


@pytest.mark.whole
def test_rows_that_come_too_late_are_counted_and_change_nothing(stream: Stream) -> None:
    stream.write(*(row for number in range(6) for row in window(number, EVEN)))
    assert stream.told() == []
    stream.write(*window(1, AWAY), *window(2, AWAY), *window(3, AWAY))
    assert stream.told() == []
    assert stream.batches.late == 9


@pytest.mark.whole
def test_time_goes_on_while_nothing_is_sent_and_a_quiet_topic_is_forgotten(spark: SparkSession, tmp_path: Path) -> None:
    stream = Stream(spark, tmp_path, Watching(10, 10, Thresholds(quiet_us=3 * WIDTH)))
    stream.write(*(row for number in range(4) for row in window(number, AWAY)))
    assert stream.told() == []
    stream.write(gauge_row(time_us=START_US + 5 * WIDTH))
    began = ("t", 0, "runaway", 2)
    assert stream.told() == [began]
    assert stream.states() == 1
    stream.write(gauge_row(time_us=START_US + 9 * WIDTH))
    assert stream.told() == [began, ("t", 0, "quiet", 3)]
    assert stream.states() == 0


def test_a_window_is_judged_so_long_after_its_end(spark: SparkSession, tmp_path: Path) -> None:
    """Of three minutes, the last has rows that are read after some of the next one."""
    stream = Stream(spark, tmp_path, Watching(60, 30))
    stream.write(*(row for number in range(3) for row in window(6 * number, AWAY)))
    stream.write(gauge_row(time_us=START_US + 18 * WIDTH))
    assert stream.told() == []
    stream.write(*window(13, AWAY), gauge_row(time_us=START_US + 24 * WIDTH))
    assert stream.told() == [("t", 0, "runaway", 8)]
    assert stream.batches.late == 0


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


def test_batches_are_added_up_before_they_go_to_their_topics_task() -> None:
    names = ["topic", "window_us", "partition", "bytes", "wait_us"]
    rows = [
        ("t", 10, 0, 5, 1),
        ("u", 10, 0, 7, 1),
        ("t", 10, 0, 6, 2),
        ("t", 20, 0, 1, 1),
        (None, 10, None, None, None),
    ]
    batch = pa.RecordBatch.from_pylist([dict(zip(names, row, strict=True)) for row in rows])
    (added,) = add_up([batch])
    assert sorted(map(str, added.to_pylist())) == sorted(
        str(dict(zip(["topic", "window_us", *Portion._fields], row, strict=True)))
        for row in [
            ("t", 10, 0, 2, 11, 3),
            ("t", 20, 0, 1, 1, 1),
            ("u", 10, 0, 1, 7, 1),
            (None, 10, None, 0, None, None),
        ]
    )


AWAY_TOO = {0: (1000, 1500), 1: (1000, 1500), 2: (8000, 60_000)}
SLOW = {0: (1000, 39_500), 1: (1000, 1500), 2: (1000, 1500)}
Course = list[tuple[dict[int, tuple[int, int]], int]]
"""Traffic, and for how many windows."""

courses = st.lists(
    st.tuples(st.sampled_from([EVEN, AWAY, AWAY_TOO, SLOW, {}]), st.integers(1, 5)), min_size=3, max_size=6
)


@pytest.mark.timeout(1800)  # beside another Spark five minutes were not enough
@pytest.mark.whole  # a minute; the tests above have each thing by itself
@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(courses, min_size=1, max_size=3), st.randoms(use_true_random=False))
def test_the_stream_tells_what_the_span_tells(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, topics: list[Course], rng: Random
) -> None:
    """Of topics whose traffic changes again and again, in files that are read out of order."""
    stream = Stream(spark, tmp_path_factory.mktemp("runaways"))
    windows: dict[int, list[Row]] = defaultdict(list)
    for topic, course in enumerate(topics):
        traffic = [each for each, count in course for _ in range(count)]
        for number, each in enumerate(traffic):
            windows[number] += window(number, each, f"t{topic}")
    for number, rows in windows.items():
        rows.append(gauge_row(time_us=rows[0].time_us if rows else START_US + number * WIDTH))
    for number in range(0, len(windows), 2):
        pair = [windows[each] for each in (number, number + 1) if each in windows]
        for rows in rng.sample(pair, len(pair)):
            stream.write(*rows)
        if rng.random() < 0.3:
            stream.run()
    stream.write(gauge_row(time_us=START_US + (len(windows) + 3) * WIDTH))
    assert by_place(stream.run()) == by_place(stream.over_the_span(WATCHING.thresholds))
    assert stream.batches.late == 0


def by_place(told: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(told, key=lambda each: (each["window_us"], each["topic"], each["partition"]))
