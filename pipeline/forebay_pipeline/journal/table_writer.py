"""Appends a stream's rows to the tables of their kinds, each batch once, also after a crash.

In: batches of rows of all kinds, as stream_rows(…, unknown=True) has them. Out: one commit a batch and table, sorted by
topic and time, so that the smallest and largest values of files tell which topics are in them.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from forebay_pipeline.journal.columns import day_of
from forebay_pipeline.journal.output_owner import check_begun, query_id
from forebay_pipeline.journal.schema import DAY, KIND, SPARK_SCHEMA, UNKNOWN, columns_of, kind_of
from forebay_pipeline.journal.tables import KINDS, NAMES, OTHER, Tables
from forebay_pipeline.storage import Storage
from forebay_policies.journal_rows import ROWS

_ROWS_A_FILE: Final = 250_000
"""Some 10 MB, and a task each. `maintain` makes larger ones."""
_COLUMNS: Final = {kind_of(row): [DAY, *columns_of(row)[1:], UNKNOWN] for row in ROWS}


def order(columns: list[str]) -> list[str]:
    """What rows with these columns are sorted by."""
    return [name for name in ("topic", "time_us") if name in columns]


class TableWriter:
    """Appends to `tables`, which are in `folder`, what the query with that `checkpoint` reads.

    Raises CannotRun if they have batches of it that the checkpoint does not know: it is older than they are.
    """

    def __init__(self, tables: Tables, storage: Storage, folder: str, checkpoint: str) -> None:
        query = query_id(storage, checkpoint)
        if query is not None:
            check_begun(storage, folder, checkpoint, max(tables.last(name, query) for name in NAMES))
        self._tables = tables
        self._storage = storage
        self._folder = folder.rstrip("/")
        self._checkpoint = checkpoint

    def batch(self, rows: DataFrame, number: int) -> None:
        """For foreachBatch."""
        query = query_id(self._storage, self._checkpoint)
        assert query is not None  # Spark writes it before the first batch
        rows = rows.withColumn(DAY, day_of("time_us")).persist()  # decoded once for all tables
        try:
            counts = {row[KIND]: row["count"] for row in rows.groupBy(KIND).count().collect()}
            for kind in sorted(counts.keys() & _COLUMNS.keys()):
                of_kind = rows.where(F.col(KIND) == kind).select(_COLUMNS[kind])
                self._append(kind, of_kind, counts[kind], query, number)
            others = sum(counts[kind] for kind in counts.keys() - _COLUMNS.keys())
            if others:
                columns = [DAY, *SPARK_SCHEMA.names, UNKNOWN]
                self._append(OTHER, rows.where(~F.col(KIND).isin(*KINDS)).select(columns), others, query, number)
        finally:
            rows.unpersist()

    def _append(self, name: str, rows: DataFrame, count: int, query: str, number: int) -> None:
        by = [DAY, *order(rows.columns)]
        files = -(-count // _ROWS_A_FILE)
        spread = rows.coalesce(1) if files == 1 else rows.repartitionByRange(files, *by)
        with self._storage.locked(lock(self._folder, name)):
            self._tables.append(name, spread.sortWithinPartitions(*by), query, number)


def lock(folder: str, name: str) -> str:
    """What to lock while a table in the folder is changed: see Storage.locked."""
    return f"{folder.rstrip('/')}/.{name}.lock"
