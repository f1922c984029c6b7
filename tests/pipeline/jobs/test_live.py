"""What jobs over a growing journal have in common; that they refuse a compacted one is tested with each of them."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from forebay_pipeline.jobs.live import LATE_FILES_S, LATE_TOPIC_S, live_options, tell_late, wait_s
from forebay_pipeline.journal.source import JournalPlace


@click.command()
@live_options(every=7)
def command(*, once: bool, every: int, late: int | None) -> None:
    click.echo(f"{once} {every} {late}")


def test_its_options_have_defaults_and_bounds() -> None:
    def said(*words: str) -> str:
        return CliRunner().invoke(command, words).output

    assert said() == "False 7 None\n"
    assert said("--once", "--every", "2", "--late", "9") == "True 2 9\n"
    assert said("--late", "0") == "False 7 0\n"
    assert "-1 is not in the range" in said("--late", "-1")
    assert "0 is not in the range" in said("--every", "0")


def test_rows_of_files_are_waited_for_longer_than_those_of_a_topic() -> None:
    in_files, in_topic = JournalPlace(folder="journal"), JournalPlace(topic="journal")
    assert (wait_s(in_files, None), wait_s(in_topic, None)) == (LATE_FILES_S, LATE_TOPIC_S)
    assert (wait_s(in_files, 5), wait_s(in_topic, 0)) == (5, 0)


def test_rows_that_came_too_late_are_told_where_there_are_any(capsys: pytest.CaptureFixture[str]) -> None:
    tell_late(0, "rows")
    assert capsys.readouterr().err == ""
    tell_late(1234, "rows")
    assert capsys.readouterr().err == "1,234 rows came too late to be judged; a larger --late waits for them.\n"
