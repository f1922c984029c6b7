"""The job `partitions` as a person runs it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from click.testing import Result
from pyspark.sql import SparkSession

from forebay_pipeline.partitions.summary import Summary
from forebay_policies.journal_rows import Row
from tests.pipeline.command_line import run
from tests.pipeline.rows import START_US, batch_row, gauge_row, write_journal, write_lines

SECOND = 1_000_000

ROWS: list[Row] = [
    *(batch_row(time_us=START_US + number * SECOND, bytes=25_953_200, records=25_228) for number in range(3)),
    batch_row(partition=1, bytes=7_836_878, records=4622, fate="retried", error_code=6),
    batch_row(topic="[bold]u[/bold]", partition=11, bytes=10, records=1, linger_us=21_000),
    gauge_row(metadata_hits_total=30, metadata_misses_total=10, rows_dropped_total=4, pool_waiters=1),
]


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    folder = tmp_path / "journal"
    write_journal(folder, ROWS)
    write_lines(folder, b"torn", name="torn")
    return folder


def sentence(result: Result) -> str:
    """What it says where it cannot run, and nothing else."""
    assert result.exit_code == 2
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    return line.removeprefix("forebay-pipeline: ")


def cells(result: Result, title: str) -> list[list[str]]:
    """The lines of a table, but for its head."""
    lines = result.stdout.split(f"{title}\n")[1].split("\n\n")[0].splitlines()
    return [line.split() for line in lines[2:]]


def test_a_file_that_is_cut_off_is_named(spark: SparkSession, tmp_path: Path) -> None:
    """One of what `compact` wrote."""
    file = tmp_path / "kind=batch" / "dt=2026-11-18" / "topic=t" / "cut.parquet"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"PAR1 and so on")
    said = sentence(run("partitions", "--journal", tmp_path))
    assert said.startswith("Spark failed: ")
    assert str(file) in said


def test_tables_and_sentences(spark: SparkSession, journal: Path) -> None:
    result = run("partitions", "--journal", journal)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith(
        f"{journal}, 2026-11-18T11:06:40Z to 2026-11-18T11:06:42Z\n5 batches, 80,307 records"
    )
    assert cells(result, "Batches") == [
        ["[bold]u[/bold]", "11", "1", "10", "1", "10.00", "1.00", "100.0", "0"],
        ["t", "0", "3", "77,859,600", "75,684", "25,953,200.00", "25,228.00", "90.9", "0"],
        ["t", "1", "1", "7,836,878", "4,622", "7,836,878.00", "4,622.00", "9.1", "1"],
    ]
    assert cells(result, "Times in ms")[0] == ["[bold]u[/bold]", "11", "21.0", "21.0", "21.0", "1.5", "1.5", "1.5"]
    assert cells(result, "Skew across partitions")[0] == ["t", "2", "85,696,478", "0", "90.9", "1.82", "0.41"]
    assert cells(result, "What became of batches") == [
        ["acknowledged", "NONE", "4", "75,685"],
        ["retried", "NOT_LEADER_OR_FOLLOWER", "1", "4,622"],
    ]
    assert cells(result, "Workers")[0][:4] == ["0", "1", "1", "100.0"]
    assert result.stdout.splitlines()[-4:] == [
        "No partition ran away.",
        "Metadata: 75.0 % of 40 topic lookups were cached; 0 waits; 0 requests to brokers, 0 failed.",
        "Journal rows dropped because the disk or the topic was slow or full: 4.",
        "Unreadable lines or files in the journal: 1.",
    ]


@pytest.mark.whole
def test_the_same_as_json(spark: SparkSession, journal: Path, tmp_path: Path) -> None:
    output = tmp_path / "summary.json"
    result = run("partitions", "--journal", journal, "--by", "leader, reason", "--most", 5, "--output", output)
    assert result.exit_code == 0
    summary = msgspec.json.decode(output.read_bytes(), type=Summary)
    assert summary.by == ["leader", "reason"]
    assert [(group.key, group.batches) for group in summary.groups] == [({"leader": 0, "reason": "linger"}, 5)]
    assert (summary.rows_dropped, summary.torn) == (4, 1)


@pytest.mark.whole  # the detector's own tests have what is told
def test_a_runaway_is_told(spark: SparkSession, tmp_path: Path) -> None:
    rows = [
        batch_row(time_us=START_US + second * SECOND, partition=partition, bytes=size, upstream_us=upstream_us)
        for second in range(40)
        for partition, size, upstream_us in ((0, 6000, 39_500), (1, 1000, 1500), (2, 1000, 1500))
    ]
    write_journal(tmp_path, rows)
    result = run("partitions", "--journal", tmp_path)
    assert cells(result, "Runaway partitions") == [
        ["t", "0", "2026-11-18T11:06:40Z", "ongoing", "75.0", "2.25", "40.0", "2.0"]
    ]
    assert "No partition ran away." not in result.stdout
    assert "No partition ran away." in run("partitions", "--journal", tmp_path, "--wait", 21).stdout
    assert "No partition ran away." in run("partitions", "--journal", tmp_path, "--windows", 5).stdout


def test_what_it_cannot_do_is_one_sentence(spark: SparkSession, journal: Path, tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    assert sentence(run("partitions", "--journal", nowhere)) == f"There is no journal in {nowhere}: no such folder."
    assert sentence(
        run("partitions", "--journal", journal, "--from", "2026-11-18T12:00", "--to", "2026-11-18T13:00")
    ) == (
        f"There are no batches between 2026-11-18T12:00:00Z and 2026-11-18T13:00:00Z in {journal} "
        "(unreadable lines or files: 1)."
    )
    result = run("partitions", "--journal", journal, "--output", tmp_path)
    assert result.exit_code == 2
    assert result.stderr == f"forebay-pipeline: Cannot write {tmp_path}: it is a folder.\n"


@pytest.mark.parametrize("by", ["", ",", "topic,weather", "bytes"])
def test_groups_are_of_what_there_is(journal: Path, by: str) -> None:
    result = run("partitions", "--journal", journal, "--by", by)
    assert result.exit_code == 2
    assert "must be a comma-separated list of topic, partition, leader, worker, reason, minute, hour, date" in " ".join(
        result.stderr.split()
    )
