"""Job `maintain`: keeps the tables of `compact` in few large files, and deletes what they no longer need.

In: a folder of tables. Out: the same rows in the same tables. It may run beside `compact`, which appends meanwhile.
"""

from __future__ import annotations

from typing import NamedTuple

import click
from pyspark.sql import SparkSession

from forebay_pipeline.errors import CLEAN, CannotRun
from forebay_pipeline.jobs.options import OpenSpark, job, session_options
from forebay_pipeline.journal.table_writer import lock, order
from forebay_pipeline.journal.tables import FORMATS, NAMES, PARQUET, Format, tables_in
from forebay_pipeline.storage import Storage


class Maintained(NamedTuple):
    """What was done to one table."""

    name: str
    before: int
    """Files that a reader of the whole table opened."""
    after: int


def maintain(spark: SparkSession, folder: str, table_format: Format, keep_days: int) -> list[Maintained]:
    """Of each table that there is. Former states of the last `keep_days` days stay readable.

    Raises CannotRun if there are none.
    """
    tables, storage = tables_in(spark, folder, table_format), Storage(spark)
    done = []
    for name in NAMES:
        table = tables.read(name)
        if table is None:
            continue
        before = tables.files(name)
        with storage.locked(lock(folder, name)):
            tables.rewrite(name, order(table.columns))
            tables.forget(name, keep_days)
        done.append(Maintained(name, before, tables.files(name)))
    if not done:
        raise CannotRun(f"There is no journal in {folder}: it has no tables of {table_format}.")
    return done


@click.command("maintain")
@click.option("--journal", "folder", required=True, metavar="FOLDER", help="The output of `compact`.")
@click.option(
    "--format",
    "table_format",
    required=True,
    type=click.Choice([each for each in FORMATS if each != PARQUET]),
    help="Format of the tables.",
)
@click.option(
    "--keep-days",
    type=click.IntRange(1, 36_500),
    default=3,
    show_default=True,
    metavar="DAYS",
    help="Keep table snapshots of the last DAYS days, for running queries and time travel.",
)
@session_options
@job
def command(*, folder: str, table_format: Format, keep_days: int, spark: OpenSpark) -> int:
    """Merge small files into large ones, and delete old snapshots of the tables."""
    for name, before, after in maintain(spark("maintain", table_format=table_format), folder, table_format, keep_days):
        click.echo(f"{name}: {before:,} {'file' if before == 1 else 'files'}, {after:,} now")
    return CLEAN
