"""The jobs under plain spark-submit, which decides about master and jars, and passes their exit code on; and without
what they need."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import CliRunner

from forebay_pipeline import cli
from forebay_pipeline.errors import COULD_NOT_RUN
from tests.pipeline import rows as make
from tests.pipeline.rows import write_journal

ONE_CORE = ("--master", "local[1]", "--conf", "spark.sql.shuffle.partitions=2")
BIN = Path(sys.executable).parent
ENVIRONMENT = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
"""As in an activated environment: the script looks for Spark with the python3 of the PATH."""


def submitted(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(BIN / "spark-submit"), *ONE_CORE, cli.__file__, *arguments]
    return subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.whole
def test_a_job_runs(tmp_path: Path) -> None:
    journal, output = tmp_path / "journal", tmp_path / "parquet"
    journal.mkdir()
    write_journal(journal, [make.batch_row(topic="ponds"), make.batch_row(topic="ponds")])
    done = submitted("compact", "--journal", str(journal), "--output", str(output))
    assert done.returncode == 0
    assert list(output.glob("kind=batch/dt=2026-11-18/topic=ponds/*.parquet"))


@pytest.mark.whole
def test_what_it_cannot_do_is_one_sentence_and_its_exit_code() -> None:
    done = submitted("compact", "--journal", "nowhere", "--output", "nowhere, too")
    assert done.returncode == COULD_NOT_RUN
    assert done.stdout.splitlines()[-1] == "forebay-pipeline: There is no journal in nowhere: no such folder."


@pytest.mark.parametrize(
    ("missing", "mended"),
    [
        ("pyspark", "pip install '.[pipeline]' in a clone of Forebay"),
        ("distutils.version", "Spark 3.5 knows no Python newer than 3.11"),
    ],
)
@pytest.mark.parametrize("words", [["audit", "--help"], ["--help"]])
def test_what_is_not_installed_is_one_sentence_and_no_finding(
    monkeypatch: pytest.MonkeyPatch, words: list[str], missing: str, mended: str
) -> None:
    def import_module(_: str) -> ModuleType:
        raise ModuleNotFoundError(f"No module named {missing!r}", name=missing)

    monkeypatch.setattr(importlib, "import_module", import_module)
    done = CliRunner().invoke(cli.main, words)
    assert done.exit_code == COULD_NOT_RUN
    assert done.stderr == f"forebay-pipeline: No module named {missing!r}: {mended}\n"
