"""CRCs of keys and values, against what the ledger's description says and zlib computes."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from forebay_codecs.content_crc import ContentCrc, content_crc, content_keys
from forebay_codecs.record_batch import open_batch, read_header, split_by_key
from tests.codecs.record_oracle import NOW, Headers, Record, encode_batch
from tests.pipeline.rows import content_crcs, keys_of

FIELDS = st.none() | st.binary(max_size=200)
HEADERS = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=2).map(tuple)
RECORDS = st.lists(st.tuples(FIELDS, FIELDS, HEADERS), min_size=1)


def section(records: list[Record]) -> bytes:
    data = encode_batch(records, 0)
    header = read_header(data, 0, len(data))
    assert header is not None
    return open_batch(data, header, 1 << 20).section


@given(RECORDS)
def test_they_cover_keys_and_values_and_nothing_else(
    given_records: list[tuple[bytes | None, bytes | None, Headers]],
) -> None:
    records = [
        Record(key, value, headers, NOW + 7 * number) for number, (key, value, headers) in enumerate(given_records)
    ]
    assert content_crc(section(records)) == content_crcs([(record.key, record.value) for record in records])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([(b"a", b"b")], [(b"ab", b"")]),
        ([(None, b"x")], [(b"", b"x")]),
        ([(b"k", None)], [(b"k", b"")]),
        ([(b"k", b"1"), (b"k", b"2")], [(b"k", b"2"), (b"k", b"1")]),
        ([(b"k", b"1"), (b"k", b"1")], [(b"k", b"1")]),
    ],
    ids=["a border moved", "a null key", "a null value", "the order", "the number"],
)
def test_what_differs_has_another(
    one: list[tuple[bytes | None, bytes | None]], other: list[tuple[bytes | None, bytes | None]]
) -> None:
    assert (
        content_crc(section([Record(*pair) for pair in one])).crc
        != content_crc(section([Record(*pair) for pair in other])).crc
    )


@given(st.lists(st.tuples(st.binary(max_size=200), FIELDS, HEADERS), min_size=1))
def test_keys_and_tombstones(given_records: list[tuple[bytes, bytes | None, Headers]]) -> None:
    records = [Record(key, value, headers, NOW) for key, value, headers in given_records]
    expected = keys_of([(record.key, record.value) for record in records])
    found = content_keys(section(records))
    assert found is not None
    assert found._asdict() == {
        "hashes": expected["keys"],
        "tombstones": expected["tombstones"],
    }


@pytest.mark.parametrize("number", range(3))
def test_where_a_record_has_no_key_there_are_none(number: int) -> None:
    records = [Record(b"k", b"1"), Record(b"", None)]
    records.insert(number, Record(None, b"2"))
    assert content_keys(section(records)) is None


def test_a_part_that_was_split_off_has_that_of_its_records() -> None:
    mixed = [Record(b"k", b"1"), Record(None, b"2"), Record(b"k", b"3")]
    data = encode_batch(mixed, 0)
    header = read_header(data, 0, len(data))
    assert header is not None
    keyed, null_key = split_by_key(open_batch(data, header, 1 << 20))
    assert content_crc(keyed.section) == content_crcs([(b"k", b"1"), (b"k", b"3")])
    assert content_crc(null_key.section) == content_crcs([(None, b"2")])


def test_of_nothing() -> None:
    assert content_crc(b"") == ContentCrc(0, 0, 0)
