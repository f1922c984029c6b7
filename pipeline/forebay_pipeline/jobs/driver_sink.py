"""A stream whose rows come to the driver, batch by batch.

In: a streaming DataFrame, of which each batch is small, and what is to be done with a batch. A batch that was not
committed is done again by the next run, with the same number and the same rows. What ends a batch as CannotRun ends the
stream, and `await_end` raises it: Spark would make pages of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Row
from pyspark.sql.streaming.query import StreamingQuery

from forebay_pipeline.errors import CannotRun
from forebay_pipeline.jobs.streams import await_end, triggered


class DriverSink:
    """Hands each batch to `take`: its number, and its rows."""

    def __init__(self, take: Callable[[int, list[Row]], None]) -> None:
        self._take = take
        self._query: StreamingQuery | None = None
        self._endless = False
        self._failed: CannotRun | None = None
        self.late = 0
        """Rows that came after what they belong to had been judged."""

    def start(self, rows: DataFrame, checkpoint: str | None, every: int | None) -> None:
        """Start the query. `every` is the number of seconds between checks for new rows; with None it ends when it has
        done with what is there now."""
        writer = rows.writeStream.outputMode("append").foreachBatch(self._batch)
        if checkpoint is not None:
            writer = writer.option("checkpointLocation", checkpoint)
        self._query = triggered(writer, every).start()
        self._endless = every is not None

    def await_end(self) -> None:
        """Wait until the query ends or a signal stops it. Raises CannotRun as `take` does, and Stopped."""
        assert self._query is not None
        try:
            await_end(self._query, self._count_late, endless=self._endless)
        except StreamingQueryException as error:
            raise self._failed or error from error

    def _batch(self, rows: DataFrame, number: int) -> None:
        try:
            self._take(number, rows.collect())
        except CannotRun as error:
            self._failed = error
            raise

    def _count_late(self, progress: Any) -> None:
        self.late += sum(operator["numRowsDroppedByWatermark"] for operator in progress["stateOperators"])
