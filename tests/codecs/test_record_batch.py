"""record_batch.py: a client's batch is opened as others read it, or refused with the code that a broker gives."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay_codecs import compression
from forebay_codecs.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD
from forebay_codecs.error_codes import CORRUPT_MESSAGE, INVALID_RECORD, MESSAGE_TOO_LARGE
from forebay_codecs.record_batch import (
    HEADER_SIZE,
    BadBatch,
    ClientBatch,
    open_batch,
    read_header,
    read_numbers,
    split_by_key,
)
from tests.codecs.hardening import damaged
from tests.codecs.record_oracle import (
    CODECS,
    NO_LIMIT,
    NOW,
    PACKERS,
    WRITERS,
    Record,
    decode_batch,
    decode_section,
    encode_batch,
    encode_section,
    record_lists,
    seal,
)

MIXED = [
    Record(b"key", b"value", (("h", b"x"), ("none", None)), NOW),
    Record(None, b"no key " * 40, (), NOW + 70),
    Record(b"", None, (), NOW - 3),
    Record(None, b"", (("", b""),), NOW + 2),
]
SECTION = encode_section(MIXED)


def opened(data: bytes, limit: int = NO_LIMIT) -> ClientBatch:
    header = read_header(data, 0, len(data))
    assert header is not None
    return open_batch(data, header, limit)


def refusal(data: bytes, limit: int = NO_LIMIT) -> int:
    with pytest.raises(BadBatch) as caught:
        opened(data, limit)
    assert caught.value.message == str(caught.value) != ""
    return caught.value.code


# The header


def test_reads_the_header() -> None:
    data = encode_batch(MIXED, ZSTD, producer_id=77)
    header = read_header(data, 0, len(data))
    assert header is not None
    wanted = {
        "start": 0,
        "end": len(data),
        "crc": struct.unpack_from(">I", data, 17)[0],
        "attributes": 4,
        "last_offset_delta": 3,
        "base_timestamp": NOW,
        "max_timestamp": NOW + 70,
        "producer_id": 77,
        "record_count": 4,
    }
    assert {name: getattr(header, name) for name in wanted} == wanted
    assert header.codec == ZSTD


def test_reads_a_header_within_a_frame() -> None:
    data = encode_batch(MIXED, GZIP)
    frame = b"before" + data + b"after"
    header = read_header(frame, 6, 6 + len(data))
    assert header is not None
    assert open_batch(frame, header, NO_LIMIT) == opened(data)


def test_only_one_whole_batch_has_a_header() -> None:
    data = encode_batch(MIXED)
    for size in range(len(data)):
        assert read_header(data, 0, size) is None  # its bytes end, the buffer does not
        assert read_header(data[:size], 0, size) is None
    for tail in (b"\x00", b"\xff", data):
        assert read_header(data + tail, 0, len(data + tail)) is None
    for magic in (-1, 0, 1, 3):
        assert read_header(encode_batch(MIXED, magic=magic), 0, len(data)) is None
    for length in (-(2**31), -1, 0, len(data), 2**31 - 1):
        assert read_header(encode_batch(MIXED, length=length), 0, len(data)) is None


@given(st.binary(max_size=80), st.integers(0, 80), st.integers(0, 80))
def test_any_bytes_have_a_header_or_none(data: bytes, start: int, end: int) -> None:
    read_header(data, min(start, len(data)), min(end, len(data)))


# What is opened


@pytest.mark.parametrize("codec", CODECS)
def test_opens_what_a_client_sent(codec: int) -> None:
    data = encode_batch(MIXED, codec)
    batch = opened(data)
    assert batch == ClientBatch(
        header=data[:HEADER_SIZE],
        records=data[HEADER_SIZE:],
        section=SECTION,
        codec=codec,
        record_count=4,
        null_keys=2,
        base_timestamp=NOW,
        max_timestamp=NOW + 70,
    )


@pytest.mark.parametrize("writer", WRITERS.values(), ids=WRITERS.keys())
@pytest.mark.parametrize("codec", [NONE, GZIP, LZ4, ZSTD])
def test_opens_what_other_clients_write(writer: Callable[[list[Record], int], bytes], codec: int) -> None:
    repetitive = [Record(b"k" * 20, b"v" * 200, (("h", b"x" * 50),), NOW + n) for n in range(5)]
    batch = opened(writer(repetitive, codec))
    assert batch.codec == codec  # they send uncompressed what compression makes no smaller
    assert decode_section(batch.section, 5) == repetitive


@settings(deadline=None)
@given(record_lists(), st.sampled_from(CODECS))
def test_opens_any_batch(records: list[Record], codec: int) -> None:
    data = encode_batch(records, codec)
    batch = opened(data)
    assert batch.section == encode_section(records, records[0].timestamp)
    assert batch.null_keys == sum(record.key is None for record in records)
    assert batch.max_timestamp == decode_batch(data).max_timestamp


def test_the_newest_timestamp_is_that_of_the_records() -> None:
    """It goes into a merged batch's header, so it is not taken on trust from a client's."""
    assert opened(encode_batch(MIXED, max_timestamp=NOW + 999)).max_timestamp == NOW + 70
    assert opened(encode_batch(MIXED, max_timestamp=-1)).max_timestamp == NOW + 70


@pytest.mark.parametrize("base", [-1, 0, -(2**62), 2**62])
@pytest.mark.parametrize("delta", [0, 1, -1, 2**60, -(2**60)])
def test_opens_timestamps_at_the_edges(base: int, delta: int) -> None:
    batch = opened(encode_batch([Record(timestamp=base + delta)], base=base))
    assert (batch.base_timestamp, batch.max_timestamp) == (base, base + delta)


# What is refused


def test_a_wrong_checksum_is_corrupt() -> None:
    good = encode_batch(MIXED)
    for at in range(17, len(good)):  # from the checksum on, every byte counts
        data = bytearray(good)
        data[at] ^= 1
        assert refusal(bytes(data)) == CORRUPT_MESSAGE


def test_the_leader_epoch_is_left_out_of_the_checksum() -> None:
    good = encode_batch(MIXED)
    assert opened(good[:12] + b"\x02" * 4 + good[16:]).section == SECTION


@pytest.mark.parametrize("offset", [1, -1, 2**62])
def test_a_base_offset_is_invalid(offset: int) -> None:
    """The checksum leaves it out, and a broker refuses it: merged, it would be gone unseen."""
    assert refusal(offset.to_bytes(8, "big", signed=True) + encode_batch(MIXED)[8:]) == INVALID_RECORD


def test_says_whether_records_were_decompressed_before_they_were_refused() -> None:
    cut = PACKERS[ZSTD](SECTION[:-1])
    cases = {
        encode_batch(MIXED, ZSTD, crc=0): False,
        encode_batch(MIXED, ZSTD, last_offset_delta=5): False,
        seal(SECTION[:-1], count=4): False,
        seal(cut, count=4, attributes=ZSTD): True,
        encode_batch([*MIXED, Record(None, bytes(5000))], ZSTD): True,
    }
    for data, wanted in cases.items():
        header = read_header(data, 0, len(data))
        assert header is not None
        with pytest.raises(BadBatch) as caught:
            open_batch(data, header, 1000)
        assert caught.value.opened == wanted


LIES: dict[str, dict[str, Any]] = {
    "no records": {"count": 0},
    "fewer than none": {"count": -1},
    "as few as can be": {"count": -(2**31), "last_offset_delta": 2**31 - 1},
    "one less": {"count": 3},
    "one more": {"count": 5},
    "as many as can be": {"count": 2**31 - 1},
    "a last offset that is less": {"count": 4, "last_offset_delta": 2},
    "a last offset that is more": {"count": 4, "last_offset_delta": 4},
    "a last offset below zero": {"count": 4, "last_offset_delta": -1},
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES.keys())
def test_a_header_that_lies_is_invalid(lie: dict[str, Any]) -> None:
    assert refusal(seal(SECTION, **lie)) == INVALID_RECORD


@pytest.mark.parametrize("count", [0, -1, -(2**31) + 1])
def test_a_batch_without_records_is_invalid(count: int) -> None:
    """Even where its header and its bytes agree."""
    assert refusal(seal(b"", count=count)) == INVALID_RECORD
    for codec in (GZIP, SNAPPY, LZ4, ZSTD):
        assert refusal(seal(compression.compress(codec, b""), count=count, attributes=codec)) == INVALID_RECORD


@pytest.mark.parametrize("base", [2**62 + 1, 2**63 - 1, -(2**62) - 1, -(2**63)])
def test_a_base_timestamp_beyond_any_clock_is_invalid(base: int) -> None:
    """Its records' timestamps would leave int64, and the header of a merge could not be written."""
    assert refusal(encode_batch([Record(timestamp=base)])) == INVALID_RECORD


def test_no_header_hides_records_that_are_cut_short() -> None:
    for size in range(len(SECTION)):
        assert refusal(seal(SECTION[:size], count=4)) == INVALID_RECORD
    for tail in (b"\x00", b"\xff", SECTION):
        assert refusal(seal(SECTION + tail, count=4)) == INVALID_RECORD


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_no_header_hides_compressed_records_that_are_cut_short(codec: int) -> None:
    packed = PACKERS[codec](SECTION)
    for size in range(len(packed)):
        # Cut within its first bytes, snappy looks like another snappy, whose length comes first.
        allowed = (CORRUPT_MESSAGE, MESSAGE_TOO_LARGE) if codec == SNAPPY and size < 8 else (CORRUPT_MESSAGE,)
        assert refusal(seal(packed[:size], count=4, attributes=codec)) in allowed
    for tail in (b"\x00", b"\xff", packed):
        assert refusal(seal(packed + tail, count=4, attributes=codec)) == CORRUPT_MESSAGE


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_an_unknown_codec_is_corrupt(codec: int) -> None:
    assert refusal(seal(SECTION, count=4, attributes=codec)) == CORRUPT_MESSAGE


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_too_much_is_refused_at_the_byte(codec: int) -> None:
    data = encode_batch(MIXED, codec)
    assert opened(data, len(SECTION)).section == SECTION
    assert refusal(data, len(SECTION) - 1) == MESSAGE_TOO_LARGE


def test_the_codec_of_another_is_corrupt() -> None:
    for written in (GZIP, LZ4, ZSTD):
        for claimed in {GZIP, LZ4, ZSTD} - {written}:
            assert refusal(seal(PACKERS[written](SECTION), count=4, attributes=claimed)) == CORRUPT_MESSAGE


def repaired(data: bytes) -> bytes:
    """Length and checksum made to fit, so that the damage reaches what stands behind them."""
    attributes, last, base, newest, producer_id, _, _, count = struct.unpack_from(">hiqqqhii", data, 21)
    return seal(
        data[HEADER_SIZE:],
        count=count,
        attributes=attributes,
        last_offset_delta=last,
        base_timestamp=base,
        max_timestamp=newest,
        producer_id=producer_id,
    )


@settings(deadline=None, max_examples=300)
@given(st.data(), st.sampled_from(CODECS))
def test_damage_behind_a_right_checksum_is_refused_or_read(data: st.DataObject, codec: int) -> None:
    noise = data.draw(damaged(encode_batch(MIXED, codec)))
    if len(noise) < HEADER_SIZE:
        return
    try:
        batch = opened(repaired(noise), 1 << 16)
    except BadBatch as error:
        code = error.code
    else:
        assert 0 <= batch.null_keys <= batch.record_count
        assert len(batch.section) <= 1 << 16
        assert compression.decompress(batch.codec, batch.records, 1 << 16) == batch.section
        return
    assert code in (CORRUPT_MESSAGE, INVALID_RECORD, MESSAGE_TOO_LARGE)


@given(st.binary(max_size=200), st.integers(-1, 9), st.integers(-(2**15), 2**15 - 1))
def test_noise_behind_a_right_header_is_refused_or_read(body: bytes, count: int, attributes: int) -> None:
    try:
        opened(seal(body, count=count, attributes=attributes), 1 << 16)
    except BadBatch:
        pass


# Split by key


@pytest.mark.parametrize("codec", CODECS)
def test_splits_by_key(codec: int) -> None:
    keyed, null_key = split_by_key(opened(encode_batch(MIXED, codec)))
    assert decode_section(keyed.section, 2) == [MIXED[0], MIXED[2]]
    assert decode_section(null_key.section, 2) == [MIXED[1], MIXED[3]]
    for part, newest, nulls in ((keyed, NOW, 0), (null_key, NOW + 70, 2)):
        assert (part.header, part.records, part.codec) == (b"", part.section, codec)
        assert (part.record_count, part.null_keys) == (2, nulls)
        assert (part.base_timestamp, part.max_timestamp) == (NOW, newest)


@settings(deadline=None)
@given(record_lists(spread=2**59), st.sampled_from(CODECS))
def test_splits_any_batch(records: list[Record], codec: int) -> None:
    base = records[0].timestamp
    halves = split_by_key(opened(encode_batch(records, codec)))
    for half, wanted in zip(
        halves,
        ([r for r in records if r.key is not None], [r for r in records if r.key is None]),
        strict=True,
    ):
        assert half.record_count == len(wanted)
        assert half.base_timestamp == base
        if wanted:
            assert decode_section(half.section, half.record_count, base) == wanted
            assert half.max_timestamp == max(record.timestamp for record in wanted)
        else:
            assert half.section == b""


def test_reads_what_an_idempotent_producer_numbers_its_batches_by() -> None:
    data = seal(SECTION, count=4, producer_id=1 << 40, producer_epoch=258, base_sequence=16909060)
    assert read_numbers(b"xx" + data, 2, 2 + len(data)) == (1 << 40, 258, 16909060)
    assert read_numbers(data, 0, len(data) - 1) is None
    assert read_numbers(encode_batch(MIXED), 0, len(encode_batch(MIXED))) is None
