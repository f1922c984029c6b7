"""The bytes of the demo's old producer, and of the reader that checks what the brokers hold.

In: a topic, partitions, sizes. Out: whole request frames, size prefix included; answers read back into values.
Wrong answers: Malformed. Versions are those of Kafka 0.11 (Produce v3, Fetch v4, ListOffsets v1), never flexible.

A Produce frame with its one record is built once a record size. What varies is patched in place:
    correlation id at 8, partition index 8 bytes before the batch, and in the batch (record_batch.py) both timestamps
    at 27 and 35 and the CRC at 17.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from crc32c import crc32c

from forebay_codecs import produce_request
from forebay_codecs.api_keys import FETCH, LIST_OFFSETS
from forebay_codecs.errors import Malformed
from forebay_codecs.header import begin_request
from forebay_codecs.primitives import Reader, Writer
from forebay_codecs.record_batch import CRC_START, HEADER, HEADER_SIZE, LENGTH_START
from forebay_codecs.record_batch_builder import build_header

CLIENT_ID: Final = "old-producer"
ACKS: Final = 1
REQUEST_TIMEOUT_MS: Final = 30_000

LATEST: Final = -1
EARLIEST: Final = -2
_FETCH_MAX_BYTES: Final = 1 << 20
_CORRELATION_ID: Final = struct.Struct(">i")
_PARTITION: Final = struct.Struct(">i")
_CRC: Final = struct.Struct(">I")
_TIMESTAMPS: Final = struct.Struct(">qq")
_TIMESTAMPS_AT: Final = 27


def _record(value: bytes) -> bytes:
    """One record without key and headers, offset and timestamp delta 0, with its length before it."""
    body = Writer()
    body.i8(0)
    for zigzag in (0, 0, 1, 2 * len(value)):  # timestamp delta, offset delta, key of length −1, value
        body.uvarint(zigzag)
    body.raw(value)
    body.uvarint(0)
    record = Writer()
    record.uvarint(2 * len(body.out))
    record.raw(body.getvalue())
    return record.getvalue()


class ProduceTemplate:
    """A Produce v3 request of one record with a value of `value_size` bytes; `frame` gives it for one sending."""

    def __init__(self, topic: str, value_size: int) -> None:
        record = _record(bytes(32 + i % 95 for i in range(value_size)))
        batch = build_header([record], len(record), 1, 0, 0, 0) + record
        partitions = [(0, len(batch), [batch])]
        request = produce_request.encode(3, 0, CLIENT_ID, ACKS, REQUEST_TIMEOUT_MS, [(topic, partitions)])
        self._frame = bytearray(b"".join(request))
        self._batch = len(self._frame) - len(batch)
        self._checked = memoryview(self._frame)[self._batch + CRC_START :]

    def frame(self, correlation_id: int, partition: int, timestamp: int) -> bytes:
        """`timestamp` in ms."""
        frame, batch = self._frame, self._batch
        _CORRELATION_ID.pack_into(frame, 8, correlation_id)
        _PARTITION.pack_into(frame, batch - 8, partition)
        _TIMESTAMPS.pack_into(frame, batch + _TIMESTAMPS_AT, timestamp, timestamp)
        _CRC.pack_into(frame, batch + CRC_START - 4, crc32c(self._checked))
        return bytes(frame)


class ProduceAnswers:
    """Reads answers to ProduceTemplate's requests: all of one length, since they name one topic and one partition.

    size, correlation id, 1 topic, its name, 1 partition: index, error code, base offset, log append time;
    throttle time. base_offset is not looked at, as by any producer that only wants to know that its record is safe.
    """

    def __init__(self, topic: str) -> None:
        name = topic.encode()
        self._layout = struct.Struct(f">iiih{len(name)}siihqqi")
        self._expected = (self._layout.size - 4, 1, len(name), name, 1)
        self.size = self._layout.size

    def read(self, data: bytes | bytearray, pos: int) -> tuple[int, int]:
        """(correlation id, error code) of the answer that begins at `pos` and is wholly there."""
        size, correlation_id, topics, length, name, partitions, _, error, _, _, _ = self._layout.unpack_from(data, pos)
        if (size, topics, length, name, partitions) != self._expected:
            raise Malformed("the answer to a Produce request does not name its one partition")
        return int(correlation_id), int(error)


class PartitionBatches(NamedTuple):
    """Record batches [start offset, next offset) of one partition, by their headers."""

    batches: int
    records: int
    next_offset: int


def list_offsets_request(correlation_id: int, topic: str, partitions: list[int], which: int) -> bytes:
    """ListOffsets v1 for the LATEST (the end) or EARLIEST offset of each partition, without size prefix."""
    writer = begin_request(LIST_OFFSETS, 1, correlation_id, CLIENT_ID)
    writer.i32(-1)  # replica_id
    writer.array(1, False)
    writer.string(topic, False)
    writer.array(len(partitions), False)
    for partition in partitions:
        writer.i32(partition)
        writer.i64(which)
    return writer.getvalue()


def read_offsets(response: bytes) -> dict[int, int]:
    """partition → offset, from a ListOffsets v1 response. An error code is Malformed: nothing should fail here."""
    reader = Reader(response, 4)
    offsets = {}
    for _ in range(reader.array(False)):
        reader.string(False)
        for _ in range(reader.array(False)):
            partition = reader.i32()
            if error := reader.i16():
                raise Malformed(f"ListOffsets of partition {partition} gave error {error}")
            reader.i64()  # timestamp
            offsets[partition] = reader.i64()
    return offsets


def fetch_request(correlation_id: int, topic: str, offsets: dict[int, int]) -> bytes:
    """Fetch v4 from `offsets`, answered at once with whatever is there; without size prefix."""
    writer = begin_request(FETCH, 4, correlation_id, CLIENT_ID)
    writer.i32(-1)  # replica_id
    writer.i32(0)  # max_wait_ms
    writer.i32(0)  # min_bytes
    writer.i32(_FETCH_MAX_BYTES)
    writer.i8(0)  # isolation_level
    writer.array(1, False)
    writer.string(topic, False)
    writer.array(len(offsets), False)
    for partition, offset in offsets.items():
        writer.i32(partition)
        writer.i64(offset)
        writer.i32(_FETCH_MAX_BYTES)
    return writer.getvalue()


def read_fetched(response: bytes) -> dict[int, PartitionBatches]:
    """partition → the batches in a Fetch v4 response; partitions without any are left out."""
    reader = Reader(response, 4)
    reader.i32()  # throttle_time_ms
    found = {}
    for _ in range(reader.array(False)):
        reader.string(False)
        for _ in range(reader.array(False)):
            partition = reader.i32()
            if error := reader.i16():
                raise Malformed(f"Fetch of partition {partition} gave error {error}")
            reader.skip(16)  # high_watermark, last_stable_offset
            reader.skip(16 * reader.array(False))  # aborted_transactions
            records = reader.nullable_bytes(False)
            if records and (batches := _count_batches(response, *records)).batches:
                found[partition] = batches
    return found


def _count_batches(data: bytes, start: int, end: int) -> PartitionBatches:
    """The last batch may be cut short by the broker; it is left for the next fetch."""
    batches = records = 0
    next_offset = -1
    while end - start >= HEADER_SIZE:
        base, length, *_, last_delta, _, _, _, _, _, count = HEADER.unpack_from(data, start)
        if length <= 0 or end - start < LENGTH_START + length:
            break
        batches += 1
        records += count
        next_offset = base + last_delta + 1
        start += LENGTH_START + length
    return PartitionBatches(batches, records, next_offset)
