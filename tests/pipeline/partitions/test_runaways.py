"""The job `runaways` as a person runs it."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import pytest
from pyspark.sql import Row as SparkRow
from pyspark.sql import SparkSession

from forebay_pipeline.partitions import runaways
from tests.kit.server import Server
from tests.pipeline.command_line import run
from tests.pipeline.partitions.windows import AWAY, EVEN, WIDTH, window
from tests.pipeline.rows import START_US, write_journal


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
        "2026-11-18T11:07:00Z t partition 0 has been running away since 2026-11-18T11:06:40Z: 74.1 % of the bytes, "
        "2.22 × its fair share; waits 40.1 ms, the others 2.0 ms"
    )
    assert "recovered at 2026-11-18T11:06:40Z" in runaways.sentence(SparkRow(**{**change, "event": "recovered"}))
    assert "its topic went quiet" in runaways.sentence(SparkRow(**{**change, "event": "quiet"}))


def test_the_command_tells_sentences(spark: SparkSession, tmp_path: Path) -> None:
    rows = [row for number in range(6) for row in window(number, AWAY)]
    write_journal(tmp_path / "journal", rows)
    result = run("runaways", "--once", "--late", 10, "--journal", tmp_path / "journal")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == (
        "2026-11-18T11:07:00Z t partition 0 has been running away since 2026-11-18T11:06:40Z: 75.0 % of the bytes, "
        "2.25 × its fair share; waits 40.0 ms, the others 2.0 ms\n"
    )
    assert run("runaways", "--once", "--late", 10, "--journal", tmp_path / "journal", "--share", 2.3).stdout == ""


def test_only_batches_with_changes_make_a_file(spark: SparkSession, tmp_path: Path) -> None:
    words = ("runaways", "--once", "--late", 10, "--journal", tmp_path / "journal", "--output", tmp_path / "told")
    write_journal(tmp_path / "journal", [row for number in range(3) for row in window(number, EVEN)], "a")
    assert run(*words).exit_code == 0
    write_journal(tmp_path / "journal", [row for number in range(3, 9) for row in window(number, AWAY)], "b")
    assert run(*words).stdout == ""
    (file,) = tmp_path.glob("told/[!_]*")
    (line,) = file.read_text().splitlines()
    assert (file.suffix, json.loads(line)["event"], json.loads(line)["since_us"]) == (
        ".jsonl",
        "runaway",
        START_US + 3 * WIDTH,
    )


def test_what_another_checkpoint_wrote_is_not_replaced(spark: SparkSession, tmp_path: Path) -> None:
    write_journal(tmp_path / "journal", window(0, EVEN))
    (tmp_path / "told").mkdir()
    (tmp_path / "told" / "changes-000000000.jsonl").write_text("{}\n")
    refused = run("runaways", "--once", "--journal", tmp_path / "journal", "--output", tmp_path / "told")
    assert (refused.exit_code, refused.stderr) == (
        2,
        f"forebay-pipeline: {tmp_path}/told has lines that were not written with the checkpoint "
        f"{tmp_path}/told/_checkpoint: that one would replace them. Give the checkpoint that they were written with, "
        "or another output.\n",
    )
    assert (tmp_path / "told" / "changes-000000000.jsonl").read_text() == "{}\n"


@pytest.mark.whole  # test_runaways_stream.py has the stream, test_the_command_tells_sentences the words
def test_it_goes_on_until_it_is_stopped(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    write_journal(journal, [row for number in range(6) for row in window(number, AWAY)], "a")
    command = [sys.executable, "-m", "forebay_pipeline.cli", "runaways", "--journal", str(journal)]
    command += ["--every", "1", "--late", "10", "--master", "local[1]", "--conf", "spark.ui.enabled=false"]
    server = Server("runaways", command, tmp_path / "log")
    try:
        server.wait_until(lambda: "partition 0 has been running away" in server.tail(), 120)
        write_journal(journal, [row for number in range(6, 12) for row in window(number, EVEN)], "b")
        server.wait_until(lambda: "partition 0 recovered" in server.tail(), 60)
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(60) == 0
    finally:
        server.kill()
    assert [word for word in ("Traceback", "Error", "FutureWarning") if word in server.tail()] == []


@pytest.mark.parametrize(
    ("folder", "sentence"),
    [
        ("other", "There is no journal in {place}: it has no closed files yet (dt=…/hour=…)."),
        ("kind=batch", "{place} was written by `compact`; runaways reads what the proxy writes (dt=…/hour=…)."),
    ],
)
def test_what_it_cannot_do_is_one_sentence(spark: SparkSession, tmp_path: Path, folder: str, sentence: str) -> None:
    (tmp_path / folder).mkdir()
    result = run("runaways", "--once", "--late", 10, "--journal", tmp_path)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"forebay-pipeline: {sentence.format(place=tmp_path)}\n"
