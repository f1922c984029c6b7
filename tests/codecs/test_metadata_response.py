"""metadata_response.py against kio: what is put together is what its readers take it for, in every version."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay_codecs.error_codes import LEADER_NOT_AVAILABLE, LISTENER_NOT_FOUND, NONE, REPLICA_NOT_AVAILABLE
from forebay_codecs.metadata import NO_TOPIC_ID, Broker, Partition, Topic, parse_metadata_response
from forebay_codecs.metadata_response import LAYOUTS, assemble, encode_cluster, encode_topic
from tests.codecs.kio_oracle import CORRELATION_ID, decode_response, encode_response, entities, message

VERSIONS = range(14)
BROKERS = {0: Broker("localhost", 9093, None), 7: Broker("localhost", 9100, "r1")}
TOPIC = Topic(
    NONE,
    "zähler",
    bytes(range(16)),
    is_internal=True,
    partitions=(Partition(NONE, 3, 7, 12, (7, 0), (7,), (0,)), Partition(5, 4, -1, 2)),
)


def response(version: int, topics: list[Topic], alive: Any = BROKERS) -> bytes:
    cluster = encode_cluster(version, BROKERS, "a-cluster", 7)
    frame = assemble(version, CORRELATION_ID, cluster, [encode_topic(topic, version, alive) for topic in topics])
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    return frame[4:]


@pytest.mark.parametrize("version", VERSIONS)
def test_kio_reads_what_is_written(version: int) -> None:
    theirs = decode_response(message("metadata", version, "MetadataResponse"), response(version, [TOPIC]))
    assert [(b.node_id, b.host, b.port) for b in theirs.brokers] == [(0, "localhost", 9093), (7, "localhost", 9100)]
    assert [getattr(b, "rack", None) for b in theirs.brokers] == [None, "r1" if version >= 1 else None]
    assert getattr(theirs, "cluster_id", "a-cluster") == "a-cluster"
    assert getattr(theirs, "controller_id", 7) == 7
    assert getattr(theirs, "cluster_authorized_operations", -(1 << 31)) == -(1 << 31)
    (topic,) = theirs.topics
    assert (topic.error_code, topic.name) == (NONE, "zähler")
    assert getattr(topic, "is_internal", True) is True
    assert getattr(topic, "topic_authorized_operations", -(1 << 31)) == -(1 << 31)
    first, second = topic.partitions
    assert (first.error_code, first.partition_index, first.leader_id) == (NONE, 3, 7)
    assert (first.replica_nodes, first.isr_nodes) == ((7, 0), (7,))
    assert getattr(first, "offline_replicas", (0,)) == (0,)
    assert (getattr(first, "leader_epoch", 12), getattr(second, "leader_epoch", 2)) == (12, 2)
    assert (second.error_code, second.leader_id) == (LEADER_NOT_AVAILABLE, -1)


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=30)
@given(data=st.data())
def test_topics_of_others_are_written_as_they_were_read(version: int, data: st.DataObject) -> None:
    cls = message("metadata", version, "MetadataResponse")
    told = parse_metadata_response(encode_response(data.draw(entities(cls))), version)
    every = {node for topic in told.topics for partition in topic.partitions for node in partition.replicas}
    every |= {node for topic in told.topics for partition in topic.partitions for node in partition.isr}
    again = parse_metadata_response(response(version, list(told.topics), every), version)
    if version >= 6:
        assert again.topics == told.topics
    else:  # see the test of LISTENER_NOT_FOUND
        assert [topic.name for topic in again.topics] == [topic.name for topic in told.topics]


@pytest.mark.parametrize("version", VERSIONS)
def test_versions_of_one_layout_have_the_same_bytes(version: int) -> None:
    topic = TOPIC._replace(partitions=(*TOPIC.partitions, Partition(LISTENER_NOT_FOUND, 5, -1, 2)))
    assert encode_topic(topic, version, BROKERS) == encode_topic(topic, LAYOUTS[version], BROKERS)
    if version and LAYOUTS[version] == version:
        assert encode_topic(topic, version, BROKERS) != encode_topic(topic, version - 1, BROKERS)


def test_a_nameless_topic_stands_by_its_id_in_v12() -> None:
    unknown = Topic(100, None, bytes(range(16)), is_internal=False, partitions=())
    (topic,) = parse_metadata_response(response(12, [unknown]), 12).topics
    assert topic == unknown


def test_v0_knows_no_replicas_that_are_not_there() -> None:
    topic = Topic(
        NONE, "orders", NO_TOPIC_ID, is_internal=False, partitions=(Partition(NONE, 0, 7, 1, (7, 0, 3), (7, 3), ()),)
    )
    (partition,) = parse_metadata_response(response(0, [topic]), 0).topics[0].partitions
    assert partition == Partition(REPLICA_NOT_AVAILABLE, 0, 7, -1, (7, 0), (7,), ())
    (partition,) = parse_metadata_response(response(1, [topic]), 1).topics[0].partitions
    assert partition.replicas == (7, 0, 3)


@pytest.mark.parametrize("version", VERSIONS)
def test_listener_not_found_is_told_to_those_who_know_it(version: int) -> None:
    topic = Topic(NONE, "orders", NO_TOPIC_ID, is_internal=False, partitions=(Partition(LISTENER_NOT_FOUND, 0, -1, 1),))
    (partition,) = parse_metadata_response(response(version, [topic]), version).topics[0].partitions
    assert partition.error_code == (LISTENER_NOT_FOUND if version >= 6 else LEADER_NOT_AVAILABLE)
