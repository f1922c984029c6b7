"""A broker in memory for the whole proxy under fuzz: it answers as Kafka would, and judges what the proxy sends it.

What comes on the proxy's own connections must be sound in every byte. What comes on a client's own connection is that
client's, wrong as it may be: where it makes no sense, the connection is closed.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Final, cast

from forebay_codecs import produce_response
from forebay_codecs.api_keys import (
    API_VERSIONS,
    DESCRIBE_CLUSTER,
    FETCH,
    FIND_COORDINATOR,
    METADATA,
    PRODUCE,
    SHARE_ACKNOWLEDGE,
    SHARE_FETCH,
)
from forebay_codecs.apis import APIS
from forebay_codecs.primitives import Writer
from forebay_codecs.produce_response import PartitionResponse
from tests.codecs.kio_oracle import message
from tests.codecs.test_golden import golden
from tests.fuzz.batches import contents_of
from tests.fuzz.schema import read

TOPICS: Final = {"golden": 3, "ponds": 2}
"""Topic → partitions; broker n % 2 leads partition n."""

PORTS: Final = {0: 9092, 1: 9093}
HOST: Final = "127.0.0.1"

Entry = tuple[str, int, tuple[object, ...]]
"""(topic, partition, content of a record)."""

_GOLDEN: Final = {
    FIND_COORDINATOR: "find_coordinator",
    DESCRIBE_CLUSTER: "describe_cluster",
    FETCH: "fetch",
    SHARE_FETCH: "share_fetch",
    SHARE_ACKNOWLEDGE: "share_acknowledge",
}

Spoil = Callable[[int, int, bytes], bytes]
"""(API key, version, response from correlation_id on) → what the broker says instead."""


class Brokers:
    """Both of them: the log, and what was found wrong."""

    def __init__(self, produce_version: int = 12, spoil: Spoil = lambda key, version, response: response) -> None:
        self.produce_version = produce_version
        self.spoil = spoil
        self.log: Counter[Entry] = Counter()
        self.wrong: list[str] = []
        self.connections: set[Connection] = set()

    def accept(self, host: str, port: int) -> asyncio.Protocol | None:
        """On any port: responses of the goldens' brokers name ports of their own."""
        return Connection(self) if host == HOST else None


class Connection(asyncio.Protocol):
    """A broker's end of one connection; closes it on requests that make no sense."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._brokers.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._brokers.connections.discard(self)

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        self._buffer += data
        while len(self._buffer) >= 4 and not self._transport.is_closing():
            size = int.from_bytes(self._buffer[:4], "big")
            if len(self._buffer) < 4 + size:
                return
            frame = bytes(self._buffer[4 : 4 + size])
            del self._buffer[: 4 + size]
            response = self._answer(frame)
            if response is None:
                self._transport.close()
            elif response:
                self._transport.write(len(response).to_bytes(4, "big") + response)

    def _answer(self, frame: bytes) -> bytes | None:
        """b"": acks=0; None: no answer, the connection is closed."""
        key, version = (int.from_bytes(frame[at : at + 2], "big", signed=True) for at in (0, 2))
        correlation_id = frame[4:8]
        own = frame[8:17] == b"\0\7forebay"
        if key == PRODUCE:
            response = self._produced(frame, version, own=own)
        elif key == API_VERSIONS:
            response = b"\0\0\0\0" + self._api_versions(version)
        elif key == METADATA:
            response = b"\0\0\0\0" + _metadata(version)
        elif key in _GOLDEN and (key != FETCH or version >= 16):
            response = golden(_GOLDEN[key], version)
        else:
            response = b"\0\0\0\0" + frame[10 + max(0, int.from_bytes(frame[8:10], "big", signed=True)) :]
        if not response:
            return response
        return self._brokers.spoil(key, version, correlation_id + response[4:])

    def _api_versions(self, version: int) -> bytes:
        flexible = version >= 3
        writer = Writer()
        writer.i16(0)
        writer.array(len(APIS), flexible)
        for key, api in APIS.items():
            writer.i16(key)
            writer.i16(api.lowest)
            writer.i16(self._brokers.produce_version if key == PRODUCE else 4 if api.highest is None else api.highest)
            if flexible:
                writer.tags()
        if version >= 1:
            writer.i32(0)
        if flexible:
            writer.tags()
        return writer.getvalue()

    def _produced(self, frame: bytes, version: int, *, own: bool) -> bytes | None:
        if version < 3 and not own:
            size = max(0, int.from_bytes(frame[8:10], "big", signed=True))
            return b"\0\0\0\0old" if any(frame[10 + size : 12 + size]) else b""
        known = message("produce", version, "ProduceRequest") if 3 <= version <= 12 else None
        request = known and read(known, frame, ends=own, as_brokers=not own)
        if request is None:
            if own:
                self._brokers.wrong.append(f"a Produce request that is not one: {frame.hex()}")
            return None
        topics = []
        for topic in request["topic_data"]:
            answers = []
            for partition in topic["partition_data"]:
                answers.append(self._append(topic["name"], partition["index"], partition["records"] or b"", own=own))
            topics.append((topic["name"], answers))
        if request["acks"] == 0:
            return b""
        return produce_response.encode(version, 0, topics, 0)[4:]

    def _append(self, topic: str, partition: int, records: bytes, *, own: bool) -> PartitionResponse:
        brokers = self._brokers
        try:
            if not 0 <= partition < TOPICS.get(topic, 0):
                raise ValueError("no such partition")
            found = contents_of(records)
        except Exception as error:
            if own:
                brokers.wrong.append(f"{topic}-{partition}: {error!r} in {records.hex()}")
            return PartitionResponse(partition, 2, -1, -1, -1, [], "corrupt")
        brokers.log.update((topic, partition, content) for content in found)
        return PartitionResponse(partition, 0, 100, -1, 0, [], None)


def _metadata(version: int) -> bytes:
    """Without the correlation id."""
    flexible = version >= 9
    writer = Writer()
    if flexible:
        writer.tags()
    if version >= 3:
        writer.i32(0)
    writer.array(len(PORTS), flexible)
    for node_id, port in PORTS.items():
        writer.i32(node_id)
        writer.string(HOST, flexible)
        writer.i32(port)
        if version >= 1:
            writer.nullable_string(None, flexible)
        if flexible:
            writer.tags()
    if version >= 2:
        writer.nullable_string("fuzz", flexible)
    if version >= 1:
        writer.i32(0)
    writer.array(len(TOPICS), flexible)
    for name, count in TOPICS.items():
        writer.i16(0)
        writer.string(name, flexible)
        if version >= 10:
            writer.raw(bytes(16))
        if version >= 1:
            writer.boolean(value=False)
        writer.array(count, flexible)
        for index in range(count):
            writer.i16(0)
            writer.i32(index)
            writer.i32(index % 2)
            if version >= 7:
                writer.i32(0)
            for _ in range(3 if version >= 5 else 2):
                writer.array(0, flexible)
            if flexible:
                writer.tags()
        if version >= 8:
            writer.i32(0)
        if flexible:
            writer.tags()
    if 8 <= version <= 10:
        writer.i32(0)
    if version >= 13:
        writer.i16(0)
    if flexible:
        writer.tags()
    return writer.getvalue()
