"""What jobs have in common that watch the journal as it grows, and wait a while for rows that are read late."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import click
from pyspark.sql import DataFrame, SparkSession

from forebay_pipeline.errors import CannotRun
from forebay_pipeline.journal.source import JournalPlace, Kinds, is_compacted, stream_rows

LATE_FILES_S: Final = 360
"""A file is read once it is closed, up to journal.roll.ms (300 s by default) after its first row."""
LATE_TOPIC_S: Final = 30
FILES_A_TRIGGER: Final = 16
"""Bounds what is open while there is a backlog to catch up with."""
STORES: Final = {"spark.sql.shuffle.partitions": "8"}
"""Each is a state store and a task in every trigger, and topics are few."""

_Command = Callable[..., Any]


def live_options(every: int) -> Callable[[_Command], _Command]:
    """Options --once, --every (`every` by default) and --late, in seconds; pass the last to `wait_s`."""
    seconds = f"by default {LATE_FILES_S} for files, {LATE_TOPIC_S} for a topic."
    options = (
        click.option("--once", is_flag=True, help="Judge what is there now and exit; otherwise run until stopped."),
        click.option(
            "--every",
            type=click.IntRange(1),
            default=every,
            show_default=True,
            help="Seconds between checks for new rows.",
        ),
        click.option("--late", type=click.IntRange(0), help=f"Seconds to wait for late rows; {seconds}"),
    )

    def add(command: _Command) -> _Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def wait_s(place: JournalPlace, late: int | None) -> int:
    """How many seconds later than others a row may be read."""
    if late is not None:
        return late
    return LATE_TOPIC_S if place.in_kafka else LATE_FILES_S


def live_rows(session: SparkSession, place: JournalPlace, kinds: Kinds, columns: Sequence[str], name: str) -> DataFrame:
    """The journal's rows of these kinds, in these columns, as a stream, for the job `name`.

    Raises CannotRun where no proxy writes.
    """
    if is_compacted(session, place):
        raise CannotRun(f"{place} was written by `compact`; {name} reads what the proxy writes (dt=…/hour=…).")
    # Rows that expired unread are history; what is going on now can be told without them.
    return stream_rows(session, place, FILES_A_TRIGGER, kinds=kinds, columns=columns, skip_expired=True)


def tell_late(count: int, what: str) -> None:
    """On stderr, if there were any that came after what they belong to had been judged."""
    if count:
        click.echo(f"{count:,} {what} came too late to be judged; a larger --late waits for them.", err=True)
