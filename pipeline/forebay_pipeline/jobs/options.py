"""What all jobs can be told, and how a job runs: options in, exit code out, never a traceback for a user's mistake."""

from __future__ import annotations

import datetime
import functools
import signal
import sys
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

import click
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from forebay_pipeline.errors import COULD_NOT_RUN, CannotRun
from forebay_pipeline.jobs.session import first_line, open_session
from forebay_pipeline.journal.source import JournalPlace, Span

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


class OpenSpark(Protocol):
    """Opens the session that the command line asked for. `settings`: KEY=VALUE, over which --conf wins."""

    def __call__(self, job: str, kafka: bool = False, settings: tuple[str, ...] = ()) -> SparkSession: ...


class _Instant(click.ParamType[int]):
    """A point in time as ISO 8601 → microseconds since 1970. Without an offset it is UTC."""

    name = "TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            read = datetime.datetime.fromisoformat(value)
        except ValueError:
            self.fail(f"{value!r} is not a time like 2026-11-21T14:00 or 2026-11-21T14:00:00+01:00", param, ctx)
        if read.tzinfo is None:
            read = read.replace(tzinfo=datetime.UTC)
        return (read - datetime.datetime.fromtimestamp(0, datetime.UTC)) // datetime.timedelta(microseconds=1)


def journal_flags(command: F) -> F:
    """--journal, or --journal-topic with --bootstrap-servers: `journal_place` makes a JournalPlace of them."""
    for option in (
        click.option("--bootstrap-servers", metavar="HOST:PORT,…", help="The brokers."),
        click.option("--journal-topic", metavar="TOPIC", help="The topic with the journal's rows (journal.topic)."),
        click.option("--journal", metavar="FOLDER", help="The proxy's journal.dir, or what `compact` made of it."),
    ):
        command = option(command)
    return command


def journal_options(command: Callable[..., T]) -> Callable[..., T]:
    """The same, already made one: `place`."""

    @functools.wraps(command)
    def gathered(journal: str | None, journal_topic: str | None, bootstrap_servers: str | None, **others: Any) -> T:
        return command(place=journal_place(journal, journal_topic, bootstrap_servers), **others)

    return journal_flags(gathered)


def journal_place(journal: str | None, journal_topic: str | None, bootstrap_servers: str | None) -> JournalPlace:
    if (journal is None) == (journal_topic is None):
        raise click.UsageError("one of --journal and --journal-topic says where the journal is")
    if journal_topic is not None and bootstrap_servers is None:
        raise click.UsageError("--journal-topic needs --bootstrap-servers")
    return JournalPlace(journal, journal_topic, bootstrap_servers)


def span_options(command: Callable[..., T]) -> Callable[..., T]:
    """--from and --to: `span`."""

    @functools.wraps(command)
    def gathered(first: int | None, last: int | None, **others: Any) -> T:
        return command(span=checked_span(first, last), **others)

    for name, option, what in (("last", "--to", "before"), ("first", "--from", "from")):
        gathered = click.option(option, name, type=_Instant(), help=f"Rows {what} this time (ISO 8601, UTC).")(gathered)
    return gathered


def checked_span(first: int | None, last: int | None) -> Span:
    if first is not None and last is not None and first >= last:
        raise click.UsageError("--from must be before --to")
    return Span(first, last)


def session_options(command: Callable[..., T]) -> Callable[..., T]:
    """--master, --jars and --conf: `spark`, an OpenSpark."""

    @functools.wraps(command)
    def gathered(master: str | None, jars: str | None, conf: tuple[str, ...], **others: Any) -> T:
        def spark(job: str, kafka: bool = False, settings: tuple[str, ...] = ()) -> SparkSession:
            session = open_session(job, master, kafka, jars, _pairs((*settings, *conf)))
            # Spark's own handler puts a question to the JVM in the middle of another one: tracebacks.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            return session

        return command(spark=spark, **others)

    for option in (
        click.option("--conf", "conf", multiple=True, metavar="KEY=VALUE", help="A setting of Spark; several times."),
        click.option("--jars", metavar="FOLDER", help="Spark's Kafka connector and what it needs, instead of Maven."),
        click.option("--master", help="Spark's master; local[*] unless spark-submit says otherwise."),
    ):
        gathered = option(gathered)
    return gathered


def _pairs(conf: tuple[str, ...]) -> Mapping[str, str]:
    pairs = {}
    for assignment in conf:
        key, separator, value = assignment.partition("=")
        if not separator:
            raise click.UsageError(f"--conf {assignment}: must be KEY=VALUE")
        pairs[key.strip()] = value.strip()
    return pairs


def job(command: Callable[..., int]) -> Callable[..., None]:
    """A job's function, which returns its exit code, as a command's: what it cannot do is one sentence."""

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        on_interrupt = signal.getsignal(signal.SIGINT)
        try:
            code = command(*args, **kwargs)
        except CannotRun as error:
            click.echo(f"forebay-pipeline: {error}", err=True)
            code = COULD_NOT_RUN
        except (PySparkException, Py4JError) as error:
            click.echo(f"forebay-pipeline: Spark could not do it: {first_line(error)}", err=True)
            code = COULD_NOT_RUN
        finally:
            signal.signal(signal.SIGINT, on_interrupt)
        sys.exit(code)

    return run
