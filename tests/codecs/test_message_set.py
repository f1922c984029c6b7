"""Message sets of formats v0 and v1 become records of format v2: nothing is lost, and nothing wrong gets through."""

from __future__ import annotations

import gzip
import itertools

import kafka.codec  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay_codecs.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD
from forebay_codecs.error_codes import CORRUPT_MESSAGE, INVALID_TIMESTAMP, MESSAGE_TOO_LARGE
from forebay_codecs.message_set import MessageSet, open_message_set
from forebay_codecs.record_batch import BadBatch, ClientBatch
from forebay_codecs.record_batch_builder import encode_batch
from tests.codecs.hardening import damaged
from tests.codecs.message_oracle import (
    LOG_APPEND_TIME,
    OLD_CODECS,
    WRITERS,
    message,
    messages,
    wrapper,
    writes,
)
from tests.codecs.record_oracle import NO_LIMIT, NOW, Record, decode_batch, decode_section, record_lists

RECEIVED = NOW + 5_000
SOME = [
    Record(b"k", b"v", (), NOW),
    Record(None, b"v", (), NOW + 7),
    Record(b"", b"", (), NOW - 3),
    Record(b"k", None, (), NOW + 1),
    Record(None, None, (), NOW),
]


def opened(data: bytes, limit: int = NO_LIMIT) -> MessageSet:
    """Between other bytes, as in a frame."""
    return open_message_set(b"before" + data + b"behind", 6, 6 + len(data), limit, RECEIVED)


def batch(data: bytes) -> ClientBatch:
    found = opened(data).batch
    assert found is not None
    return found


def read(found: ClientBatch) -> list[Record]:
    return decode_section(found.section, found.record_count, found.base_timestamp)


def refused(data: bytes, limit: int = NO_LIMIT) -> tuple[int, str]:
    with pytest.raises(BadBatch) as refusal:
        opened(data, limit)
    return refusal.value.code, refusal.value.message


def without_headers(records: list[Record]) -> list[Record]:
    return [record._replace(headers=()) for record in records]


class TestConversion:
    @pytest.mark.parametrize("writer", WRITERS)
    @pytest.mark.parametrize("codec", OLD_CODECS)
    @pytest.mark.parametrize("magic", [0, 1])
    @given(given=record_lists())
    def test_what_others_write(self, writer: str, codec: int, magic: int, given: list[Record]) -> None:
        if not writes(writer, magic, codec):
            return
        records = without_headers(given)
        found = batch(WRITERS[writer](records, magic, codec))
        stamped = [record._replace(timestamp=RECEIVED) for record in records] if magic == 0 else records
        assert read(found) == stamped
        assert (found.codec, found.record_count) == (codec, len(records))
        assert found.null_keys == sum(record.key is None for record in records)
        assert found.max_timestamp == max(record.timestamp for record in stamped)
        assert found.base_timestamp == stamped[0].timestamp

    @given(given=record_lists(), magic=st.sampled_from([0, 1]))
    def test_written_by_hand(self, given: list[Record], magic: int) -> None:
        records = without_headers(given)
        found = read(batch(messages(records, magic)))
        assert [record[:2] for record in found] == [record[:2] for record in records]

    @pytest.mark.parametrize("codec", OLD_CODECS)
    def test_a_whole_batch_is_sound(self, codec: int) -> None:
        found = decode_batch(encode_batch(batch(messages(SOME) if codec == NONE else wrapper(messages(SOME), codec))))
        assert found.records == SOME
        assert (found.attributes, found.base_offset, found.max_timestamp) == (codec, 0, NOW + 7)

    def test_several_wrappers_and_plain_messages_in_one_set(self) -> None:
        data = wrapper(messages(SOME), GZIP) + messages(SOME[:2]) + wrapper(messages(SOME[3:]), SNAPPY)
        assert read(batch(data)) == [*SOME, *SOME[:2], *SOME[3:]]

    @pytest.mark.parametrize("first", [0, 1, 1_000_000])
    @pytest.mark.parametrize("magic", [0, 1])
    def test_offsets_do_not_count(self, magic: int, first: int) -> None:
        """Absolute in wrappers of v0, relative in those of v1, and nobody's before the broker gives them."""
        data = wrapper(messages(SOME, magic, first), GZIP, magic)
        assert [record[:2] for record in read(batch(data))] == [record[:2] for record in SOME]

    def test_no_messages(self) -> None:
        assert opened(b"") == MessageSet(None, 0)


class TestTimestamps:
    def test_v0_has_none(self) -> None:
        found = opened(messages(SOME, 0))
        assert found.stamped == len(SOME)
        assert found.batch is not None
        assert {record.timestamp for record in read(found.batch)} == {RECEIVED}

    def test_those_of_v1_are_kept(self) -> None:
        assert opened(messages(SOME)).stamped == 0

    def test_a_brokers_time_is_not_the_producers(self) -> None:
        data = message(SOME[0], attributes=LOG_APPEND_TIME) + message(SOME[1])
        assert [record.timestamp for record in read(batch(data))] == [RECEIVED, SOME[1].timestamp]
        assert opened(data).stamped == 1

    def test_that_of_a_wrapper_holds_for_all_within(self) -> None:
        data = wrapper(messages(SOME), GZIP, attributes=LOG_APPEND_TIME, timestamp=NOW)
        assert {record.timestamp for record in read(batch(data))} == {RECEIVED}

    @pytest.mark.parametrize("timestamp", [-1, 0, 1 << 59, -(1 << 59)])
    def test_odd_ones_are_the_brokers_to_judge(self, timestamp: int) -> None:
        records = [SOME[0], SOME[1]._replace(timestamp=timestamp)]
        assert read(batch(messages(records))) == records

    @pytest.mark.parametrize("timestamp", [(1 << 59) + 1, -(1 << 59) - 1, (1 << 63) - 1, -1 << 63])
    def test_those_that_leave_no_room_are_refused(self, timestamp: int) -> None:
        data = messages([SOME[0], SOME[1]._replace(timestamp=timestamp)])
        assert refused(data)[0] == INVALID_TIMESTAMP


class TestRefused:
    @pytest.mark.parametrize("magic", [0, 1])
    def test_what_is_cut_short(self, magic: int) -> None:
        """A broker of old left a message that was cut short out without a word; it is refused here, never dropped."""
        whole = messages(SOME, magic)
        ends = set(itertools.accumulate(len(message(record, magic)) for record in SOME)) | {0}
        for size in range(len(whole)):
            if size not in ends:
                assert refused(whole[:size])[0] == CORRUPT_MESSAGE

    @pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4])
    @pytest.mark.parametrize("magic", [0, 1])
    def test_what_is_cut_short_in_a_wrapper(self, magic: int, codec: int) -> None:
        inner = messages(SOME, magic)
        assert refused(wrapper(inner[:-1], codec, magic))[0] == CORRUPT_MESSAGE
        assert refused(wrapper(inner + b"\0", codec, magic))[0] == CORRUPT_MESSAGE

    @pytest.mark.parametrize("magic", [0, 1])
    def test_any_bit_that_is_not_the_producers(self, magic: int) -> None:
        whole = messages(SOME[:1], magic)
        for at in range(8, len(whole)):
            for bit in range(8):
                damage = bytearray(whole)
                damage[at] ^= 1 << bit
                assert refused(bytes(damage))[0] == CORRUPT_MESSAGE

    def test_a_checksum_within_a_wrapper(self) -> None:
        assert refused(wrapper(message(SOME[0], crc=1), GZIP)) == (CORRUPT_MESSAGE, "a message's checksum is wrong")

    def test_a_wrapper_in_a_wrapper(self) -> None:
        data = wrapper(wrapper(messages(SOME), GZIP), GZIP)
        assert refused(data) == (CORRUPT_MESSAGE, "a wrapper in a wrapper")

    @pytest.mark.parametrize(("outer", "inner"), [(0, 1), (1, 0)])
    def test_another_format_within(self, outer: int, inner: int) -> None:
        assert refused(wrapper(messages(SOME, inner), GZIP, outer))[0] == CORRUPT_MESSAGE

    def test_a_wrapper_of_nothing(self) -> None:
        assert refused(wrapper(b"", GZIP))[0] == CORRUPT_MESSAGE
        assert refused(message(Record(None, b""), attributes=GZIP))[0] == CORRUPT_MESSAGE
        assert refused(message(Record(None, None), attributes=GZIP))[0] == CORRUPT_MESSAGE

    @pytest.mark.parametrize("codec", [ZSTD, 5, 6, 7])
    def test_codecs_that_the_format_lacks(self, codec: int) -> None:
        assert refused(message(SOME[0], attributes=codec))[0] == CORRUPT_MESSAGE

    @pytest.mark.parametrize("magic", [2, 3, 127, -1])
    def test_formats_that_are_none(self, magic: int) -> None:
        assert refused(message(SOME[0], magic))[0] == CORRUPT_MESSAGE

    @pytest.mark.parametrize("lie", [-2, 2, 1 << 30, -(1 << 31)])
    def test_sizes_that_lie(self, lie: int) -> None:
        assert refused(message(SOME[0], key_size=lie))[0] == CORRUPT_MESSAGE
        assert refused(message(SOME[0], value_size=lie))[0] == CORRUPT_MESSAGE
        assert refused(message(SOME[0], size=lie))[0] == CORRUPT_MESSAGE

    def test_a_bomb(self) -> None:
        data = wrapper(message(Record(None, bytes(1 << 20))), GZIP)
        assert refused(data, 1 << 19)[0] == MESSAGE_TOO_LARGE

    @pytest.mark.parametrize("inner", [bytes(1000), message(Record(None, b"", (), 1 << 60))], ids=["torn", "times"])
    def test_what_shows_only_once_it_was_opened_is_told_as_that(self, inner: bytes) -> None:
        """It took as long as what is right: it counts toward a request's limit."""
        data = wrapper(inner, GZIP)
        for bad in (data, message(Record(None, gzip.compress(bytes(1000))[:-8] + bytes(8)), 1, GZIP)):
            with pytest.raises(BadBatch) as refusal:
                opened(bad)
            assert refusal.value.opened
        with pytest.raises(BadBatch) as refusal:
            opened(message(SOME[0], magic=2))
        assert not refusal.value.opened

    def test_wrappers_share_the_limit(self) -> None:
        data = wrapper(message(Record(None, bytes(1000))), GZIP)
        opened(data * 2, 2100)
        assert refused(data * 2, 2000)[0] == MESSAGE_TOO_LARGE

    def test_the_old_framing_of_lz4_only_where_it_was(self) -> None:
        """Brokers overlook the header's wrong checksum in format v0 alone (KAFKA-3160)."""
        assert batch(wrapper(messages(SOME, 0), LZ4, 0)).record_count == len(SOME)
        old_framing = kafka.codec.lz4_encode_old_kafka(messages(SOME, 1))
        code, why = refused(message(Record(None, old_framing), 1, LZ4))
        assert (code, why[:4]) == (CORRUPT_MESSAGE, "lz4:")

    @given(data=damaged(wrapper(messages(SOME), SNAPPY) + messages(SOME, 0)) | st.binary(max_size=200))
    def test_noise_is_answered_or_refused(self, data: bytes) -> None:
        try:
            found = opened(data).batch
        except BadBatch:
            return
        if found is not None:
            assert len(read(found)) == found.record_count
