"""records.py: a records section is checked, renumbered, parted and cut as others then read it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from forebay_codecs.errors import Malformed
from forebay_codecs.records import renumber, scan, split, starts, take
from tests.codecs.hardening import damaged, refuses_cuts_and_tails
from tests.codecs.record_oracle import (
    NOW,
    Record,
    decode_section,
    encode_content,
    encode_record,
    encode_section,
    record_lists,
    sized,
    varint,
)

FEW = [
    Record(b"key", b"value", (("h", b"x"), ("none", None), ("empty", b"")), NOW),
    Record(None, b"no key", (), NOW + 70),
    Record(b"", None, (("", b""),), NOW - 3),
    Record(None, None, (), NOW + 64),
    Record(b"k" * 70, b"", (), NOW + 1),
]
SECTION = encode_section(FEW)

far = record_lists(spread=2**60)
"""Timestamp deltas as far apart as a section may have them."""


def scanned(section: bytes, count: int) -> tuple[int, int, int]:
    return scan(section, 0, len(section), count)


def taken(section: bytes, skip: int, count: int, first_offset: int = 0) -> tuple[bytes, int]:
    """Records [skip, skip + count) of the section."""
    begin, end = starts(section, 0, len(section), [skip, skip + count])
    return take(section, begin, end, first_offset)


# Scan


def test_counts() -> None:
    assert scanned(SECTION, 5) == (2, 70, min(record.timestamp - NOW for record in FEW))
    assert scanned(encode_section([Record(timestamp=NOW - 5), Record(timestamp=NOW - 9)]), 2) == (2, -5, -9)


@given(far)
def test_scans_whatever_is_well_formed(batch: list[Record]) -> None:
    null_keys = sum(record.key is None for record in batch)
    deltas = [record.timestamp - NOW for record in batch]
    assert scanned(encode_section(batch), len(batch)) == (null_keys, max(deltas), min(deltas))


def test_a_section_within_other_bytes() -> None:
    data = b"\xff" * 7 + SECTION + b"\xff" * 7
    end = 7 + len(SECTION)
    assert scan(data, 7, end, 5) == scanned(SECTION, 5)
    assert renumber(data, 7, end, 0, 0) == SECTION
    assert take(data, 7, end, 0) == (SECTION, 70)
    assert starts(data, 7, end, [0, 5]) == [7, end]
    assert split(data, 7, end) == split(SECTION, 0, len(SECTION))


def test_scan_refuses_cuts_and_tails() -> None:
    refuses_cuts_and_tails(lambda data: scanned(data, len(FEW)), SECTION)


def test_a_tail_of_the_buffer_is_not_read() -> None:
    """Cut short, a section is refused even where the bytes that it lacks stand behind its end."""
    for end in range(len(SECTION)):
        with pytest.raises(Malformed):
            scan(SECTION, 0, end, len(FEW))


@pytest.mark.parametrize("count", [-(2**31), -1, 0, 1, 4, 6, 2**31 - 1])
def test_a_lying_count_is_malformed(count: int) -> None:
    with pytest.raises(Malformed):
        scanned(SECTION, count)


LONG = [b"\x80" * 4 + b"\x10", b"\xff" * 5, b"\x80" * 5 + b"\x00", b"\xff" * 10, b"\x80" * 10 + b"\x01"]
"""Varints over int32, of 6 bytes, without an end, of 11 bytes."""

HEAD = b"\x00\x00\x00"  # attributes, timestamp delta, offset delta
ODD: dict[str, bytes] = {
    "a record of no bytes": b"\x00",
    "a record of negative length": varint(-1),
    "a record of the least length": varint(-(2**31)),
    "a record of a huge length": varint(2**31 - 1) + b"\x00",
    "a record longer than its section": varint(7) + HEAD + sized(None) + sized(None) + b"\x00",
    "a record longer than its fields": sized(HEAD + sized(None) + sized(None) + b"\x00\x00"),
    "a record shorter than its fields": varint(5) + HEAD + sized(None) + sized(None) + b"\x00",
    "an offset that is not its number": sized(b"\x00\x00\x02" + sized(None) + sized(None) + b"\x00"),
    "a negative offset": sized(b"\x00\x00\x01" + sized(None) + sized(None) + b"\x00"),
    "a key of length -2": sized(HEAD + varint(-2) + sized(None) + b"\x00"),
    "a key of a huge length": sized(HEAD + varint(2**31 - 1) + sized(None) + b"\x00"),
    "a key of the least length": sized(HEAD + varint(-(2**31)) + sized(None) + b"\x00"),
    "a value of length -2": sized(HEAD + sized(None) + varint(-2) + b"\x00"),
    "a value of a huge length": sized(HEAD + sized(None) + varint(2**31 - 1) + b"\x00"),
    "a negative number of headers": sized(HEAD + sized(None) + sized(None) + varint(-1)),
    "a huge number of headers": sized(HEAD + sized(None) + sized(None) + varint(2**31 - 1)),
    "a header that ends before its name": sized(HEAD + sized(None) + sized(None) + varint(1) + varint(-1)),
    "a header without a name": sized(HEAD + sized(None) + sized(None) + varint(1) + varint(-1) + sized(b"")),
    "a header whose name is too long": sized(HEAD + sized(None) + sized(None) + varint(1) + varint(9) + sized(b"")),
    "a header value of length -2": sized(HEAD + sized(None) + sized(None) + varint(1) + sized(b"") + varint(-2)),
    "a header value too long": sized(HEAD + sized(None) + sized(None) + varint(1) + sized(b"") + varint(9)),
    "a timestamp too far ahead": encode_record(Record(timestamp=NOW + 2**60 + 1), 0, NOW),
    "a timestamp too far back": encode_record(Record(timestamp=NOW - 2**60 - 1), 0, NOW),
    "the greatest timestamp delta": encode_record(Record(timestamp=2**63 - 1), 0, 0),
    "the least timestamp delta": encode_record(Record(timestamp=-(2**63)), 0, 0),
    "a timestamp of 65 bits": sized(b"\x00" + b"\x80" * 9 + b"\x02" + b"\x00" + encode_content(Record())),
    **{f"a record length {long.hex()}": long + bytes(20) for long in LONG},
    **{f"an offset {long.hex()}": sized(b"\x00\x00" + long + encode_content(Record())) for long in LONG},
    **{f"a key length {long.hex()}": sized(HEAD + long + bytes(20)) for long in LONG},
    **{f"a value length {long.hex()}": sized(HEAD + sized(None) + long + bytes(20)) for long in LONG},
    **{f"a header count {long.hex()}": sized(HEAD + sized(None) * 2 + long + bytes(20)) for long in LONG},
    "a timestamp of 11 bytes": sized(b"\x00" + b"\x80" * 10 + b"\x01" + b"\x00" + encode_content(Record())),
}


@pytest.mark.parametrize("section", ODD.values(), ids=ODD.keys())
def test_a_record_that_lies_is_malformed(section: bytes) -> None:
    with pytest.raises(Malformed):
        scanned(section, 1)
    with pytest.raises(Malformed):  # its neighbour's bytes do not help it
        scanned(section + encode_record(Record(), 1, NOW), 2)


@pytest.mark.parametrize("delta", [0, 63, 64, -64, -65, 2**31, -(2**31), 2**60, -(2**60)])
def test_takes_timestamps_far_from_their_base(delta: int) -> None:
    assert scanned(encode_section([Record(timestamp=NOW + delta)]), 1) == (1, delta, delta)


def test_longer_varints_than_needed_are_taken() -> None:
    """0 in five bytes, or a timestamp in ten, is clumsy, not wrong; a broker takes them as well."""
    zero, zero_long = b"\x80\x80\x80\x80\x00", b"\x80" * 9 + b"\x00"
    section = sized(b"\x00" + zero_long + zero + zero + zero + zero)
    assert scanned(section, 1) == (0, 0, 0)
    assert decode_section(renumber(section, 0, len(section), 0, 0), 1) == [Record(b"", b"")]


@settings(max_examples=400)
@given(st.binary(max_size=60), st.integers(-(2**31), 2**31 - 1))
@example(b"\xff" * 60, 2**31 - 1)
def test_noise_is_scanned_or_malformed(data: bytes, count: int) -> None:
    for claimed in (count, count % 8):
        try:
            scanned(data, claimed)
        except Malformed:
            pass


@settings(max_examples=400)
@given(damaged(SECTION), st.integers(4, 6))
def test_damage_is_malformed_or_what_others_read_too(data: bytes, count: int) -> None:
    """Whatever passes `scan` is a section for other decoders as well, and whatever is done with it then is defined."""
    try:
        found = scanned(data, count)
    except Malformed:
        return
    data = without_attributes(data)
    try:
        records = decode_section(data, count)
    except UnicodeDecodeError:  # a header's name: bytes to a broker, text to these decoders
        return
    deltas = [record.timestamp - NOW for record in records]
    assert found == (sum(record.key is None for record in records), max(deltas), min(deltas))
    assert decode_section(renumber(data, 0, len(data), 0, 0), count) == records
    parts = split(data, 0, len(data))
    assert parts.keyed_count + parts.null_key_count == count
    assert decode_section(taken(data, 1, count - 1)[0], count - 1) == records[1:]


def without_attributes(section: bytes) -> bytes:
    """Attributes, which nobody uses, are a byte to brokers and a varint to these decoders: set to zero."""
    out = bytearray(section)
    pos = 0
    while pos < len(out):
        size, shift = 0, 0
        while True:
            byte = out[pos]
            pos += 1
            size |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        out[pos] = 0
        pos += size >> 1
    return bytes(out)


# Renumber


def test_renumbers_as_in_its_example() -> None:
    earlier = encode_section([Record(value=b"%d" % number) for number in range(5)])
    later = [Record(value=b"later %d" % number) for number in range(3)]
    section = encode_section(later)
    joined = earlier + renumber(section, 0, len(section), 5, 0)
    assert decode_section(joined, 8)[5:] == later  # which reads the offsets: 0..7


@given(
    far,
    st.sampled_from([0, 1, 5, 63, 64, 8191, 8192, 2**20, 2**31 - 10]),
    st.sampled_from([0, 1, -1, 64, -65, 2**31, -(2**31), 2**48 - 1, 1 - 2**48]),
)
def test_renumbering_changes_offsets_and_timestamps_only(batch: list[Record], first: int, shift: int) -> None:
    """Byte for byte what a writer gives to whom the same records came later and earlier."""
    section = encode_section(batch)
    renumbered = b"".join(encode_record(record, first + number, NOW - shift) for number, record in enumerate(batch))
    assert renumber(section, 0, len(section), first, shift) == renumbered


def test_attributes_of_a_record_stay() -> None:
    section = sized(b"\x7f\x00\x00" + encode_content(Record()))
    assert renumber(section, 0, len(section), 1, 0)[1] == 0x7F
    assert split(section, 0, len(section)).null_key[1] == 0x7F


# Split


def test_parts_a_mixed_section() -> None:
    parts = split(SECTION, 0, len(SECTION))
    assert (parts.keyed_count, parts.null_key_count) == (3, 2)
    assert decode_section(parts.keyed, 3) == [FEW[0], FEW[2], FEW[4]]
    assert decode_section(parts.null_key, 2) == [FEW[1], FEW[3]]
    assert (parts.keyed_max_timestamp_delta, parts.null_key_max_timestamp_delta) == (1, 70)


@given(far)
def test_parts_are_what_a_writer_gives(batch: list[Record]) -> None:
    section = encode_section(batch)
    parts = split(section, 0, len(section))
    keyed = [record for record in batch if record.key is not None]
    null_key = [record for record in batch if record.key is None]
    assert (parts.keyed, parts.keyed_count) == (encode_section(keyed), len(keyed))
    assert (parts.null_key, parts.null_key_count) == (encode_section(null_key), len(null_key))
    for records, found in ((keyed, parts.keyed_max_timestamp_delta), (null_key, parts.null_key_max_timestamp_delta)):
        assert found == max((record.timestamp - NOW for record in records), default=0)


# Take


@given(far, st.data())
def test_finds_where_records_begin(batch: list[Record], data: st.DataObject) -> None:
    numbers = sorted(data.draw(st.lists(st.integers(0, len(batch)))))
    section = encode_section(batch)
    assert starts(section, 0, len(section), numbers) == [len(encode_section(batch[:number])) for number in numbers]


@pytest.mark.parametrize(("skip", "count"), [(skip, count) for skip in range(6) for count in range(6 - skip)])
def test_takes_any_run_of_records(skip: int, count: int) -> None:
    wanted = FEW[skip : skip + count]
    newest = max((record.timestamp - NOW for record in wanted), default=0)
    assert taken(SECTION, skip, count) == (encode_section(wanted), newest)


@given(far, st.data())
def test_halves_hold_everything(batch: list[Record], data: st.DataObject) -> None:
    middle = data.draw(st.integers(0, len(batch)))
    section = encode_section(batch)
    first, first_newest = taken(section, 0, middle)
    second, second_newest = taken(section, middle, len(batch) - middle)
    assert (first, second) == (encode_section(batch[:middle]), encode_section(batch[middle:]))
    for records, found in ((batch[:middle], first_newest), (batch[middle:], second_newest)):
        assert found == max((record.timestamp - NOW for record in records), default=0)


@given(far, st.sampled_from([1, 5, 63, 64, 8191, 8192, 2**20, 2**31 - 10]), st.data())
def test_what_is_taken_goes_on_behind_other_records(batch: list[Record], first: int, data: st.DataObject) -> None:
    """Byte for byte what a writer gives to whom the same records came later."""
    skip = data.draw(st.integers(0, len(batch)))
    rest = [encode_record(record, first + number, NOW) for number, record in enumerate(batch[skip:])]
    assert taken(encode_section(batch), skip, len(batch) - skip, first)[0] == b"".join(rest)


@given(far, far)
def test_what_is_made_passes_the_scan(first: list[Record], second: list[Record]) -> None:
    one, two = encode_section(first), encode_section(second)
    made: list[tuple[bytes, int]] = [(one + renumber(two, 0, len(two), len(first), 0), len(first) + len(second))]
    parts = split(one, 0, len(one))
    made += [(parts.keyed, parts.keyed_count), (parts.null_key, parts.null_key_count)]
    made.append((taken(two, 1, len(second) - 1)[0], len(second) - 1))
    check: Callable[[bytes, int], object] = scanned
    for section, count in made:
        check(section, count)
