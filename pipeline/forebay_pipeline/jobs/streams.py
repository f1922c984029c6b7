"""When a streaming query is triggered, and how it stops.

SIGINT and SIGTERM stop a query at any time: a batch that was under way is not committed to the checkpoint, and the next
run does it again.
"""

from __future__ import annotations

import signal
import threading
from typing import Final

from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

_LOOK_S: Final = 0.2


def triggered(writer: DataStreamWriter, every: int | None) -> DataStreamWriter:
    """Trigger every `every` seconds; with None, process what is there now and end."""
    return writer.trigger(availableNow=True) if every is None else writer.trigger(processingTime=f"{every} seconds")


def await_end(query: StreamingQuery) -> None:
    """Wait until the query ends, or stop it on SIGINT or SIGTERM. Raises StreamingQueryException if the query fails."""
    # Not by awaitTermination alone: its signal handler would call into the JVM in the middle of another call.
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
