"""metadata.py against kio in every version, and against bytes that are none of the protocol's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.protocol.metadata import (  # type: ignore[import-untyped]
    MetadataResponse as KafkaPythonMetadataResponse,
)

from forebay_codecs.metadata import (
    NO_TOPIC_ID,
    Broker,
    Metadata,
    Partition,
    Topic,
    parse_metadata_response,
    rewrite_metadata,
)
from tests.codecs.hardening import damaged, refuses_cuts, survives
from tests.codecs.kio_oracle import (
    CORRELATION_ID,
    decode_response,
    encode_response,
    entities,
    message,
    topic_id,
)
from tests.codecs.translation import Listeners, identity

VERSIONS = range(14)


def response_class(version: int) -> Any:
    return message("metadata", version, "MetadataResponse")


def sample(version: int) -> bytes:
    """Three brokers, the last with a rack, and a topic of two partitions, one of them without a leader."""
    writer = KafkaPythonMetadataResponse(
        version=version,
        throttle_time_ms=7,
        brokers=[
            KafkaPythonMetadataResponse.MetadataResponseBroker(
                node_id=node,
                host=f"broker-{node}.internal",
                port=9092 + node,
                rack="r2" if node == 2 else None,
            )
            for node in range(3)
        ],
        cluster_id="a-cluster",
        controller_id=1,
        topics=[
            KafkaPythonMetadataResponse.MetadataResponseTopic(
                error_code=0,
                name="orders",
                is_internal=False,
                partitions=[
                    KafkaPythonMetadataResponse.MetadataResponseTopic.MetadataResponsePartition(
                        error_code=5 if leader < 0 else 0,
                        partition_index=index,
                        leader_id=leader,
                        leader_epoch=40 + index,
                        replica_nodes=[0, 1, 2],
                        isr_nodes=[1],
                        offline_replicas=[0],
                    )
                    for index, leader in enumerate((2, -1))
                ],
            )
        ],
        error_code=0,
    )
    return CORRELATION_ID.to_bytes(4, "big") + (b"\0" if version >= 9 else b"") + bytes(writer.encode(version=version))


@pytest.mark.parametrize("version", VERSIONS)
def test_parses_a_response(version: int) -> None:
    assert parse_metadata_response(sample(version), version) == Metadata(
        throttle_time_ms=7 if version >= 3 else 0,
        brokers={
            0: Broker("broker-0.internal", 9092, None),
            1: Broker("broker-1.internal", 9093, None),
            2: Broker("broker-2.internal", 9094, "r2" if version >= 1 else None),
        },
        cluster_id="a-cluster" if version >= 2 else None,
        controller_id=1 if version >= 1 else -1,
        topics=(
            Topic(
                error_code=0,
                name="orders",
                topic_id=NO_TOPIC_ID,
                is_internal=False,
                partitions=(
                    Partition(0, 0, 2, 40 if version >= 7 else -1, (0, 1, 2), (1,), (0,) if version >= 5 else ()),
                    Partition(5, 1, -1, 41 if version >= 7 else -1, (0, 1, 2), (1,), (0,) if version >= 5 else ()),
                ),
            ),
        ),
        error_code=0,
    )


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=20)
@given(data=st.data())
def test_parses_what_kio_writes(version: int, data: st.DataObject) -> None:
    theirs = data.draw(entities(response_class(version)))
    ours = parse_metadata_response(encode_response(theirs), version)
    assert ours.brokers == {b.node_id: Broker(b.host, b.port, getattr(b, "rack", None)) for b in theirs.brokers}
    assert ours.controller_id == getattr(theirs, "controller_id", -1)
    assert ours.cluster_id == getattr(theirs, "cluster_id", None)
    assert ours.error_code == getattr(theirs, "error_code", 0)
    assert ours.topics == tuple(
        Topic(
            topic.error_code,
            topic.name,
            topic_id(getattr(topic, "topic_id", None)),
            getattr(topic, "is_internal", False),
            tuple(
                Partition(
                    p.error_code,
                    p.partition_index,
                    p.leader_id,
                    getattr(p, "leader_epoch", -1),
                    p.replica_nodes,
                    p.isr_nodes,
                    getattr(p, "offline_replicas", ()),
                )
                for p in topic.partitions
            ),
        )
        for topic in theirs.topics
    )


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=20)
@given(data=st.data())
def test_rewrites_brokers_and_nothing_else(version: int, data: st.DataObject) -> None:
    theirs = data.draw(entities(response_class(version)))
    listeners = Listeners()
    rewritten = rewrite_metadata(encode_response(theirs), version, listeners)
    assert rewritten == encode_response(replace(theirs, brokers=listeners.expected(theirs.brokers)))
    assert listeners.asked == [(b.node_id, b.host, b.port) for b in theirs.brokers]


@pytest.mark.parametrize("version", VERSIONS)
def test_leaves_out_brokers_without_a_listener(version: int) -> None:
    rewritten = rewrite_metadata(
        sample(version), version, lambda node, host, port: None if node == 1 else ("proxy", 7000 + node)
    )
    read = decode_response(response_class(version), rewritten)
    assert [(b.node_id, b.host, b.port) for b in read.brokers] == [(0, "proxy", 7000), (2, "proxy", 7002)]


def test_keeps_unknown_tagged_fields() -> None:
    """In the header, in a broker and at the end."""
    header = CORRELATION_ID.to_bytes(4, "big") + b"\x01\x63\x02hh"
    broker = b"\x00\x00\x00\x05" + b"\x03b5" + b"\x00\x00\x23\x84" + b"\x00" + b"\x01\x09\x01t"
    rest = b"\x00" + b"\xff\xff\xff\xff" + b"\x01" + b"\x01\x63\x03end"
    response = header + bytes(4) + b"\x02" + broker + rest
    assert rewrite_metadata(response, 12, lambda *_: ("proxy", 1)) == response.replace(
        b"\x03b5" + b"\x00\x00\x23\x84", b"\x06proxy" + b"\x00\x00\x00\x01"
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_refuses_what_is_cut(version: int) -> None:
    refuses_cuts(lambda data: parse_metadata_response(data, version), sample(version))
    refuses_cuts(lambda data: rewrite_metadata(data, version, identity), sample(version))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("tail", [b"\x00", b"\xff\xff\xff\xff"])
def test_overlooks_a_tail_and_passes_it_on(version: int, tail: bytes) -> None:
    good = sample(version)
    assert parse_metadata_response(good + tail, version) == parse_metadata_response(good, version)
    assert rewrite_metadata(good + tail, version, identity) == good + tail


@pytest.mark.parametrize("version", [0, 8, 12, 13])
@settings(max_examples=50)
@given(data=st.data())
def test_survives_noise(version: int, data: st.DataObject) -> None:
    noise = data.draw(st.binary(max_size=200) | damaged(sample(version)))
    survives(lambda noise: parse_metadata_response(noise, version), noise)
    survives(lambda noise: rewrite_metadata(noise, version, identity), noise)
