"""record_batch_builder.py, and with it what it is for: decode(merge) = concat(decode), in others' decoders.

Client batches are merged by policies' ProducerBatch, as the proxy does it, and cut into halves again.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Sequence

import pytest
from crc32c import crc32c
from hypothesis import example, given, settings
from hypothesis import strategies as st

from forebay_codecs.compression import LZ4, NONE, SNAPPY, ZSTD
from forebay_codecs.record_batch import ClientBatch, open_batch, read_header, split_by_key
from forebay_codecs.record_batch_builder import build_header, with_producer
from tests.codecs.merging import encoded, merged
from tests.codecs.record_oracle import (
    CODECS,
    NO_LIMIT,
    NOW,
    Batch,
    Record,
    decode_batch,
    encode_batch,
    encode_section,
    record_lists,
)

FAR = 1 << 48
"""From this distance on (ms), two base timestamps do not share a batch."""


def opened(records: Sequence[Record], codec: int = NONE, base: int | None = None) -> ClientBatch:
    data = encode_batch(records, codec, base)
    header = read_header(data, 0, len(data))
    assert header is not None
    return open_batch(data, header, NO_LIMIT)


def obeys_the_producers_rules(found: Batch, codec: int) -> None:
    """What Java's producer puts into a header, and its broker relies on, over the checksum."""
    assert found.base_offset == 0
    assert (found.magic, found.attributes) == (2, codec)
    assert found.last_offset_delta == len(found.records) - 1
    assert found.max_timestamp == max(record.timestamp for record in found.records)
    assert (found.producer_id, found.producer_epoch, found.base_sequence) == (-1, -1, -1)


# The header


def test_the_header_that_others_write() -> None:
    records = [Record(b"k", b"v", (), NOW), Record(None, b"w", (("h", b"x"),), NOW + 7)]
    whole = encode_batch(records)
    section = whole[61:]
    assert build_header([section], len(section), 2, NONE, NOW, NOW + 7) == whole[:61]


@pytest.mark.parametrize("codec", [NONE, LZ4])
def test_a_producer_id_and_a_sequence_stand_in_the_header_and_under_its_checksum(codec: int) -> None:
    numbers = (1 << 40, 32767, 2**31 - 1)
    records = [Record(b"k", b"v", (), NOW), Record(None, b"w", (("h", b"x"),), NOW + 7)]
    whole = encode_batch(records, codec)
    section = whole[61:]
    made = build_header([section], len(section), 2, codec, NOW, NOW + 7, *numbers)
    assert with_producer(whole[:61], [section[:3], section[3:]], *numbers) == made
    found = decode_batch(made + section)
    assert (found.producer_id, found.producer_epoch, found.base_sequence) == numbers
    assert found.records == records
    assert made[:17] + made[21:43] + made[57:] == whole[:17] + whole[21:43] + whole[57:61]


@pytest.mark.parametrize("piece", [1, 7, 1000])
def test_the_records_may_stand_in_pieces(piece: int) -> None:
    section = encode_section([Record(value=b"v" * 100)])
    pieces = [memoryview(bytearray(section))[at : at + piece] for at in range(0, len(section), piece)]
    header = build_header(pieces, len(section), 1, NONE, NOW, NOW)
    assert header == build_header([section], len(section), 1, NONE, NOW, NOW)
    assert struct.unpack_from(">I", header, 17) == (crc32c(header[21:] + section),)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(("base", "newest"), [(NOW, NOW + 1), (-1, -1), (-(2**63), 2**63 - 1)])
def test_each_field(codec: int, base: int, newest: int) -> None:
    header = build_header([b"body"], 4, 2**31 - 1, codec, base, newest)
    unchecked = struct.unpack_from(">qiib", header)
    assert unchecked == (0, 61 - 12 + 4, -1, 2)
    assert struct.unpack_from(">hiqqqhii", header, 21) == (codec, 2**31 - 2, base, newest, -1, -1, -1, 2**31 - 1)


# One batch


@pytest.mark.parametrize("codec", CODECS)
def test_alone_a_batch_is_sent_as_it_came(codec: int) -> None:
    data = encode_batch([Record(b"k", b"v" * 500), Record(None, None)], codec, producer_id=-1)
    header = read_header(data, 0, len(data))
    assert header is not None
    assert encoded(merged([open_batch(data, header, NO_LIMIT)], codec)) == data


@pytest.mark.parametrize("codec", CODECS)
def test_alone_a_part_of_a_batch_gets_a_header_of_its_own(codec: int) -> None:
    records = [Record(b"k", b"v" * 300, (), NOW), Record(None, b"w", (), NOW + 9), Record(b"l", None, (), NOW + 5)]
    keyed, null_key = split_by_key(opened(records, codec))
    for part, wanted in ((keyed, [records[0], records[2]]), (null_key, [records[1]])):
        found = decode_batch(encoded(merged([part], codec)))
        assert found.records == wanted
        obeys_the_producers_rules(found, codec)


# decode(merge) = concat(decode)


several = st.lists(st.tuples(st.integers(-1, 10**9), record_lists()), min_size=2, max_size=4)
"""(base timestamp's distance from its first record, records) of some client batches."""


@settings(deadline=None, max_examples=60)
@given(several, st.sampled_from(CODECS), st.integers(1, 300))
def test_a_merge_holds_the_records_of_all(parts: list[tuple[int, list[Record]]], codec: int, chunk_size: int) -> None:
    batches = [opened(records, codec, records[0].timestamp - distance) for distance, records in parts]
    merge = merged(batches, codec, chunk_size)
    found = decode_batch(encoded(merge))
    assert found.records == list(itertools.chain.from_iterable(records for _, records in parts))
    assert found.first_timestamp == batches[0].base_timestamp
    obeys_the_producers_rules(found, codec)
    firsts = itertools.accumulate((len(records) for _, records in parts), initial=0)
    assert [run.first for run in merge.runs] == list(firsts)[:-1]
    assert merge.record_count == len(found.records)


@settings(deadline=None, max_examples=60)
@given(several, st.sampled_from(CODECS))
def test_a_merge_of_halves_holds_each_key_kind_in_order(parts: list[tuple[int, list[Record]]], codec: int) -> None:
    """Every batch split by key, all keyed parts merged, all others merged."""
    batches = [split_by_key(opened(records, codec, records[0].timestamp - distance)) for distance, records in parts]
    everything = [record for _, records in parts for record in records]
    for side, wanted in (
        (0, [record for record in everything if record.key is not None]),
        (1, [record for record in everything if record.key is None]),
    ):
        if not wanted:
            continue
        found = decode_batch(encoded(merged((pair[side] for pair in batches if pair[side].record_count), codec)))
        assert found.records == wanted
        obeys_the_producers_rules(found, codec)


@settings(deadline=None, max_examples=60)
@given(st.lists(record_lists(), min_size=2, max_size=5), st.sampled_from(CODECS))
def test_halves_of_a_merge_hold_its_records_in_order(parts: list[list[Record]], codec: int) -> None:
    merge = merged((opened(records, codec) for records in parts), codec)
    middle = len(parts) // 2
    for half, wanted in zip(merge.halves((2, 3), 0.0), (parts[:middle], parts[middle:]), strict=True):
        found = decode_batch(encoded(half))
        assert found.records == list(itertools.chain.from_iterable(wanted))
        assert [run.record_count for run in half.runs] == [len(records) for records in wanted]
        assert [run.first for run in half.runs] == [
            sum(len(records) for records in wanted[:number]) for number in range(len(wanted))
        ]
        obeys_the_producers_rules(found, codec)
        if len(half.runs) > 1:  # and on, as often as a broker refuses
            quarters = half.halves((4, 5), 0.0)
            found_again = [record for quarter in quarters for record in decode_batch(encoded(quarter)).records]
            assert found_again == found.records


def test_a_merge_is_encoded_again_and_again() -> None:
    """A batch that is sent back is encoded anew; growing is over then, the bytes are the same."""
    merge = merged([opened([Record(value=b"a")], LZ4), opened([Record(value=b"b")], LZ4)], LZ4)
    assert encoded(merge) == encoded(merge)


@pytest.mark.parametrize("codec", CODECS)
def test_a_large_merge(codec: int) -> None:
    """Sections over snappy's and lz4's block sizes, offsets of two bytes, values that do not compress."""
    noise = b"".join(crc32c(b"%d" % number).to_bytes(4, "big") for number in range(25_000))
    batches = [
        [Record(None, noise[at : at + 500], (), NOW + at) for at in range(start, start + 20_000, 500)]
        for start in range(0, 100_000, 20_000)
    ]
    found = decode_batch(encoded(merged((opened(records, codec) for records in batches), codec, 4096)))
    assert found.records == list(itertools.chain.from_iterable(batches))
    assert len(found.records) == 200
    obeys_the_producers_rules(found, codec)


def test_different_shapes_in_one_merge() -> None:
    """A batch as it came, the keyed part of a mixed one, a compressed one that others wrote smaller."""
    whole = [Record(b"whole", b"1"), Record(None, b"2")]
    mixed = [Record(None, b"away"), Record(b"stays", b"3", (("h", None),), NOW - 50)]
    keyed, _ = split_by_key(opened(mixed, ZSTD))
    last = [Record(b"last", b"4" * 5000)]
    found = decode_batch(encoded(merged([opened(whole, ZSTD), keyed, opened(last, ZSTD)], ZSTD)))
    assert found.records == [*whole, mixed[1], *last]


# Timestamps


@settings(deadline=None, max_examples=60)
@given(st.integers(-(2**61), 2**61), st.lists(st.integers(1 - FAR, FAR - 1), min_size=1, max_size=3), st.data())
@example(0, [FAR - 1, 1 - FAR], None)
@example(-(2**62), [FAR - 1], None)
@example(2**62, [1 - FAR], None)
def test_timestamps_far_apart(base: int, distances: list[int], data: st.DataObject | None) -> None:
    """Bases as far from each other as they may be, deltas as large as they may be."""
    batches = []
    for distance in [0, *distances]:
        own = base + distance
        spread = 2**60 if data is None else data.draw(st.sampled_from([0, 1, 2**32, 2**60]))
        times = [own, own + spread, own - spread]
        batches.append(([Record(timestamp=timestamp) for timestamp in times], own))
    merge = merged(opened(records, base=own) for records, own in batches)
    found = decode_batch(encoded(merge))
    assert found.records == [record for records, _ in batches for record in records]
    obeys_the_producers_rules(found, NONE)
    for half in merge.halves((2, 3), 0.0):
        obeys_the_producers_rules(decode_batch(encoded(half)), NONE)


@pytest.mark.parametrize("outwards", [1, -1])
@pytest.mark.parametrize("codec", [NONE, ZSTD])
def test_timestamps_at_the_edges(outwards: int, codec: int) -> None:
    """The outermost base timestamps, and from there the farthest deltas, which merging makes larger still."""
    edge = outwards * 2**62
    inner = edge - outwards * (FAR - 1)
    outer = edge + outwards * 2**60
    parts = [
        [Record(timestamp=inner), Record(timestamp=inner + outwards)],
        [Record(timestamp=edge), Record(timestamp=outer), Record(timestamp=edge - outwards * 2**60)],
    ]
    for order in (parts, parts[::-1]):
        found = decode_batch(encoded(merged((opened(records, codec) for records in order), codec)))
        assert found.records == list(itertools.chain.from_iterable(order))
        obeys_the_producers_rules(found, codec)


def test_batches_without_timestamps_merge() -> None:
    """-1 is how a producer says that it has none."""
    parts = [
        [Record(value=b"a", timestamp=-1)],
        [Record(value=b"b", timestamp=-1)],
        [Record(value=b"c", timestamp=NOW)],
    ]
    found = decode_batch(encoded(merged(opened(records) for records in parts)))
    assert [record.timestamp for record in found.records] == [-1, -1, NOW]
    obeys_the_producers_rules(found, NONE)


@pytest.mark.parametrize("distance", [FAR, -FAR])
def test_bases_too_far_apart_do_not_share_a_batch(distance: int) -> None:
    merge = merged([opened([Record(timestamp=NOW)])])
    assert not merge.has_room(opened([Record(timestamp=NOW + distance)]))


# Java reads no lz4 of linked blocks, and snappy only in xerial's blocks


def test_the_framings_that_java_wants() -> None:
    big = [Record(value=b"%06d" % number * 100) for number in range(400)]
    lz4 = encoded(merged([opened(big, LZ4), opened(big, LZ4)], LZ4))[61:]
    assert lz4[:4] == b"\x04\x22\x4d\x18"
    assert lz4[4] & 0xE0 == 0x60  # version 1, independent blocks
    assert not lz4[4] & 0x08  # no content size
    snappy = encoded(merged([opened(big, SNAPPY), opened(big, SNAPPY)], SNAPPY))[61:]
    assert snappy[:16] == b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
