"""Writes the header of a v2 record batch for records that are already in memory.

In: the records section as a chain of buffers, and the header's values, or a client's header. Out: the 61 header bytes.
Header and CRC-32C are written each time a batch leaves. The layout is in record_batch.py.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

from crc32c import crc32c

from forebay_codecs.compression import compress
from forebay_codecs.record_batch import CRC_START, HEADER, HEADER_SIZE, LENGTH_START, ClientBatch

NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1
NO_SEQUENCE: Final = -1

_PRODUCER_AT: Final = 43
_PRODUCER: Final = struct.Struct(">qhi")
"""producerId, producerEpoch, baseSequence."""


def build_header(
    section: Iterable[bytes | bytearray | memoryview],
    size: int,
    count: int,
    codec: int,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_EPOCH,
    base_sequence: int = NO_SEQUENCE,
) -> bytes:
    """The header of a batch of `count` records; `section` is `size` bytes, compressed by `codec` if that is not 0.

    Timestamps in ms, of type CreateTime. By default the batch has no producer id.
    """
    header = HEADER.pack(
        0,
        HEADER_SIZE - LENGTH_START + size,
        -1,
        2,
        0,
        codec,
        count - 1,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    )
    return _sealed(header, header[CRC_START:], section)


def with_producer(
    header: bytes,
    section: Iterable[bytes | bytearray | memoryview],
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
) -> bytes:
    """The `header` of a client's batch, whose records are `section` as they came, with a producer id and a sequence."""
    producer = _PRODUCER.pack(producer_id, producer_epoch, base_sequence)
    return _sealed(header, header[CRC_START:_PRODUCER_AT] + producer + header[_PRODUCER_AT + _PRODUCER.size :], section)


def _sealed(header: bytes, covered: bytes, section: Iterable[bytes | bytearray | memoryview]) -> bytes:
    """The first 17 bytes of `header`, and `covered` behind the checksum of it and of `section`."""
    crc: int = crc32c(covered)
    for piece in section:
        crc = crc32c(piece, crc)
    return header[: CRC_START - 4] + crc.to_bytes(4, "big") + covered


def encode_batch(batch: ClientBatch) -> bytes:
    """A whole new batch of the same records, compressed by the batch's codec."""
    body = compress(batch.codec, batch.section)
    header = build_header(
        (body,), len(body), batch.record_count, batch.codec, batch.base_timestamp, batch.max_timestamp
    )
    return header + body
