"""Job `compact`: what is new in the journal, to Parquet in `kind=…/dt=…/topic=…`.

In: the journal's files or topic. Out: Parquet that every other job reads in place of the journal; each row once,
also over restarts: what was read stands in the checkpoint, what was written in the output's `_spark_metadata`.
Rows of no topic (gauges, metadata requests) are in `topic=__HIVE_DEFAULT_PARTITION__`, lines that could not be read in
`kind=_torn`.
"""

from __future__ import annotations

from typing import NamedTuple

import click
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from forebay_pipeline.errors import CLEAN, CannotRun
from forebay_pipeline.jobs.options import OpenSpark, job, journal_options, session_options
from forebay_pipeline.jobs.streams import await_end, triggered
from forebay_pipeline.journal.schema import KIND
from forebay_pipeline.journal.source import TORN, JournalPlace, stream_rows

_COUNTS = "compacted"
_PROGRESS_KEPT = "100000"
"""Triggers of one run whose counts are added up."""


class Compacted(NamedTuple):
    rows: int
    torn: int


def compact(
    spark: SparkSession,
    place: JournalPlace,
    output: str,
    checkpoint: str | None = None,
    every: int | None = None,
    skip_expired: bool = False,
) -> StreamingQuery:
    """Start it. `every`: seconds between two looks for what is new; None: what is there now, then it ends."""
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", _PROGRESS_KEPT)
    writer = (
        _counted(stream_rows(spark, place, skip_expired=skip_expired))
        .withColumn("dt", F.date_format(F.timestamp_micros("time_us"), "yyyy-MM-dd"))
        .writeStream.format("parquet")
        .partitionBy(KIND, "dt", "topic")
        .option("path", output)
        .option("checkpointLocation", checkpoint or f"{output.rstrip('/')}/_checkpoint")
    )
    return triggered(writer, every).start()


def await_compacted(query: StreamingQuery) -> None:
    """CannotRun, where rows of a topic expired before they were read."""
    try:
        await_end(query)
    except StreamingQueryException as error:
        if "failOnDataLoss" in str(error):
            raise CannotRun(
                "Rows of the journal's topic expired before they were read; --skip-expired goes on with what is left."
            ) from error
        raise


def compacted(query: StreamingQuery) -> Compacted:
    """What it has written so far."""
    rows = torn = 0
    for progress in query.recentProgress:
        counts = progress.observedMetrics.get(_COUNTS)
        if counts is not None:
            rows += counts["rows"] or 0
            torn += counts["torn"] or 0
    return Compacted(rows, torn)


def _counted(rows: DataFrame) -> DataFrame:
    is_torn = F.col(KIND) == TORN
    return rows.observe(_COUNTS, F.count(F.when(~is_torn, 1)).alias("rows"), F.count(F.when(is_torn, 1)).alias("torn"))


@click.command("compact")
@journal_options
@click.option("--output", required=True, metavar="FOLDER", help="Where the Parquet goes.")
@click.option("--checkpoint", metavar="FOLDER", help="What was read already; _checkpoint in the output by default.")
@click.option("--every", type=click.IntRange(1), metavar="SECONDS", help="Go on for ever, looking so often.")
@click.option("--skip-expired", is_flag=True, help="Go on, though rows of the topic expired before they were read.")
@session_options
@job
def command(
    place: JournalPlace,
    output: str,
    checkpoint: str | None,
    every: int | None,
    skip_expired: bool,
    spark: OpenSpark,
) -> int:
    """Write what is new in the journal to Parquet, each row once."""
    query = compact(spark("compact", place.in_kafka), place, output, checkpoint, every, skip_expired)
    await_compacted(query)
    rows, torn = compacted(query)
    click.echo(f"{rows:,} rows written to {output}" + (f"; {torn:,} lines or files could not be read" if torn else ""))
    return CLEAN
