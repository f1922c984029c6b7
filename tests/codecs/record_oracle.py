"""Record batches as others write and read them: the oracle of the record codecs.

Written by hand from Kafka's description of the format where the bytes must be odd (`encode_section`, `encode_batch`),
by aiokafka and kafka-python otherwise (WRITERS). Read by both (`decode_batch`), which must agree; kafka-python lacks
snappy.
"""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import aiokafka.codec  # type: ignore[import-untyped]
import aiokafka.record.default_records as aio  # type: ignore[import-untyped]
import kafka.record.default_records as kp  # type: ignore[import-untyped]
from crc32c import crc32c
from hypothesis import strategies as st

from forebay_codecs.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD

CODECS: Final = (NONE, GZIP, SNAPPY, LZ4, ZSTD)
NOW: Final = 1_700_000_000_000
NO_LIMIT: Final = 1 << 26

Headers = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    """A record to be written, or as it was read. Timestamp in ms."""

    key: bytes | None = None
    value: bytes | None = b"v"
    headers: Headers = ()
    timestamp: int = NOW


class Batch(NamedTuple):
    """What a decoder finds in a batch."""

    records: list[Record]
    base_offset: int
    magic: int
    attributes: int
    last_offset_delta: int
    first_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int


# Strategies


@st.composite
def records(draw: st.DrawFn, base: int = NOW, spread: int = 10_000) -> Record:
    """A record at most `spread` ms from `base`. Sizes on both sides of where a varint takes another byte."""
    contents = st.none() | st.binary(max_size=5) | st.sampled_from([b"", b"x" * 63, b"y" * 64, b"z" * 9000])
    name = st.text(st.characters(codec="utf-8"), max_size=3)
    headers = draw(st.lists(st.tuples(name, st.none() | st.binary(max_size=3)), max_size=2))
    timestamp = base + draw(st.integers(-spread, spread))
    return Record(draw(contents), draw(contents), tuple(headers), timestamp)


def record_lists(base: int = NOW, spread: int = 10_000) -> st.SearchStrategy[list[Record]]:
    return st.lists(records(base, spread), min_size=1, max_size=6)


# Written by hand


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


PACKERS: Final[dict[int, Callable[[bytes], bytes]]] = {
    NONE: lambda data: data,
    GZIP: lambda data: gzip.compress(data, mtime=0),  # the same bytes each time
    SNAPPY: lambda data: bytes(aiokafka.codec.snappy_encode(data)),
    LZ4: lambda data: bytes(aiokafka.codec.lz4_encode(data)),
    ZSTD: lambda data: bytes(aiokafka.codec.zstd_encode(data)),
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
) -> bytes:
    """Any bytes as the records of a batch, with a header and a checksum that fit where nothing else is said."""
    last = count - 1 if last_offset_delta is None else last_offset_delta
    checked = (
        struct.pack(">hiqqqhii", attributes, last, base_timestamp, max_timestamp, producer_id, -1, -1, count) + body
    )
    checksum = crc32c(checked) if crc is None else crc
    size = 9 + len(checked) if length is None else length
    return struct.pack(">qiibI", 0, size, -1, magic, checksum) + checked


# Written by others


def _written_by_aiokafka(batch: Sequence[Record], codec: int) -> bytes:
    builder = aio.DefaultRecordBatchBuilder(
        2, codec, is_transactional=False, producer_id=-1, producer_epoch=-1, base_sequence=-1, batch_size=1 << 20
    )
    for number, record in enumerate(batch):
        builder.append(number, record.timestamp, record.key, record.value, list(record.headers))
    return bytes(builder.build())


def _written_by_kafka_python(batch: Sequence[Record], codec: int) -> bytes:
    builder = kp.DefaultRecordBatchBuilder(
        2, codec, is_transactional=False, producer_id=-1, producer_epoch=-1, base_sequence=-1, batch_size=1 << 20
    )
    for number, record in enumerate(batch):
        builder.append(number, record.timestamp, record.key, record.value, list(record.headers))
    return bytes(builder.build())


WRITERS: Final[dict[str, Callable[[Sequence[Record], int], bytes]]] = {
    "aiokafka": _written_by_aiokafka,
    "kafka-python": _written_by_kafka_python,
}


# Read by others


def decode_batch(data: bytes) -> Batch:
    """As aiokafka and kafka-python read it, once its checksum, length and offsets are found right."""
    length, attributes = struct.unpack_from(">8xi9xh", data)
    assert length == len(data) - 12
    found = _read(aio.DefaultRecordBatch, data)
    if attributes & 7 != SNAPPY:
        assert _read(kp.DefaultRecordBatch, data) == found
    return found


def _read(reader: Any, data: bytes) -> Batch:
    batch = reader(data)
    assert batch.validate_crc()
    header = (
        batch.base_offset,
        batch.magic,
        batch.attributes,
        batch.last_offset_delta,
        batch.first_timestamp,
        batch.max_timestamp,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
    )
    found = list(batch)
    assert [record.offset for record in found] == [batch.base_offset + number for number in range(len(found))]
    return Batch([Record(r.key, r.value, tuple(r.headers), r.timestamp) for r in found], *header)


def decode_section(section: bytes, count: int, base: int = NOW) -> list[Record]:
    """The records of an uncompressed section, numbered from 0."""
    return decode_batch(seal(section, count=count, base_timestamp=base)).records
