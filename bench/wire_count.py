"""Counts Metadata on the way to brokers: `python -m bench.wire_count PORT:BROKER_PORT …`, a process of its own.

Listens on each PORT before the broker on BROKER_PORT; bytes go on as they came. When its stdin ends it prints one line
of JSON: {"requests": …, "bytes": …}, of Metadata requests, and of them and their responses without size prefixes.
"""

from __future__ import annotations

import asyncio
import json
import sys

import uvloop

from bench.wire_relay import Client, Side
from forebay_codecs.api_keys import METADATA
from forebay_codecs.frame import FrameSplitter, Head
from forebay_codecs.header import PEEK_SIZE, peek
from tests.kit.ports import LOOPBACK

_LARGEST = 0x7FFFFFFF


class _Counts:
    requests = 0
    bytes = 0


class _Counted(Side):
    """Says where frames begin."""

    def __init__(self, counts: _Counts) -> None:
        Side.__init__(self)
        self.asked: set[int] = set()
        self._counts = counts
        self._splitter = FrameSplitter(4, _LARGEST)

    def data_received(self, data: bytes) -> None:
        self._splitter.feed(data)
        while (event := self._splitter.next_event()) is not None:
            if isinstance(event, Head):
                self._splitter.cut_through()
                self.begins(event)
        super().data_received(data)

    def begins(self, head: Head) -> None:
        """A response: of a Metadata request, if that was asked with this id."""
        correlation_id = int.from_bytes(head.start[:4], "big", signed=True)
        if correlation_id in self.asked:
            self.asked.discard(correlation_id)
            self._counts.bytes += head.size


class _Asking(_Counted, Client):
    def __init__(self, counts: _Counts, broker: int) -> None:
        _Counted.__init__(self, counts)
        self._answers = _Counted(counts)
        Client.__init__(self, broker, self._answers)
        self._splitter = FrameSplitter(PEEK_SIZE, _LARGEST)

    def begins(self, head: Head) -> None:
        key, _, correlation_id = peek(head.start, 0)
        if key == METADATA:
            self._counts.requests += 1
            self._counts.bytes += head.size
            self._answers.asked.add(correlation_id)


async def count(pairs: list[tuple[int, int]]) -> None:
    loop = asyncio.get_running_loop()
    counts = _Counts()
    for port, broker in pairs:
        await loop.create_server(lambda broker=broker: _Asking(counts, broker), LOOPBACK, port)  # type: ignore[misc]
    await loop.run_in_executor(None, sys.stdin.read)
    print(json.dumps({"requests": counts.requests, "bytes": counts.bytes}))


if __name__ == "__main__":
    uvloop.run(count([(int(port), int(broker)) for port, _, broker in (word.partition(":") for word in sys.argv[1:])]))
