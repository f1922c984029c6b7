"""Job `runaways`: tells of runaway partitions as the journal grows.

In: the journal's files or topic. Out: a line where a partition begins to run away, and one where that is over; with
--output, JSON lines in a folder instead, each once, also over restarts with the same --checkpoint.
"""

from __future__ import annotations

from pathlib import Path

import click
from pyspark.sql import DataFrame, Row
from pyspark.sql.streaming.query import StreamingQuery

from forebay_pipeline.errors import CLEAN, CannotRun
from forebay_pipeline.jobs.options import OpenSpark, job, journal_options, session_options
from forebay_pipeline.jobs.streams import await_end, triggered
from forebay_pipeline.journal.schema import KIND
from forebay_pipeline.journal.source import JournalPlace, stream_rows
from forebay_pipeline.partitions.measures import instant
from forebay_pipeline.partitions.runaway_detector import Event, Thresholds
from forebay_pipeline.partitions.runaway_options import runaway_options
from forebay_pipeline.partitions.runaways_stream import Watching, stream_changes

LATE_FILES_S = 360
"""A journal's file is closed, and so seen, up to journal.roll.ms after its first row: 300 s unless told otherwise."""
LATE_TOPIC_S = 30
FILES_A_TRIGGER = 16
"""Rows of as many files are open windows at once, when there is much to catch up with."""
_STORES = "spark.sql.shuffle.partitions=8"
"""Each has its own store of states, and is a task in every trigger; topics are few."""


def start(changes: DataFrame, output: str | None, checkpoint: str | None, every: int | None) -> StreamingQuery:
    """`every`: seconds between two looks for what is new; None: what is there now, then it ends."""
    writer = changes.coalesce(1).writeStream.outputMode("append")
    if output is not None:
        checkpoint = checkpoint or f"{output.rstrip('/')}/_checkpoint"
        writer = writer.format("json").option("path", output)
    else:
        writer = writer.foreachBatch(_tell)
    if checkpoint is not None:
        writer = writer.option("checkpointLocation", checkpoint)
    return triggered(writer, every).start()


def _tell(changes: DataFrame, _: int) -> None:
    for row in changes.orderBy("window_us", "topic", "partition").collect():
        click.echo(sentence(row))


def sentence(told: Row) -> str:
    """`told`: of CHANGES."""
    place = f"{instant(told.window_us)} {told.topic} partition {told.partition}"
    if told.event == Event.QUIET:
        return f"{place} is not watched any more: its topic is quiet"
    what = "runs away" if told.event == Event.RUNAWAY else "has recovered"
    return (
        f"{place} {what} since {instant(told.since_us)}: {100 * told.share:.1f} % of the bytes, "
        f"{told.times_fair:.2f} × its fair share; waits {told.wait_us / 1000:,.1f} ms, "
        f"the others {told.others_wait_us / 1000:,.1f} ms"
    )


def too_late(query: StreamingQuery) -> int:
    """Rows that came for windows which had been judged, as far as it is remembered."""
    return sum(
        operator["numRowsDroppedByWatermark"]
        for progress in query.recentProgress
        for operator in progress["stateOperators"]
    )


@click.command()
@journal_options
@click.option("--once", is_flag=True, help="What is there now, then end; without it: go on until stopped.")
@click.option("--every", type=click.IntRange(1), default=10, show_default=True, help="Seconds between two looks.")
@click.option(
    "--late",
    type=click.IntRange(1),
    help=f"Seconds by which a row may come later than others; {LATE_FILES_S} for files, {LATE_TOPIC_S} for a topic.",
)
@runaway_options
@click.option("--output", metavar="FOLDER", help="JSON lines, here; without it: sentences, to standard output.")
@click.option("--checkpoint", metavar="FOLDER", help="Where it goes on from; OUTPUT/_checkpoint where there is one.")
@session_options
@job
def command(
    place: JournalPlace,
    once: bool,
    every: int,
    late: int | None,
    window: int,
    limits: Thresholds,
    output: str | None,
    checkpoint: str | None,
    spark: OpenSpark,
) -> int:
    """Tell of runaway partitions as the journal grows."""
    if place.folder is not None and any(Path(place.folder).glob(f"{KIND}=*")):
        raise CannotRun(f"{place} is what `compact` made: runaways reads what the proxy writes (dt=…/hour=…).")
    watching = Watching(
        window,
        late or (LATE_TOPIC_S if place.in_kafka else LATE_FILES_S),
        limits,
    )
    session = spark("runaways", place.in_kafka, (_STORES,))
    # What expired before it was read is past: who runs away now is told all the same.
    rows = stream_rows(session, place, FILES_A_TRIGGER, skip_expired=True)
    query = start(
        stream_changes(rows, watching),
        output,
        checkpoint,
        None if once else every,
    )
    await_end(query)
    if dropped := too_late(query):
        click.echo(f"{dropped:,} rows came too late to be judged: see --late.", err=True)
    return CLEAN
