"""Options that all jobs share, and the decorator that turns a job into a command.

Options in, exit code out; a user's mistake never ends in a traceback.
"""

from __future__ import annotations

import datetime
import functools
import math
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, TypeVar

import click
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from forebay_pipeline.errors import COULD_NOT_RUN, CannotRun, Stopped
from forebay_pipeline.jobs.session import first_line, open_session
from forebay_pipeline.journal.brokers import Brokers
from forebay_pipeline.journal.security import read_security
from forebay_pipeline.journal.source import JournalPlace
from forebay_pipeline.journal.span import Span
from forebay_pipeline.journal.tables import FORMATS, PARQUET, Format

_NO_SETTINGS: Final[Mapping[str, str]] = {}
INTERRUPTED: Final = 128 + signal.SIGINT
"""As of a shell's command."""

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


class OpenSpark(Protocol):
    """Opens the Spark session that the command line asks for; a job calls it once its other options are checked.

    `job` names the Spark application, `kafka` adds the Kafka connector, `table_format` what knows such tables.
    The user's settings override `settings`. Raises CannotRun as open_session does.
    """

    def __call__(
        self,
        job: str,
        *,
        kafka: bool = False,
        table_format: Format = PARQUET,
        settings: Mapping[str, str] = _NO_SETTINGS,
    ) -> SparkSession: ...


_EPOCH: Final = datetime.datetime.fromtimestamp(0, datetime.UTC)


class _Instant(click.ParamType[int]):
    """ISO 8601 to microseconds since 1970; UTC unless the text has an offset."""

    name = "TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            read = datetime.datetime.fromisoformat(value)
            if read.tzinfo is None:
                read = read.replace(tzinfo=datetime.UTC)
            read = read.astimezone(datetime.UTC)
        except (ValueError, OverflowError):
            self.fail(f"{value!r} is not a time like 2026-11-21T14:00 or 2026-11-21T14:00:00+01:00", param, ctx)
        if read < _EPOCH:
            self.fail(f"{value!r} is before 1970", param, ctx)
        return (read - _EPOCH) // datetime.timedelta(microseconds=1)


class FiniteRange(click.FloatRange):
    """As FloatRange, without nan and inf."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """As click calls it. Raises click.BadParameter."""
        if not math.isfinite(click.FLOAT.convert(value, param, ctx)):
            self.fail(f"{value!r} is not a finite number", param, ctx)
        return super().convert(value, param, ctx)


PLACE: Final = ("journal", "journal_topic", "bootstrap_servers", "command_config")
"""The arguments of `journal_place`."""
_COMPACTED_TOO: Final = "The proxy's journal.dir, or the output of `compact`."


def journal_flags(command: F, folder: str = _COMPACTED_TOO) -> F:
    """Adds --journal, which is a `folder`, --journal-topic and how brokers are reached, unchecked (`journal_place`)."""
    for option in (
        click.option(
            "--command-config",
            metavar="FILE",
            help="How to reach the brokers, in Kafka's property names: security.protocol, ssl.*, sasl.*.",
        ),
        click.option("--bootstrap-servers", metavar="HOST:PORT,…", help="Brokers to connect to."),
        click.option("--journal-topic", metavar="TOPIC", help="Topic that holds the journal (journal.topic)."),
        click.option("--journal", metavar="FOLDER", help=folder),
    ):
        command = option(command)
    return command


def journal_options(command: Callable[..., T], folder: str = "The proxy's journal.dir.") -> Callable[..., T]:
    """Adds the same options, passed to the job as one checked argument: `place`, a JournalPlace."""

    @functools.wraps(command)
    def gathered(
        journal: str | None,
        journal_topic: str | None,
        bootstrap_servers: str | None,
        command_config: str | None,
        **others: Any,
    ) -> T:
        return command(place=journal_place(journal, journal_topic, bootstrap_servers, command_config), **others)

    return journal_flags(gathered, folder)


def journal_place(
    journal: str | None, journal_topic: str | None, bootstrap_servers: str | None, command_config: str | None
) -> JournalPlace:
    """Where the journal is. Raises click.UsageError unless the options name exactly one place, and for a bad file."""
    if (journal is None) == (journal_topic is None):
        raise click.UsageError("give either --journal or --journal-topic")
    if journal_topic is not None and bootstrap_servers is None:
        raise click.UsageError("--journal-topic requires --bootstrap-servers")
    if bootstrap_servers is None:
        if command_config is not None:
            raise click.UsageError("--command-config requires --bootstrap-servers")
        return JournalPlace(journal)
    try:
        security = read_security(command_config)
    except CannotRun as error:
        raise click.UsageError(str(error)) from None
    return JournalPlace(journal, journal_topic, Brokers(bootstrap_servers, security))


def format_option(text: str = "Format of the folder, if `compact` wrote it.") -> Callable[[F], F]:
    """Adds --format, which `text` explains; of a journal's place, unchecked: `in_format` checks it."""
    return click.option(
        "--format", "table_format", type=click.Choice(FORMATS), default=PARQUET, show_default=True, help=text
    )


def in_format(place: JournalPlace, table_format: Format) -> JournalPlace:
    """The place in that format. Raises click.UsageError if it is a topic and the format another than the default."""
    if place.in_kafka and table_format != PARQUET:
        raise click.UsageError("--format goes with --journal")
    return place._replace(format=table_format)


def compacted_options(command: Callable[..., T]) -> Callable[..., T]:
    """As journal_options, and --format: for jobs that read tables, too."""

    @functools.wraps(command)
    def gathered(place: JournalPlace, table_format: Format, **others: Any) -> T:
        return command(place=in_format(place, table_format), **others)

    return journal_options(format_option()(gathered), _COMPACTED_TOO)


def rollups_options(command: Callable[..., T]) -> Callable[..., T]:
    """As compacted_options, and --rollups in place of all of them: `place` is None then, and `rollups` the folder."""

    @functools.wraps(command)
    def gathered(rollups: str | None, table_format: Format, **others: Any) -> T:
        journal = {name: others.pop(name) for name in PLACE}
        if rollups is None and journal["journal"] is journal["journal_topic"] is None:
            raise click.UsageError("give one of --journal, --journal-topic and --rollups")
        if rollups is None:
            return command(place=in_format(journal_place(**journal), table_format), rollups=None, **others)
        if table_format != PARQUET or any(journal.values()):
            raise click.UsageError("--rollups takes the place of a journal: give no options of one")
        return command(place=None, rollups=rollups, **others)

    option = click.option("--rollups", metavar="FOLDER", help="In place of a journal: what `rollup` made of one.")
    return journal_flags(format_option()(option(gathered)))


def span_options(command: Callable[..., T]) -> Callable[..., T]:
    """Adds --from and --to, passed to the job as one argument: `span`, a Span."""

    @functools.wraps(command)
    def gathered(first: int | None, last: int | None, **others: Any) -> T:
        return command(span=checked_span(first, last), **others)

    for name, option, which in (("last", "--to", "before this time"), ("first", "--from", "from this time on")):
        text = f"Only rows {which} (ISO 8601; UTC without an offset)."
        gathered = click.option(option, name, type=_Instant(), help=text)(gathered)
    return gathered


def checked_span(first: int | None, last: int | None) -> Span:
    """[first, last) in microseconds since 1970. Raises click.UsageError if it is empty."""
    if first is not None and last is not None and first >= last:
        raise click.UsageError("--from must be before --to")
    return Span(first, last)


def output_option(command: F) -> F:
    """Adds --output: a file anywhere that Spark reaches, or None."""
    return click.option("--output", metavar="FILE", help="Write the result as JSON to this file.")(command)


def session_options(command: Callable[..., T]) -> Callable[..., T]:
    """Adds --master, --jars and --conf, passed to the job as one argument: `spark`, an OpenSpark."""

    @functools.wraps(command)
    def gathered(master: str | None, jars: str | None, conf: tuple[str, ...], **others: Any) -> T:
        def spark(
            job: str,
            *,
            kafka: bool = False,
            table_format: Format = PARQUET,
            settings: Mapping[str, str] = _NO_SETTINGS,
        ) -> SparkSession:
            session = open_session(
                job,
                master,
                kafka=kafka,
                table_format=table_format,
                jars=jars,
                settings=settings,
                conf=_pairs(conf),
            )
            # Spark's own handler calls into the JVM in the middle of another call, which ends in tracebacks.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            return session

        return command(spark=spark, **others)

    for option in (
        click.option("--conf", "conf", multiple=True, metavar="KEY=VALUE", help="Spark setting; may be repeated."),
        click.option(
            "--jars",
            metavar="FOLDER",
            help="Folder with the jars that Spark needs for Kafka, Iceberg or Delta; else Maven Central.",
        ),
        click.option("--master", metavar="URL", help="Spark master; local[*] unless under spark-submit."),
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
    """Makes a command of a function that returns an exit code.

    CannotRun and Spark's errors become one sentence on standard error and COULD_NOT_RUN; what nobody foresaw, too,
    behind its traceback.
    """

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        on_interrupt = signal.getsignal(signal.SIGINT)
        try:
            code = command(*args, **kwargs)
        except CannotRun as error:
            click.echo(f"forebay-pipeline: {error}", err=True)
            code = COULD_NOT_RUN
        except Stopped as stopped:
            click.echo("forebay-pipeline: stopped before its end", err=True)
            code = 128 + stopped.number
        except (PySparkException, Py4JError) as error:
            click.echo(f"forebay-pipeline: Spark failed: {first_line(error)}", err=True)
            code = COULD_NOT_RUN
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:  # Python would end with 1, which means findings
            traceback.print_exc()
            click.echo(f"forebay-pipeline: failed: {type(error).__name__}: {error}", err=True)
            code = COULD_NOT_RUN
        except KeyboardInterrupt:
            code = INTERRUPTED
        finally:
            signal.signal(signal.SIGINT, on_interrupt)
        sys.exit(code)

    return run
