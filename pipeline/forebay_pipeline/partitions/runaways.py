"""Job `runaways`: reports runaway partitions while the journal grows.

In: the journal's files or topic. Out: a sentence when a partition begins to run away, and one when it recovers; with
--output JSON lines instead, each exactly once, across restarts with the same --checkpoint too.
"""

from __future__ import annotations

import click
from pyspark.sql import Row

from forebay_pipeline.errors import CLEAN
from forebay_pipeline.jobs.driver_sink import DriverSink
from forebay_pipeline.jobs.json_lines import JsonLines
from forebay_pipeline.jobs.live import STORES, live_options, live_rows, tell_late, wait_s
from forebay_pipeline.jobs.options import OpenSpark, job, journal_options, session_options
from forebay_pipeline.jobs.time_text import instant
from forebay_pipeline.journal.output_owner import claim
from forebay_pipeline.journal.source import JournalPlace
from forebay_pipeline.partitions.runaway_detector import Event, Thresholds
from forebay_pipeline.partitions.runaway_options import runaway_options
from forebay_pipeline.partitions.runaways_stream import COLUMNS, KINDS, Watching, stream_changes
from forebay_pipeline.storage import Storage


class Changes:
    """Tells each batch of rows in CHANGES, in the order of time: as sentences, or to `output`."""

    def __init__(self, output: JsonLines | None) -> None:
        self._output = output

    def told(self, number: int, rows: list[Row]) -> None:
        """Tell the rows of a batch. Raises CannotRun as `output` does."""
        changes = sorted(rows, key=lambda row: (row.window_us, row.topic, row.partition))
        if self._output is not None:
            self._output.tell(number, [change.asDict() for change in changes])
            return
        for change in changes:
            click.echo(sentence(change))


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
    session = spark("runaways", kafka=place.in_kafka, settings=STORES)
    storage = Storage(session)
    rows = live_rows(session, place, KINDS, COLUMNS, "runaways")
    changes = Changes(None)
    if output is not None:
        checkpoint = checkpoint or f"{output.rstrip('/')}/_checkpoint"
        changes = Changes(JsonLines(storage, output, "changes", checkpoint))
    if checkpoint is not None:
        claim(storage, checkpoint, "runaways")
    batches = DriverSink(changes.told)
    batches.start(stream_changes(rows, watching), checkpoint, None if once else every)
    batches.await_end()
    tell_late(batches.late, "portions of windows")
    return CLEAN
