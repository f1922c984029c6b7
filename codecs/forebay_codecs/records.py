"""The records section of a v2 record batch: checked, renumbered, split. Compiled by mypyc.

In: `data` and the [start, end) of an uncompressed records section that claims `count` records.
Out: counts, or the bytes of a new section. Wrong bytes: Malformed, for the whole section.

A record (https://kafka.apache.org/documentation/#record):
    length varint | attributes int8 | timestampDelta varlong | offsetDelta varint
    | keyLength varint, key | valueLength varint, value | headerCount varint, (keyLength, key, valueLength, value)*
Renumbering changes only length, timestampDelta and offsetDelta; everything after them is copied unchanged.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from librt.strings import BytesWriter
from mypy_extensions import i64, u8

from forebay_codecs.errors import Malformed

_VARINT_LIMIT: Final[i64] = 5
_VARLONG_LIMIT: Final[i64] = 10
# Merging adds the difference of two base timestamps to a delta: this limit keeps the sum within an int64.
_DELTA_LIMIT: Final[i64] = 0x1000000000000000


class Split(NamedTuple):
    """A section split into records with a key and records without, each numbered from 0; timestamps unchanged."""

    keyed: bytes
    keyed_count: int
    keyed_max_timestamp_delta: int
    null_key: bytes
    null_key_count: int
    null_key_max_timestamp_delta: int


class Cursor:
    """Reads forward through `data` and never past `end`. Every read may raise Malformed."""

    def __init__(self, data: bytes, pos: i64, end: i64) -> None:
        self.data = data
        self.pos: i64 = pos
        self.end: i64 = end

    def varlong(self, limit: i64) -> i64:
        """A zigzag varint of at most `limit` bytes: 0x03 → -2, 0xAC 0x02 → 150."""
        data = self.data
        pos: i64 = self.pos
        end: i64 = self.end
        if pos < end:  # nearly all have one byte or two
            low: i64 = data[pos]
            if low < 0x80:
                self.pos = pos + 1
                return (low >> 1) ^ -(low & 1)
            if pos + 1 < end:
                high: i64 = data[pos + 1]
                if high < 0x80:
                    self.pos = pos + 2
                    both: i64 = (low & 0x7F) | (high << 7)
                    return (both >> 1) ^ -(both & 1)
        return self._longer(limit)

    def _longer(self, limit: i64) -> i64:
        """A varlong of any length."""
        data = self.data
        pos: i64 = self.pos
        end: i64 = self.end
        if pos + limit < end:
            end = pos + limit
        shift: i64 = 0
        value: i64 = 0
        while pos < end:
            byte: i64 = data[pos]
            pos += 1
            # The tenth byte of a varlong carries one bit: more would not fit an int64.
            if shift == 63 and byte > 1:
                raise Malformed("varlong out of range")
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                self.pos = pos
                # A logical shift right of the 64 bits, then the zigzag's sign.
                return ((value >> 1) & 0x7FFFFFFFFFFFFFFF) ^ -(value & 1)
            shift += 7
        raise Malformed("a varint runs past its end")

    def varint(self) -> i64:
        """A zigzag varint within int32, of at most 5 bytes."""
        data = self.data
        pos: i64 = self.pos
        end: i64 = self.end
        if pos < end:  # as in varlong, which costs a call
            low: i64 = data[pos]
            if low < 0x80:
                self.pos = pos + 1
                return (low >> 1) ^ -(low & 1)
            if pos + 1 < end:
                high: i64 = data[pos + 1]
                if high < 0x80:
                    self.pos = pos + 2
                    both: i64 = (low & 0x7F) | (high << 7)
                    return (both >> 1) ^ -(both & 1)
        value: i64 = self.varlong(_VARINT_LIMIT)
        if value > 0x7FFFFFFF or value < -0x80000000:
            raise Malformed("varint out of range")
        return value

    def jump(self, size: i64) -> None:
        """Skip `size` bytes."""
        if size < 0 or size > self.end - self.pos:
            raise Malformed("a length runs past the end of its record")
        self.pos += size


def _write_varlong(out: BytesWriter, value: i64) -> None:
    if 0 <= value < 64:
        out.append(u8(value << 1))
        return
    if 0 <= value < 8192:
        out.append(u8(((value << 1) & 0x7F) | 0x80))
        out.append(u8(value >> 6))
        return
    bits: i64 = (value << 1) ^ (value >> 63)
    while bits < 0 or bits > 0x7F:
        out.append(u8((bits & 0x7F) | 0x80))
        bits = (bits >> 7) & 0x01FFFFFFFFFFFFFF
    out.append(u8(bits))


def _varlong_size(value: i64) -> i64:
    if 0 <= value < 8192:
        return 1 if value < 64 else 2
    bits: i64 = (value << 1) ^ (value >> 63)
    size: i64 = 1
    while bits < 0 or bits > 0x7F:
        bits = (bits >> 7) & 0x01FFFFFFFFFFFFFF
        size += 1
    return size


def append_record(
    out: BytesWriter,
    timestamp_delta: i64,
    offset_delta: i64,
    data: bytes,
    key: i64,
    key_size: i64,
    value: i64,
    value_size: i64,
) -> None:
    """Write a record without headers. `key` and `value` are positions in `data`; a size of −1 stands for null."""
    size: i64 = 2 + _varlong_size(timestamp_delta) + _varlong_size(offset_delta)
    size += _varlong_size(key_size) + max(key_size, 0) + _varlong_size(value_size) + max(value_size, 0)
    _write_varlong(out, size)
    out.append(u8(0))
    _write_varlong(out, timestamp_delta)
    _write_varlong(out, offset_delta)
    _write_varlong(out, key_size)
    if key_size > 0:
        out.write(data[key : key + key_size])
    _write_varlong(out, value_size)
    if value_size > 0:
        out.write(data[value : value + value_size])
    out.append(u8(0))


def scan(data: bytes, start: int, end: int, count: int) -> tuple[int, int, int]:
    """Check every length and number in the section of `count` records at [start, end).

    Returns (records without a key, the newest and the oldest timestamp as deltas to the batch's base timestamp, in ms).

    Raises Malformed if lengths do not add up, offsets are not 0..count-1, or bytes are left over.
    """
    # Numbers of one byte are read here: a call takes longer than all else that is done with them.
    cursor = Cursor(data, start, end)
    section_end: i64 = end
    wanted: i64 = count
    null_keys: i64 = 0
    max_delta: i64 = 0
    min_delta: i64 = 0
    number: i64 = 0
    low: i64
    while number < wanted:
        size: i64 = cursor.varint()
        pos: i64 = cursor.pos
        if size < 1 or size > section_end - pos:
            raise Malformed("a record runs past its batch")
        record_end: i64 = pos + size
        cursor.end = record_end
        pos += 1
        delta: i64
        if pos < record_end and data[pos] < 0x80:
            low = data[pos]
            delta = (low >> 1) ^ -(low & 1)
            pos += 1
        else:
            cursor.pos = pos
            delta = cursor.varlong(_VARLONG_LIMIT)
            pos = cursor.pos
            if delta > _DELTA_LIMIT or delta < -_DELTA_LIMIT:
                raise Malformed("a timestamp out of range")
        if number == 0:
            max_delta = min_delta = delta
        elif delta > max_delta:
            max_delta = delta
        elif delta < min_delta:
            min_delta = delta
        offset: i64
        if pos < record_end and data[pos] < 0x80:
            low = data[pos]
            offset = (low >> 1) ^ -(low & 1)
            pos += 1
        else:
            cursor.pos = pos
            offset = cursor.varint()
            pos = cursor.pos
        if offset != number:
            raise Malformed("offsets are not 0..n-1")
        if pos < record_end and data[pos] < 0x80:
            low = data[pos]
            size = (low >> 1) ^ -(low & 1)
            pos += 1
        else:
            cursor.pos = pos
            size = cursor.varint()
            pos = cursor.pos
        if size < 0:
            if size != -1:
                raise Malformed("a key of negative length")
            null_keys += 1
        elif size > record_end - pos:
            raise Malformed("a length runs past the end of its record")
        else:
            pos += size
        cursor.pos = pos
        size = cursor.varint()
        if size >= 0:
            cursor.jump(size)
        elif size != -1:
            raise Malformed("a value of negative length")
        pos = cursor.pos
        if pos < record_end and data[pos] == 0:
            cursor.pos = pos + 1
        else:
            _scan_headers(cursor)
        if cursor.pos != record_end:
            raise Malformed("a record is longer than its fields")
        cursor.end = section_end
        number += 1
    if cursor.pos != section_end:
        raise Malformed("bytes behind the last record")
    return null_keys, max_delta, min_delta


def _scan_headers(cursor: Cursor) -> None:
    """Past a record's headers."""
    headers: i64 = cursor.varint()
    if headers < 0:
        raise Malformed("a negative number of headers")
    while headers > 0:
        cursor.jump(cursor.varint())
        size: i64 = cursor.varint()
        if size >= 0:
            cursor.jump(size)
        elif size != -1:
            raise Malformed("a header value of negative length")
        headers -= 1


def renumber(data: bytes, start: int, end: int, first_offset: int, timestamp_shift: int) -> bytes:
    """The section with `first_offset` added to each offset delta and `timestamp_shift` ms to each timestamp delta.

    The section must have passed `scan`. Offsets 0 1 2 behind 5 earlier records become 5 6 7.
    """
    cursor = Cursor(data, start, end)
    out = BytesWriter()
    shift: i64 = timestamp_shift
    offset: i64 = first_offset
    stop: i64 = end
    low: i64
    while cursor.pos < stop:
        size: i64 = cursor.varint()
        head: i64 = cursor.pos
        record_end: i64 = head + size
        rest: i64 = head + 1
        delta: i64
        low = data[rest]
        if low < 0x80:  # as in `scan`
            delta = (low >> 1) ^ -(low & 1)
            rest += 1
        else:
            cursor.pos = rest
            delta = cursor.varlong(_VARLONG_LIMIT)
            rest = cursor.pos
        while data[rest] >= 0x80:
            rest += 1
        rest += 1
        delta += shift
        _write_varlong(out, 1 + _varlong_size(delta) + _varlong_size(offset) + (record_end - rest))
        out.append(u8(data[head]))
        _write_varlong(out, delta)
        _write_varlong(out, offset)
        out.write(data[rest:record_end])
        cursor.pos = record_end
        offset += 1
    return out.getvalue()


def split(data: bytes, start: int, end: int) -> Split:
    """Separate records with a key from those without, each in their order. The section must have passed `scan`."""
    cursor = Cursor(data, start, end)
    keyed = BytesWriter()
    null_key = BytesWriter()
    keyed_count: i64 = 0
    keyed_max: i64 = 0
    null_count: i64 = 0
    null_max: i64 = 0
    stop: i64 = end
    while cursor.pos < stop:
        size: i64 = cursor.varint()
        head: i64 = cursor.pos
        record_end: i64 = head + size
        cursor.pos = head + 1
        delta: i64 = cursor.varlong(_VARLONG_LIMIT)
        delta_end: i64 = cursor.pos
        cursor.varint()
        rest: i64 = cursor.pos
        offset: i64
        if cursor.varint() < 0:
            out = null_key
            offset = null_count
            if null_count == 0 or delta > null_max:
                null_max = delta
            null_count += 1
        else:
            out = keyed
            offset = keyed_count
            if keyed_count == 0 or delta > keyed_max:
                keyed_max = delta
            keyed_count += 1
        _write_varlong(out, (delta_end - head) + _varlong_size(offset) + (record_end - rest))
        out.write(data[head:delta_end])
        _write_varlong(out, offset)
        out.write(data[rest:record_end])
        cursor.pos = record_end
    return Split(keyed.getvalue(), keyed_count, keyed_max, null_key.getvalue(), null_count, null_max)


def starts(data: bytes, start: int, end: int, numbers: list[int]) -> list[int]:
    """Where the records with these numbers, which ascend, begin in a section; its end, for the number behind its last.

    One pass, however many they are. The section must have passed `scan`.
    """
    cursor = Cursor(data, start, end)
    number: i64 = 0
    found: list[int] = []
    for wanted in numbers:
        stop: i64 = wanted
        while number < stop:
            size: i64 = cursor.varint()
            cursor.pos += size
            number += 1
        found.append(cursor.pos)
    return found


def take(data: bytes, start: int, end: int, first_offset: int) -> tuple[bytes, int]:
    """(the records at [start, end), numbered from `first_offset`, their greatest timestamp delta; 0 if there are none).

    They must be whole records of a section that has passed `scan`.
    """
    cursor = Cursor(data, start, end)
    stop: i64 = end
    max_delta: i64 = 0
    first: bool = True
    while cursor.pos < stop:
        size: i64 = cursor.varint()
        record_end: i64 = cursor.pos + size
        cursor.pos += 1
        delta: i64 = cursor.varlong(_VARLONG_LIMIT)
        if first or delta > max_delta:
            max_delta = delta
        first = False
        cursor.pos = record_end
    return renumber(data, start, end, first_offset, 0), max_delta
