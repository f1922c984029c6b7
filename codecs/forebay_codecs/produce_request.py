"""Produce requests, v0 to v12: clients' are read, the proxy's own written.

In: a whole request frame without its size prefix. Out: a ProduceRequest whose record bytes are positions in that frame:
nothing is copied. Raises Malformed; bytes after the last field are ignored, as by brokers.
The proxy's own requests are lists of buffers, so that records are not copied either.

client_id, then v3+ transactional_id, acks, timeout_ms, [topic [partition, records]]. The records are a message set of
format v0 or v1 until v2 (message_set.py), a record batch of format v2 from v3 on.
v9+ flexible: compact strings and arrays, tagged fields. Source: Kafka's ProduceRequest.json.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from forebay_codecs.api_keys import PRODUCE
from forebay_codecs.errors import Malformed
from forebay_codecs.header import begin_request, read_client_id
from forebay_codecs.primitives import Buffer, Reader, Writer

MIN_VERSION: Final = 0
RECORD_BATCHES_FROM: Final = 3
MAX_VERSION: Final = 12
FLEXIBLE_FROM: Final = 9
MAX_ENTRIES: Final = 200_000
"""Topics and partitions in one request. An entry takes 3 bytes on the wire but a hundred in memory; whole clusters have
fewer partitions than this."""

PartitionRecords = tuple[int, int, int]
"""(partition index, start, end) of a records field in its frame; start == end if it is null or empty."""


@final
class ProduceRequest:
    """A client's request. `topics` is [(topic name, [(partition, start, end)])], positions being in the frame."""

    __slots__ = ("acks", "client_id", "correlation_id", "timeout_ms", "topics", "transactional_id", "version")

    def __init__(
        self,
        version: int,
        correlation_id: int,
        client_id: str | None,
        transactional_id: str | None,
        acks: int,
        timeout_ms: int,
        topics: list[tuple[str, list[PartitionRecords]]],
    ) -> None:
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.transactional_id = transactional_id
        self.acks = acks
        self.timeout_ms = timeout_ms
        self.topics = topics

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ProduceRequest) and self._all() == other._all()

    def __repr__(self) -> str:
        return f"ProduceRequest{self._all()}"

    def _all(self) -> tuple[object, ...]:
        said = self.version, self.correlation_id, self.client_id, self.transactional_id, self.acks, self.timeout_ms
        return *said, self.topics


def parse(frame: bytes) -> ProduceRequest:
    """Read a request frame. Raises Malformed, also for other versions and more than MAX_ENTRIES entries."""
    reader = Reader(frame)
    reader.i16()
    version = reader.i16()
    correlation_id = reader.i32()
    if not MIN_VERSION <= version <= MAX_VERSION:
        raise Malformed(f"Produce v{version} is not understood")
    flexible = version >= FLEXIBLE_FROM
    client_id = read_client_id(reader, flexible=flexible)
    transactional_id = reader.nullable_string(flexible) if version >= RECORD_BATCHES_FROM else None
    acks = reader.i16()
    timeout_ms = reader.i32()
    topics = []
    entries = 0
    for _ in range(_array(reader, flexible=flexible)):
        name = reader.string(flexible)
        count = _array(reader, flexible=flexible)
        entries += 1 + count
        if entries > MAX_ENTRIES:
            raise Malformed(f"more than {MAX_ENTRIES} topics and partitions in one request")
        partitions: list[PartitionRecords] = []
        for _ in range(count):
            index = reader.i32()
            start, end = reader.nullable_bytes(flexible) or (0, 0)
            reader.skip_tags(flexible)
            partitions.append((index, start, end))
        reader.skip_tags(flexible)
        topics.append((name, partitions))
    reader.skip_tags(flexible)
    return ProduceRequest(version, correlation_id, client_id, transactional_id, acks, timeout_ms, topics)


def _array(reader: Reader, *, flexible: bool) -> int:
    """The number of elements that follow. Null is Malformed: a broker closes the connection and takes nothing."""
    count = reader.nullable_array(flexible)
    if count < 0:
        raise Malformed("null where an array must stand")
    return count


def peek_acks(frame: bytes) -> int | None:
    """The acks of a request, even if what follows cannot be read; None if they cannot be read themselves."""
    reader = Reader(frame)
    try:
        reader.i16()
        version = reader.i16()
        reader.i32()
        flexible = version >= FLEXIBLE_FROM
        read_client_id(reader, flexible=flexible)
        if version >= RECORD_BATCHES_FROM:
            size = reader.uvarint() - 1 if flexible else reader.i16()
            reader.skip(max(0, size))  # transactional_id
        return reader.i16()
    except Malformed:
        return None


def encode(
    version: int,
    correlation_id: int,
    client_id: str | None,
    acks: int,
    timeout_ms: int,
    topics: Sequence[tuple[str, Sequence[tuple[int, int, Sequence[Buffer]]]]],
) -> list[Buffer]:
    """A whole frame of v3 or later, size prefix included, as buffers to be written in order.

    `topics` is [(name, [(partition, size of its records in bytes, buffers that hold them)])].
    """
    flexible = version >= FLEXIBLE_FROM
    out: list[Buffer] = []
    total = 0
    writer = begin_request(PRODUCE, version, correlation_id, client_id, flexible=flexible)
    writer.nullable_string(None, flexible)
    writer.i16(acks)
    writer.i32(timeout_ms)
    writer.array(len(topics), flexible)
    for name, partitions in topics:
        writer.string(name, flexible)
        writer.array(len(partitions), flexible)
        for index, size, buffers in partitions:
            writer.i32(index)
            if flexible:
                writer.uvarint(size + 1)
            else:
                writer.i32(size)
            out.append(writer.getvalue())
            total += len(writer.out) + size
            out.extend(buffers)
            writer = Writer()
            if flexible:
                writer.tags()
        if flexible:
            writer.tags()
    if flexible:
        writer.tags()
    if len(writer.out):
        out.append(writer.getvalue())
        total += len(writer.out)
    out.insert(0, total.to_bytes(4, "big"))
    return out
