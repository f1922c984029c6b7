"""Which settings are recommended, and the file that says so."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import msgspec
import pytest

from forebay_pipeline.replay.recommendation import as_toml, recommend
from forebay_pipeline.replay.results import Result, Unmerged
from forebay_pipeline.replay.settings import variants
from tests.pipeline.replay.reports import GRID, report, result


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
    before = Unmerged(9.0, 1.0, 20.0, 100.0, 1.0, 9000, 9000)
    both = as_toml(msgspec.structs.replace(report(16), unmerged=before), variants({}, GRID))
    assert "# measured (of what was merged): average 8.10" in both
