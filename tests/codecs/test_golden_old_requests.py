"""Produce v0 to v2 of real clients (golden/old_produce_requests/README.md), to the last record."""

from __future__ import annotations

import pytest

from forebay_codecs.compression import NAMES
from forebay_codecs.error_codes import CORRUPT_MESSAGE
from forebay_codecs.message_set import MessageSet, open_message_set
from forebay_codecs.produce_request import parse
from forebay_codecs.record_batch import BadBatch
from tests.codecs.golden.old_produce_requests.cases import CASES, FOLDER, TOPIC, path, read, spec
from tests.codecs.hardening import refuses_cuts_ignores_tails
from tests.codecs.record_oracle import NO_LIMIT, decode_section
from tests.kit.spec import Codec

RECEIVED = 1_700_000_000_000
SPEAKS = {"0.8": 0, "0.9": 1, "0.1": 2}
"""Version of Produce by what the client is, or takes its brokers for."""

each = pytest.mark.parametrize(("client", "codec"), CASES, ids=["-".join(case) for case in CASES])


def speaks(client: str) -> int:
    return SPEAKS[client.rpartition("-")[2][:3]]


def records_field(frame: bytes) -> tuple[int, int]:
    ((_, ((_, start, end),)),) = parse(frame).topics
    return start, end


def opened(frame: bytes) -> MessageSet:
    return open_message_set(frame, *records_field(frame), NO_LIMIT, RECEIVED)


def test_there_is_a_request_of_each_case_and_no_other() -> None:
    assert sorted(FOLDER.glob("*.hex")) == sorted(path(*case) for case in CASES)


@each
def test_the_request_is_what_was_sent(client: str, codec: Codec) -> None:
    request = parse(read(client, codec))
    assert (request.version, request.acks, request.transactional_id) == (speaks(client), 1, None)
    assert [name for name, _ in request.topics] == [TOPIC]


@each
def test_the_records_are_what_was_sent(client: str, codec: Codec) -> None:
    wanted = spec(client, codec)
    found = opened(read(client, codec))
    batch = found.batch
    assert batch is not None
    records = decode_section(batch.section, batch.record_count, batch.base_timestamp)
    assert [(record.key, record.value) for record in records] == [
        (wanted.key(seq), wanted.value(seq)) for seq in range(wanted.count)
    ]
    assert NAMES[batch.codec] == codec
    assert batch.null_keys == sum(record.key is None for record in records)
    if speaks(client) < 2:  # format v0
        assert found.stamped == wanted.count
        assert {record.timestamp for record in records} == {RECEIVED}
    else:
        assert found.stamped == 0
        assert all(record.timestamp > 1_577_836_800_000 for record in records)  # since 2020


@each
def test_the_frame_refuses_cuts_and_ignores_tails(client: str, codec: Codec) -> None:
    refuses_cuts_ignores_tails(parse, read(client, codec))


@each
def test_every_byte_of_the_messages_counts(client: str, codec: Codec) -> None:
    """Behind the offset of each message, which the broker gives."""
    frame = bytearray(read(client, codec))
    start, end = records_field(bytes(frame))
    offsets: set[int] = set()
    at = start
    while at < end:
        offsets.update(range(at, at + 8))
        at += 12 + int.from_bytes(frame[at + 8 : at + 12], "big")
    for at in set(range(start, end)) - offsets:
        frame[at] ^= 0x40
        with pytest.raises(BadBatch) as refused:
            open_message_set(bytes(frame), start, end, NO_LIMIT, RECEIVED)
        assert refused.value.code == CORRUPT_MESSAGE
        frame[at] ^= 0x40
