"""The job `report`: series by hand, and the page of a journal from end to end."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result
from pyspark.sql import DataFrame, SparkSession

from forebay_pipeline.cli import main
from forebay_pipeline.journal.source import JournalPlace, of_kind, read_rows
from forebay_pipeline.partitions.summary import Percentiles
from forebay_pipeline.report.series import (
    MOST_PARTITIONS,
    MOST_POINTS,
    GaugePoint,
    SharesPoint,
    TimePoint,
    TopicShares,
    bucket_us,
    gauge_points,
    time_points,
    topic_shares,
)
from forebay_policies.journal_rows import BatchRow, GaugeRow, Row
from tests.kit.browser import Browser
from tests.pipeline.report.known import known
from tests.pipeline.rows import START_US, batch_row, gauge_row, write_journal

SECOND = 1_000_000


def rows_of(spark: SparkSession, folder: Path, kind: type[msgspec.Struct], rows: list[Row]) -> DataFrame:
    write_journal(folder, rows)
    return of_kind(read_rows(spark, JournalPlace(str(folder))), kind)


@pytest.mark.parametrize(
    ("seconds", "width_s"),
    [(0, 1), (199, 1), (200, 2), (3600, 30), (86_400, 600), (30 * 86_400, 14_400), (999 * 86_400, 5 * 86_400)],
)
def test_buckets_are_whole_units_and_not_too_many(seconds: int, width_s: int) -> None:
    last_us = START_US + seconds * SECOND
    assert bucket_us(START_US, last_us) == width_s * SECOND
    assert seconds / width_s <= MOST_POINTS


def test_times_in_buckets(spark: SparkSession, tmp_path: Path) -> None:
    rows: list[Row] = [
        batch_row(time_us=START_US + 3 * SECOND, linger_us=100, upstream_us=1000, bytes=10),
        batch_row(time_us=START_US + 9 * SECOND, linger_us=300, upstream_us=3000, bytes=30),
        batch_row(time_us=START_US + 20 * SECOND, linger_us=500, upstream_us=0, bytes=50),
    ]
    assert time_points(rows_of(spark, tmp_path, BatchRow, rows), 10 * SECOND) == [
        TimePoint(START_US, Percentiles(100, 300, 300), Percentiles(1100, 3300, 3300), 20.0, 10, 30),
        TimePoint(START_US + 20 * SECOND, Percentiles(500, 500, 500), Percentiles(500, 500, 500), 50.0, 50, 50),
    ]


def test_gauges_are_the_most_of_each_process_added_up(spark: SparkSession, tmp_path: Path) -> None:
    def gauge(second: int, process: int, queued: int, free: int) -> GaugeRow:
        return gauge_row(
            time_us=START_US + second * SECOND,
            process=f"here-{process}",
            queued_bytes=queued,
            pool_bytes=1000,
            pool_available_bytes=free,
        )

    rows: list[Row] = [gauge(0, 0, 5, 900), gauge(1, 0, 70, 990), gauge(1, 1, 20, 600), gauge(12, 1, 8, 1000)]
    assert gauge_points(rows_of(spark, tmp_path, GaugeRow, rows), 10 * SECOND) == [
        GaugePoint(START_US, 90, 500, 2000),
        GaugePoint(START_US + 10 * SECOND, 8, 0, 1000),
    ]


def test_shares_of_the_largest_partitions_and_of_the_others_together(spark: SparkSession, tmp_path: Path) -> None:
    rows: list[Row] = [batch_row(partition=number, bytes=100 + number) for number in range(9)]
    rows += [batch_row(time_us=START_US + 10 * SECOND, partition=8, bytes=892), batch_row(topic="u", partition=4)]
    found = topic_shares(rows_of(spark, tmp_path, BatchRow, rows), ["u", "t"], 10 * SECOND)
    assert found[0] == TopicShares("u", [4], [SharesPoint(START_US, {4: 1.0})])
    assert found[1].partitions == [8, 7, 6, 5, 4, 3, 2]
    assert len(found[1].partitions) == MOST_PARTITIONS
    first, second = found[1].points
    expected: dict[int | None, float] = {number: (100 + number) / 936 for number in range(2, 9)}
    assert first.shares == {**expected, None: 201 / 936}
    assert second == SharesPoint(START_US + 10 * SECOND, {8: 1.0})


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    folder = tmp_path / "journal"
    rows: list[Row] = [
        batch_row(time_us=START_US + second * SECOND, partition=partition, bytes=size, upstream_us=upstream_us)
        for second in range(60)
        for partition, size, upstream_us in ((0, 6000, 39_500), (1, 1000, 1500), (2, 1000, 1500))
    ]
    rows += [gauge_row(time_us=START_US + second * SECOND, pool_available_bytes=2_000_000) for second in range(60)]
    write_journal(folder, rows)
    return folder


def run(*arguments: object) -> Result:
    """The session of the tests is shared, and its number of shuffles stays what it is."""
    options = ["--conf", "spark.sql.shuffle.partitions=2"]
    return CliRunner().invoke(main, ["report", *map(str, arguments), *options], prog_name="forebay-pipeline")


def test_a_page_of_a_journal(spark: SparkSession, journal: Path, tmp_path: Path) -> None:
    audit, replay, output = tmp_path / "audit.json", tmp_path / "replay.json", tmp_path / "report.html"
    audit.write_bytes(msgspec.json.encode(known().audit))
    replay.write_bytes(msgspec.json.encode(known().replay))
    result = run("--journal", journal, "--audit", audit, "--replay", replay, "--output", output)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == f"{output}: {output.stat().st_size / 1000:,.0f} kB\n"
    with Browser() as browser:
        view = browser.open(output, 1280)
        assert (view.requests, view.complaints) == ([output.as_uri()], [])
        told = view.ask(
            "[...document.querySelectorAll('.headlines div')].map(one => one.innerText.split('\\n\\n').join(' '))"
        )
        assert [one.split("\n")[:2] for one in told] == [
            ["Records", "1,800"],
            ["Bytes", "480.0 kB"],
            ["Linger p99", "0.5 ms"],
            ["Brokers' answers p99", "39.5 ms"],
            ["Not acknowledged", "0"],
            ["Runaways", "1"],
            ["Waits for memory", "0.0 %"],
            ["Audit", "5 findings"],
            ["Replay", "better settings"],
        ]
        assert view.ask("document.querySelectorAll('figure').length") == 7
        shares = view.ask("document.querySelector('#shares-0-desc').textContent")
        assert shares == (
            "Of the bytes sent, over time: partition 0 75.0 to 75.0 %, "
            "partition 1 12.5 to 12.5 %, partition 2 12.5 to 12.5 %."
        )


def test_what_it_cannot_do_is_one_sentence(spark: SparkSession, journal: Path, tmp_path: Path) -> None:
    output = tmp_path / "report.html"

    def sentence(*arguments: object) -> str:
        result = run("--output", output, *arguments)
        assert result.exit_code == 2
        assert not output.exists()
        (line,) = result.stderr.splitlines()
        return line.removeprefix("forebay-pipeline: ")

    missing, foreign = tmp_path / "missing.json", tmp_path / "foreign.json"
    foreign.write_text('{"hello": 1}')
    assert sentence("--journal", journal, "--audit", missing) == f"{missing} cannot be read: No such file or directory."
    assert sentence("--journal", journal, "--replay", foreign).startswith(
        f"{foreign} is not what `replay --output` writes: "
    )
    assert sentence("--journal", missing) == f"There is no journal in {missing}: no such folder."
    assert sentence("--journal", journal, "--to", "2026-11-18T11:00") == (
        f"There are no batches before 2026-11-18T11:00:00Z in {journal}."
    )
