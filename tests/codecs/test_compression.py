"""compression.py: read what others compress, written so that others read it, and never more than the limit."""

from __future__ import annotations

import gzip
import os
import random
import struct
import subprocess
import sys
from collections.abc import Callable

import aiokafka.codec  # type: ignore[import-untyped]
import cramjam
import kafka.codec  # type: ignore[import-untyped]
import lz4.frame
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay_codecs.compression import GZIP, LZ4, NAMES, NONE, SNAPPY, ZSTD, TooLarge, compress, decompress
from forebay_codecs.errors import Malformed
from tests.codecs.hardening import damaged, refuses_cuts_and_tails
from tests.codecs.record_oracle import PACKERS

Unpack = Callable[[bytes], bytes]

TEXT = b"the pool that holds water ahead of the turbines " * 9
NOISE = random.Random(9).randbytes(70_000)
SAMPLES = {
    "nothing": b"",
    "a byte": b"x",
    "text": TEXT,
    "one block of snappy": TEXT * 75,
    "several blocks": TEXT * 700,
    "noise": NOISE,
}
COMPRESSING = (GZIP, SNAPPY, LZ4, ZSTD)
NO_LIMIT = 1 << 24

AIOKAFKA: dict[int, Unpack] = {
    GZIP: aiokafka.codec.gzip_decode,
    SNAPPY: aiokafka.codec.snappy_decode,
    LZ4: aiokafka.codec.lz4_decode,
    ZSTD: aiokafka.codec.zstd_decode,
}
KAFKA_PYTHON: dict[int, Unpack] = {
    GZIP: kafka.codec.gzip_decode,
    LZ4: kafka.codec.lz4_decode,
    ZSTD: kafka.codec.zstd_decode,
}


def xerial(*blocks: bytes) -> bytes:
    framed = (struct.pack(">i", len(block)) + block for block in blocks)
    return b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1) + b"".join(framed)


def raw_snappy(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


# What others read and write


@pytest.mark.parametrize("data", [*SAMPLES.values()][1:], ids=[*SAMPLES.keys()][1:])
@pytest.mark.parametrize("codec", COMPRESSING)
def test_others_read_what_is_written(codec: int, data: bytes) -> None:
    """(Nothing at all is not compressed: a batch has a record.)"""
    packed = compress(codec, data)
    assert AIOKAFKA[codec](packed) == data
    if codec in KAFKA_PYTHON:
        assert KAFKA_PYTHON[codec](packed) == data
    assert decompress(codec, packed, len(data)) == data


@pytest.mark.parametrize("data", SAMPLES.values(), ids=SAMPLES.keys())
@pytest.mark.parametrize("codec", COMPRESSING)
def test_reads_what_others_write(codec: int, data: bytes) -> None:
    assert decompress(codec, PACKERS[codec](data), len(data)) == data


SKIPPABLE = b"\x5e\x2a\x4d\x18"
FOREIGN: dict[str, tuple[int, bytes]] = {
    "gzip with a file's name": (GZIP, b"\x1f\x8b\x08\x08" + bytes(6) + b"name\0" + gzip.compress(TEXT)[10:]),
    "raw snappy": (SNAPPY, raw_snappy(TEXT)),
    "xerial of several blocks": (SNAPPY, xerial(raw_snappy(TEXT[:100]), raw_snappy(b""), raw_snappy(TEXT[100:]))),
    "xerial of another version": (SNAPPY, b"\x82SNAPPY\x00" + bytes(8) + xerial(raw_snappy(TEXT))[16:]),
    "lz4 of linked blocks": (LZ4, lz4.frame.compress(TEXT, block_linked=True)),
    "lz4 with checksums": (LZ4, lz4.frame.compress(TEXT, content_checksum=True, block_checksum=True)),
    "lz4 with its size": (LZ4, lz4.frame.compress(TEXT, store_size=True)),
    "zstd with a checksum": (ZSTD, zstandard.ZstdCompressor(write_checksum=True).compress(TEXT)),
    "zstd without its size": (ZSTD, zstandard.ZstdCompressor(write_content_size=False).compress(TEXT)),
    "zstd of level 22": (ZSTD, zstandard.compress(TEXT, 22)),
    "zstd streamed": (ZSTD, (lambda c: c.compress(TEXT) + c.flush())(zstandard.ZstdCompressor().compressobj())),
    "zstd behind a skippable frame": (ZSTD, SKIPPABLE + struct.pack("<I", 3) + b"..." + zstandard.compress(TEXT)),
}


@pytest.mark.parametrize(("codec", "packed"), FOREIGN.values(), ids=FOREIGN.keys())
def test_reads_other_framings(codec: int, packed: bytes) -> None:
    assert decompress(codec, packed, len(TEXT)) == TEXT
    with pytest.raises(TooLarge):
        decompress(codec, packed, len(TEXT) - 1)


@pytest.mark.parametrize("codec", [GZIP, ZSTD])
def test_reads_through_members_and_frames(codec: int) -> None:
    packed = compress(codec, TEXT) + compress(codec, b"") + compress(codec, NOISE) + compress(codec, b"")
    assert decompress(codec, packed, NO_LIMIT) == TEXT + NOISE


def test_writes_lz4_as_independent_blocks() -> None:
    """Java refuses a frame whose header says otherwise."""
    info = lz4.frame.get_frame_info(compress(LZ4, TEXT * 10_000))
    assert not info["block_linked"]


def test_reads_one_lz4_frame() -> None:
    """Java reads the first and no other: a broker refuses a batch of two as one that lacks records."""
    with pytest.raises(Malformed):
        decompress(LZ4, compress(LZ4, TEXT) * 2, NO_LIMIT)


def test_none_is_as_it_is() -> None:
    assert decompress(NONE, TEXT, 1) is TEXT
    assert compress(NONE, TEXT) is TEXT


def test_there_are_five() -> None:
    assert [NAMES[codec] for codec in (NONE, GZIP, SNAPPY, LZ4, ZSTD)] == ["none", "gzip", "snappy", "lz4", "zstd"]
    for codec in (-1, 5, 6, 7):
        with pytest.raises(Malformed):
            decompress(codec, TEXT, NO_LIMIT)
        with pytest.raises(ValueError, match="unknown"):
            compress(codec, TEXT)


@settings(deadline=None)
@given(st.binary(min_size=1, max_size=300), st.integers(1, 300), st.sampled_from(COMPRESSING))
def test_any_bytes_come_back(data: bytes, times: int, codec: int) -> None:
    assert decompress(codec, compress(codec, data * times), len(data) * times) == data * times
    assert AIOKAFKA[codec](compress(codec, data * times)) == data * times


# What does not decompress


@pytest.mark.parametrize("data", [TEXT, NOISE[:200]], ids=["text", "noise"])
@pytest.mark.parametrize("codec", [GZIP, LZ4, ZSTD])
def test_refuses_cuts(codec: int, data: bytes) -> None:
    for packed in (compress(codec, data), PACKERS[codec](data)):
        for size in range(len(packed)):
            with pytest.raises(Malformed):
                decompress(codec, packed[:size], NO_LIMIT)
        for tail in (b"\x00", b"\xff", b"tail"):
            with pytest.raises(Malformed):
                decompress(codec, packed + tail, NO_LIMIT)


def test_refuses_cuts_of_raw_snappy() -> None:
    for data in (TEXT, NOISE[:200], b""):
        refuses_cuts_and_tails(lambda packed: decompress(SNAPPY, packed, NO_LIMIT), raw_snappy(data))


def test_refuses_cuts_of_xerial() -> None:
    """But between its blocks, where it is whole: it says nowhere how many there are."""
    first, second = raw_snappy(TEXT), raw_snappy(NOISE[:200])
    packed = xerial(first, second)
    whole = {16: b"", 16 + 4 + len(first): TEXT, len(packed): TEXT + NOISE[:200]}
    for size in range(len(packed) + 1):
        if size in whole:
            assert decompress(SNAPPY, packed[:size], NO_LIMIT) == whole[size]
        else:
            with pytest.raises((Malformed, TooLarge)):  # before its magic is whole, a raw block of a great length
                decompress(SNAPPY, packed[:size], NO_LIMIT)
    for tail in (b"\x00", b"\xff", b"tail", packed):
        with pytest.raises(Malformed):
            decompress(SNAPPY, packed + tail, NO_LIMIT)


FIVE = raw_snappy(b"five!")
LIARS: dict[str, bytes] = {
    "a block longer than what is there": xerial()[:16] + struct.pack(">i", len(FIVE) + 1) + FIVE,
    "a block shorter than it is": xerial()[:16] + struct.pack(">i", len(FIVE) - 1) + FIVE,
    "a block of negative length": xerial()[:16] + struct.pack(">i", -1) + FIVE,
    "a block of the least length": xerial()[:16] + struct.pack(">i", -(2**31)) + FIVE,
    "a block of a huge length": xerial()[:16] + struct.pack(">i", 2**31 - 1) + FIVE,
    "a block of no bytes": xerial(b"", FIVE),
    "a block that claims more than it holds": xerial(b"\x06" + FIVE[1:]),
    "a block that claims less than it holds": xerial(b"\x04" + FIVE[1:]),
    "a block whose length has no end": xerial(b"\xff" * 11),
    "a block whose length is cut short": xerial(b"\x80"),
    "a stream in a stream": xerial(FIVE) + xerial(FIVE),
    "raw, claims more than it holds": b"\x06" + FIVE[1:],
    "raw, claims less than it holds": b"\x04" + FIVE[1:],
    "raw, claims 2 MiB": b"\x80\x80\x80\x01" + FIVE[1:],
    "raw, length without an end": b"\xff" * 11,
    "raw, copies from before its start": b"\x05\x01\x09",
}


@pytest.mark.parametrize("packed", LIARS.values(), ids=LIARS.keys())
def test_snappy_that_lies_is_malformed(packed: bytes) -> None:
    with pytest.raises(Malformed):
        decompress(SNAPPY, packed, NO_LIMIT)


@pytest.mark.parametrize("claim", [b"\xff\xff\xff\xff\x07", b"\xff\xff\xff\xff\x0f", b"\x81\x80\x80\x08"])
def test_snappy_that_claims_more_than_the_limit_is_too_large(claim: bytes) -> None:
    """Before a byte is made: 2 GiB, 4 GiB, and a byte more than the limit."""
    for packed in (claim + FIVE[1:], xerial(claim + FIVE[1:]), xerial(FIVE, claim + FIVE[1:])):
        with pytest.raises(TooLarge):
            decompress(SNAPPY, packed, NO_LIMIT)


def test_the_blocks_of_xerial_share_one_limit() -> None:
    packed = xerial(FIVE, FIVE, FIVE)
    assert decompress(SNAPPY, packed, 15) == b"five!" * 3
    for limit in (14, 10, 9, 4, 0):
        with pytest.raises(TooLarge):
            decompress(SNAPPY, packed, limit)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_the_limit_is_exact(codec: int) -> None:
    for data in (b"x", TEXT, TEXT * 700, NOISE, NOISE[: 1 << 16], bytes(1 << 22)):
        for packed in (compress(codec, data), PACKERS[codec](data)):
            assert decompress(codec, packed, len(data)) == data
            for limit in (len(data) - 1, len(data) // 2, 0):
                with pytest.raises(TooLarge):
                    decompress(codec, packed, limit)


def test_gzip_with_a_wrong_checksum_is_malformed() -> None:
    packed = gzip.compress(TEXT)
    for at in (-8, -1):
        wrong = bytearray(packed)
        wrong[at] ^= 1
        with pytest.raises(Malformed):
            decompress(GZIP, bytes(wrong), NO_LIMIT)


def zstd_frame(*blocks: bytes, descriptor: int = 0) -> bytes:
    """Without a size: one byte of window follows the descriptor. A block has its 3 bytes of header."""
    return b"\x28\xb5\x2f\xfd" + bytes([descriptor, 0x00]) + b"".join(blocks)


def zstd_block(kind: int, size: int, body: bytes, *, last: bool = True) -> bytes:
    return (int(last) | kind << 1 | size << 3).to_bytes(3, "little") + body


ZSTD_LIARS: dict[str, bytes] = {
    "no block": zstd_frame(),
    "no last block": zstd_frame(zstd_block(0, 3, b"abc", last=False)),
    "a block longer than what is there": zstd_frame(zstd_block(0, 4, b"abc")),
    "a block of the reserved type": zstd_frame(zstd_block(3, 3, b"abc")),
    "a block over the window": zstd_frame(zstd_block(0, 2000, bytes(2000))),
    "a byte repeated over the window": zstd_frame(zstd_block(1, 2000, b"a")),
    "no checksum where there should be one": zstd_frame(zstd_block(0, 3, b"abc"), descriptor=4),
    "a skippable frame cut short": SKIPPABLE + struct.pack("<I", 4) + b"...",
    "a skippable frame of a huge length": SKIPPABLE + b"\xff" * 4,
    "a skippable frame without a length": SKIPPABLE + b"\x00",
    "a window of 2 TiB": b"\x28\xb5\x2f\xfd\x00\xf8" + zstd_block(0, 3, b"abc"),
    "a dictionary that nobody has": b"\x28\xb5\x2f\xfd\x01\x00\x07" + zstd_block(0, 3, b"abc"),
    "more than it claims": b"\x28\xb5\x2f\xfd\x20\x02" + zstd_block(0, 3, b"abc"),
    "less than it claims": b"\x28\xb5\x2f\xfd\x20\x04" + zstd_block(0, 3, b"abc"),
    "a huge claim": b"\x28\xb5\x2f\xfd\xe0" + b"\xff" * 8 + zstd_block(0, 3, b"abc"),
}


def test_the_frames_by_hand_are_zstd() -> None:
    """So that the liars below are refused for their lies."""
    blocks = zstd_block(0, 3, b"abc", last=False) + zstd_block(1, 4, b"d", last=False) + zstd_block(0, 0, b"")
    assert decompress(ZSTD, zstd_frame(blocks), 7) == b"abcdddd"
    assert decompress(ZSTD, b"\x28\xb5\x2f\xfd\x20\x03" + zstd_block(0, 3, b"abc"), 3) == b"abc"


@pytest.mark.parametrize("packed", ZSTD_LIARS.values(), ids=ZSTD_LIARS.keys())
def test_zstd_that_lies_is_malformed(packed: bytes) -> None:
    for limit in (NO_LIMIT, 1 << 12):
        with pytest.raises(Malformed):
            decompress(ZSTD, packed, limit)


LZ4_HEADER = lz4.frame.compress(b"")[:7]
LZ4_LIARS: dict[str, bytes] = {
    "no block": LZ4_HEADER,
    "no end": LZ4_HEADER + struct.pack("<I", 0x80000003) + b"abc",
    "a block longer than what is there": LZ4_HEADER + struct.pack("<I", 0x80000004) + b"abc",
    "a block over its size": LZ4_HEADER + struct.pack("<I", 0xFFFFFFFF) + b"abc",
    "a header whose checksum is wrong": LZ4_HEADER[:6] + bytes([LZ4_HEADER[6] ^ 1]) + bytes(4),
    "the checksum of Kafka before 0.10": b"\x04\x22\x4d\x18\x60\x40\x00" + bytes(4),
    "a copy from before its start": LZ4_HEADER + struct.pack("<I", 4) + b"\x00\xff\xff\x00" + bytes(4),
    "less than it claims": lz4.frame.compress(TEXT, store_size=True)[:15] + bytes(4),
}


@pytest.mark.parametrize("packed", LZ4_LIARS.values(), ids=LZ4_LIARS.keys())
def test_lz4_that_lies_is_malformed(packed: bytes) -> None:
    with pytest.raises(Malformed):
        decompress(LZ4, packed, NO_LIMIT)


@settings(deadline=None, max_examples=300)
@given(st.sampled_from(COMPRESSING), st.binary(max_size=100))
def test_noise_is_malformed_or_within_the_limit(codec: int, data: bytes) -> None:
    stays_within(codec, data, 1 << 12)
    stays_within(codec, compress(codec, b"")[:10] + data, 1 << 12)


@settings(deadline=None, max_examples=400)
@given(st.data(), st.sampled_from(COMPRESSING), st.sampled_from([b"", TEXT, NOISE[:100], b"a" * 5000]))
def test_damage_is_malformed_or_within_the_limit(data: st.DataObject, codec: int, sample: bytes) -> None:
    for packed in (compress(codec, sample), PACKERS[codec](sample)):
        stays_within(codec, data.draw(damaged(packed)), 1 << 13)


def stays_within(codec: int, data: bytes, limit: int) -> None:
    try:
        out = decompress(codec, data, limit)
    except (Malformed, TooLarge):
        return
    assert isinstance(out, bytes)
    assert len(out) <= limit


# Bombs

BOMB = 1 << 26
LIMIT = 1 << 20
BOMBS: dict[str, tuple[int, Callable[[], bytes]]] = {
    "gzip": (GZIP, lambda: gzip.compress(bytes(BOMB))),
    "gzip members": (GZIP, lambda: gzip.compress(bytes(1 << 18)) * 256),
    "gzip in gzip's tail": (GZIP, lambda: gzip.compress(b"") + gzip.compress(bytes(BOMB), 1)),
    "snappy": (SNAPPY, lambda: raw_snappy(bytes(BOMB))),
    "snappy blocks": (SNAPPY, lambda: xerial(*[raw_snappy(bytes(1 << 18))] * 256)),
    "lz4": (LZ4, lambda: lz4.frame.compress(bytes(BOMB))),
    "lz4 frames": (LZ4, lambda: lz4.frame.compress(bytes(1 << 19)) * 128),
    "zstd": (ZSTD, lambda: zstandard.compress(bytes(BOMB))),
    "zstd frames": (ZSTD, lambda: zstandard.compress(bytes(1 << 18)) * 256),
    "zstd without its size": (ZSTD, lambda: zstandard.ZstdCompressor(write_content_size=False).compress(bytes(BOMB))),
    "zstd of one byte repeated": (ZSTD, lambda: zstd_repeated(512)),
}


def zstd_repeated(times: int) -> bytes:
    """128 KiB for each 4 bytes; a window as large."""
    block = zstd_block(1, 1 << 17, b"a", last=False)
    return b"\x28\xb5\x2f\xfd\x00\x38" + block * times + zstd_block(0, 0, b"")


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_too_large(name: str) -> None:
    codec, make = BOMBS[name]
    bomb = make()
    # Frames behind the first are refused for being there, if the first is within the limit.
    with pytest.raises(Malformed if name == "lz4 frames" else TooLarge):
        decompress(codec, bomb, LIMIT)


GROWTH = """
import resource, sys
from forebay_codecs.compression import TooLarge, decompress

def peak():
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used if sys.platform == "darwin" else used * 1024

codec = int(sys.argv[1])
bomb = sys.stdin.buffer.read()
for limit in map(int, sys.argv[2:]):
    before = peak()
    try:
        decompress(codec, bomb, limit)
    except TooLarge:
        pass
    print(peak() - before)
"""


@pytest.mark.parametrize("name", ["gzip", "snappy", "snappy blocks", "lz4", "zstd", "zstd of one byte repeated"])
def test_a_bomb_takes_no_memory_beyond_the_limit(name: str) -> None:
    """In a process whose greatest size is known. 64 MiB lie in each bomb, 1 MiB may come out; then all of it."""
    codec, make = BOMBS[name]
    limits = [str(LIMIT), str(BOMB)]
    # A process begins with the greatest size of the one that started it: that is a small shell, not this one.
    done = subprocess.run(
        ["/bin/sh", "-c", '"$@"; exit $?', "sh", sys.executable, "-c", GROWTH, str(codec), *limits],
        input=make(),
        capture_output=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        check=True,
        timeout=60,
    )
    bounded, unbounded = map(int, done.stdout.split())
    assert bounded < 8 << 20  # what the libraries take to work is in it
    assert unbounded > BOMB // 2


@pytest.mark.timeout(30)
def test_small_members_do_not_take_time_by_their_square() -> None:
    """Half a second; were all that follows copied for each of them, more than a minute."""
    assert decompress(GZIP, compress(GZIP, bytes(256)) * 400_000, 256 * 400_000) == bytes(256 * 400_000)


PIECES = {
    "gzip members": (GZIP, b"", compress(GZIP, b"")),
    "snappy blocks": (SNAPPY, compress(SNAPPY, b""), b"\0\0\0\1\0"),
    "zstd frames": (ZSTD, b"", compress(ZSTD, b"")),
    "zstd frames to skip": (ZSTD, b"", b"\x50\x2a\x4d\x18\0\0\0\0"),
}


@pytest.mark.parametrize(("codec", "head", "piece"), PIECES.values(), ids=PIECES.keys())
def test_pieces_that_hold_nothing_are_refused_where_there_are_many(codec: int, head: bytes, piece: bytes) -> None:
    """A megabyte of them would take seconds."""
    assert decompress(codec, head + piece * 20, 1000) == b""
    with pytest.raises(Malformed):
        decompress(codec, head + piece * 70, 1000)


def test_so_are_blocks_of_a_zstd_frame() -> None:
    frame = compress(ZSTD, b"")[:4] + b"\0\x58"
    assert decompress(ZSTD, frame + bytes(3) * 20 + b"\1\0\0", 1000) == b""
    with pytest.raises(Malformed):
        decompress(ZSTD, frame + bytes(3) * 70 + b"\1\0\0", 1000)


@pytest.mark.parametrize("codec", [GZIP, ZSTD])
def test_pieces_that_hold_something_may_be_many(codec: int) -> None:
    assert decompress(codec, compress(codec, bytes(1024)) * 500, 1 << 20) == bytes(1024 * 500)
