"""Records and compression as others read them: what Forebay accepts must say the same here.

`read_section` is written from the description of the format (https://kafka.apache.org/documentation/#record), with no
eye to speed. Raises ValueError where the bytes are wrong. aiokafka and kafka-python (record_oracle) read the same
records where they can.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable
from typing import Final, NamedTuple

import cramjam

from forebay_codecs.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD


class Fields(NamedTuple):
    """A record as it stands in a batch. Names of headers are bytes."""

    attributes: int
    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...]


class _Bytes:
    """Reads forward through bytes. ValueError at their end."""

    def __init__(self, data: bytes) -> None:
        self.rest = data

    def take(self, size: int) -> bytes:
        if not 0 <= size <= len(self.rest):
            raise ValueError(f"{size} bytes of {len(self.rest)}")
        taken, self.rest = self.rest[:size], self.rest[size:]
        return taken

    def zigzag(self, bits: int) -> int:
        number = 0
        for shift in range(0, bits, 7):
            byte = self.take(1)[0]
            number += (byte & 0x7F) << shift
            if byte < 0x80:
                break
        else:
            raise ValueError("a varint without an end")
        if number >= 2**bits:
            raise ValueError("a varint out of range")
        return number // 2 if number % 2 == 0 else -(number + 1) // 2

    def nullable(self) -> bytes | None:
        size = self.zigzag(32)
        return None if size == -1 else self.take(size)


def read_section(section: bytes, count: int) -> list[Fields]:
    """The records of an uncompressed section."""
    data = _Bytes(section)
    found = []
    for _ in range(count):
        record = _Bytes(data.take(data.zigzag(32)))
        attributes = record.take(1)[0]
        timestamp_delta, offset_delta = record.zigzag(64), record.zigzag(32)
        key, value = record.nullable(), record.nullable()
        headers = []
        for _ in range(record.zigzag(32)):
            headers.append((record.take(record.zigzag(32)), record.nullable()))
        if record.rest:
            raise ValueError("bytes behind a record")
        found.append(Fields(attributes, timestamp_delta, offset_delta, key, value, tuple(headers)))
    if data.rest:
        raise ValueError("bytes behind the last record")
    return found


def _gunzip(data: bytes) -> bytes:
    return gzip.decompress(data)


def _unlz4(data: bytes) -> bytes:
    return bytes(cramjam.lz4.decompress(data))


def _unsnappy(data: bytes) -> bytes:
    """A raw block, or xerial's blocks behind a header of 16 bytes."""
    if not data.startswith(b"\x82SNAPPY\x00"):
        return bytes(cramjam.snappy.decompress_raw(data))
    blocks = _Bytes(data)
    blocks.take(16)
    out = b""
    while blocks.rest:
        out += bytes(cramjam.snappy.decompress_raw(blocks.take(int.from_bytes(blocks.take(4), "big"))))
    return out


def _unzstd(data: bytes) -> bytes:
    return bytes(cramjam.zstd.decompress(data))


UNPACKERS: Final[dict[int, Callable[[bytes], bytes]]] = {
    NONE: lambda data: data,
    GZIP: _gunzip,
    SNAPPY: _unsnappy,
    LZ4: _unlz4,
    ZSTD: _unzstd,
}
"""Other libraries than Forebay's, or other entries to the same: without bounds, so only for what Forebay accepts."""


def python_clients_can_read(fields: list[Fields]) -> bool:
    """They want header names in UTF-8, and take the attributes, a byte that has no use yet, for a varint."""
    try:
        for record in fields:
            for name, _ in record.headers:
                name.decode()
    except UnicodeDecodeError:
        return False
    return all(record.attributes < 0x80 for record in fields)
