"""When a streaming query is triggered, how it stops, and what its batches tell of themselves meanwhile.

SIGINT and SIGTERM stop a query at any time: a batch that was under way is not committed to the checkpoint, and the next
run does it again. It is how a query that goes on for ever ends well; one that was to do what is there has not done it.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import Any, Final

from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from forebay_pipeline.errors import Stopped

_LOOK_S: Final = 0.2


def triggered(writer: DataStreamWriter, every: int | None) -> DataStreamWriter:
    """Trigger every `every` seconds; with None, process what is there now and end."""
    return writer.trigger(availableNow=True) if every is None else writer.trigger(processingTime=f"{every} seconds")


def await_end(query: StreamingQuery, told: Callable[[Any], None], *, endless: bool = False) -> None:
    """Wait until the query ends, or stop it on SIGINT or SIGTERM. `told` is called with Spark's progress of each batch.

    Raises StreamingQueryException if the query fails, Stopped if a signal came, unless it is `endless`.
    """
    # Not by awaitTermination alone: its signal handler would call into the JVM in the middle of another call.
    asked = threading.Event()
    came: list[int] = []

    def stop(number: int, _: object) -> None:
        came.append(number)
        asked.set()

    batches = _Batches(query, told)
    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
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
    if came and not endless:
        raise Stopped(came[0])


class _Batches:
    """Tells each batch of a query once, if it is looked at often: Spark remembers the last hundred."""

    def __init__(self, query: StreamingQuery, told: Callable[[Any], None]) -> None:
        self._query = query
        self._told = told
        self._known: list[tuple[str, int]] = []

    def look(self) -> None:
        # Not by number alone, which a trigger that finds nothing has in common with the next batch, nor by time alone:
        # clocks are set back.
        last = self._query.lastProgress
        if last is None or self._known[-1:] == [_name(last)]:
            return
        recent = self._query.recentProgress
        for progress in recent:
            if _name(progress) not in self._known:
                self._told(progress)
        self._known = [_name(progress) for progress in recent]


def _name(progress: Any) -> tuple[str, int]:
    return progress["timestamp"], progress["batchId"]
