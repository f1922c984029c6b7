"""`compact` to tables, killed at any moment and run again: each row is there once, for Spark and for DuckDB."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from forebay_pipeline.journal.source import JournalPlace, read_rows
from forebay_pipeline.journal.tables import Format
from tests.kit.spark import EITHER_TABLE, JVM_FLAGS, table_jar_folder
from tests.pipeline import duck
from tests.pipeline import rows as make
from tests.pipeline.rows import json_lines, write_lines

FILES_OF_A_RUN = 25
"""As many, and more, a run makes in tables and checkpoint: before it has made as many of its own, it is killed."""


def compact(journal: Path, output: Path, table_format: Format) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "forebay_pipeline.cli", "compact", "--master", "local[2]"]
    command += ["--jars", str(table_jar_folder(table_format)), "--format", table_format]
    command += ["--conf", "spark.ui.enabled=false", "--conf", f"spark.driver.extraJavaOptions={JVM_FLAGS}"]
    command += ["--journal", str(journal), "--output", str(output)]
    return subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


def kill_after(process: subprocess.Popen[bytes], output: Path, files: int) -> bool:
    """Kill it, JVM and all, once so many files are there; false if it had done all before."""
    while sum(1 for path in output.rglob("*") if path.is_file()) < files:
        try:
            process.wait(0.1)
        except subprocess.TimeoutExpired:
            continue
        assert process.returncode == 0
        return False
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return True


@pytest.mark.whole  # test_compact.py ends between the two commits
@pytest.mark.timeout(3600)
@EITHER_TABLE
@pytest.mark.parametrize("kills", [1, 20])
def test_each_row_is_there_once(spark: SparkSession, tmp_path: Path, table_format: Format, kills: int) -> None:
    rng, journal, output = random.Random(kills), tmp_path / "journal", tmp_path / "lake"
    output.mkdir()
    killed = number = 0
    while killed < kills:
        number += 1
        at = 10 * number
        batches = [make.batch_row(topic=f"t{each}", time_us=make.START_US + at + each) for each in range(5)]
        gauges = [make.gauge_row(time_us=make.START_US + at + each) for each in range(3)]
        write_lines(
            journal, json_lines([*batches, *gauges]) + b'{"kind":"moonphase","time_us":%d}\n' % at, name=f"f{at}"
        )
        there = sum(1 for path in output.rglob("*") if path.is_file())
        killed += kill_after(compact(journal, output, table_format), output, there + rng.randrange(1, FILES_OF_A_RUN))
    last = compact(journal, output, table_format)
    assert last.wait(280) == 0
    expected = {"batch": 5 * number, "gauge": 3 * number, "other": number}
    assert duck.count_by_table(output, table_format, "time_us") == {
        name: (count, count) for name, count in expected.items()
    }
    rows = read_rows(spark, JournalPlace(str(output), format=table_format)).groupBy("kind")
    found = {row.kind: row[1] for row in rows.agg(F.countDistinct("time_us")).collect()}
    assert found == {"batch": 5 * number, "gauge": 3 * number, "moonphase": number}
    raw = read_rows(spark, JournalPlace(str(journal))).groupBy("kind").count().collect()
    assert found == {row.kind: row["count"] for row in raw}
