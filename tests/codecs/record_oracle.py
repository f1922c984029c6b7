"""Record batches as others write and read them: the oracle of the record codecs.

Written by hand where the bytes must be odd (record_writer.py, all of which can be had from here), by aiokafka and
kafka-python otherwise (WRITERS). Read by both (`decode_batch`), which must agree; kafka-python lacks snappy.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import aiokafka.record.default_records as aio  # type: ignore[import-untyped]
import kafka.record.default_records as kp  # type: ignore[import-untyped]
from hypothesis import strategies as st

from forebay_codecs.compression import SNAPPY
from tests.codecs.record_writer import CODECS as CODECS
from tests.codecs.record_writer import NOW as NOW
from tests.codecs.record_writer import PACKERS as PACKERS
from tests.codecs.record_writer import Headers as Headers
from tests.codecs.record_writer import Record as Record
from tests.codecs.record_writer import encode_batch as encode_batch
from tests.codecs.record_writer import encode_content as encode_content
from tests.codecs.record_writer import encode_record as encode_record
from tests.codecs.record_writer import encode_section as encode_section
from tests.codecs.record_writer import seal as seal
from tests.codecs.record_writer import sized as sized
from tests.codecs.record_writer import varint as varint

NO_LIMIT: Final = 1 << 26


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
