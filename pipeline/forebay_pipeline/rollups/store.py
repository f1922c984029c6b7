"""Rollups in a folder, wherever Spark reaches it: which days are there, their tables, and how a day comes there.

    FOLDER/v3/days/2026-11-21.json            written last: the day is there
    FOLDER/v3/batches/dt=2026-11-21/…         and so each of tables.TABLES, in Parquet

So a day is there wholly or not at all, whatever ends the job that writes it; what is left of half a day is replaced by
the next one. Days of another version (v1) are beside these, and not seen. Raises CannotRun where the folder cannot be
read or written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

import msgspec
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from forebay_pipeline.errors import CannotRun
from forebay_pipeline.journal.schema import DAY
from forebay_pipeline.rollups.tables import VERSION, Table
from forebay_pipeline.storage import Storage

_MARK: Final = re.compile(r"(\d{4}-\d{2}-\d{2})\.json")

FEW_LISTINGS: Final = {"spark.sql.sources.parallelPartitionDiscovery.parallelism": "8"}
"""For a session that reads many days: by default each day's folder is a task, in which its files are looked for."""


class Mark(msgspec.Struct, frozen=True):
    """What is noted of a day that is there."""

    batches: int
    torn: int
    """Unreadable lines and files, whatever their time."""
    follows: bool
    """Its runaways go on from the day before, which was there first."""


class RollupStore:
    """The rollups in one folder."""

    def __init__(self, spark: SparkSession, folder: str) -> None:
        self._spark = spark
        self._storage = Storage(spark)
        self.folder: Final = folder.rstrip("/") or "/"
        self._place = f"{self.folder.rstrip('/')}/v{VERSION}"

    def days(self) -> list[str]:
        """The days that are there, in order."""
        if not self._storage.is_folder(f"{self._place}/days"):
            return []
        marks = map(_MARK.fullmatch, self._storage.names(f"{self._place}/days"))
        return sorted(mark[1] for mark in marks if mark is not None)

    def mark(self, day: str) -> Mark:
        """Of a day that is there."""
        path = f"{self._place}/days/{day}.json"
        try:
            return msgspec.json.decode(self._storage.read(path) or b"", type=Mark)
        except msgspec.DecodeError as error:
            raise CannotRun(f"{path} was not written by `rollup`: {error}.") from error

    @contextmanager
    def locked(self) -> Iterator[None]:
        """While it lasts, no other job writes there; on a local disk, as Storage.locked has it."""
        with self._storage.locked(f"{self.folder}/.rollup.lock"):
            yield

    def write(self, day: str, tables: Mapping[Table, DataFrame], mark: Mark) -> None:
        """Write a day that is not there, and say that it is."""
        for table, rows in tables.items():
            typed = rows.selectExpr(*(f"CAST({name} AS {kind}) AS {name}" for name, kind in table.columns.items()))
            one = typed.repartition(1)
            if table.keys:
                one = one.sortWithinPartitions(*table.keys)
            one.write.mode("overwrite").parquet(self._path(table, day))
        self.mark_as(day, mark)

    def mark_as(self, day: str, mark: Mark) -> None:
        """Say that the day is there, or something else of it."""
        self._storage.write(f"{self._place}/days/{day}.json", msgspec.json.encode(mark))

    def read(self, table: Table, days: Sequence[str]) -> DataFrame:
        """The table's rows of these days, all of which are there."""
        if not days:
            return self._spark.createDataFrame([], table.schema)
        try:
            return self._spark.read.schema(table.schema).parquet(*(self._path(table, day) for day in days))
        except PySparkException as error:
            raise CannotRun(f"Cannot read the rollups in {self.folder}: {str(error).splitlines()[0]}") from error

    def _path(self, table: Table, day: str) -> str:
        return f"{self._place}/{table.name}/{DAY}={day}"
