"""Batches of a real stream on the driver: their numbers, what ends them, and what came too late."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from forebay_pipeline.errors import CannotRun
from forebay_pipeline.jobs.driver_sink import DriverSink


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

    def run(self) -> DriverSink:
        lines = self._spark.readStream.option("maxFilesPerTrigger", 1).text(str(self._files))
        at = lines.select(F.timestamp_seconds(F.col("value").cast("long")).alias("at")).withWatermark("at", "0 seconds")
        batches = DriverSink(self._take)
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
