"""When a streaming query is triggered, how it stops, and what its batches tell of themselves meanwhile.

SIGINT and SIGTERM stop a query at any time: a batch that was under way is not committed to the checkpoint, and the next
run does it again.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import Any, Final

from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

_LOOK_S: Final = 0.2


def triggered(writer: DataStreamWriter, every: int | None) -> DataStreamWriter:
    """Trigger every `every` seconds; with None, process what is there now and end."""
    return writer.trigger(availableNow=True) if every is None else writer.trigger(processingTime=f"{every} seconds")


def await_end(query: StreamingQuery, told: Callable[[Any], None]) -> None:
    """Wait until the query ends, or stop it on SIGINT or SIGTERM. `told` is called with Spark's progress of each batch.

    Raises StreamingQueryException if the query fails.
    """
    # Not by awaitTermination alone: its signal handler would call into the JVM in the middle of another call.
    asked = threading.Event()
    batches = _Batches(query, told)
    before = {number: signal.signal(number, lambda *_: asked.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        while query.isActive and not asked.wait(_LOOK_S):
            batches.look()
        if asked.is_set():
            query.stop()
        else:
            query.awaitTermination()
        batches.look()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Batches:
    """Tells each batch of a query once, if it is looked at often: Spark remembers the last hundred."""

    def __init__(self, query: StreamingQuery, told: Callable[[Any], None]) -> None:
        self._query = query
        self._told = told
        self._last = ""

    def look(self) -> None:
        # Not by their numbers: a trigger that finds nothing has that of the next batch.
        last = self._query.lastProgress
        if last is None or last["timestamp"] == self._last:
            return
        for progress in self._query.recentProgress:
            if progress["timestamp"] > self._last:
                self._last = progress["timestamp"]
                self._told(progress)
