"""Message sets that are wrong, against a reading of them that is written from the format's description alone.

What Forebay accepts must hold the same records there; what it refuses, it refuses with a broker's error code.
"""

from __future__ import annotations

import zlib
from functools import cache
from random import Random
from typing import Final

from forebay_codecs.error_codes import CORRUPT_MESSAGE, INVALID_TIMESTAMP, MESSAGE_TOO_LARGE
from forebay_codecs.message_set import open_message_set
from forebay_codecs.record_batch import BadBatch
from forebay_codecs.record_batch_builder import encode_batch
from tests.codecs.message_oracle import LOG_APPEND_TIME, OLD_CODECS, messages, wrapper
from tests.codecs.record_oracle import NOW, PACKERS, Record, decode_batch
from tests.fuzz.corpus import RECORDS
from tests.fuzz.mutation import mutated
from tests.fuzz.oracle import UNPACKERS
from tests.fuzz.target import Target

LIMIT: Final = 1 << 20
RECEIVED: Final = NOW + 1
_RECORDS: Final = [record._replace(headers=()) for record in RECORDS]
_CODES: Final = {CORRUPT_MESSAGE, INVALID_TIMESTAMP, MESSAGE_TOO_LARGE}


@cache
def message_sets() -> tuple[bytes, ...]:
    """One for each of Produce v0 to v2, and more."""
    wrapped = [
        wrapper(messages(_RECORDS, magic), codec, magic, attributes)
        for magic in (0, 1)
        for codec in OLD_CODECS[1:]
        for attributes in (0, LOG_APPEND_TIME)
    ]
    return (messages(_RECORDS, 0), messages(_RECORDS, 1), wrapped[-2], *wrapped, wrapped[0] + messages(_RECORDS, 0))


def read(data: bytes, wrapped_in: int | None = None, *, stamps: bool = False) -> list[Record]:
    """The records in a sound message set."""
    found: list[Record] = []
    while data:
        size = int.from_bytes(data[8:12], "big")
        body, data = data[12 : 12 + size], data[12 + size :]
        assert len(body) == size
        assert zlib.crc32(body[4:]) == int.from_bytes(body[:4], "big")
        magic, attributes, body = body[4], body[5], body[6:]
        assert magic in (0, 1)
        assert wrapped_in in (None, magic)
        timestamp = RECEIVED
        unstamped = stamps or bool(attributes & LOG_APPEND_TIME)
        if magic == 1:
            if not unstamped:
                timestamp = int.from_bytes(body[:8], "big", signed=True)
            body = body[8:]
        key, body = _nullable(body)
        value, body = _nullable(body)
        assert not body
        codec = attributes & 7
        if not codec:
            found.append(Record(key, value, (), timestamp))
            continue
        assert wrapped_in is None
        assert value is not None
        if codec == 3 and magic == 0:
            value = _mended(value)
        found += read(UNPACKERS[codec](value), magic, stamps=unstamped)
    return found


def _nullable(data: bytes) -> tuple[bytes | None, bytes]:
    size = int.from_bytes(data[:4], "big", signed=True)
    if size < 0:
        assert size == -1
        return None, data[4:]
    assert len(data) >= 4 + size
    return data[4 : 4 + size], data[4 + size :]


def _mended(value: bytes) -> bytes:
    """The frame with whichever header checksum lets it be read."""
    at = 6 + (8 if value[4] & 8 else 0)
    for checksum in range(256):
        tried = value[:at] + bytes((checksum,)) + value[at + 1 :]
        try:
            UNPACKERS[3](tried)
        except Exception:
            continue
        return tried
    raise AssertionError("no checksum lets the frame be read")


def check_message_set(data: bytes) -> bool:
    try:
        found = open_message_set(data, 0, len(data), LIMIT, RECEIVED).batch
    except BadBatch as error:
        if error.code not in _CODES:
            raise
        return False
    wanted = read(data)
    if found is None:
        assert wanted == []
        return False
    assert found.null_keys == sum(record.key is None for record in wanted)
    assert decode_batch(encode_batch(found)).records == wanted
    return True


def message_mutated(data: bytes, rng: Random) -> bytes:
    """Also with checksums that fit what was made wrong, within wrappers too."""
    if rng.random() < 0.2:
        return mutated(data, rng)
    out = b""
    while len(data) >= 14:
        end = 12 + max(14, int.from_bytes(data[8:12], "big"))
        one, data = data[:end], data[end:]
        out += _one_mutated(one, rng) if rng.random() < 0.7 else one
    return out + data


def _one_mutated(one: bytes, rng: Random) -> bytes:
    body = one[16:]
    codec = body[1] & 7 if len(body) > 1 else 0
    head = 14 if body[:1] == b"\1" else 6
    if codec in OLD_CODECS[1:] and rng.random() < 0.7:
        try:
            inner = UNPACKERS[codec](body[head + 4 :])
        except Exception:
            inner = b""
        if inner:
            packed = PACKERS[codec](message_mutated(inner, rng))
            body = body[:head] + len(packed).to_bytes(4, "big") + packed
    else:
        body = mutated(body, rng)
    size = len(body) + 4 if rng.random() < 0.9 else int.from_bytes(one[8:12], "big")
    return one[:8] + (size & 0xFFFFFFFF).to_bytes(4, "big") + zlib.crc32(body).to_bytes(4, "big") + body


def targets() -> list[Target]:
    return [Target("message_set", message_sets(), check_message_set, message_mutated, 1.5)]
