"""Writes the header of a new v2 record batch for records that are already in memory.

In: the records section as a chain of buffers, and the header's values. Out: the 61 header bytes. Header and CRC-32C are
written once, when a batch is drained. The layout is in record_batch.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from crc32c import crc32c

from forebay_codecs.compression import compress
from forebay_codecs.record_batch import CRC_START, HEADER, HEADER_SIZE, LENGTH_START, ClientBatch

_NO_PRODUCER: Final = -1


def build_header(
    section: Iterable[bytes | bytearray | memoryview],
    size: int,
    count: int,
    codec: int,
    base_timestamp: int,
    max_timestamp: int,
) -> bytes:
    """The header of a batch of `count` records; `section` is `size` bytes, compressed by `codec` if that is not 0.

    Timestamps in ms, of type CreateTime. The batch has no producer id.
    """
    header = bytearray(
        HEADER.pack(
            0,
            HEADER_SIZE - LENGTH_START + size,
            -1,
            2,
            0,
            codec,
            count - 1,
            base_timestamp,
            max_timestamp,
            _NO_PRODUCER,
            -1,
            -1,
            count,
        )
    )
    crc = crc32c(memoryview(header)[CRC_START:])
    for piece in section:
        crc = crc32c(piece, crc)
    header[CRC_START - 4 : CRC_START] = crc.to_bytes(4, "big")
    return bytes(header)


def encode_batch(batch: ClientBatch) -> bytes:
    """A whole new batch of the same records, compressed by the batch's codec."""
    body = compress(batch.codec, batch.section)
    header = build_header(
        (body,), len(body), batch.record_count, batch.codec, batch.base_timestamp, batch.max_timestamp
    )
    return header + body
