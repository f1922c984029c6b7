"""Kafka's primitive types, read from and written to bytes.

In: a `bytes` object and a position. Out: values. Wrong bytes raise Malformed, never IndexError or struct.error.
Reader and Writer are for control messages; records.py reads record bytes.

Strings, bytes and arrays come in two encodings, the one before and the one after a message's version became flexible
(KIP-482). Their readers and writers take `flexible` as their last argument; it is what every such call is about, so it
goes without its name.
Types: https://kafka.apache.org/protocol.html#protocol_types
"""

from __future__ import annotations

from typing import Final, TypeAlias

from librt.strings import (
    BytesWriter,
    read_i16_be,
    read_i32_be,
    read_i64_be,
    write_i16_be,
    write_i32_be,
    write_i64_be,
)
from mypy_extensions import i16 as int16
from mypy_extensions import i32 as int32
from mypy_extensions import i64 as int64
from mypy_extensions import u8

from forebay_codecs.errors import Malformed

Buffer: TypeAlias = bytes | bytearray | memoryview
"""Bytes on their way, cut but not copied."""

_LONGEST_STRING = 0x7FFF
"""In bytes. Kafka allows no longer ones in flexible versions either, so that every string fits an int16 size."""

FLEXIBLE: Final = True
"""For messages that are flexible in every version handled: `reader.string(FLEXIBLE)`."""


class Reader:
    """Reads forward through `data` from `pos`, never past `end` (−1: to the end). Every read may raise Malformed."""

    __slots__ = ("data", "end", "pos")

    def __init__(self, data: bytes, pos: int = 0, end: int = -1) -> None:
        self.data = data
        self.pos: int64 = pos
        self.end: int64 = len(data) if end < 0 else end

    def skip(self, size: int64) -> int64:
        """Move `size` bytes forward and return where they began."""
        start: int64 = self.pos
        if size < 0 or size > self.end - start:
            raise Malformed(f"{size} bytes wanted, {self.end - start} left")
        self.pos = start + size
        return start

    def i8(self) -> int:
        """An INT8."""
        value: int64 = self.data[self.skip(1)]
        return value - 256 if value > 127 else value

    def i16(self) -> int:
        """An INT16."""
        return read_i16_be(self.data, self.skip(2))

    def i32(self) -> int:
        """An INT32."""
        return read_i32_be(self.data, self.skip(4))

    def i64(self) -> int:
        """An INT64."""
        return read_i64_be(self.data, self.skip(8))

    def boolean(self) -> bool:
        """A BOOLEAN; any byte but 0 is true."""
        return self.i8() != 0

    def uvarint(self) -> int:
        """An UNSIGNED_VARINT of at most 5 bytes: 0xAC 0x02 → 300."""
        value: int64 = 0
        shift: int64 = 0
        while shift < 35:
            byte: int64 = self.data[self.skip(1)]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
        raise Malformed("varint of more than 5 bytes")

    def raw(self, size: int) -> bytes:
        """The next `size` bytes."""
        start = self.skip(size)
        return self.data[start : self.pos]

    def client_id(self) -> str | None:
        """A nullable STRING of any bytes, since brokers accept ids that are not UTF-8.

        Such bytes become lone surrogates, which `Writer.client_id` turns back into the same bytes.
        """
        size = self.i16()
        if size < -1:
            raise Malformed(f"string of length {size}")
        if size == -1:
            return None
        data = self.raw(size)
        try:
            return data.decode()
        except UnicodeDecodeError:
            return data.decode(errors="surrogateescape")

    def _text(self, size: int) -> str:
        try:
            return self.raw(size).decode()
        except UnicodeDecodeError as error:
            raise Malformed("a string is not UTF-8") from error

    def nullable_string(self, flexible: bool) -> str | None:
        """A NULLABLE_STRING or COMPACT_NULLABLE_STRING."""
        size = self.uvarint() - 1 if flexible else self.i16()
        if size < -1 or size > _LONGEST_STRING:
            raise Malformed(f"string of length {size}")
        return None if size == -1 else self._text(size)

    def string(self, flexible: bool) -> str:
        """A STRING or COMPACT_STRING; null is Malformed."""
        value = self.nullable_string(flexible)
        if value is None:
            raise Malformed("null where a string must stand")
        return value

    def nullable_bytes(self, flexible: bool) -> tuple[int, int] | None:
        """(start, end) of a BYTES, COMPACT_BYTES or RECORDS field, which is not copied; None for null."""
        size = self.uvarint() - 1 if flexible else self.i32()
        if size < -1:
            raise Malformed(f"bytes of length {size}")
        if size == -1:
            return None
        start = self.skip(size)
        return start, self.pos

    def sized_bytes(self, flexible: bool) -> bytes:
        """A copy of a BYTES or COMPACT_BYTES; empty for null."""
        start, end = self.nullable_bytes(flexible) or (0, 0)
        return self.data[start:end]

    def nullable_array(self, flexible: bool) -> int:
        """The number of elements that follow, −1 for null; no more than bytes are left, as each takes at least one."""
        count = self.uvarint() - 1 if flexible else self.i32()
        if count < -1 or count > self.end - self.pos:
            raise Malformed(f"array of {count} elements in {self.end - self.pos} bytes")
        return count

    def array(self, flexible: bool) -> int:
        """The number of elements that follow; 0 for null."""
        return max(0, self.nullable_array(flexible))

    def tags(self) -> list[tuple[int, int, int]]:
        """Read a section of tagged fields; return (tag, start, end) of each value, in order."""
        found = []
        for _ in range(self.uvarint()):
            tag = self.uvarint()
            size = self.uvarint()
            start = self.skip(size)
            found.append((tag, start, self.pos))
        return found

    def skip_tags(self, flexible: bool = True) -> None:
        """Skip a section of tagged fields, which only flexible versions have."""
        if flexible:
            for _ in range(self.uvarint()):
                self.uvarint()
                self.skip(self.uvarint())


class Writer:
    """Collects the bytes of one message in `out`. Values are not checked for range: they are ours."""

    __slots__ = ("out",)

    def __init__(self) -> None:
        self.out = BytesWriter()

    def getvalue(self) -> bytes:
        """A copy of all that was written."""
        return self.out.getvalue()

    def framed(self) -> bytes:
        """What was written behind a first `i32(0)`, which becomes its size: a whole frame."""
        out = self.out
        size: int64 = len(out) - 4
        for at in range(4):
            out[at] = u8((size >> (24 - 8 * at)) & 0xFF)
        return out.getvalue()

    def raw(self, data: bytes) -> None:
        """Append bytes that are encoded already."""
        self.out.write(data)

    def i8(self, value: int) -> None:
        """An INT8, of which only the low eight bits are kept."""
        self.out.append(value & 0xFF)

    def i16(self, value: int16) -> None:
        """An INT16; OverflowError or ValueError beyond its range."""
        write_i16_be(self.out, value)

    def i32(self, value: int32) -> None:
        """An INT32; OverflowError or ValueError beyond its range."""
        write_i32_be(self.out, value)

    def i64(self, value: int64) -> None:
        """An INT64; OverflowError or ValueError beyond its range."""
        write_i64_be(self.out, value)

    def boolean(self, value: bool) -> None:
        """A BOOLEAN: one byte, 0 or 1."""
        self.out.append(1 if value else 0)

    def uvarint(self, value: int64) -> None:
        """An UNSIGNED_VARINT: 300 → 0xAC 0x02."""
        while value > 0x7F:
            self.out.append(u8(value & 0x7F | 0x80))
            value >>= 7
        self.out.append(u8(value))

    def nullable_string(self, value: str | None, flexible: bool) -> None:
        """A NULLABLE_STRING or COMPACT_NULLABLE_STRING."""
        if value is None:
            if flexible:
                self.out.append(0)
            else:
                self.i16(-1)
            return
        data = value.encode()
        if flexible:
            self.uvarint(len(data) + 1)
        else:
            self.i16(len(data))
        self.out.write(data)

    def client_id(self, value: str | None) -> None:
        """A client id as `Reader.client_id` returned it, in its original bytes."""
        data = b"" if value is None else value.encode(errors="surrogateescape")
        self.i16(-1 if value is None else len(data))
        self.out.write(data)

    def string(self, value: str, flexible: bool) -> None:
        """A STRING or COMPACT_STRING."""
        self.nullable_string(value, flexible)

    def sized_bytes(self, value: bytes, flexible: bool) -> None:
        """A BYTES or COMPACT_BYTES."""
        if flexible:
            self.uvarint(len(value) + 1)
        else:
            self.i32(len(value))
        self.out.write(value)

    def array(self, count: int, flexible: bool) -> None:
        """The count at the head of an array; −1 for a null array."""
        if flexible:
            self.uvarint(count + 1)
        else:
            self.i32(count)

    def tags(self, fields: list[tuple[int, bytes]] | None = None) -> None:
        """A section of tagged fields, given as (tag, value) in ascending order of tags; empty by default."""
        if fields is None:
            self.out.append(0)
            return
        self.uvarint(len(fields))
        for tag, data in fields:
            self.uvarint(tag)
            self.uvarint(len(data))
            self.out.write(data)
