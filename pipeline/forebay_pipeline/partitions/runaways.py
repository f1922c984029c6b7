"""Job `runaways`: reports runaway partitions while the journal grows.

In: the journal's files or topic. Out: a sentence when a partition begins to run away, and one when it recovers; with
--output JSON lines instead, each exactly once, across restarts with the same --checkpoint too.
"""

from __future__ import annotations

import click
from pyspark.sql import DataFrame, Row
from pyspark.sql.streaming.query import StreamingQuery

from forebay_pipeline.errors import CLEAN
from forebay_pipeline.jobs.live import STORES, dropped, live_options, live_rows, tell_dropped, wait_s
from forebay_pipeline.jobs.options import OpenSpark, job, journal_options, session_options
from forebay_pipeline.jobs.streams import await_end, triggered
from forebay_pipeline.jobs.time_text import instant
from forebay_pipeline.journal.source import JournalPlace
from forebay_pipeline.partitions.runaway_detector import Event, Thresholds
from forebay_pipeline.partitions.runaway_options import runaway_options
from forebay_pipeline.partitions.runaways_stream import Watching, stream_changes


def start(changes: DataFrame, output: str | None, checkpoint: str | None, every: int | None) -> StreamingQuery:
    """Start a query that reports `changes` (in CHANGES) as JSON lines in the folder `output`, or as sentences.

    `checkpoint` defaults to `output`/_checkpoint. `every` is the number of seconds between checks for new rows; with
    None the query ends when it has judged what is there now.
    """
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


def sentence(change: Row) -> str:
    """A row of CHANGES for people."""
    place = f"{instant(change.window_us)} {change.topic} partition {change.partition}"
    if change.event == Event.QUIET:
        return f"{place} is no longer watched: its topic went quiet"
    what = "has been running away since" if change.event == Event.RUNAWAY else "recovered at"
    return (
        f"{place} {what} {instant(change.since_us)}: {100 * change.share:.1f} % of the bytes, "
        f"{change.times_fair:.2f} × its fair share; waits {change.wait_us / 1000:,.1f} ms, "
        f"the others {change.others_wait_us / 1000:,.1f} ms"
    )


def too_late(query: StreamingQuery) -> int:
    """Rows dropped because their windows had been judged, in the triggers that the query still remembers."""
    return sum(dropped(progress) for progress in query.recentProgress)


@click.command()
@journal_options
@live_options(every=10)
@runaway_options
@click.option("--output", metavar="FOLDER", help="Write JSON lines to this folder instead of printing sentences.")
@click.option("--checkpoint", metavar="FOLDER", help="Folder that records progress; OUTPUT/_checkpoint with --output.")
@session_options
@job
def command(
    *,
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
    """Report runaway partitions as they happen."""
    watching = Watching(window_s=window, late_s=wait_s(place, late), thresholds=limits)
    session = spark("runaways", kafka=place.in_kafka, settings=(STORES,))
    rows = live_rows(session, place, "runaways")
    query = start(stream_changes(rows, watching), output, checkpoint, None if once else every)
    await_end(query)
    tell_dropped(too_late(query))
    return CLEAN
