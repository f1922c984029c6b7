"""Bytes made wrong: a few edits of the kind that breaks decoders of length-prefixed formats."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

INTERESTING: Final = (0, 1, -1, -2, 2, 3, 63, 64, 127, 128, 255, 256, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000)
VARINTS: Final = (
    b"\x00",
    b"\x01",
    b"\x02",
    b"\x03",
    b"\x7f",
    b"\x80\x00",  # 0 in two bytes
    b"\x80\x01",
    b"\xff\x7f",
    b"\xfe\xff\xff\xff\x0f",  # the largest int32, zigzag
    b"\xff\xff\xff\xff\x0f",  # the least, zigzag; as unsigned 2³² − 1
    b"\xff\xff\xff\xff\x7f",
    b"\xff\xff\xff\xff\xff\x01",
    b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02",
)
LONGEST: Final = 1 << 16
"""Mutants grow no further."""

Edit = Callable[[bytearray, Random], None]


def _at(data: bytearray, rng: Random) -> int:
    return rng.randrange(len(data) + 1)


def _flip(data: bytearray, rng: Random) -> None:
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _byte(data: bytearray, rng: Random) -> None:
    if data:
        data[rng.randrange(len(data))] = rng.choice((0, 1, 2, 0x7F, 0x80, 0xFF, rng.randrange(256)))


def _integer(data: bytearray, rng: Random) -> None:
    width = rng.choice((1, 2, 2, 4, 4, 8))
    at = _at(data, rng)
    value = rng.choice((*INTERESTING, len(data), len(data) - at, rng.getrandbits(8 * width)))
    data[at : at + width] = (value & (1 << 8 * width) - 1).to_bytes(width, "big")


def _a_little_more_or_less(data: bytearray, rng: Random) -> None:
    if data:
        at = rng.randrange(len(data))
        data[at] = (data[at] + rng.choice((-2, -1, 1, 2))) & 0xFF


def _varint(data: bytearray, rng: Random) -> None:
    at = _at(data, rng)
    data[at : at + rng.choice((0, 1, 1, 1, 2, 5))] = rng.choice(VARINTS)


def _put_in(data: bytearray, rng: Random) -> None:
    at = _at(data, rng)
    data[at:at] = rng.randbytes(rng.choice((1, 1, 2, 4, 17)))


def _leave_out(data: bytearray, rng: Random) -> None:
    at = _at(data, rng)
    del data[at : at + rng.choice((1, 1, 2, 4, 16, 64))]


def _repeat(data: bytearray, rng: Random) -> None:
    start = _at(data, rng)
    piece = data[start : start + rng.choice((1, 2, 4, 16, 64, 256))]
    at = _at(data, rng) if rng.random() < 0.5 else start
    data[at:at] = piece * rng.choice((1, 1, 2, 30))


def _exchange(data: bytearray, rng: Random) -> None:
    size = rng.choice((1, 2, 4, 8, 30))
    one, other = _at(data, rng), _at(data, rng)
    data[one : one + size], data[other : other + size] = data[other : other + size], data[one : one + size]


def _cut(data: bytearray, rng: Random) -> None:
    del data[_at(data, rng) :]


EDITS: Final[tuple[Edit, ...]] = (
    _flip,
    _byte,
    _integer,
    _a_little_more_or_less,
    _a_little_more_or_less,
    _varint,
    _varint,
    _put_in,
    _leave_out,
    _repeat,
    _exchange,
    _cut,
)


def mutated(data: bytes, rng: Random, most: int = 4) -> bytes:
    """`data` after one to `most` edits; few are the rule, since each may be the one that is noticed first."""
    out = bytearray(data)
    for _ in range(1 + int(rng.random() ** 2 * most)):
        rng.choice(EDITS)(out, rng)
    return bytes(out[:LONGEST])


def behind(prefix: int) -> Callable[[bytes, Random], bytes]:
    """A mutation that changes the first `prefix` bytes, which choose what the rest is, only now and then."""

    def mutate(data: bytes, rng: Random) -> bytes:
        if rng.random() < 0.02:
            return mutated(data, rng)
        return data[:prefix] + mutated(data[prefix:], rng)

    return mutate
