"""Message sets of formats v0 and v1 as others write them, and by hand where the bytes must be odd."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Sequence
from typing import Any, Final

import aiokafka.record.legacy_records as aio  # type: ignore[import-untyped]
import kafka.codec  # type: ignore[import-untyped]
import kafka.record.legacy_records as kp  # type: ignore[import-untyped]

from forebay_codecs.compression import GZIP, LZ4, NONE, SNAPPY
from tests.codecs.record_oracle import PACKERS, Record

OLD_CODECS: Final = (NONE, GZIP, SNAPPY, LZ4)
LOG_APPEND_TIME: Final = 8


# By hand


def message(
    record: Record,
    magic: int = 1,
    attributes: int = 0,
    offset: int = 0,
    crc: int | None = None,
    size: int | None = None,
    key_size: int | None = None,
    value_size: int | None = None,
) -> bytes:
    """One message; what is given beside the record need not be true."""
    stamp = struct.pack(">q", record.timestamp) if magic == 1 else b""
    body = struct.pack(">bb", magic, attributes) + stamp
    body += _sized(record.key, key_size) + _sized(record.value, value_size)
    checksum = zlib.crc32(body) if crc is None else crc
    return struct.pack(">qiI", offset, 4 + len(body) if size is None else size, checksum) + body


def messages(records: Sequence[Record], magic: int = 1, first: int = 0) -> bytes:
    return b"".join(message(record, magic, offset=first + number) for number, record in enumerate(records))


def wrapper(inner: bytes, codec: int, magic: int = 1, attributes: int = 0, timestamp: int = 0) -> bytes:
    packed = kafka.codec.lz4_encode_old_kafka(inner) if (codec, magic) == (LZ4, 0) else PACKERS[codec](inner)
    return message(Record(None, packed, (), timestamp), magic, codec | attributes)


def _sized(data: bytes | None, size: int | None) -> bytes:
    true = -1 if data is None else len(data)
    return struct.pack(">i", true if size is None else size) + (data or b"")


# By others


def _written_by(module: Any) -> Callable[[Sequence[Record], int, int], bytes]:
    def write(records: Sequence[Record], magic: int, codec: int) -> bytes:
        builder = module.LegacyRecordBatchBuilder(magic, codec, 1 << 20)
        for number, record in enumerate(records):
            builder.append(number, record.timestamp, record.key, record.value)
        return bytes(builder.build())

    return write


WRITERS: Final = {"aiokafka": _written_by(aio), "kafka-python": _written_by(kp)}


def writes(name: str, magic: int, codec: int) -> bool:
    """kafka-python lacks snappy here, aiokafka the old framing of LZ4."""
    return codec != SNAPPY if name == "kafka-python" else (magic, codec) != (0, LZ4)
