"""Checksums of a run of records that survive merging: they cover keys and values, not offsets and timestamps.

In: an uncompressed records section that passed records.scan. Out: the checksums in the journal's ledger;
policies.journal_rows.LedgerPart defines what they cover, so that anyone can recompute them from a topic's records.

Most records of a run have keys and values of the same sizes: what frames them is made anew only where a size changes.
Of records without a key all but the value is in a CRC that is carried on: such a record takes one slice and one call.
"""

from __future__ import annotations

import zlib
from typing import Final, NamedTuple

import xxhash
from librt.strings import BytesWriter
from mypy_extensions import i64, u8

from forebay_codecs.records import Cursor

SEED: Final = 42
"""Of the XXH64s: the one that Spark has."""

_NULL: Final = b"\xff\xff\xff\xff"
_FRAMES: Final = [size.to_bytes(4, "big") for size in range(1024)]
"""What stands before keys and values of most sizes."""
_VARINT: Final[i64] = 5
_VARLONG: Final[i64] = 10


class Keys(NamedTuple):
    """The XXH64s of records' keys, in their order, and which records have no value, counted from 0."""

    hashes: list[int]
    tombstones: list[int]


class ContentCrc(NamedTuple):
    """CRC-32s: `crc` over those of all records in order, `first` that of the first record; and that one's XXH64."""

    crc: int
    first: int
    first_xxh64: int
    """Signed, as Spark has it."""


def content_crc(section: bytes) -> ContentCrc:
    """The checksums of the records in `section`; zeros if there are none."""
    crc32 = zlib.crc32
    each = BytesWriter()
    end: i64 = len(section)
    cursor = Cursor(section, 0, end)
    key_size: i64 = -1
    key_frame = _NULL
    value_size: i64 = -1
    value_frame = _NULL
    keyless_size: i64 = -1
    keyless = crc32(_NULL + _NULL)
    """CRC of a null key, and of what frames a value of `keyless_size`."""
    first = first_xxh64 = 0
    while cursor.pos < end:
        next_record: i64 = _to_key(cursor)
        of_key: i64 = cursor.varlong(_VARINT)
        key: i64 = cursor.pos
        if of_key > 0:
            cursor.jump(of_key)
        of_value: i64 = cursor.varlong(_VARINT)
        value: i64 = cursor.pos
        if of_value > 0:
            cursor.jump(of_value)
        if of_value != value_size:
            value_size = of_value
            value_frame = _frame(of_value)
        if of_key < 0:
            if of_value != keyless_size:
                keyless_size = of_value
                keyless = crc32(_NULL + value_frame)
            crc: i64 = crc32(section[value : cursor.pos], keyless)
        else:
            if of_key != key_size:
                key_size = of_key
                key_frame = _frame(of_key)
            crc = crc32(key_frame + section[key : key + of_key] + value_frame + section[value : cursor.pos])
        if not len(each):
            first = crc
            framed_key = _NULL if of_key < 0 else key_frame + section[key : key + of_key]
            first_xxh64 = xxh64(framed_key + value_frame + section[value : cursor.pos])
        _append_u32(each, crc)
        cursor.pos = next_record
    return ContentCrc(crc32(each.getvalue()), first, first_xxh64)


def content_keys(section: bytes) -> Keys | None:
    """Of the records in `section`; None unless all of them have a key, as in compacted topics they must."""
    hashes: list[int] = []
    tombstones: list[int] = []
    end: i64 = len(section)
    cursor = Cursor(section, 0, end)
    while cursor.pos < end:
        next_record: i64 = _to_key(cursor)
        of_key: i64 = cursor.varlong(_VARINT)
        if of_key < 0:
            return None
        key: i64 = cursor.pos
        cursor.jump(of_key)
        if cursor.varlong(_VARINT) < 0:
            tombstones.append(len(hashes))
        hashes.append(xxh64(section[key : key + of_key]))
        cursor.pos = next_record
    return Keys(hashes, tombstones)


def _to_key(cursor: Cursor) -> i64:
    """Read a record as far as its offset, so that the size of its key is next. Returns where the next record begins."""
    size: i64 = cursor.varlong(_VARINT)
    next_record: i64 = cursor.pos + size
    cursor.jump(1)
    cursor.varlong(_VARLONG)
    cursor.varlong(_VARINT)
    return next_record


def xxh64(data: bytes) -> int:
    """The XXH64 of `data` by Spark's seed, signed."""
    found: int = xxhash.xxh64_intdigest(data, SEED)
    return found - (1 << 64) if found >> 63 else found


def _frame(size: i64) -> bytes:
    """What stands before a key or a value of that size; below 0 is null."""
    if size < 0:
        return _NULL
    if size < 1024:
        return _FRAMES[size]
    out = BytesWriter()
    _append_u32(out, size)
    return out.getvalue()


def _append_u32(out: BytesWriter, value: i64) -> None:
    out.append(u8(value >> 24 & 0xFF))
    out.append(u8(value >> 16 & 0xFF))
    out.append(u8(value >> 8 & 0xFF))
    out.append(u8(value & 0xFF))
