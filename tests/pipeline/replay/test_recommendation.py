"""Which settings are recommended, and the file that says so."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from forebay_pipeline.replay.recommendation import as_toml, recommend
from forebay_pipeline.replay.results import Measured, ReplayReport, Result
from forebay_pipeline.replay.settings import read_grid, variants
from forebay_pipeline.replay.text import as_text


def result(average_ms: float, p99_ms: float, requests: int = 100, **settings: str) -> Result:
    return Result(settings, average_ms, average_ms / 2, p99_ms, 1000.0, 10.0, requests, 1.0, 0.0, 4096, 1000)


@pytest.mark.parametrize(
    ("others", "index"),
    [
        ([], 0),
        # The table in the module.
        ([result(5.0, 30), result(5.4, 18)], 2),
        # The lowest p99, but its average is beyond a tenth of the best.
        ([result(5.0, 19.9), result(5.6, 10)], 1),
        # Not clearly better: 5 % and 5 %.
        ([result(7.6, 19)], 0),
        # p99 alone is clearly better, the average hardly worse.
        ([result(8.5, 15)], 1),
        # The best average has a p99 that is worse as much.
        ([result(5.0, 23)], 0),
        # Level to a bucket: fewer requests.
        ([result(5.0, 10.0, 100), result(5.1, 10.1, 50)], 2),
        # All the same: the present ones.
        ([result(8.0, 20)], 0),
    ],
)
def test_the_rule(others: list[Result], index: int) -> None:
    found = recommend([result(8.0, 20), *others], 0)

    assert found.chosen == index
    assert found.reason


def test_what_stays_says_why() -> None:
    assert "The present settings stay" in recommend([result(8.0, 20), result(7.6, 19)], 0).reason
    assert recommend([result(8.0, 20)], 0).reason == "The present settings are the best of those tried."


GRID = read_grid(
    [
        "partitioner=adaptive,expected_wait linger.ms=-1,5 batch.size=16384,65536 partitioner.min.share=0.01"
        " partitioner.adaptive.partitioning.enable=true,false buffer.memory=67108864"
    ]
)


def report(recommended: int) -> ReplayReport:
    found = variants({}, GRID)
    results = [
        Result(dict(each.named), 8.0 - number / 10, 1.0, 20.0, 1e3, 10.0, 7, 1.0, 0.0, 4096, 1000)
        for number, each in enumerate(found)
    ]
    measured = Measured(8.1, 1.2, 20.5, 1000)
    return ReplayReport(
        "recorded", results, 0, recommended, "Because.\nOf it.", ["all is well"], measured, 1000, 60.0, 1
    )


@pytest.mark.parametrize("recommended", [0, 3, 16])
def test_the_proxy_takes_the_file(tmp_path: Path, recommended: int) -> None:
    file = tmp_path / "recommended.toml"
    found = variants({}, GRID)
    file.write_text(as_toml(report(recommended), found))

    table = tomllib.loads(file.read_text())
    chosen = {name: str(value).lower() for name, value in table.items()}
    assert chosen == dict(found[recommended].named)
    command = [sys.executable, "-m", "forebay_proxy.commands.cli", "config", "--config", str(file), "--format", "json"]
    shown = subprocess.run(command, capture_output=True, text=True, check=False)
    assert shown.returncode == 0, shown.stderr
    assert str(file) in shown.stdout


def test_the_file_has_the_evidence() -> None:
    text = as_toml(report(16), variants({}, GRID))

    assert "# measured: average 8.10, p50 1.20, p99 20.50" in text
    assert "<- recommended" in text
    assert "<- present" in text
    assert "# Because.\n# Of it.\n" in text
    assert "# Assumed: all is well" in text


def test_people_are_told_the_same() -> None:
    text = as_text(report(16))

    assert "Simulated with the present settings ÷ measured: average 0.99, p50 0.83, p99 0.98." in text
    assert "differ by more than" not in text
    assert "Recommended: partitioner=expected_wait" in text
    assert text.count("\n") > len(report(16).results)


def test_a_simulation_far_from_what_was_measured_is_said_to_be() -> None:
    far = report(0)
    measured = Measured(8.1, 2.0, 20.5, 1000)
    text = as_text(ReplayReport(**{**{n: getattr(far, n) for n in far.__struct_fields__}, "measured": measured}))

    assert "They differ by more than 25%" in text
