"""Counts Metadata on the way to brokers: `python -m bench.wire_count PORT:BROKER_PORT …`, a process of its own.

Listens on each PORT before the broker on BROKER_PORT; bytes go on as they came. When its stdin ends it prints one line
of JSON: {"requests": …, "bytes": …}, of Metadata requests, and of them and their responses without size prefixes.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import cast

import uvloop

from forebay_codecs.apis import METADATA
from forebay_codecs.frame import FrameSplitter, Head
from forebay_codecs.header import PEEK_SIZE, peek
from tests.kit.ports import LOOPBACK

_LARGEST = 0x7FFFFFFF


class _Counts:
    requests = 0
    bytes = 0


class _Side(asyncio.Protocol):
    """One of two connections; what comes before the other one stands waits for it."""

    def __init__(self, counts: _Counts, head_size: int) -> None:
        self.other: _Side | None = None
        self.transport: asyncio.Transport | None = None
        self.asked: set[int] = set()
        self._counts = counts
        self._splitter = FrameSplitter(head_size, _LARGEST)
        self._early: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        if self._early:
            self.transport.writelines(self._early)

    def data_received(self, data: bytes) -> None:
        assert self.other is not None
        self._splitter.feed(data)
        while (event := self._splitter.next_event()) is not None:
            if isinstance(event, Head):
                self._splitter.cut_through()
                self.count(event)
        self.other.write(data)

    def count(self, head: Head) -> None:
        """A response: of a Metadata request, if that was asked with this id."""
        correlation_id = int.from_bytes(head.start[:4], "big", signed=True)
        if correlation_id in self.asked:
            self.asked.discard(correlation_id)
            self._counts.bytes += head.size

    def write(self, data: bytes) -> None:
        if self.transport is None:
            self._early.append(data)
        elif not self.transport.is_closing():
            self.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.close()


class _Client(_Side):
    def __init__(self, counts: _Counts, broker: int) -> None:
        super().__init__(counts, PEEK_SIZE)
        self.other = _Side(counts, 4)
        self.other.other = self
        self._broker = broker

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._connecting = asyncio.create_task(self._connect())

    async def _connect(self) -> None:
        other = self.other
        assert other is not None
        await asyncio.get_running_loop().create_connection(lambda: other, LOOPBACK, self._broker)

    def count(self, head: Head) -> None:
        assert self.other is not None
        key, _, correlation_id = peek(head.start, 0)
        if key == METADATA:
            self._counts.requests += 1
            self._counts.bytes += head.size
            self.other.asked.add(correlation_id)


async def count(pairs: list[tuple[int, int]]) -> None:
    loop = asyncio.get_running_loop()
    counts = _Counts()
    for port, broker in pairs:
        await loop.create_server(lambda broker=broker: _Client(counts, broker), LOOPBACK, port)  # type: ignore[misc]
    await loop.run_in_executor(None, sys.stdin.read)
    print(json.dumps({"requests": counts.requests, "bytes": counts.bytes}))


if __name__ == "__main__":
    uvloop.run(count([(int(port), int(broker)) for port, _, broker in (word.partition(":") for word in sys.argv[1:])]))
