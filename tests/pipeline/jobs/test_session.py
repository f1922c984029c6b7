"""What keeps a session from being opened, before there is one."""

from __future__ import annotations

from pathlib import Path

import pytest

from forebay_pipeline.errors import CannotRun
from forebay_pipeline.jobs.session import first_line, open_session, submitted


def test_without_java_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    with pytest.raises(CannotRun, match="Spark needs Java 17 or newer"):
        open_session("tests")


def test_a_folder_of_jars_has_some(tmp_path: Path) -> None:
    with pytest.raises(CannotRun, match=f"There are no jars in {tmp_path}"):
        open_session("tests", jars=str(tmp_path))


def test_spark_submit_is_known_by_its_gateway(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    assert not submitted()
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    assert submitted()


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("\n\n  what it is\n  and pages of it"), "what it is"),
        (ValueError("  \n"), "ValueError"),
        (KeyError(), "KeyError"),
    ],
)
def test_of_an_error_its_first_line(error: Exception, line: str) -> None:
    assert first_line(error) == line
