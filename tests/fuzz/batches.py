"""Record batches with something wrong behind a checksum that is right; what must hold of those that are accepted."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Final

import lz4.frame
import zstandard
from crc32c import crc32c

from forebay_codecs import compression, records
from forebay_codecs.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD, TooLarge
from forebay_codecs.error_codes import CORRUPT_MESSAGE, INVALID_RECORD, MESSAGE_TOO_LARGE
from forebay_codecs.errors import Malformed
from forebay_codecs.record_batch import (
    CRC_START,
    HEADER,
    HEADER_SIZE,
    LENGTH_START,
    BadBatch,
    ClientBatch,
    open_batch,
    read_header,
    split_by_key,
)
from forebay_policies.producer_batch import RecordRun
from tests.codecs.merging import Nobody, encoded, merged
from tests.codecs.record_oracle import CODECS, NOW, PACKERS, decode_section, encode_batch, varint
from tests.fuzz.corpus import RECORDS, batches
from tests.fuzz.mutation import INTERESTING, LONGEST, VARINTS, mutated
from tests.fuzz.oracle import UNPACKERS, Fields, python_clients_can_read, read_section
from tests.fuzz.target import Target

LIMIT: Final = 1 << 18
"""What a batch may decompress to here."""

CODES: Final = frozenset({CORRUPT_MESSAGE, INVALID_RECORD, MESSAGE_TOO_LARGE})

_BOMB: Final = bytes(4 * LIMIT)

# Making them


def sealed(header: bytes, body: bytes) -> bytes:
    """`header` and `body` with the length and the checksum that they should have."""
    out = bytearray(header.ljust(HEADER_SIZE, b"\0")[:HEADER_SIZE] + body)
    out[8:12] = (len(out) - LENGTH_START).to_bytes(4, "big")
    out[CRC_START - 4 : CRC_START] = crc32c(out[CRC_START:]).to_bytes(4, "big")
    return bytes(out)


def _with(header: bytes, *, codec: int | None = None, count: int | None = None) -> bytes:
    fields = list(HEADER.unpack(header))
    if codec is not None:
        fields[5] = fields[5] & ~7 | codec
    if count is not None:
        fields[6], fields[12] = max(count - 1, -(2**31)), count
    return HEADER.pack(*fields)


def packed(codec: int, section: bytes, rng: Random) -> bytes:
    """`section` compressed in one of the many ways in which it can be, not all of which Kafka knows."""
    cut = rng.randrange(len(section) + 1)
    both = section[:cut], section[cut:]
    plain = PACKERS[codec]
    ways: list[Callable[[], bytes]] = [partial(plain, section), partial(compression.compress, codec, section)]
    if codec == GZIP:
        ways += [lambda: plain(both[0]) + plain(both[1]), lambda: plain(section) + plain(b"")]
    elif codec == SNAPPY:
        ways += [lambda: plain(both[0]) + plain(both[1])[16:], lambda: compression.compress(SNAPPY, section)[20:]]
    elif codec == LZ4:
        ways += [
            lambda: bytes(lz4.frame.compress(section, content_checksum=True, block_checksum=True)),
            lambda: bytes(lz4.frame.compress(section, block_linked=True, block_size=4)),
            lambda: plain(both[0]) + plain(both[1]),
            lambda: b"\x50\x2a\x4d\x18\x03\0\0\0abc" + plain(section),
        ]
    elif codec == ZSTD:
        streamed = zstandard.ZstdCompressor(write_content_size=False, write_checksum=True)
        ways += [
            lambda: plain(both[0]) + plain(both[1]),
            lambda: plain(both[0]) + b"\x50\x2a\x4d\x18\x03\0\0\0abc" + plain(both[1]),
            lambda: streamed.compress(section),
        ]
    return rng.choice(ways)()


def _lie(rng: Random) -> bytes:
    return rng.choice((*VARINTS, varint(rng.choice(INTERESTING)), varint(rng.randrange(-3, 200))))


def _wide(value: int, rng: Random) -> bytes:
    """A varint, now and then with bytes that it does not need."""
    made = varint(value)
    if rng.random() < 0.05:
        made = made[:-1] + bytes([made[-1] | 0x80]) + b"\0"
    return made


def _record(fields: Fields, number: int, rng: Random) -> bytes:
    """With at most one lie, and lengths around it that are true."""
    lie = rng.randrange(40)

    def number_of(place: int, value: int) -> bytes:
        return _lie(rng) if place == lie else _wide(value, rng)

    def sized(place: int, data: bytes | None) -> bytes:
        return number_of(place, -1) if data is None else number_of(place, len(data)) + data

    out = bytes([fields.attributes]) + number_of(0, fields.timestamp_delta) + number_of(1, number)
    out += sized(2, fields.key) + sized(3, fields.value) + number_of(4, len(fields.headers))
    for name, value in fields.headers:
        out += sized(5, name) + sized(6, value)
    return number_of(7, len(out)) + out


def _rewritten(section: bytes, count: int, rng: Random) -> tuple[bytes, int]:
    """The records of a section taken apart, changed, and put together again."""
    found = read_section(section, count)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(found)) if found else 0
        match rng.randrange(7) if found else 0:
            case 0:
                found.insert(at, Fields(0, 0, 0, None, rng.randbytes(rng.choice((0, 5, 200))), ()))
            case 1 if len(found) > 1:
                del found[at]
            case 2:
                found += found[at : at + 1] * rng.choice((1, 5, 70))
            case 3:
                found[at] = found[at]._replace(
                    key=None if found[at].key is not None else rng.randbytes(rng.randrange(9))
                )
            case 4:
                found[at] = found[at]._replace(value=rng.choice((None, b"", rng.randbytes(70), _BOMB[: LIMIT + 1])))
            case 5:
                delta = rng.choice((0, -1, 1, 63, 64, -65, 2**31, -(2**40), 2**60, -(2**60) - 1, 2**63 - 1, -(2**63)))
                found[at] = found[at]._replace(timestamp_delta=delta, attributes=rng.choice((0, 0, 1, 255)))
            case _:
                header = rng.randbytes(rng.randrange(4)), rng.choice((None, b"", b"x" * 70))
                found[at] = found[at]._replace(headers=(*found[at].headers, header) * rng.choice((1, 1, 2)))
    return b"".join(_record(fields, number, rng) for number, fields in enumerate(found)), len(found)


def batch_mutated(data: bytes, rng: Random) -> bytes:
    """A batch changed in its header, its compressed bytes, its records as bytes, or its records as records."""
    if len(data) < HEADER_SIZE or rng.random() < 0.1:
        return mutated(data, rng)
    header, body = data[:HEADER_SIZE], data[HEADER_SIZE:]
    _, _, _, _, _, attributes, _, _, _, _, _, _, count = HEADER.unpack(header)
    codec = attributes & 7
    way = rng.random()
    if way < 0.15:
        return sealed(mutated(header, rng, 2), body)
    if way < 0.4:
        return sealed(header, mutated(body, rng))
    try:
        section = compression.decompress(codec, body, LIMIT)
        if way < 0.6:
            section = mutated(section, rng)
        elif 0 <= count < 1000:
            section, count = _rewritten(section, count, rng)
            if rng.random() < 0.05:
                count = rng.choice((*INTERESTING[:12], -(2**31), 2**31 - 1, count + 1))
    except (Malformed, TooLarge, ValueError):
        return sealed(header, mutated(body, rng))
    codec = rng.choice((codec, codec, NONE, GZIP, SNAPPY, LZ4, ZSTD)) if codec in UNPACKERS else rng.randrange(5)
    return sealed(_with(header, codec=codec, count=count), packed(codec, section, rng))[:LONGEST]


# Judging them


def judged(batch: ClientBatch) -> list[Fields]:
    """What others find in an accepted batch, which is what Forebay found in it."""
    assert UNPACKERS[batch.codec](batch.records) == batch.section
    found = read_section(batch.section, batch.record_count)
    assert [record.offset_delta for record in found] == list(range(batch.record_count))
    assert batch.null_keys == sum(record.key is None for record in found)
    assert batch.max_timestamp == batch.base_timestamp + max(record.timestamp_delta for record in found)
    if python_clients_can_read(found):
        others = decode_section(batch.section, batch.record_count, batch.base_timestamp)
        assert [(r.key, r.value, r.timestamp, tuple((n.encode(), v) for n, v in r.headers)) for r in others] == [
            _content(record, batch.base_timestamp) for record in found
        ]
    return found


def _content(record: Fields, base: int) -> tuple[object, ...]:
    return record.key, record.value, base + record.timestamp_delta, record.headers


def read_made(data: bytes) -> list[tuple[object, ...]]:
    """The contents of a batch of Forebay's own making, once its header is found right."""
    (base_offset, length, _, magic, crc, attributes, last, base, newest, producer, _, _, count) = HEADER.unpack_from(
        data
    )
    assert (base_offset, length, magic, producer) == (0, len(data) - LENGTH_START, 2, -1)
    assert crc == crc32c(data[CRC_START:])
    assert last == count - 1
    found = read_section(UNPACKERS[attributes & 7](data[HEADER_SIZE:]), count)
    assert [record.offset_delta for record in found] == list(range(count))
    assert newest == base + max(record.timestamp_delta for record in found)
    return [_content(record, base) for record in found]


def contents_of(data: bytes) -> list[tuple[object, ...]]:
    """Of any batch that a broker would take. Raises what it likes where it would not."""
    (base_offset, length, _, magic, crc, attributes, last, base, _, _, _, _, count) = HEADER.unpack_from(data)
    if (base_offset, length, magic, last) != (0, len(data) - LENGTH_START, 2, count - 1) or count < 1:
        raise ValueError("a header that is wrong")
    if crc != crc32c(data[CRC_START:]):
        raise ValueError("a checksum that is wrong")
    found = read_section(UNPACKERS[attributes & 7](data[HEADER_SIZE:]), count)
    if [record.offset_delta for record in found] != list(range(count)):
        raise ValueError("offsets that are wrong")
    return [_content(record, base) for record in found]


def _opened(data: bytes) -> ClientBatch:
    header = read_header(data, 0, len(data))
    assert header is not None
    return open_batch(data, header, LIMIT)


_FIRST: Final = {codec: _opened(encode_batch(RECORDS, codec, NOW - 1000)) for codec in CODECS}
_FIRST_CONTENTS: Final = [_content(record, NOW - 1000) for record in read_section(_FIRST[NONE].section, len(RECORDS))]


def _merges(batch: ClientBatch, contents: list[tuple[object, ...]]) -> None:
    """Behind another batch, and halved again, the records are what they were."""
    merge = merged([_FIRST[batch.codec]], batch.codec)
    if not merge.has_room(batch):
        return
    merge.append(RecordRun(Nobody(), 0, batch.record_count, moved=False, whole=True), batch)
    assert read_made(encoded(merge)) == _FIRST_CONTENTS + contents
    halves = [read_made(encoded(half)) for half in merge.halves((2, 3), 0.0)]
    assert halves == [_FIRST_CONTENTS, contents]


def check_batch(data: bytes) -> bool:
    header = read_header(data, 0, len(data))
    if header is None:
        return False
    try:
        batch = open_batch(data, header, LIMIT)
    except BadBatch as error:
        if error.code not in CODES:
            raise
        return False
    found = judged(batch)
    contents = [_content(record, batch.base_timestamp) for record in found]
    assert records.scan(
        b"\x02" + batch.section + b"\x02", 1, 1 + len(batch.section), batch.record_count
    ) == records.scan(batch.section, 0, len(batch.section), batch.record_count)
    _merges(batch, contents)
    if 0 < batch.null_keys < batch.record_count:
        keyed, null_key = split_by_key(batch)
        for part, wanted in (
            (keyed, [content for content in contents if content[0] is not None]),
            (null_key, [content for content in contents if content[0] is None]),
        ):
            codec, part.codec = part.codec, NONE
            assert [_content(record, part.base_timestamp) for record in judged(part)] == wanted
            part.codec = codec
            _merges(part, wanted)
    return True


def check_compressed(codec: int, data: bytes) -> bool:
    try:
        plain = compression.decompress(codec, data, LIMIT)
    except (Malformed, TooLarge):
        return False
    assert len(plain) <= LIMIT
    assert UNPACKERS[codec](data) == plain
    assert compression.decompress(codec, compression.compress(codec, plain), LIMIT) == plain
    return True


def _compressed_seeds(codec: int) -> tuple[bytes, ...]:
    rng = Random(codec)
    texts = [b"", b"a", b"forebay " * 20, rng.randbytes(500), bytes(LIMIT), bytes(LIMIT + 1), _BOMB]
    bombs = [PACKERS[codec](_BOMB[: LIMIT // 2]) * 3, PACKERS[codec](PACKERS[codec](_BOMB))]
    many = [packed(codec, text, rng) for text in texts for _ in range(4)]
    return (*many, *bombs, *[PACKERS[codec](b"") * 200])


def _compressed_mutated(codec: int, data: bytes, rng: Random) -> bytes:
    if rng.random() < 0.2:
        return packed(codec, rng.randbytes(rng.randrange(20)) * rng.choice((1, 1, 10, 1000)), rng)
    if rng.random() < 0.1:
        return (data + mutated(data, rng))[:LONGEST]
    return mutated(data, rng)


def targets() -> list[Target]:
    found = [Target("batch", batches(), check_batch, batch_mutated, 4.0)]
    for codec in (GZIP, SNAPPY, LZ4, ZSTD):
        found.append(
            Target(
                f"compression-{compression.NAMES[codec]}",
                _compressed_seeds(codec),
                partial(check_compressed, codec),
                partial(_compressed_mutated, codec),
                0.5,
            )
        )
    return found
