"""Checksums of a run of records that survive merging: they cover keys and values, not offsets and timestamps.

In: an uncompressed records section that passed records.scan. Out: the CRCs in the journal's ledger;
policies.journal_rows.LedgerPart defines what they cover, so that anyone can recompute them from a topic's records.
"""

from __future__ import annotations

import zlib
from typing import Final, NamedTuple

from librt.strings import BytesWriter
from mypy_extensions import i64, u8

from forebay_codecs.records import Cursor

_NULL: Final = b"\xff\xff\xff\xff"
_VARINT: Final[i64] = 5
_VARLONG: Final[i64] = 10


class ContentCrc(NamedTuple):
    """CRC-32s: `crc` over those of all records in order, `first` that of the first record."""

    crc: int
    first: int


def content_crc(section: bytes) -> ContentCrc:
    """The checksums of the records in `section`; zeros if there are none."""
    # Copying the fields together and calling zlib once a record is faster than calling it for every field.
    framed = BytesWriter()
    ends: list[int] = []
    end: i64 = len(section)
    cursor = Cursor(section, 0, end)
    while cursor.pos < end:
        size: i64 = cursor.varlong(_VARINT)
        next_record: i64 = cursor.pos + size
        cursor.jump(1)
        cursor.varlong(_VARLONG)
        cursor.varlong(_VARINT)
        _copy_field(framed, cursor)
        _copy_field(framed, cursor)
        ends.append(len(framed))
        cursor.pos = next_record
    data = memoryview(framed.getvalue())
    each = BytesWriter()
    start = 0
    for stop in ends:
        _append_u32(each, zlib.crc32(data[start:stop]))
        start = stop
    crcs = each.getvalue()
    return ContentCrc(zlib.crc32(crcs), int.from_bytes(crcs[:4], "big"))


def _copy_field(out: BytesWriter, cursor: Cursor) -> None:
    """Write a key or a value, its length first."""
    size: i64 = cursor.varlong(_VARINT)
    if size < 0:
        out.write(_NULL)
        return
    start: i64 = cursor.pos
    cursor.jump(size)
    _append_u32(out, size)
    out.write(cursor.data[start : cursor.pos])


def _append_u32(out: BytesWriter, value: i64) -> None:
    out.append(u8(value >> 24 & 0xFF))
    out.append(u8(value >> 16 & 0xFF))
    out.append(u8(value >> 8 & 0xFF))
    out.append(u8(value & 0xFF))
