"""Job `rollup`: keeps of each day that is over what a report needs to know of it.

In: the journal. Out: tables of each day (tables.py) in a folder, for `report --rollups`. It reads only days that are
not there yet, so that run daily it reads a day. A day is there wholly or not at all, whatever ends the job.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator

import click
import msgspec
from pyspark.sql import SparkSession

from forebay_pipeline.advice.gather import COLUMNS, KEPT
from forebay_pipeline.errors import CLEAN
from forebay_pipeline.jobs.options import OpenSpark, compacted_options, job, session_options, span_options
from forebay_pipeline.journal.source import JournalPlace
from forebay_pipeline.journal.span import Span
from forebay_pipeline.partitions.measures import kept_rows
from forebay_pipeline.rollups.days import after, before, over, span_of
from forebay_pipeline.rollups.roll import roll
from forebay_pipeline.rollups.store import Mark, RollupStore
from forebay_pipeline.rollups.tables import RUNAWAYS


def rollup(
    spark: SparkSession, place: JournalPlace, span: Span, folder: str, now_us: int
) -> Iterator[tuple[str, Mark]]:
    """Roll up the days within `span` that are over at `now_us` and not in the folder, in order; each once it is there.

    Raises CannotRun if there is no journal, or the folder cannot be written.
    """
    store = RollupStore(spark, folder)
    with store.locked():
        there = store.days()
        for day in over(spark, place, span, now_us):
            if day not in there:
                yield day, _roll_up(spark, place, store, day, there)
                there.append(day)


def _roll_up(spark: SparkSession, place: JournalPlace, store: RollupStore, day: str, there: Collection[str]) -> Mark:
    earlier = before(day)
    known = store.read(RUNAWAYS, [earlier]) if earlier in there else None
    with kept_rows(spark, place, span_of(day), KEPT, of_these=COLUMNS) as rows:
        mark = Mark(rows.batches.count(), rows.torn, follows=known is not None)
        if (later := after(day)) in there:  # it goes on from what there was of this day before, if at all
            store.mark_as(later, msgspec.structs.replace(store.mark(later), follows=False))
        store.write(day, roll(rows, span_of(day), known), mark)
    return mark


@click.command("rollup")
@compacted_options
@span_options
@click.option("--output", required=True, metavar="FOLDER", help="Folder that has the days.")
@session_options
@job
def command(*, place: JournalPlace, span: Span, output: str, spark: OpenSpark) -> int:
    """Keep of each day what `report --rollups` needs to know.

    Only days that are over, and not there yet, are read. A day is over once the journal has rows of an hour later.
    """
    session = spark("rollup", kafka=place.in_kafka, table_format=place.format)
    new = False
    for day, mark in rollup(session, place, span, output, time.time_ns() // 1000):
        new = True
        torn = f"; {mark.torn:,} lines or files could not be read" if mark.torn else ""
        click.echo(f"{day}: {mark.batches:,} batches{torn}")
    if not new:
        which = "finished day" if span == Span() else "whole and finished day of that time"
        click.echo(f"Nothing to do: every {which} is rolled up.")
    return CLEAN
