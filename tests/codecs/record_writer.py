"""Record batches written by hand from Kafka's description of the format, where the bytes must be odd.

Nothing here is slow to import: processes of their own start with it (tests/chaos/bystander.py).
"""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Final, NamedTuple

from crc32c import crc32c

from forebay_codecs.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD

CODECS: Final = (NONE, GZIP, SNAPPY, LZ4, ZSTD)
NOW: Final = 1_700_000_000_000

Headers = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    """A record to be written, or as it was read. Timestamp in ms."""

    key: bytes | None = None
    value: bytes | None = b"v"
    headers: Headers = ()
    timestamp: int = NOW


def varint(value: int) -> bytes:
    """A zigzag varint: 0 → 00, -1 → 01, 1 → 02, 64 → 80 01."""
    bits = value << 1 if value >= 0 else (-value << 1) - 1
    out = bytearray()
    while bits > 0x7F:
        out.append(bits & 0x7F | 0x80)
        bits >>= 7
    out.append(bits)
    return bytes(out)


def sized(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def encode_record(record: Record, number: int, base: int) -> bytes:
    return sized(b"\0" + varint(record.timestamp - base) + varint(number) + encode_content(record))


def encode_content(record: Record) -> bytes:
    headers = b"".join(sized(name.encode()) + sized(value) for name, value in record.headers)
    return sized(record.key) + sized(record.value) + varint(len(record.headers)) + headers


def encode_section(batch: Sequence[Record], base: int = NOW) -> bytes:
    return b"".join(encode_record(record, number, base) for number, record in enumerate(batch))


def _by_aiokafka(function: str) -> Callable[[bytes], bytes]:
    """Imported only by who compresses: it takes a second."""
    return lambda data: bytes(getattr(import_module("aiokafka.codec"), function)(data))


PACKERS: Final[dict[int, Callable[[bytes], bytes]]] = {
    NONE: lambda data: data,
    GZIP: lambda data: gzip.compress(data, mtime=0),  # the same bytes each time
    SNAPPY: _by_aiokafka("snappy_encode"),
    LZ4: _by_aiokafka("lz4_encode"),
    ZSTD: _by_aiokafka("zstd_encode"),
}


def encode_batch(batch: Sequence[Record], codec: int = NONE, base: int | None = None, **lies: Any) -> bytes:
    """A batch as a producer writes it; `lies` are header fields that do not say what is true."""
    base = batch[0].timestamp if base is None else base
    newest = max(record.timestamp for record in batch)
    truth = {"count": len(batch), "base_timestamp": base, "max_timestamp": newest, "attributes": codec}
    return seal(PACKERS[codec](encode_section(batch, base)), **(truth | lies))


def seal(
    body: bytes,
    *,
    count: int,
    attributes: int = 0,
    last_offset_delta: int | None = None,
    base_timestamp: int = NOW,
    max_timestamp: int = NOW,
    length: int | None = None,
    crc: int | None = None,
    magic: int = 2,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytes:
    """Any bytes as the records of a batch, with a header and a checksum that fit where nothing else is said."""
    last = count - 1 if last_offset_delta is None else last_offset_delta
    numbers = producer_id, producer_epoch, base_sequence
    checked = struct.pack(">hiqqqhii", attributes, last, base_timestamp, max_timestamp, *numbers, count) + body
    checksum = crc32c(checked) if crc is None else crc
    size = 9 + len(checked) if length is None else length
    return struct.pack(">qiibI", 0, size, -1, magic, checksum) + checked
