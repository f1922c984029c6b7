"""Job `compact`: copies new rows of the journal to Parquet, partitioned as `kind=…/dt=…/topic=…`, or to tables.

In: the journal's files or topic. Out: what all other jobs but `runaways` and `watch` accept in place of the journal.
Each row is written exactly once, across restarts too: the checkpoint records what was read, the output's
`_spark_metadata`, or each table's own log, what was written. Fields that this version does not know are kept as JSON in
a column of their own (schema.UNKNOWN), for readers that know them. In Parquet, rows without a topic (gauges, metadata
requests) go to `topic=__HIVE_DEFAULT_PARTITION__`, unreadable lines to `kind=_torn`; tables are as tables.py says.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final, NamedTuple

import click
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from forebay_pipeline.errors import CLEAN, CannotRun
from forebay_pipeline.jobs.options import OpenSpark, format_option, job, journal_options, session_options
from forebay_pipeline.jobs.streams import await_end, triggered
from forebay_pipeline.journal.output_owner import check_owner, check_place, claim, named_query, own
from forebay_pipeline.journal.schema import DAY, KIND, TORN
from forebay_pipeline.journal.source import OFFSETS_A_TRIGGER, JournalPlace, stream_rows
from forebay_pipeline.journal.table_writer import TableWriter
from forebay_pipeline.journal.tables import PARQUET, Format, check_format, tables_in
from forebay_pipeline.storage import Storage

_COUNTS: Final = "compacted"
WRITERS: Final = {"spark.sql.maxConcurrentOutputFileWriters": "100"}
"""Files of Parquet that a task has open at once: while its rows go to no more, they need not be sorted, a tenth of the
work."""
NARROW_ONLY: Final = {"spark.sql.codegen.maxFields": "50"}
"""What handles rows of all kinds, of 90 fields, in one piece takes the JVM's compiler ten seconds, twice, and is no
faster; Spark's own limit is 100. (Not for jobs that read Parquet, which beyond it is read row by row.)"""


class Compacted(NamedTuple):
    """What one run has written."""

    rows: int
    torn: int
    """Unreadable lines and files."""


def compact(
    spark: SparkSession,
    place: JournalPlace,
    output: str,
    checkpoint: str | None = None,
    every: int | None = None,
    *,
    output_format: Format = PARQUET,
    offsets_a_trigger: int = OFFSETS_A_TRIGGER,
    skip_expired: bool = False,
) -> StreamingQuery:
    """Start a query that appends new rows of the journal at `place` to the folder `output`.

    `checkpoint` defaults to `output`/_checkpoint. `every` is the number of seconds between checks for new rows; with
    None the query ends when it has written what is there now. With `skip_expired`, rows of the journal's topic that
    expired unread do not fail the query. Raises CannotRun if there is no journal, if `output` has another format, if it
    is Parquet that was moved, or written with another checkpoint, or if the checkpoint is another job's, or behind
    `output`.
    """
    storage = Storage(spark)
    checkpoint = checkpoint or f"{output.rstrip('/')}/_checkpoint"
    read = stream_rows(
        spark,
        place,
        skip_expired=skip_expired,
        unknown=True,
        folders=output_format == PARQUET,
        offsets_a_trigger=offsets_a_trigger,
    )
    rows = _counted(read)
    if output_format == PARQUET:
        check_format(storage, output, PARQUET)
        check_place(storage, output)
        check_owner(storage, output, checkpoint)
        writer = rows.writeStream.format("parquet").partitionBy(KIND, DAY, "topic").option("path", output)
    else:
        tables = TableWriter(tables_in(spark, output, output_format), storage, output, checkpoint)
        writer = rows.writeStream.foreachBatch(tables.batch)
    claim(storage, checkpoint, "compact")
    if output_format == PARQUET:
        own(storage, output, named_query(storage, checkpoint))
    return triggered(writer.option("checkpointLocation", checkpoint), every).start()


def await_compacted(query: StreamingQuery, *, endless: bool = False) -> Compacted:
    """What the query has written, once it ends, or a signal stops it and it is `endless`.

    Raises CannotRun if rows of the topic expired unread, Stopped if another one was stopped.
    """
    written = Counter[str]()

    def told(progress: Any) -> None:
        counts = progress.get("observedMetrics", {}).get(_COUNTS)  # Spark 3.5 leaves out what is empty
        if counts is not None:
            written.update({name: counts[name] or 0 for name in Compacted._fields})

    try:
        await_end(query, told, endless=endless)
    except StreamingQueryException as error:
        if "failOnDataLoss" in str(error):
            raise CannotRun(
                "Rows of the journal's topic expired before they were read; --skip-expired continues without them."
            ) from error
        raise
    return Compacted(written["rows"], written["torn"])


def _counted(rows: DataFrame) -> DataFrame:
    is_torn = F.col(KIND) == TORN
    return rows.observe(_COUNTS, F.count(F.when(~is_torn, 1)).alias("rows"), F.count(F.when(is_torn, 1)).alias("torn"))


@click.command("compact")
@journal_options
@click.option("--output", required=True, metavar="FOLDER", help="Folder to write to.")
@format_option("Plain Parquet, or tables of Apache Iceberg or Delta Lake.")
@click.option("--checkpoint", metavar="FOLDER", help="Folder that records progress; OUTPUT/_checkpoint by default.")
@click.option(
    "--every", type=click.IntRange(1), metavar="SECONDS", help="Keep running, checking for new rows this often."
)
@click.option(
    "--max-offsets-per-trigger",
    "offsets_a_trigger",
    type=click.IntRange(1),
    default=OFFSETS_A_TRIGGER,
    show_default=True,
    metavar="RECORDS",
    help="Take at most this many records of the topic at once.",
)
@click.option("--skip-expired", is_flag=True, help="Continue if rows of the topic expired before they were read.")
@session_options
@job
def command(
    *,
    place: JournalPlace,
    output: str,
    checkpoint: str | None,
    every: int | None,
    table_format: Format,
    offsets_a_trigger: int,
    skip_expired: bool,
    spark: OpenSpark,
) -> int:
    """Copy new journal rows to Parquet, or to tables of Iceberg or Delta.

    Each row is written exactly once. The other jobs read the result faster than the journal.
    """
    session = spark("compact", kafka=place.in_kafka, table_format=table_format, settings=WRITERS | NARROW_ONLY)
    query = compact(
        session,
        place,
        output,
        checkpoint,
        every,
        output_format=table_format,
        offsets_a_trigger=offsets_a_trigger,
        skip_expired=skip_expired,
    )
    rows, torn = await_compacted(query, endless=every is not None)
    click.echo(f"{rows:,} rows written to {output}" + (f"; {torn:,} lines or files could not be read" if torn else ""))
    return CLEAN
