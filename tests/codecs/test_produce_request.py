"""produce_request.py against kio in every version, and against bytes that are none of the protocol's."""

from __future__ import annotations

import dataclasses
import importlib
import io
import struct
import tracemalloc
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.serial import entity_writer
from kio.static.primitive import i16, i32, i32Timedelta

from forebay_codecs.api_keys import PRODUCE
from forebay_codecs.errors import Malformed
from forebay_codecs.produce_request import (
    MAX_VERSION,
    RECORD_BATCHES_FROM,
    ProduceRequest,
    encode,
    parse,
    peek_acks,
)
from tests.codecs.hardening import damaged, refuses_cuts_ignores_tails, survives
from tests.codecs.kio_oracle import CORRELATION_ID, decode_request, entities

VERSIONS = range(RECORD_BATCHES_FROM, MAX_VERSION + 1)
OLD = range(RECORD_BATCHES_FROM)
FLEXIBLE = range(9, MAX_VERSION + 1)
CLIENT_ID = "a-client"

Topics = list[tuple[str, list[tuple[int, bytes | None]]]]
TOPICS: Topics = [
    ("orders", [(0, b"first records"), (7, None), (2, b"")]),
    ("näme", [(1, b"\x00" * 200)]),
    ("none", []),
]


def message(version: int, name: str) -> Any:
    return getattr(importlib.import_module(f"kio.schema.produce.v{version}.request"), name)


def framed(request: Any, client_id: str | None = CLIENT_ID) -> bytes:
    """As it follows its size prefix."""
    header = request.__header_schema__
    out = io.BytesIO()
    values = {"request_api_key": request.__api_key__, "request_api_version": request.__version__}
    entity_writer(header)(out, header(**values, correlation_id=i32(CORRELATION_ID), client_id=client_id))
    entity_writer(type(request))(out, request)
    return out.getvalue()


def build(version: int, topics: Topics = TOPICS, acks: int = -1, transactional_id: str | None = None) -> Any:
    def partition(index: int, records: bytes | None) -> Any:
        return message(version, "PartitionProduceData")(index=i32(index), records=records)

    return message(version, "ProduceRequest")(
        transactional_id=transactional_id,
        acks=i16(acks),
        timeout=i32Timedelta.parse(timedelta(milliseconds=30_001)),
        topic_data=tuple(
            message(version, "TopicProduceData")(
                name=name, partition_data=tuple(partition(index, records) for index, records in partitions)
            )
            for name, partitions in topics
        ),
    )


def contents(frame: bytes, request: ProduceRequest) -> Topics:
    """What the positions stand for; None and b"" are both empty."""
    return [
        (name, [(index, frame[start:end]) for index, start, end in partitions]) for name, partitions in request.topics
    ]


def as_kio_has_it(request: Any) -> Topics:
    return [
        (topic.name, [(partition.index, partition.records or b"") for partition in topic.partition_data])
        for topic in request.topic_data
    ]


def said(request: ProduceRequest) -> tuple[object, ...]:
    """All but its topics."""
    ids = request.correlation_id, request.client_id, request.transactional_id
    return request.version, *ids, request.acks, request.timeout_ms


# Parse


@pytest.mark.parametrize("version", VERSIONS)
def test_parses_every_field(version: int) -> None:
    frame = framed(build(version, transactional_id="a-transaction"))
    request = parse(frame)
    assert said(request) == (version, CORRELATION_ID, CLIENT_ID, "a-transaction", -1, 30_001)
    assert contents(frame, request) == [
        ("orders", [(0, b"first records"), (7, b""), (2, b"")]),
        ("näme", [(1, b"\x00" * 200)]),
        ("none", []),
    ]


@settings(deadline=None)
@given(st.data(), st.sampled_from(VERSIONS), st.sampled_from([-1, 0, 1]), st.none() | st.text(max_size=5))
def test_parses_what_kio_writes(data: st.DataObject, version: int, acks: int, client_id: str | None) -> None:
    entity = dataclasses.replace(data.draw(entities(message(version, "ProduceRequest"))), acks=i16(acks))
    frame = framed(entity, client_id)
    request = parse(frame)
    timeout_ms = round(entity.timeout.total_seconds() * 1000)
    assert said(request) == (version, CORRELATION_ID, client_id, entity.transactional_id, acks, timeout_ms)
    assert contents(frame, request) == as_kio_has_it(entity)


@pytest.mark.parametrize("version", FLEXIBLE)
def test_unknown_tagged_fields_are_passed_over(version: int) -> None:
    """In the header, a partition, a topic and the request."""
    tag = b"\x02" + b"\x07\x03abc" + b"\xff\x01\x00"
    frame = (
        struct.pack(">hhih", PRODUCE, version, CORRELATION_ID, 1)
        + b"c"
        + tag
        + b"\x00"
        + struct.pack(">hi", 1, 5)
        + (b"\x02" + b"\x02t" + b"\x02" + struct.pack(">i", 3) + b"\x08records" + tag + tag + tag)
    )
    start = frame.index(b"records")
    assert parse(frame) == ProduceRequest(version, CORRELATION_ID, "c", None, 1, 5, [("t", [(3, start, start + 7)])])
    refuses_cuts_ignores_tails(parse, frame)


@pytest.mark.parametrize("version", VERSIONS)
def test_refuses_cuts_and_ignores_tails(version: int) -> None:
    refuses_cuts_ignores_tails(parse, framed(build(version, transactional_id="a-transaction")))


@pytest.mark.parametrize("version", [-1, 13, 14, 2**15 - 1])
def test_other_versions_are_malformed(version: int) -> None:
    frame = framed(build(9))
    with pytest.raises(Malformed, match=f"v{version} "):
        parse(frame[:2] + struct.pack(">h", version) + frame[4:])


@pytest.mark.parametrize("version", [RECORD_BATCHES_FROM, MAX_VERSION])
@pytest.mark.parametrize("acks", [-(2**15), -2, 2, 2**15 - 1])
def test_acks_that_there_are_not_are_the_brokers_to_refuse(version: int, acks: int) -> None:
    assert parse(framed(build(version, acks=acks))).acks == acks


def test_a_request_of_more_partitions_than_a_cluster_has_is_malformed() -> None:
    topics: Topics = [("t", [(0, b"")] * 50_000)] * 4
    with pytest.raises(Malformed, match="topics and partitions"):
        parse(framed(build(9, topics)))


@pytest.mark.parametrize("version", [*VERSIONS, *OLD])
@pytest.mark.parametrize("acks", [-1, 0, 1, 257])
def test_acks_can_be_read_whatever_follows_them(version: int, acks: int) -> None:
    frame = old(version, acks=acks) if version in OLD else framed(build(version, acks=acks, transactional_id=None))
    whole = parse(frame)
    assert whole.acks == acks
    readable = [size for size in range(len(frame) + 1) if peek_acks(frame[:size]) is not None]
    assert readable
    assert readable == list(range(readable[0], len(frame) + 1))
    assert {peek_acks(frame[:size]) for size in readable} == {acks}
    assert peek_acks(frame[: readable[0]] + b"\xff" * 40) == acks


def test_a_transactional_id_that_is_not_utf_8_does_not_hide_acks() -> None:
    frame = framed(build(9, acks=-1, transactional_id="till"))
    assert peek_acks(frame.replace(b"till", b"t\xe4ll")) == -1


HEAD_3 = struct.pack(">hhih", 0, 3, 1, -1) + struct.pack(">hhi", -1, 1, 0)
HEAD_9 = struct.pack(">hhih", 0, 9, 1, -1) + b"\x00" + b"\x00" + struct.pack(">hi", 1, 0)
HUGE = b"\xff\xff\xff\xff\x07"
LIES: dict[str, bytes] = {
    "a huge number of topics": HEAD_3 + struct.pack(">i", 2**31 - 1),
    "a negative number of topics": HEAD_3 + struct.pack(">i", -2),
    "a topic of negative length": HEAD_3 + struct.pack(">ih", 1, -2),
    "a topic without a name": HEAD_3 + struct.pack(">ihi", 1, -1, 0),
    "a topic that is not UTF-8": HEAD_3 + struct.pack(">ih", 1, 1) + b"\xff" + struct.pack(">i", 0),
    "a huge number of partitions": HEAD_3 + struct.pack(">ihi", 1, 0, 2**31 - 1) + bytes(64),
    "a negative number of partitions": HEAD_3 + struct.pack(">ihi", 1, 0, -2) + bytes(64),
    "records of a huge length": HEAD_3 + struct.pack(">ihiii", 1, 0, 1, 0, 2**31 - 1) + bytes(64),
    "records of negative length": HEAD_3 + struct.pack(">ihiii", 1, 0, 1, 0, -2) + bytes(64),
    "v9, a huge number of topics": HEAD_9 + HUGE + bytes(64),
    "v9, an endless number of topics": HEAD_9 + b"\xff" * 11,
    "v9, a topic without a name": HEAD_9 + b"\x02\x00\x01\x00\x00",
    "v9, a topic longer than what is there": HEAD_9 + b"\x02" + HUGE + bytes(64),
    "v9, a huge number of partitions": HEAD_9 + b"\x02\x01" + HUGE + bytes(64),
    "v9, records of a huge length": HEAD_9 + b"\x02\x01\x02" + bytes(4) + HUGE + bytes(64),
    "v9, records of an endless length": HEAD_9 + b"\x02\x01\x02" + bytes(4) + b"\x80" * 10 + b"\x01",
    "v9, a huge number of tags": HEAD_9 + b"\x01" + HUGE + bytes(64),
    "v9, a tag of a huge length": HEAD_9 + b"\x01\x01\x00" + HUGE + bytes(64),
    "v9, an endless tag": HEAD_9 + b"\x01\x01" + b"\x80" * 11 + b"\x00",
}


@pytest.mark.parametrize("frame", LIES.values(), ids=LIES.keys())
def test_lying_lengths_are_malformed_and_take_no_memory(frame: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(Malformed):
            parse(frame)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000


def test_the_heads_of_the_liars_are_right() -> None:
    assert parse(HEAD_3 + struct.pack(">i", 0)) == ProduceRequest(3, 1, None, None, 1, 0, [])
    assert parse(HEAD_9 + b"\x01\x00") == ProduceRequest(9, 1, None, None, 1, 0, [])


@pytest.mark.parametrize(
    "frame",
    [
        HEAD_3 + struct.pack(">i", -1),
        HEAD_3 + struct.pack(">ih1si", 1, 1, b"t", -1),
        HEAD_9 + b"\x00",
        HEAD_9 + b"\x02" + b"\x02t" + b"\x00",
    ],
    ids=["topics", "partitions", "topics, flexible", "partitions, flexible"],
)
def test_null_is_no_array(frame: bytes) -> None:
    """Of a request with one, brokers take no record of any partition and close the connection."""
    with pytest.raises(Malformed, match="null"):
        parse(frame)


@settings(deadline=None, max_examples=300)
@given(st.data(), st.sampled_from(VERSIONS))
def test_damage_is_parsed_or_malformed(data: st.DataObject, version: int) -> None:
    frame = data.draw(damaged(framed(build(version))))
    try:
        request = parse(frame)
    except Malformed:
        return
    for _, partitions in request.topics:
        for _, start, end in partitions:
            assert 0 <= start <= end <= len(frame)


@given(st.binary(max_size=100), st.sampled_from(VERSIONS))
def test_noise_is_parsed_or_malformed(noise: bytes, version: int) -> None:
    survives(parse, noise)
    survives(parse, struct.pack(">hhih", PRODUCE, version, 0, -1) + noise)


# Old versions, which kio lacks: those of v3 without its transactional id


def old(version: int, topics: Topics = TOPICS, acks: int = -1) -> bytes:
    frame = framed(build(3, topics, acks))
    at = 10 + len(CLIENT_ID)
    assert frame[at : at + 2] == b"\xff\xff"
    return frame[:2] + struct.pack(">h", version) + frame[4:at] + frame[at + 2 :]


@pytest.mark.parametrize("version", OLD)
def test_old_versions_have_no_transactional_id(version: int) -> None:
    found, frame = parse(old(version)), old(version)
    same = parse(framed(build(3)))
    assert (found.version, *said(found)[1:]) == (version, *said(same)[1:])
    assert [
        (name, [(index, frame[start:end]) for index, start, end in partitions]) for name, partitions in found.topics
    ] == [(name, [(index, records or b"") for index, records in partitions]) for name, partitions in TOPICS]


@pytest.mark.parametrize("version", OLD)
def test_old_versions_that_are_cut_short_are_malformed(version: int) -> None:
    refuses_cuts_ignores_tails(parse, old(version))


# Encode


def encoded(version: int, client_id: str | None, acks: int, timeout_ms: int, topics: Topics) -> bytes:
    """Records in pieces, as a batch gives them."""
    pieces: list[tuple[str, list[tuple[int, int, list[bytes | bytearray | memoryview]]]]] = []
    for name, partitions in topics:
        pieces.append((name, []))
        for index, records in partitions:
            data = records or b""
            pieces[-1][1].append((index, len(data), [data[:3], memoryview(data)[3:]]))
    data = b"".join(encode(version, CORRELATION_ID, client_id, acks, timeout_ms, pieces))
    assert data[:4] == struct.pack(">i", len(data) - 4)
    return data[4:]


topics = st.lists(
    st.tuples(st.text(max_size=5), st.lists(st.tuples(st.integers(0, 2**31 - 1), st.binary(max_size=200)), max_size=3)),
    max_size=3,
)


@settings(deadline=None)
@given(
    st.sampled_from(VERSIONS),
    st.none() | st.text(max_size=5),
    st.sampled_from([-1, 0, 1]),
    st.integers(0, 2**31 - 1),
    topics,
)
def test_kio_reads_what_is_encoded(
    version: int, client_id: str | None, acks: int, timeout_ms: int, topics: Topics
) -> None:
    frame = encoded(version, client_id, acks, timeout_ms, topics)
    header, request = decode_request(message(version, "ProduceRequest"), frame)
    assert (header.request_api_key, header.request_api_version) == (PRODUCE, version)
    assert (header.correlation_id, header.client_id) == (CORRELATION_ID, client_id)
    assert (request.acks, request.transactional_id) == (acks, None)
    assert round(request.timeout.total_seconds() * 1000) == timeout_ms
    assert as_kio_has_it(request) == topics


@pytest.mark.parametrize("version", VERSIONS)
def test_encodes_the_bytes_that_kio_writes(version: int) -> None:
    topics: Topics = [(name, [(index, records or b"") for index, records in parts]) for name, parts in TOPICS]
    assert encoded(version, CLIENT_ID, 1, 30_001, topics) == framed(build(version, topics, acks=1))


@pytest.mark.parametrize("version", [RECORD_BATCHES_FROM, MAX_VERSION])
def test_encodes_without_copying_records(version: int) -> None:
    held = [memoryview(bytearray(10)), memoryview(bytearray(20)), memoryview(bytearray(30))]
    buffers = encode(version, 1, None, 1, 0, [("t", [(0, 30, held[:2]), (1, 30, held[2:])])])
    assert [id(buffer) for buffer in buffers if isinstance(buffer, memoryview)] == list(map(id, held))
