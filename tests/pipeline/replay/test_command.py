"""The job `replay` as a person runs it: what it writes, errors; the same on one core and on two."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from forebay_pipeline.replay.command import command
from forebay_pipeline.replay.results import ReplayReport
from tests.pipeline.command_line import FEW_SHUFFLES
from tests.pipeline.rows import ledger_row, sized_part, write_journal


def told(*words: str) -> Result:
    return CliRunner().invoke(command, [*words, *FEW_SHUFFLES])


@pytest.mark.whole
def test_the_command_writes_what_it_shows(spark: SparkSession, recorded: Path, tmp_path: Path) -> None:
    output, toml, config = (tmp_path / name for name in ("replay.json", "replay.toml", "forebay.toml"))
    config.write_text('"delivery.timeout.ms" = 30004\n')
    given = (
        "--config",
        str(config),
        "--grid",
        "partitioner=adaptive,expected_wait",
        "--vary",
        "linger.ms=-1,5",
        "--slice",
        "1",
        "--sample",
        "0.8",
    )
    result = told("--journal", str(recorded), *given, "--output", str(output), "--toml", str(toml))

    assert result.exit_code == 0, result.output
    report = msgspec.json.decode(output.read_bytes(), type=ReplayReport)
    assert [each.settings["partitioner"] for each in report.results] == ["adaptive", "expected_wait"]
    assert result.stderr == "2 of the grid's settings are left out: Forebay refuses them beside its others.\n"
    assert "÷ measured" in result.output
    assert "Recommended: partitioner=expected_wait linger.ms=-1" in result.output
    assert '"partitioner" = "expected_wait"\n"linger.ms" = -1\n' in toml.read_text()
    assert any("each slice of 1 s begins 1 s early" in line for line in report.assumed)
    assert any("those of the sample: 8 of 10, at random" in line for line in report.assumed)
    assert [each.ranking_only for each in report.results] == [False, True]
    assert report.certainty == 1
    assert "leads to the same recommendation in 100% of the draws" in result.output
    for each in report.results:
        assert each.intervals is not None
        assert each.intervals.average_ms.low <= each.average_ms <= each.intervals.average_ms.high
        assert each.intervals.requests.low <= each.requests <= each.intervals.requests.high
        assert each.records < report.records


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--journal", "nowhere"), "There is no journal in nowhere"),
        *(
            pytest.param(("--journal", "{}", *words), f"There are no arrivals {when} in {{}}.", marks=pytest.mark.whole)
            for words, when in (
                (("--from", "2030-01-01"), "from 2030-01-01T00:00:00Z on"),
                (("--to", "2001-01-01"), "before 2001-01-01T00:00:00Z"),
            )
        ),
        (
            ("--journal", "{}", "--from", "2001-01-01", "--to", "2001-01-02"),
            "There are no arrivals between 2001-01-01T00:00:00Z and 2001-01-02T00:00:00Z in {}.",
        ),
        (("--journal", "{}", "--grid", "lingerms=5"), "lingerms is not a setting that can be replayed"),
        (("--journal", "{}", "--vary", "linger.ms=soon"), "linger.ms=soon: must be a whole number from -1 to 60000"),
        (("--journal", "{}", "--set", "batch.size=1"), "batch.size=1: must be a whole number from 512"),
        (("--journal", "{}", "--config", "none.toml"), "Cannot read none.toml"),
        (("--synthetic", "--journal", "{}"), "--synthetic replays no journal"),
        (("--synthetic", "--rate", "0"), "--rate"),
        ((), "--journal"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(
    spark: SparkSession, recorded: Path, words: tuple[str, ...], message: str
) -> None:
    result = told(*(word.format(recorded) for word in words))

    assert result.exit_code == 2
    assert message.format(recorded) in result.output
    assert "Traceback" not in result.output


def test_a_journal_without_answers_is_said_to_have_none(spark: SparkSession, tmp_path: Path) -> None:
    write_journal(tmp_path, [ledger_row([sized_part(1, 100, base_offset=0)])])
    result = told("--journal", str(tmp_path))

    assert result.exit_code == 2
    assert "There are no answered batches in the journal" in result.output


@pytest.mark.whole
def test_one_core_and_two_find_the_same(tmp_path: Path) -> None:
    found = []
    for cores in (1, 2):
        output = tmp_path / f"{cores}.json"
        words = ["--synthetic", "--seconds", "12", "--slice", "5", "--rate", "500", "--output", str(output)]
        words += ["--grid", "partitioner=adaptive,expected_wait"]
        spark_words = ["--master", f"local[{cores}]", "--conf", "spark.sql.shuffle.partitions=2"]
        run = [sys.executable, "-m", "forebay_pipeline.cli", "replay", *words, *spark_words]
        done = subprocess.run(run, capture_output=True, text=True, check=False, timeout=240)
        assert done.returncode == 0, done.stderr
        found.append(json.loads(output.read_text()))
    assert found[0] == found[1]
    assert found[0]["records"] > 5000
