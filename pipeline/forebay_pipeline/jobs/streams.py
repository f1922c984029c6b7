"""A streaming query from its start to its end: how often it looks, and how it is told to stop.

In: a query, or its writer. Out: when it has ended, because all is read, or because SIGINT or SIGTERM said so. What was
under way then is done again by the next run: what is written counts only once its checkpoint says so. Wrong:
StreamingQueryException, where the query fails.
"""

from __future__ import annotations

import signal
import threading
from typing import Final

from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

_LOOK_S: Final = 0.2


def triggered(writer: DataStreamWriter, every: int | None) -> DataStreamWriter:
    """`every`: seconds between two looks for what is new; None: what is there now, then it ends."""
    return writer.trigger(availableNow=True) if every is None else writer.trigger(processingTime=f"{every} seconds")


def await_end(query: StreamingQuery) -> None:
    """Not by awaitTermination: a signal would find it in the middle of a question to the JVM, and ask another one."""
    asked = threading.Event()
    before = {number: signal.signal(number, lambda *_: asked.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        while query.isActive and not asked.wait(_LOOK_S):
            pass
        if asked.is_set():
            query.stop()
        else:
            query.awaitTermination()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
