"""Message sets of formats v0 and v1, as in Produce v0 to v2, checked and converted to records of format v2.

In: the records field of one partition. Out: a ClientBatch of uncompressed records (`codec` says how they came, so that
they can be sent on in the same codec). Every checksum is verified; wrong bytes are a BadBatch with a broker's error
code. Keys and values are kept as they are, null and empty ones included.

A message (https://kafka.apache.org/documentation/#messageset):
    offset int64 | size int32 | crc uint32 | magic int8 | attributes int8 | v1: timestamp int64
    | key length int32, key | value length int32, value
The checksum (CRC-32) covers everything from magic on, `size` everything after itself. attributes: bits 0–2 codec,
bit 3 (v1) set if the timestamp is the broker's. A compressed message wraps a message set in its value; wrappers are
not nested. Offsets (absolute within v0 wrappers, relative within v1) are the broker's to assign: only order counts.

Timestamps of v1 are kept. v0 has none, and one flagged as the broker's is not the producer's: such records get the time
at which they were received.
"""

from __future__ import annotations

import zlib
from typing import Final, NamedTuple

from librt.strings import BytesWriter, read_i32_be, read_i64_be
from mypy_extensions import i64

from forebay_codecs import compression
from forebay_codecs.error_codes import CORRUPT_MESSAGE, INVALID_TIMESTAMP, MESSAGE_TOO_LARGE
from forebay_codecs.errors import Malformed
from forebay_codecs.record_batch import BadBatch, ClientBatch
from forebay_codecs.records import append_record

_CODEC_MASK: Final[i64] = 0x07
_LOG_APPEND_TIME: Final[i64] = 0x08
_PREFIX: Final[i64] = 12
"""Offset and size."""
_SMALLEST_V0: Final[i64] = 14
"""`size` of a message with null key and null value."""
_SMALLEST_V1: Final[i64] = 22
_MAX_TIMESTAMP: Final[i64] = 1 << 59
"""In ms. Far beyond any clock, and the difference of two stays within what records.scan admits."""


class MessageSet(NamedTuple):
    """The records of a message set: `batch` is None if it is empty; `stamped` records got the time of their receipt."""

    batch: ClientBatch | None
    stamped: int


class _Converter:
    """Collects converted records, at most `limit` bytes of them decompressed from wrappers."""

    def __init__(self, now_ms: int, limit: int) -> None:
        self.out = BytesWriter()
        self.now_ms: i64 = now_ms
        self.left: i64 = limit
        self.count: i64 = 0
        self.null_keys: i64 = 0
        self.stamped: i64 = 0
        self.base_timestamp: i64 = 0
        self.max_timestamp: i64 = 0
        self.oldest: i64 = 0
        self.codec: i64 = 0

    def convert(self, data: bytes, start: i64, end: i64, wrapper: i64, *, stamps: bool) -> None:
        """Convert the messages in [start, end). `wrapper` is the magic of the message around them, −1 if there is none.

        `stamps`: none of their timestamps is the producer's.
        """
        view = memoryview(data)
        pos: i64 = start
        while pos < end:
            if end - pos < _PREFIX + _SMALLEST_V0:
                raise Malformed("a message is cut short")
            size: i64 = i64(read_i32_be(data, pos + 8))
            pos += _PREFIX
            stop: i64 = pos + size
            if size < _SMALLEST_V0 or stop > end:
                raise Malformed("a message runs past its set")
            checksum: i64 = zlib.crc32(view[pos + 4 : stop])
            # Compared as 32 bits, since only one of the two is signed.
            if (checksum ^ i64(read_i32_be(data, pos))) & 0xFFFFFFFF:
                raise Malformed("a message's checksum is wrong")
            magic: i64 = data[pos + 4]
            attributes: i64 = data[pos + 5]
            pos += 6
            if magic > 1 or (magic == 1 and size < _SMALLEST_V1):
                raise Malformed(f"a message of format {magic} in {size} bytes")
            if wrapper >= 0 and magic != wrapper:
                raise Malformed(f"a message of format {magic} in a wrapper of format {wrapper}")
            timestamp: i64 = self.now_ms
            stamped = stamps or magic == 0 or (attributes & _LOG_APPEND_TIME) != 0
            if magic == 1:
                if not stamped:
                    timestamp = read_i64_be(data, pos)
                pos += 8
            key_size: i64 = i64(read_i32_be(data, pos))
            pos += 4
            key: i64 = pos
            if key_size > 0:
                pos += key_size
            if key_size < -1 or pos + 4 > stop:
                raise Malformed("a key runs past its message")
            value_size: i64 = i64(read_i32_be(data, pos))
            pos += 4
            if value_size < -1 or pos + max(value_size, 0) != stop:
                raise Malformed("a value does not end with its message")
            codec: i64 = attributes & _CODEC_MASK
            if codec == 0:
                self._record(data, timestamp, key, key_size, pos, value_size, stamped=stamped)
            elif wrapper >= 0:
                raise Malformed("a wrapper in a wrapper")
            else:
                self._unwrap(data[pos:stop], codec, magic, stamps=stamped)
            pos = stop

    def _record(
        self, data: bytes, timestamp: i64, key: i64, key_size: i64, value: i64, value_size: i64, *, stamped: bool
    ) -> None:
        if timestamp > _MAX_TIMESTAMP or timestamp < -_MAX_TIMESTAMP:
            raise BadBatch(INVALID_TIMESTAMP, "a timestamp is out of range", opened=self.codec != 0)
        if self.count == 0:
            self.base_timestamp = timestamp
            self.max_timestamp = timestamp
        elif timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
        if timestamp < self.oldest:
            self.oldest = timestamp
        if stamped:
            self.stamped += 1
        if key_size < 0:
            self.null_keys += 1
        append_record(self.out, timestamp - self.base_timestamp, self.count, data, key, key_size, value, value_size)
        self.count += 1

    def _unwrap(self, value: bytes, codec: i64, magic: i64, *, stamps: bool) -> None:
        if codec == compression.ZSTD or codec > compression.ZSTD:
            raise Malformed(f"compression codec {codec} in a message of format {magic}")
        if codec == compression.LZ4 and magic == 0:
            value = compression.mend_lz4(value)
        self.codec = codec  # before it is opened: what fails then may have taken as long
        inner = compression.decompress(codec, value, self.left)
        if not inner:
            raise Malformed("a wrapper of nothing")
        self.left -= len(inner)
        self.convert(inner, 0, len(inner), magic, stamps=stamps)


def open_message_set(data: bytes, start: int, end: int, max_decompressed: int, now_ms: int) -> MessageSet:
    """Convert the message set in [start, end), received at `now_ms` (ms since 1970). Raises BadBatch.

    `max_decompressed` bounds the bytes that compressed messages may decompress to, all together.
    """
    converter = _Converter(now_ms, max_decompressed)
    try:
        converter.convert(data, start, end, -1, stamps=False)
    except compression.TooLarge as error:
        raise BadBatch(MESSAGE_TOO_LARGE, f"the messages decompress to {error}", opened=True) from error
    except Malformed as malformed:
        raise BadBatch(CORRUPT_MESSAGE, str(malformed), opened=converter.codec != 0) from malformed
    if converter.count == 0:
        return MessageSet(None, 0)
    section = converter.out.getvalue()
    batch = ClientBatch(
        b"",
        section,
        section,
        converter.codec,
        converter.count,
        converter.null_keys,
        converter.base_timestamp,
        converter.max_timestamp,
        oldest=converter.oldest,
    )
    return MessageSet(batch, converter.stamped)
