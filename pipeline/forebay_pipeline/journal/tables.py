"""What `compact --format iceberg|delta` writes: a table for each kind of row, partitioned by day, and one for the rest.

    FOLDER/batch, FOLDER/ledger, …    a kind's own columns, the day (schema.DAY) and unknown fields (schema.UNKNOWN)
    FOLDER/other                      unreadable lines, and kinds that were not known; all columns

In: a folder and a format. Out: Tables, by which rows are read, appended and kept in few large files.
"""

from __future__ import annotations

import typing
from collections.abc import Collection, Sequence
from typing import Final, Literal, Protocol

from pyspark.sql import DataFrame, SparkSession

from forebay_pipeline.errors import CannotRun
from forebay_pipeline.journal.delta import DeltaTables
from forebay_pipeline.journal.iceberg import IcebergTables
from forebay_pipeline.journal.schema import KIND, kind_of
from forebay_pipeline.storage import Storage
from forebay_policies.journal_rows import ROWS

Format = Literal["parquet", "iceberg", "delta"]
"""Of what `compact` writes; Parquet alone is no table."""
FORMATS: Final[tuple[Format, ...]] = typing.get_args(Format)
PARQUET: Final = "parquet"
OTHER: Final = "other"
KINDS: Final = tuple(kind_of(row) for row in ROWS)
NAMES: Final = (*KINDS, OTHER)

_MARKS: Final[dict[Format, str]] = {"iceberg": "metadata", "delta": "_delta_log"}
"""The folder in a table's that makes it one."""


class Tables(Protocol):
    """The tables in one folder. A name is one of NAMES."""

    def read(self, name: str) -> DataFrame | None:
        """The table as it is now; None if there is none."""

    def append(self, name: str, rows: DataFrame, query: str, batch: int) -> None:
        """Add the rows in one commit, unless the table has that batch of that query already.

        A table that is not there is made, columns that it lacks are added.
        """

    def last(self, name: str, query: str) -> int:
        """The last batch of the query that the table has; -1 if it has none, or there is no table."""

    def files(self, name: str) -> int:
        """How many files a reader of the whole table opens."""

    def rewrite(self, name: str, order: Sequence[str]) -> None:
        """Make large files of a day's small ones, in that order. Rows that are appended meanwhile stay as they are."""

    def forget(self, name: str, days: int) -> None:
        """Delete what nothing has referred to for so many days: former states, and files that a crash left behind."""


def tables_in(spark: SparkSession, folder: str, table_format: Format) -> Tables:
    """Raises CannotRun if the folder has something else than tables of that format."""
    check_format(Storage(spark), folder, table_format)
    return IcebergTables(spark, folder) if table_format == "iceberg" else DeltaTables(spark, folder)


def check_format(storage: Storage, folder: str, expected: Format) -> None:
    """Raises CannotRun if `compact` wrote the folder in another format; nothing may be there."""
    if storage.is_folder(folder):
        expect(folder, format_of(storage, folder, storage.names(folder)), expected)


def expect(folder: str, found: Format | None, expected: Format) -> None:
    """Raises CannotRun if the folder was found to be in another format."""
    if found not in (None, expected):
        raise CannotRun(f"{folder} was written by `compact --format {found}`: give --format {found}.")


def format_of(storage: Storage, folder: str, names: Collection[str]) -> Format | None:
    """In which format `compact` wrote the folder, which has files and folders of those names; None if it did not."""
    if "_spark_metadata" in names or any(name.startswith(f"{KIND}=") for name in names):
        return PARQUET
    for name in names:
        for table_format, mark in _MARKS.items():
            if name in NAMES and storage.is_folder(f"{folder.rstrip('/')}/{name}/{mark}"):
                return table_format
    return None
