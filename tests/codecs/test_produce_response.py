"""produce_response.py against kio in every version, and against bytes that are none of the protocol's."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.protocol.producer import (  # type: ignore[import-untyped]
    ProduceResponse as KafkaPythonProduceResponse,
)

from forebay_codecs.error_codes import INVALID_RECORD, NONE, NOT_LEADER_OR_FOLLOWER
from forebay_codecs.produce_request import MAX_VERSION, RECORD_BATCHES_FROM
from forebay_codecs.produce_response import PartitionResponse, ProduceResponse, encode, is_plain, parse
from tests.codecs.hardening import damaged, refuses_cuts_ignores_tails, survives
from tests.codecs.kio_oracle import CORRELATION_ID, decode_response, encode_response, entities, example, message

VERSIONS = range(RECORD_BATCHES_FROM, MAX_VERSION + 1)

ACKNOWLEDGED = PartitionResponse(3, NONE, 2**40, -1, 17, [], None)
REFUSED = PartitionResponse(4, INVALID_RECORD, -1, -1, -1, [(1, "no key"), (2, None)], "two records are wrong")
APPENDED_AT = PartitionResponse(5, NONE, 0, 1_700_000_000_123, 0, [], None)
MOVED = PartitionResponse(6, NOT_LEADER_OR_FOLLOWER, -1, -1, -1, [], "")
TOPICS = [("orders", [ACKNOWLEDGED, REFUSED]), ("näme", [APPENDED_AT, MOVED]), ("none", [])]
THROTTLED = 250


def response_class(version: int) -> Any:
    return message("produce", version, "ProduceResponse")


def as_version_has_it(partition: PartitionResponse, version: int) -> PartitionResponse:
    """Without what the version has no place for."""
    return PartitionResponse(
        partition.partition,
        partition.error_code,
        partition.base_offset,
        partition.log_append_time,
        partition.log_start_offset if version >= 5 else -1,
        partition.record_errors if version >= 8 else [],
        partition.error_message if version >= 8 else None,
        partition.current_leader if version >= 10 else None,
    )


def in_version(topics: Any, version: int) -> list[tuple[str, list[PartitionResponse]]]:
    return [(name, [as_version_has_it(partition, version) for partition in parts]) for name, parts in topics]


def read_by_kio(partition: Any, version: int) -> PartitionResponse:
    leader = partition.current_leader if version >= 10 else None
    return PartitionResponse(
        partition.index,
        partition.error_code.value,
        partition.base_offset,
        -1 if partition.log_append_time is None else round(partition.log_append_time.timestamp() * 1000),
        partition.log_start_offset if version >= 5 else -1,
        [(e.batch_index, e.batch_index_error_message) for e in partition.record_errors] if version >= 8 else [],
        partition.error_message if version >= 8 else None,
        # kio reads an absent leader as its defaults.
        None if leader is None or leader == type(leader)() else (leader.leader_id, leader.leader_epoch),
    )


def response_by_kio(entity: Any, version: int) -> ProduceResponse:
    return ProduceResponse(
        [
            (topic.name, [read_by_kio(partition, version) for partition in topic.partition_responses])
            for topic in entity.responses
        ],
        round(entity.throttle_time.total_seconds() * 1000),
        tuple((node.node_id, node.host, node.port) for node in entity.node_endpoints) if version >= 10 else (),
    )


# Parse


@pytest.mark.parametrize("version", VERSIONS)
def test_parses_every_field(version: int) -> None:
    entity = example(response_class(version))
    found = parse(encode_response(entity), version)
    assert found == response_by_kio(entity, version)
    assert (found.topics[0][1][0].current_leader is None) == (version < 10)


@settings(deadline=None)
@given(st.data(), st.sampled_from(VERSIONS))
def test_parses_what_kio_writes(data: st.DataObject, version: int) -> None:
    entity = data.draw(entities(response_class(version)))
    assert parse(encode_response(entity), version) == response_by_kio(entity, version)


@settings(deadline=None)
@given(st.data(), st.sampled_from(VERSIONS))
def test_what_is_plain_tells_of_no_errors_and_no_leaders(data: st.DataObject, version: int) -> None:
    response = encode_response(data.draw(entities(response_class(version))))
    found = parse(response, version)
    told = [partition for _, partitions in found.topics for partition in partitions]
    if is_plain(response, version):
        assert not found.nodes
        assert not any(partition.error_code or partition.current_leader for partition in told)


@pytest.mark.parametrize("version", range(MAX_VERSION + 1))
def test_what_brokers_mostly_answer_is_plain(version: int) -> None:
    response = encode(version, CORRELATION_ID, [("orders", [ACKNOWLEDGED, APPENDED_AT]), ("none", [])], THROTTLED)[4:]
    assert is_plain(response, version)
    refuses_cuts_ignores_tails(lambda data: is_plain(data, version), response)
    for other in (REFUSED, MOVED):
        topics = [("orders", [ACKNOWLEDGED, other])]
        assert not is_plain(encode(version, CORRELATION_ID, topics, THROTTLED)[4:], version)


@pytest.mark.parametrize("version", VERSIONS)
def test_parses_times_to_the_millisecond(version: int) -> None:
    """kio writes whole seconds."""
    response = KafkaPythonProduceResponse(
        version=version,
        responses=[
            KafkaPythonProduceResponse.TopicProduceResponse(
                name="orders",
                partition_responses=[
                    KafkaPythonProduceResponse.TopicProduceResponse.PartitionProduceResponse(
                        index=1, error_code=0, base_offset=5, log_append_time_ms=1_700_000_000_123
                    )
                ],
            )
        ],
        throttle_time_ms=THROTTLED,
    )
    response.with_header(correlation_id=CORRELATION_ID)
    found = parse(bytes(response.encode(header=True)), version)
    assert found == ProduceResponse(
        [("orders", [PartitionResponse(1, 0, 5, 1_700_000_000_123, -1, [], found.topics[0][1][0].error_message)])],
        THROTTLED,
    )


@pytest.mark.parametrize("version", range(9, MAX_VERSION + 1))
def test_unknown_tagged_fields_are_passed_over(version: int) -> None:
    """In the header, a partition, a topic and the response; after the leader, which is known from v10 on."""
    tag = b"\x02" + b"\x07\x03abc" + b"\xff\x01\x00"
    leader = b"\x02" + b"\x00\x09" + struct.pack(">ii", 2, 7) + b"\x00" + b"\x07\x03abc"
    partition = struct.pack(">ihqqq", 1, 6, -1, -1, -1) + b"\x01" + b"\x00" + leader
    data = struct.pack(">i", 1) + tag + b"\x02" + b"\x02t" + b"\x02" + partition + tag + struct.pack(">i", 9) + tag
    known = (2, 7) if version >= 10 else None
    wanted = PartitionResponse(1, NOT_LEADER_OR_FOLLOWER, -1, -1, -1, [], None, known)
    assert parse(data, version) == ProduceResponse([("t", [wanted])], 9)
    refuses_cuts_ignores_tails(lambda data: parse(data, version), data)


@pytest.mark.parametrize("version", range(10, MAX_VERSION + 1))
@pytest.mark.parametrize("size", range(8))
def test_a_leader_cut_short_is_malformed(version: int, size: int) -> None:
    leader = b"\x01" + b"\x00" + bytes([size]) + bytes(size)
    partition = struct.pack(">ihqqq", 1, 6, -1, -1, -1) + b"\x01" + b"\x00" + leader
    data = struct.pack(">i", 1) + b"\x00\x02\x02t\x02" + partition + b"\x00" + struct.pack(">i", 9) + b"\x00"
    with pytest.raises(ValueError, match="bytes wanted"):
        parse(data, version)


@pytest.mark.parametrize("version", VERSIONS)
def test_refuses_cuts_and_ignores_tails(version: int) -> None:
    refuses_cuts_ignores_tails(lambda data: parse(data, version), encode_response(example(response_class(version))))
    refuses_cuts_ignores_tails(lambda data: parse(data, version), encode(version, 1, TOPICS, THROTTLED)[4:])


@settings(deadline=None, max_examples=300)
@given(st.data(), st.sampled_from(VERSIONS))
def test_noise_and_damage_are_parsed_or_malformed(data: st.DataObject, version: int) -> None:
    good = encode_response(example(response_class(version)))
    for noise in (data.draw(damaged(good)), data.draw(st.binary(max_size=100)), good[:5] + b"\xff" * 20):
        survives(lambda noise: parse(noise, version), noise)


# Encode


@pytest.mark.parametrize("version", VERSIONS)
def test_kio_reads_what_is_encoded(version: int) -> None:
    frame = encode(version, CORRELATION_ID, TOPICS, THROTTLED)
    assert frame[:4] == struct.pack(">i", len(frame) - 4)
    entity = decode_response(response_class(version), frame[4:])
    assert response_by_kio(entity, version) == ProduceResponse(in_version(TOPICS, version), THROTTLED)


text = st.text(max_size=5)
number = st.integers(-(2**31), 2**31 - 1)
long = st.integers(-(2**63), 2**63 - 1)
partitions = st.builds(
    PartitionResponse,
    number,
    st.integers(-(2**15), 2**15 - 1),
    long,
    long,
    long,
    st.lists(st.tuples(number, st.none() | text), max_size=2),
    st.none() | text,
    st.none(),
)


@settings(deadline=None)
@given(
    st.sampled_from(VERSIONS), st.lists(st.tuples(text, st.lists(partitions, max_size=3)), max_size=3), number, number
)
def test_what_is_encoded_is_parsed(
    version: int, topics: list[tuple[str, list[PartitionResponse]]], throttle_time_ms: int, correlation_id: int
) -> None:
    frame = encode(version, correlation_id, topics, throttle_time_ms)
    assert frame[:8] == struct.pack(">ii", len(frame) - 4, correlation_id)
    assert parse(frame[4:], version) == ProduceResponse(in_version(topics, version), throttle_time_ms)


@pytest.mark.parametrize("version", VERSIONS)
def test_leaders_are_not_told(version: int) -> None:
    told = [("t", [PartitionResponse(6, NOT_LEADER_OR_FOLLOWER, -1, -1, -1, [], "", (2, 7))])]
    assert encode(version, 1, told, 0) == encode(version, 1, [("t", [MOVED])], 0)


# Old versions, which kio lacks

OLD = {
    0: "",
    1: "0000004d",  # throttle time
    2: "0000004d",
}


@pytest.mark.parametrize("version", OLD)
def test_old_versions_have_fewer_fields(version: int) -> None:
    log_append_time = "00000000000003e8" if version == 2 else ""
    partition = "00000005" + "0003" + "000000000000002a" + log_append_time
    wanted = bytes.fromhex("00000007" + "00000001" + "000474696465" + "00000001" + partition + OLD[version])
    answer = PartitionResponse(5, 3, 42, 1000 if version == 2 else -1, -1, [], None)
    frame = encode(version, 7, [("tide", [answer])], 77)
    assert frame == len(wanted).to_bytes(4, "big") + wanted
    found = parse(wanted, version)
    assert found.topics == [("tide", [answer])]
    assert found.throttle_time_ms == (77 if version else 0)
    refuses_cuts_ignores_tails(lambda data: parse(data, version), wanted)
