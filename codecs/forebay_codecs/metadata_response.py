"""The proxy's own Metadata responses, v0 to v13, assembled from topics that are already encoded.

In: brokers with the addresses that clients should use, and each topic's section in the client's layout. Out: the frame.
A section is encoded once per topic and layout (`encode_topic`), not once per client.

Several versions share a topic's layout; it changes with v1 (is_internal), v5 (offline_replicas), v7 (leader epochs),
v8 (authorized operations), v9 (flexible) and v10 (topic id). Source: Kafka's MetadataResponse.json.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from forebay_codecs import error_codes
from forebay_codecs.metadata import FLEXIBLE_FROM, TOPIC_ID_FROM, Broker, Topic
from forebay_codecs.primitives import Writer

LAYOUTS: Final = (0, 1, 1, 1, 1, 5, 6, 7, 8, 9, 10, 10, 10, 10)
"""By version: the first version in which a topic has the same layout, and error codes mean the same."""

_NOT_ASKED: Final = -(1 << 31)
"""The value of authorized operations if they were not asked for."""


def encode_topic(topic: Topic, version: int, alive: Iterable[int] = ()) -> bytes:
    """A topic's section in a response of `version`.

    v0 clients cannot handle replicas on brokers that are not listed: as brokers do, those not `alive` (node ids, used
    in v0 only) are dropped and the partition's error becomes REPLICA_NOT_AVAILABLE.
    """
    flexible = version >= FLEXIBLE_FROM
    writer = Writer()
    writer.i16(topic.error_code)
    writer.nullable_string(topic.name, flexible)
    if version >= TOPIC_ID_FROM:
        writer.raw(topic.topic_id)
    if version >= 1:
        writer.boolean(topic.is_internal)
    writer.array(len(topic.partitions), flexible)
    there = set(alive)
    for partition in topic.partitions:
        code, replicas, isr = partition.error_code, partition.replicas, partition.isr
        if code == error_codes.LISTENER_NOT_FOUND and version < 6:
            code = error_codes.LEADER_NOT_AVAILABLE
        if version == 0:
            replicas = tuple(node for node in replicas if node in there)
            isr = tuple(node for node in isr if node in there)
            if code == error_codes.NONE and (len(replicas), len(isr)) != (len(partition.replicas), len(partition.isr)):
                code = error_codes.REPLICA_NOT_AVAILABLE
        writer.i16(code)
        writer.i32(partition.partition_index)
        writer.i32(partition.leader_id)
        if version >= 7:
            writer.i32(partition.leader_epoch)
        for nodes in (replicas, isr, partition.offline) if version >= 5 else (replicas, isr):
            writer.array(len(nodes), flexible)
            for node in nodes:
                writer.i32(node)
        if flexible:
            writer.tags()
    if version >= 8:
        writer.i32(_NOT_ASKED)
    if flexible:
        writer.tags()
    return writer.getvalue()


def encode_cluster(version: int, brokers: Mapping[int, Broker], cluster_id: str | None, controller_id: int) -> bytes:
    """The part of a response before its topics, from throttle_time_ms on. `brokers` by node id."""
    flexible = version >= FLEXIBLE_FROM
    writer = Writer()
    if version >= 3:
        writer.i32(0)  # throttle_time_ms
    writer.array(len(brokers), flexible)
    for node_id, broker in brokers.items():
        writer.i32(node_id)
        writer.string(broker.host, flexible)
        writer.i32(broker.port)
        if version >= 1:
            writer.nullable_string(broker.rack, flexible)
        if flexible:
            writer.tags()
    if version >= 2:
        writer.nullable_string(cluster_id, flexible)
    if version >= 1:
        writer.i32(controller_id)
    return writer.getvalue()


def assemble(version: int, correlation_id: int, cluster: bytes, topics: list[bytes]) -> bytes:
    """A whole frame, size prefix included, from what encode_cluster and encode_topic made for the same layout."""
    flexible = version >= FLEXIBLE_FROM
    head = Writer()
    head.i32(correlation_id)
    if flexible:
        head.tags()
    head.raw(cluster)
    head.array(len(topics), flexible)
    tail = Writer()
    if 8 <= version <= 10:
        tail.i32(_NOT_ASKED)  # cluster_authorized_operations
    if version >= 13:
        tail.i16(error_codes.NONE)
    if flexible:
        tail.tags()
    size = len(head.out) + sum(map(len, topics)) + len(tail.out)
    return b"".join((size.to_bytes(4, "big"), head.getvalue(), *topics, tail.getvalue()))
