"""Batches of a real stream on the driver: their numbers, what ends them, and what came too late."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from forebay_pipeline.errors import CannotRun
from forebay_pipeline.jobs.batches import Batches


class Stream:
    """Files of seconds, one a line, of which each is counted once a second later has come."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._files, self._checkpoint = folder / "files", folder / "checkpoint"
        self._files.mkdir()
        self.taken: list[tuple[int, list[int]]] = []
        self.full = False

    def write(self, *seconds: int) -> None:
        number = len(list(self._files.iterdir()))
        file = self._files / f"{number}.txt"
        file.write_text("\n".join(map(str, seconds)))
        os.utime(file, (number, number))  # the order in which they are read

    def run(self) -> Batches:
        lines = self._spark.readStream.option("maxFilesPerTrigger", 1).text(str(self._files))
        at = lines.select(F.timestamp_seconds(F.col("value").cast("long")).alias("at")).withWatermark("at", "0 seconds")
        batches = Batches(self._take)
        batches.start(at.groupBy("at").count(), str(self._checkpoint), None)
        batches.await_end()
        return batches

    def _take(self, number: int, rows: list[Row]) -> None:
        if rows and self.full:
            raise CannotRun("The disk is full.")
        if rows:
            self.taken.append((number, sorted(int(row["at"].timestamp()) for row in rows)))


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> Stream:
    return Stream(spark, tmp_path)


def test_a_batch_that_failed_is_done_again_with_its_number(stream: Stream) -> None:
    stream.write(1, 2, 5)
    stream.full = True
    with pytest.raises(CannotRun, match=r"^The disk is full\.$"):
        stream.run()
    stream.full = False
    assert stream.run().late == 0
    assert stream.taken == [(1, [1, 2, 5])]


def test_late_rows_are_counted_once(stream: Stream) -> None:
    """Spark lets rows pass that are late by what the batch before brought."""
    for seconds in ((1, 9), (10,), (2, 3), (11,), (4, 12)):
        stream.write(*seconds)
    assert stream.run().late == 3


class Query:
    """Remembers only its last triggers."""

    def __init__(self) -> None:
        self.recentProgress: list[dict[str, Any]] = []


def test_triggers_that_a_query_has_forgotten_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    def progress(second: int, dropped: int) -> dict[str, Any]:
        operators = [{"numRowsDroppedByWatermark": dropped}, {"numRowsDroppedByWatermark": 0}]
        return {"timestamp": f"2026-11-18T11:08:{second:02}.000Z", "stateOperators": operators}

    batches, query = Batches(lambda number, rows: None), Query()
    monkeypatch.setattr(batches, "_query", query)
    query.recentProgress = [progress(1, 3), progress(2, 0)]
    for _ in range(2):
        batches._count_late()
    assert batches.late == 3
    query.recentProgress = [progress(2, 0), progress(3, 4)]
    batches._count_late()
    assert batches.late == 7
