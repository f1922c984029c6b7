"""What a client connection has to say in one turn of the loop leaves together: each write is a system call.

In: buffers that are next on the wire. Out: one write a turn, or at once where somebody cannot wait for its end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from forebay_codecs.primitives import Buffer
from forebay_proxy.metrics.traffic import TrafficMetrics


class ResponseWriter:
    """Everything is written once, in the order in which it was given, until the transport closes.

    `unsent` are the bytes that wait for the end of the turn; `written` is called after each write. `wrote`: once there
    was one.
    """

    def __init__(self, metrics: TrafficMetrics, written: Callable[[], None]) -> None:
        self.transport: asyncio.Transport | None = None
        self.unsent = 0
        self.wrote = False
        self._buffers: list[Buffer] = []
        self._metrics = metrics
        self._written = written
        self._loop = asyncio.get_running_loop()

    def write(self, buffers: list[Buffer]) -> None:
        """Write them at the end of this turn."""
        if not self._buffers:
            self._loop.call_soon(self.flush)
        self._buffers += buffers
        for buffer in buffers:
            self.unsent += len(buffer)

    def flush(self) -> None:
        """Write what there is now."""
        buffers, self._buffers = self._buffers, []
        size, self.unsent = self.unsent, 0
        if not buffers or self.transport is None or self.transport.is_closing():
            return
        self.wrote = True
        self._metrics.responses_out(size)
        self.transport.writelines(buffers)
        self._written()

    def gone(self) -> None:
        """The transport has closed: nothing is written, and nobody told, any more."""
        self._written = _nothing


def _nothing() -> None:
    """What is done of a connection that has ended."""
