"""A reader of any Kafka message by its schema alone: the independent decoder of control messages.

The schemas are kio's, generated from Kafka's own; the reading is not, because kio's reader ends the process where a
count lies. Out: nested dicts, with tagged fields that the schema does not know under "tags" as {tag: bytes}. Raises
ValueError where the bytes are wrong.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable
from functools import cache
from typing import Any, Final

Message = dict[str, Any]


class _Cursor:
    """Reads forward through a message. ValueError at its end."""

    def __init__(self, data: bytes, text_errors: str = "strict") -> None:
        self.data = data
        self.at = 0
        self.text_errors = text_errors

    def take(self, size: int) -> bytes:
        if not 0 <= size <= len(self.data) - self.at:
            raise ValueError(f"{size} bytes of {len(self.data) - self.at}")
        self.at += size
        return self.data[self.at - size : self.at]

    def signed(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big", signed=True)

    def unsigned_varint(self) -> int:
        number = 0
        for shift in range(0, 35, 7):
            byte = self.take(1)[0]
            number += (byte & 0x7F) << shift
            if byte < 0x80:
                return number
        raise ValueError("a varint without an end")

    def size(self, width: int, *, flexible: bool) -> int:
        """Of a string, bytes or an array; −1 for null."""
        size = self.unsigned_varint() - 1 if flexible else self.signed(width)
        if size < -1 or size > len(self.data) - self.at:
            raise ValueError(f"a size of {size}")
        return size


_Read = Callable[[_Cursor], Any]

_WIDTHS: Final = {
    "int8": 1,
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "error_code": 2,
    "datetime_i64": 8,
    "timedelta_i32": 4,
}


def _scalar(kind: str, *, nullable: bool, flexible: bool) -> _Read:
    if kind in _WIDTHS:
        return lambda cursor: cursor.signed(_WIDTHS[kind])
    if kind == "bool":
        return lambda cursor: cursor.signed(1) != 0
    if kind == "uuid":
        return lambda cursor: cursor.take(16)
    if kind not in ("string", "bytes", "records"):
        raise NotImplementedError(kind)

    def sized(cursor: _Cursor) -> str | bytes | None:
        size = cursor.size(2 if kind == "string" else 4, flexible=flexible)
        if size == -1 and not nullable:
            raise ValueError("null where a value must stand")
        found = cursor.take(size) if size >= 0 else None
        return found.decode(errors=cursor.text_errors) if found is not None and kind == "string" else found

    return sized


def _field(hint: Any, kind: str | None, *, nullable: bool, flexible: bool) -> _Read:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is types.UnionType or origin is typing.Union:
        inner = next(argument for argument in arguments if argument is not types.NoneType)
        return _field(inner, kind, nullable=True, flexible=flexible)
    if origin is tuple:
        element = _field(arguments[0], kind, nullable=False, flexible=flexible)

        def elements(cursor: _Cursor) -> list[Any] | None:
            size = cursor.size(4, flexible=flexible)
            if size == -1 and not nullable:
                raise ValueError("null where an array must stand")
            return [element(cursor) for _ in range(size)] if size >= 0 else None

        return elements
    if dataclasses.is_dataclass(hint):
        return _struct(typing.cast(Any, hint))
    assert kind is not None
    return _scalar(kind, nullable=nullable, flexible=flexible)


@cache
def _struct(cls: Any) -> _Read:
    plain: list[tuple[str, _Read]] = []
    tagged: dict[int, tuple[str, _Read]] = {}
    for field in dataclasses.fields(cls):
        # A request's client_id is never compact, so that a broker can read it whatever the version.
        flexible = cls.__flexible__ and field.name != "client_id"
        read = _field(field.type, field.metadata.get("kafka_type"), nullable=False, flexible=flexible)
        if "tag" in field.metadata:
            tagged[field.metadata["tag"]] = field.name, read
        else:
            plain.append((field.name, read))
    absent = {name: None for name, _ in tagged.values()}

    def struct(cursor: _Cursor) -> Message:
        found = {name: read(cursor) for name, read in plain}
        if cls.__flexible__:
            found |= absent
            found["tags"] = unknown = {}
            for _ in range(cursor.unsigned_varint()):
                tag = cursor.unsigned_varint()
                value = cursor.take(cursor.unsigned_varint())
                if tag in tagged:
                    name, read = tagged[tag]
                    inner = _Cursor(value, cursor.text_errors)
                    found[name] = read(inner)
                    if inner.at != len(value):
                        raise ValueError("bytes behind a tagged field")
                else:
                    unknown[tag] = value
        return found

    return struct


def read(cls: Any, data: bytes, *, ends: bool = True, as_brokers: bool = False) -> Message | None:
    """A message, its header under "header"; None where the bytes are not one. `ends`: nothing may be behind it.

    `as_brokers`: text need not be UTF-8, as Java reads it: what is not becomes U+FFFD.
    """
    cursor = _Cursor(data, "replace" if as_brokers else "strict")
    try:
        header = _struct(cls.__header_schema__)(cursor)
        body: Message = _struct(cls)(cursor)
    except ValueError:
        return None
    return body | {"header": header} if cursor.at == len(data) or not ends else None
