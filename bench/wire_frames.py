"""Requests of the wire loads, made once and sent many times, and what their answers must look like.

In: a Kind, the bytes that matter (`size`: of the opaque body, of the fetched records, of the record batch) and the
size of a record's value. Out: whole frames, one for each correlation id 0 ≤ id < FRAMES, partitions in turn.
Versions are those that Kafka 2.8's clients speak, where all proxies understand them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final, Literal, get_args

from crc32c import crc32c

from forebay_codecs import produce_request
from forebay_codecs.api_keys import FETCH
from forebay_codecs.header import begin_request
from forebay_codecs.primitives import Writer
from forebay_codecs.record_batch import CRC_START, HEADER, HEADER_SIZE
from forebay_codecs.record_batch_builder import build_header
from tests.codecs.message_oracle import messages
from tests.codecs.record_oracle import Record, encode_section
from tests.kit.wire import old_produce

Kind = Literal["opaque", "fetch", "produce", "idempotent", "old_produce"]
"""opaque: a large request that no policy needs; fetch: a large response; produce: records without a key, acks=1;
idempotent: the same of a producer with an id, which is passed on untouched; old_produce: as many records as in produce,
as Produce v1 with messages of format v0."""

KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
TOPIC: Final = "load"
PARTITIONS: Final = 6
WIDE: Final = "wide"
"""A topic of as many partitions as a sink is told to have."""
FRAMES: Final = 48
"""More than any load has under way on one connection, and whole turns of PARTITIONS."""

CLIENT_ID: Final = "load"
_LIST_GROUPS: Final = 16
_FETCH_VERSION: Final = 4
_PRODUCE_VERSION: Final = 9
_PRODUCER_ID_AT: Final = 43
_NOW: Final = 1_700_000_000_000


def frames(kind: Kind, size: int, value_size: int = 512) -> list[bytes]:
    make = _MAKERS[kind]
    return [make(number, size, value_size) for number in range(FRAMES)]


def refused(kind: Kind, answers: bytearray, start: int) -> bool:
    """Whether the answer that begins at `start`, with its correlation id, says that a record was not taken."""
    if kind not in ("produce", "idempotent", "old_produce"):
        return False
    if kind == "old_produce":
        code = start + 4 + 4 + 2 + len(TOPIC) + 4 + 4
        return answers[code] != 0 or answers[code + 1] != 0
    # Behind correlation id, tags, 1 topic, its name, 1 partition and its index.
    code = start + 4 + 1 + 1 + 1 + len(TOPIC) + 1 + 4
    return answers[code] != 0 or answers[code + 1] != 0


def batch(size: int, value_size: int, producer_id: int = -1) -> bytes:
    """As many records of `value_size` as fit `size` bytes, at least one, as Kafka's producer fills its batches."""
    one = len(encode_section([Record(None, bytes(value_size))]))
    count = max(1, (size - HEADER_SIZE) // (one + 2))
    section = encode_section([Record(None, bytes(32 + i % 95 for i in range(value_size)))] * count)
    header = bytearray(build_header([section], len(section), count, 0, _NOW, _NOW))
    if producer_id >= 0:
        struct.pack_into(">qhi", header, _PRODUCER_ID_AT, producer_id, 0, 0)
        crc = crc32c(bytes(header[CRC_START:]) + section)
        struct.pack_into(">I", header, CRC_START - 4, crc)
    assert HEADER.unpack_from(header)[-1] == count
    return bytes(header) + section


def records_in(size: int, value_size: int) -> int:
    """Records of one such batch."""
    return int(HEADER.unpack_from(batch(size, value_size))[-1])


def _produce(number: int, size: int, value_size: int, producer_id: int = -1) -> bytes:
    records = batch(size, value_size, producer_id)
    topics = [(TOPIC, [(number % PARTITIONS, len(records), [records])])]
    return b"".join(produce_request.encode(_PRODUCE_VERSION, number, CLIENT_ID, 1, 30_000, topics))


def _idempotent(number: int, size: int, value_size: int) -> bytes:
    return _produce(number, size, value_size, producer_id=4711)


def _old_produce(number: int, size: int, value_size: int) -> bytes:
    record = Record(None, bytes(32 + i % 95 for i in range(value_size)))
    sets = (TOPIC, number % PARTITIONS, messages([record] * records_in(size, value_size), 0))
    return old_produce(number, sets, version=1)


def _opaque(number: int, size: int, value_size: int) -> bytes:
    writer = begin_request(_LIST_GROUPS, 0, number, CLIENT_ID)
    writer.raw(bytes(size - len(writer.out) - 4))
    return _framed(writer)


def _fetch(number: int, size: int, value_size: int) -> bytes:
    writer = begin_request(FETCH, _FETCH_VERSION, number, CLIENT_ID)
    for value in (-1, 500, 1, 50 << 20):  # replica_id, max_wait_ms, min_bytes, max_bytes
        writer.i32(value)
    writer.i8(0)
    writer.array(1, False)
    writer.string(TOPIC, False)
    writer.array(1, False)
    writer.i32(number % PARTITIONS)
    writer.i64(0)
    writer.i32(size)  # the sink reads it at the end of the frame
    return _framed(writer)


def fetch_answer(size: int) -> bytes:
    """The body of a Fetch v4 response for one partition with `size` bytes of records."""
    writer = Writer()
    writer.i32(0)
    writer.array(1, False)
    writer.string(TOPIC, False)
    writer.array(1, False)
    writer.i32(0)
    writer.i16(0)
    writer.i64(1)
    writer.i64(1)
    writer.array(0, False)
    records = batch(size, 512)
    writer.i32(len(records))
    writer.raw(records)
    return writer.getvalue()


def _framed(writer: Writer) -> bytes:
    return len(writer.out).to_bytes(4, "big") + writer.getvalue()


_MAKERS: Final[dict[Kind, Callable[[int, int, int], bytes]]] = {
    "opaque": _opaque,
    "fetch": _fetch,
    "produce": _produce,
    "idempotent": _idempotent,
    "old_produce": _old_produce,
}
