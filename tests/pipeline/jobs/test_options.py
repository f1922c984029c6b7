"""What the shared options give a job, and what a user's mistakes look like."""

from __future__ import annotations

import signal
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result
from py4j.protocol import Py4JError

from forebay_pipeline import cli
from forebay_pipeline.errors import CLEAN, COULD_NOT_RUN, CannotRun, Stopped
from forebay_pipeline.jobs import options
from forebay_pipeline.jobs.options import (
    FiniteRange,
    OpenSpark,
    compacted_options,
    job,
    rollups_options,
    session_options,
    span_options,
)
from forebay_pipeline.journal.brokers import Brokers
from forebay_pipeline.journal.source import JournalPlace
from forebay_pipeline.journal.span import Span


def given(*words: str) -> tuple[JournalPlace, Span] | Result:
    """What a job with these options is called with; or what its user reads."""
    found: list[tuple[JournalPlace, Span]] = []

    @click.command()
    @compacted_options
    @span_options
    def command(place: JournalPlace, span: Span) -> None:
        found.append((place, span))

    result = CliRunner().invoke(command, words)
    return found[0] if found else result


def test_a_journal_is_in_a_folder_or_a_topic() -> None:
    assert given("--journal", "here") == (JournalPlace("here"), Span())
    at, brokers = ("--bootstrap-servers", "a:1"), Brokers("a:1")
    assert given("--journal", "here", *at) == (JournalPlace("here", None, brokers), Span())
    assert given("--journal-topic", "j", *at) == (JournalPlace(None, "j", brokers), Span())
    assert given("--journal", "here", "--format", "delta") == (JournalPlace("here", format="delta"), Span())


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-01", 0),
        ("1970-01-01T00:01", 60),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1970-01-01T00:00:00.5Z", 0.5),
    ],
)
def test_times_are_utc_unless_they_say_otherwise(text: str, seconds: float) -> None:
    assert given("--journal", "here", "--from", text) == (JournalPlace("here"), Span(int(seconds * 1_000_000)))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "give either --journal or --journal-topic"),
        (["--journal", "here", "--journal-topic", "j"], "give either --journal or --journal-topic"),
        (["--journal-topic", "j"], "--journal-topic requires --bootstrap-servers"),
        (["--journal-topic", "j", "--bootstrap-servers", "a:1", "--format", "delta"], "--format goes with --journal"),
        (["--journal", "here", "--format", "orc"], "'orc' is not one of 'parquet', 'iceberg', 'delta'"),
        (["--journal", "here", "--command-config", "c"], "--command-config requires --bootstrap-servers"),
        (["--journal", "here", "--bootstrap-servers", "a:1", "--command-config", "/no"], "/no: cannot be read: No"),
        (["--journal", "here", "--from", "soon"], "'soon' is not a time like 2026-11-21T14:00"),
        (["--journal", "here", "--to", "9999-12-31T23:59:59-05:00"], "is not a time like 2026-11-21T14:00"),
        (["--journal", "here", "--from", "0001-01-01T00:00+05:00"], "is not a time like 2026-11-21T14:00"),
        (["--journal", "here", "--from", "1969-12-31T23:59:59"], "'1969-12-31T23:59:59' is before 1970"),
        (["--journal", "here", "--from", "2026-01-02", "--to", "2026-01-02"], "--from must be before --to"),
    ],
)
def test_mistakes_are_said(words: list[str], said: str) -> None:
    result = given(*words)
    assert isinstance(result, Result)
    assert result.exit_code == COULD_NOT_RUN
    assert said in result.stderr


def test_a_number_is_in_its_range_and_finite() -> None:
    kind = FiniteRange(0)
    assert kind.convert("1e12", None, None) == 1e12
    for text in ("nan", "inf", "-inf", "-1", "x"):
        with pytest.raises(click.BadParameter):
            kind.convert(text, None, None)


def test_rollups_take_the_place_of_a_journal() -> None:
    def places(*words: str) -> tuple[JournalPlace | None, str | None] | str:
        found: list[tuple[JournalPlace | None, str | None]] = []

        @click.command()
        @rollups_options
        def command(place: JournalPlace | None, rollups: str | None) -> None:
            found.append((place, rollups))

        result = CliRunner().invoke(command, words)
        return found[0] if found else result.stderr

    assert places("--rollups", "days") == (None, "days")
    assert places("--journal", "here", "--format", "delta") == (JournalPlace("here", format="delta"), None)
    for words, said in (
        ((), "give one of --journal, --journal-topic and --rollups"),
        (("--journal", "here", "--journal-topic", "j"), "give either --journal or --journal-topic"),
        (("--rollups", "days", "--journal", "here"), "--rollups takes the place of a journal"),
        (("--rollups", "days", "--format", "delta"), "--rollups takes the place of a journal"),
        (("--rollups", "days", "--bootstrap-servers", "a:1"), "--rollups takes the place of a journal"),
    ):
        assert said in places(*words)


def test_a_session_is_opened_as_the_command_line_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """The job's own settings apart from the user's, which win (test_session.py)."""
    opened: list[tuple[tuple[object, ...], dict[str, object]]] = []
    monkeypatch.setattr(options, "open_session", lambda *args, **named: opened.append((args, named)))

    @click.command()
    @session_options
    def command(spark: OpenSpark) -> None:
        spark("j", kafka=True, table_format="iceberg", settings={"a": "job", "b": "job"})

    before = signal.getsignal(signal.SIGINT)
    try:
        words = ["--master", "local[1]", "--jars", "there", "--conf", "b = user", "--conf", "c=x=y"]
        assert CliRunner().invoke(command, words).exit_code == 0
        assert CliRunner().invoke(command, ["--conf", "b"]).stderr.endswith("--conf b: must be KEY=VALUE\n")
    finally:
        signal.signal(signal.SIGINT, before)
    settings, conf = {"a": "job", "b": "job"}, {"b": "user", "c": "x=y"}
    named = {"kafka": True, "table_format": "iceberg", "jars": "there", "settings": settings, "conf": conf}
    assert opened == [(("j", "local[1]"), named)]


@pytest.mark.parametrize(
    ("does", "code", "said"),
    [
        (lambda: CLEAN, CLEAN, ""),
        (lambda: 1, 1, ""),
        (CannotRun("There is no sea."), COULD_NOT_RUN, "forebay-pipeline: There is no sea.\n"),
        (Py4JError("\n  It broke.\n  at java.lang"), COULD_NOT_RUN, "forebay-pipeline: Spark failed: It broke.\n"),
        (
            click.UsageError("Not so."),
            2,
            "Usage: command [OPTIONS]\nTry 'command --help' for help.\n\nError: Not so.\n",
        ),
        (KeyboardInterrupt(), 130, ""),
        (Stopped(15), 143, "forebay-pipeline: stopped before its end\n"),
    ],
)
def test_a_job_ends_with_its_exit_code_or_with_one_sentence(does: Any, code: int, said: str) -> None:
    @click.command()
    @job
    def command() -> int:
        if isinstance(does, BaseException):
            raise does
        return int(does())

    before = signal.getsignal(signal.SIGINT)
    result = CliRunner().invoke(command)
    assert (result.exit_code, result.stderr) == (code, said)
    assert signal.getsignal(signal.SIGINT) == before


def test_what_nobody_foresaw_is_no_finding() -> None:
    @click.command()
    @job
    def command() -> int:
        raise OverflowError("too large")

    result = CliRunner().invoke(command)
    assert result.exit_code == COULD_NOT_RUN
    assert result.stderr.startswith("Traceback")
    assert result.stderr.endswith("forebay-pipeline: failed: OverflowError: too large\n")


@pytest.mark.parametrize(
    "line",
    [
        ("audit", "--settle", "1e305"),
        ("replay", "--seed", "-1"),
        ("maintain", "--keep-days", "1000000"),
    ],
)
def test_numbers_that_no_job_can_use_are_refused(line: tuple[str, ...]) -> None:
    result = CliRunner().invoke(cli.main, line)
    assert result.exit_code == 2
    assert f"Invalid value for '{line[1]}'" in result.stderr


@pytest.mark.parametrize("name", [name for name in cli.JOBS if name not in ("maintain", "pack")])
def test_what_compact_wrote_is_read_by_all_but_those_that_follow_the_proxy(name: str) -> None:
    said = CliRunner().invoke(cli.main, (name, "--help")).stdout
    assert "The proxy's journal.dir" in said
    assert ("output of `compact`" in " ".join(said.split())) is (name not in ("compact", "runaways", "watch"))
