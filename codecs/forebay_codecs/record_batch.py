"""A client's v2 record batch: its header, and its records once they have been checked.

In: the records field of one partition in a Produce request. Out: a BatchHeader (cheap, reads no records) or a
ClientBatch (checksum, compression and every record checked). Faults raise BadBatch with the error code that a broker
would give. Brokers let some of them pass, so callers leave the verdict to the broker.

Layout, 61 bytes before the records (https://kafka.apache.org/documentation/#recordbatch):
    0 baseOffset int64 | 8 batchLength int32 | 12 partitionLeaderEpoch int32 | 16 magic int8 | 17 crc uint32
    | 21 attributes int16 | 23 lastOffsetDelta int32 | 27 baseTimestamp int64 | 35 maxTimestamp int64
    | 43 producerId int64 | 51 producerEpoch int16 | 53 baseSequence int32 | 57 recordsCount int32
The checksum (CRC-32C) covers everything from attributes on. `batchLength` counts the bytes after itself.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple, final

from crc32c import crc32c
from librt.strings import read_i16_be, read_i32_be, read_i64_be

from forebay_codecs import compression, records
from forebay_codecs.error_codes import CORRUPT_MESSAGE, INVALID_RECORD, MESSAGE_TOO_LARGE
from forebay_codecs.errors import Malformed

HEADER_SIZE: Final = 61
CODEC_MASK: Final = 0x07
CRC_START: Final = 21
LENGTH_START: Final = 12
_MAGIC_AT: Final = 16
_NO_OFFSET: Final = bytes(8)
"""The base offset in a producer's batch, 0. The checksum does not cover it."""
_MAX_TIMESTAMP: Final = 1 << 62
"""In ms. Far beyond any clock; with any delta that records.scan admits, timestamps stay within an int64."""
NO_TIMESTAMP: Final = -1
HEADER: Final = struct.Struct(">qiibIhiqqqhii")


class BadBatch(Exception):
    """A batch that cannot be opened. `code` is the error code that a broker would give if it could not either.

    `opened`: the fault showed only after its records, or as many as the limit allows, had been decompressed.
    """

    def __init__(self, code: int, message: str, *, opened: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.opened = opened


class BatchHeader:
    """The header of the batch in the bytes [start, end) of a frame, read but not checked. Timestamps in ms."""

    __slots__ = (
        "attributes",
        "base_timestamp",
        "crc",
        "end",
        "last_offset_delta",
        "max_timestamp",
        "producer_id",
        "record_count",
        "start",
    )

    def __init__(self, data: bytes, start: int, end: int) -> None:
        self.start = start
        self.end = end
        signed: int = read_i32_be(data, start + CRC_START - 4)
        self.crc = signed & 0xFFFFFFFF
        self.attributes: int = read_i16_be(data, start + 21)
        self.last_offset_delta: int = read_i32_be(data, start + 23)
        self.base_timestamp: int = read_i64_be(data, start + 27)
        self.max_timestamp: int = read_i64_be(data, start + 35)
        self.producer_id: int = read_i64_be(data, start + 43)
        self.record_count: int = read_i32_be(data, start + 57)

    @property
    def codec(self) -> int:
        """The compression codec's id; see compression.NAMES."""
        return self.attributes & CODEC_MASK


class BatchNumbers(NamedTuple):
    """What a broker knows a batch of an idempotent producer by."""

    producer_id: int
    producer_epoch: int
    base_sequence: int


@final
class ClientBatch:
    """The records of one batch, checked. Timestamps in ms.

    `records` is the records section as the client sent it (compressed by `codec` if that is not 0), `section` the same
    uncompressed; `header` the 61 bytes before it, or b"" for records that were split off or converted and have none.
    Where both are the same part of a frame, that is given for both, with [start, end) of it, and nothing is copied:
    `came` and `data` hold them at [came_start, came_end) and [start, end).
    """

    __slots__ = (
        "base_timestamp",
        "came",
        "came_end",
        "came_start",
        "codec",
        "data",
        "end",
        "header",
        "max_timestamp",
        "null_keys",
        "oldest",
        "record_count",
        "start",
    )

    def __init__(
        self,
        header: bytes,
        records: bytes,
        section: bytes,
        codec: int,
        record_count: int,
        null_keys: int,
        base_timestamp: int,
        max_timestamp: int,
        start: int = 0,
        end: int = -1,
        oldest: int = 0,
    ) -> None:
        self.header = header
        self.oldest = oldest
        """The oldest timestamp, or 0 where all are later."""
        self.came = records
        self.came_start = start
        self.came_end = end if end >= 0 else len(records)
        self.data = section
        self.start = start
        self.end = end if end >= 0 else len(section)
        self.codec = codec
        self.record_count = record_count
        self.null_keys = null_keys
        self.base_timestamp = base_timestamp
        self.max_timestamp = max_timestamp

    @property
    def size(self) -> int:
        """Of the section, in bytes."""
        return self.end - self.start

    @property
    def records(self) -> bytes:
        """A copy, where it is a part of a frame."""
        return self.came[self.came_start : self.came_end]

    @property
    def section(self) -> bytes:
        """The uncompressed records section; a copy where it is part of a frame."""
        return self.data[self.start : self.end]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ClientBatch) and self._all() == other._all()

    def __repr__(self) -> str:
        return f"ClientBatch{self._all()}"

    def _all(self) -> tuple[object, ...]:
        counts = self.codec, self.record_count, self.null_keys, self.base_timestamp, self.max_timestamp
        return self.header, self.records, self.section, counts


def read_header(data: bytes, start: int, end: int) -> BatchHeader | None:
    """The header of the batch in [start, end); None unless that is exactly one whole batch of magic 2.

    Anything else (older magics, several batches) is left untouched, for the broker to judge.
    """
    if end - start < HEADER_SIZE:
        return None
    if data[start + _MAGIC_AT] != 2 or read_i32_be(data, start + LENGTH_START - 4) != end - start - LENGTH_START:
        return None
    return BatchHeader(data, start, end)


def read_numbers(data: bytes, start: int, end: int) -> BatchNumbers | None:
    """Those of the batch in [start, end); None where it is not exactly one of magic 2, or of no idempotent producer."""
    header = read_header(data, start, end)
    if header is None or header.producer_id < 0:
        return None
    return BatchNumbers(header.producer_id, read_i16_be(data, start + 51), read_i32_be(data, start + 53))


def open_batch(data: bytes, header: BatchHeader, max_decompressed: int) -> ClientBatch:
    """Check what a broker would check and what merging relies on; return the records. Raises BadBatch.

    `max_decompressed` bounds the size of the uncompressed records section in bytes.
    """
    start, end = header.start, header.end
    if crc32c(memoryview(data)[start + CRC_START : end]) != header.crc:
        raise BadBatch(CORRUPT_MESSAGE, "the record batch's checksum is wrong")
    if data[start : start + 8] != _NO_OFFSET:
        raise BadBatch(INVALID_RECORD, "the record batch's base offset is not 0")
    if header.record_count <= 0 or header.last_offset_delta != header.record_count - 1:
        raise BadBatch(INVALID_RECORD, "the record batch's count and last offset delta do not agree")
    if abs(header.base_timestamp) > _MAX_TIMESTAMP:
        raise BadBatch(INVALID_RECORD, "the record batch's base timestamp is out of range")
    codec = header.codec
    came = section = data
    at, to = start + HEADER_SIZE, end
    try:
        if codec:
            came = data[at:to]
            section = compression.decompress(codec, came, max_decompressed)
            at, to = 0, len(section)
        null_keys, newest, oldest = records.scan(section, at, to, header.record_count)
    except compression.TooLarge as error:
        raise BadBatch(MESSAGE_TOO_LARGE, f"the record batch decompresses to {error}", opened=True) from error
    except Malformed as error:
        raise BadBatch(INVALID_RECORD if not codec else CORRUPT_MESSAGE, str(error), opened=codec != 0) from error
    return ClientBatch(
        data[start : start + HEADER_SIZE],
        came,
        section,
        codec,
        header.record_count,
        null_keys,
        header.base_timestamp,
        header.base_timestamp + newest,
        at if not codec else 0,
        to if not codec else -1,
        header.base_timestamp + oldest,
    )


def split_by_key(batch: ClientBatch) -> tuple[ClientBatch, ClientBatch]:
    """Split a mixed batch into (records with a key, records without), each in the client's order and uncompressed."""
    parts = records.split(batch.data, batch.start, batch.end)
    base = batch.base_timestamp
    return (
        ClientBatch(
            b"",
            parts.keyed,
            parts.keyed,
            batch.codec,
            parts.keyed_count,
            0,
            base,
            base + parts.keyed_max_timestamp_delta,
        ),
        ClientBatch(
            b"",
            parts.null_key,
            parts.null_key,
            batch.codec,
            parts.null_key_count,
            parts.null_key_count,
            base,
            base + parts.null_key_max_timestamp_delta,
        ),
    )
