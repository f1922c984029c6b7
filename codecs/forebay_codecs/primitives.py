"""Kafka's primitive types, read from and written to bytes.

In: a `bytes` object and a position. Out: values. Wrong bytes: Malformed, never IndexError or struct.error.
Reader and Writer serve control messages; record bytes have their own compiled readers in records.py.
Types: https://kafka.apache.org/protocol.html#protocol_types
"""

from __future__ import annotations

import struct

from librt.strings import read_i16_be, read_i32_be, read_i64_be

from forebay_codecs.errors import Malformed

_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")
_I64 = struct.Struct(">q")

_LONGEST_STRING = 0x7FFF
"""In bytes. Kafka allows no longer ones in flexible versions either, so that each can stand where its size is int16."""


class Reader:
    """Reads forward through `data` from `pos`; `end` bounds every read."""

    __slots__ = ("data", "end", "pos")

    def __init__(self, data: bytes, pos: int = 0, end: int = -1) -> None:
        self.data = data
        self.pos = pos
        self.end = len(data) if end < 0 else end

    def skip(self, size: int) -> int:
        """Move `size` bytes forward and return where they began."""
        start = self.pos
        if size < 0 or start + size > self.end:
            raise Malformed(f"{size} bytes wanted, {self.end - start} left")
        self.pos = start + size
        return start

    def i8(self) -> int:
        value = self.data[self.skip(1)]
        return value - 256 if value > 127 else value

    def i16(self) -> int:
        return read_i16_be(self.data, self.skip(2))

    def i32(self) -> int:
        return read_i32_be(self.data, self.skip(4))

    def i64(self) -> int:
        return read_i64_be(self.data, self.skip(8))

    def boolean(self) -> bool:
        return self.i8() != 0

    def uvarint(self) -> int:
        """An UNSIGNED_VARINT of at most 5 bytes: 0xAC 0x02 → 300."""
        value = 0
        for shift in range(0, 35, 7):
            byte = self.data[self.skip(1)]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise Malformed("varint of more than 5 bytes")

    def raw(self, size: int) -> bytes:
        start = self.skip(size)
        return self.data[start : self.pos]

    def client_id(self) -> str | None:
        """A nullable STRING whose bytes may be any: brokers take ids that are not UTF-8. Those bytes come out as lone
        surrogates, from which `Writer.client_id` makes them again."""
        size = self.i16()
        if size < -1:
            raise Malformed(f"string of length {size}")
        return None if size == -1 else self.raw(size).decode(errors="surrogateescape")

    def _text(self, size: int) -> str:
        try:
            return self.raw(size).decode()
        except UnicodeDecodeError as error:
            raise Malformed("a string is not UTF-8") from error

    def nullable_string(self, flexible: bool) -> str | None:
        size = self.uvarint() - 1 if flexible else self.i16()
        if size < -1 or size > _LONGEST_STRING:
            raise Malformed(f"string of length {size}")
        return None if size == -1 else self._text(size)

    def string(self, flexible: bool) -> str:
        value = self.nullable_string(flexible)
        if value is None:
            raise Malformed("null where a string must stand")
        return value

    def nullable_bytes(self, flexible: bool) -> tuple[int, int] | None:
        """(start, end) of a BYTES, COMPACT_BYTES or RECORDS field; None where it is null."""
        size = self.uvarint() - 1 if flexible else self.i32()
        if size < -1:
            raise Malformed(f"bytes of length {size}")
        if size == -1:
            return None
        start = self.skip(size)
        return start, self.pos

    def nullable_array(self, flexible: bool) -> int:
        """The number of elements, −1 for null. An element takes a byte at least, so a lying count is caught here."""
        count = self.uvarint() - 1 if flexible else self.i32()
        if count < -1 or count > self.end - self.pos:
            raise Malformed(f"array of {count} elements in {self.end - self.pos} bytes")
        return count

    def array(self, flexible: bool) -> int:
        """The number of elements; null counts as none."""
        return max(0, self.nullable_array(flexible))

    def tags(self) -> list[tuple[int, int, int]]:
        """A tagged-field section as (tag, start, end), in order."""
        found = []
        for _ in range(self.uvarint()):
            tag = self.uvarint()
            size = self.uvarint()
            start = self.skip(size)
            found.append((tag, start, self.pos))
        return found

    def skip_tags(self, flexible: bool = True) -> None:
        if flexible:
            for _ in range(self.uvarint()):
                self.uvarint()
                self.skip(self.uvarint())


class Writer:
    """Collects the bytes of one message. Values are assumed to be in range: they are ours."""

    __slots__ = ("out",)

    def __init__(self) -> None:
        self.out = bytearray()

    def getvalue(self) -> bytes:
        return bytes(self.out)

    def raw(self, data: bytes | bytearray | memoryview) -> None:
        self.out += data

    def i8(self, value: int) -> None:
        self.out.append(value & 0xFF)

    def i16(self, value: int) -> None:
        self.out += _I16.pack(value)

    def i32(self, value: int) -> None:
        self.out += _I32.pack(value)

    def i64(self, value: int) -> None:
        self.out += _I64.pack(value)

    def boolean(self, value: bool) -> None:
        self.out.append(1 if value else 0)

    def uvarint(self, value: int) -> None:
        while value > 0x7F:
            self.out.append(value & 0x7F | 0x80)
            value >>= 7
        self.out.append(value)

    def nullable_string(self, value: str | None, flexible: bool) -> None:
        data = None if value is None else value.encode()
        size = -1 if data is None else len(data)
        if flexible:
            self.uvarint(size + 1)
        else:
            self.i16(size)
        if data:
            self.out += data

    def client_id(self, value: str | None) -> None:
        """As `Reader.client_id` read it."""
        data = b"" if value is None else value.encode(errors="surrogateescape")
        self.i16(-1 if value is None else len(data))
        self.out += data

    def string(self, value: str, flexible: bool) -> None:
        self.nullable_string(value, flexible)

    def array(self, count: int, flexible: bool) -> None:
        """The head of an array of `count` elements; −1 is null."""
        if flexible:
            self.uvarint(count + 1)
        else:
            self.i32(count)

    def tags(self, fields: list[tuple[int, bytes]] | None = None) -> None:
        """A tagged-field section of (tag, bytes)."""
        self.uvarint(len(fields) if fields else 0)
        for tag, data in fields or ():
            self.uvarint(tag)
            self.uvarint(len(data))
            self.out += data
