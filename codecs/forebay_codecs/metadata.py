"""Metadata responses v0 to v13: read, or rewritten for clients that are sent the broker's own.

They begin at correlation_id (no size prefix). Raises Malformed. Requests are in metadata_request.py, the proxy's own
responses in metadata_response.py.
v1+ rack, controller_id, is_internal; v2+ cluster_id; v3+ throttle_time_ms; v5+ offline_replicas; v7+ leader_epoch;
v8+ authorized operations (those of the cluster until v10); v9+ flexible; v10+ topic_id; v12+ a topic's name may be
null; v13+ error_code. Source: Kafka's MetadataResponse.json.
"""

from __future__ import annotations

import base64
from typing import Final, NamedTuple

from forebay_codecs.addresses import Translate, rewrite_brokers, splice
from forebay_codecs.header import response_header_size
from forebay_codecs.primitives import Reader

FLEXIBLE_FROM: Final = 9
TOPIC_ID_FROM: Final = 10

NO_TOPIC_ID: Final = bytes(16)
"""In a request: asked for by name. In a response: the topic, or its id, is unknown."""


def printable_id(topic_id: bytes) -> str:
    """A topic id as Kafka writes it: base64 without padding; empty for NO_TOPIC_ID."""
    return "" if topic_id == NO_TOPIC_ID else base64.urlsafe_b64encode(topic_id).decode().rstrip("=")


class Broker(NamedTuple):
    """Where a broker listens. rack is None before v1."""

    host: str
    port: int
    rack: str | None


class Partition(NamedTuple):
    """One partition. leader_id is −1 while there is no leader, leader_epoch −1 before v7, `offline` empty before v5."""

    error_code: int
    partition_index: int
    leader_id: int
    leader_epoch: int
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()


class Topic(NamedTuple):
    """One topic. topic_id is NO_TOPIC_ID before v10; name is None only in v12+, for an unknown id."""

    error_code: int
    name: str | None
    topic_id: bytes
    is_internal: bool
    partitions: tuple[Partition, ...]


class Metadata(NamedTuple):
    """A response. brokers by node id; error_code is 0 before v13, controller_id −1 in v0, cluster_id None before v2."""

    throttle_time_ms: int
    brokers: dict[int, Broker]
    cluster_id: str | None
    controller_id: int
    topics: tuple[Topic, ...]
    error_code: int


def parse_metadata_response(response: bytes, version: int) -> Metadata:
    """Read a response of `version`; bytes after its last field are ignored, as in every client. Raises Malformed."""
    flexible = version >= FLEXIBLE_FROM
    reader = Reader(response, response_header_size(response, flexible=flexible))
    throttle_time_ms = reader.i32() if version >= 3 else 0
    brokers = {}
    for _ in range(reader.array(flexible)):
        node_id = reader.i32()
        host = reader.string(flexible)
        port = reader.i32()
        rack = reader.nullable_string(flexible) if version >= 1 else None
        reader.skip_tags(flexible)
        brokers[node_id] = Broker(host, port, rack)
    cluster_id = reader.nullable_string(flexible) if version >= 2 else None
    controller_id = reader.i32() if version >= 1 else -1
    topics = tuple([_read_topic(reader, version) for _ in range(reader.array(flexible))])
    if 8 <= version <= 10:
        reader.skip(4)  # cluster_authorized_operations
    error_code = reader.i16() if version >= 13 else 0
    reader.skip_tags(flexible)
    return Metadata(throttle_time_ms, brokers, cluster_id, controller_id, topics, error_code)


def rewrite_metadata(response: bytes, version: int, translate: Translate) -> bytes:
    """The response with every broker's address translated and brokers without a listener dropped. Raises Malformed.

    Topics are copied, so a partition may name a leader that is not listed: clients treat it as not available for now
    and ask again.
    """
    flexible = version >= FLEXIBLE_FROM
    reader = Reader(response, response_header_size(response, flexible=flexible))
    if version >= 3:
        reader.skip(4)  # throttle_time_ms
    start = reader.pos

    def skip_rest(broker: Reader) -> None:
        if version >= 1:
            broker.nullable_string(flexible)  # rack
        broker.skip_tags(flexible)

    brokers = rewrite_brokers(reader, translate, skip_rest, flexible=flexible)
    end = reader.pos
    if version >= 2:
        reader.nullable_string(flexible)  # cluster_id
    if version >= 1:
        reader.skip(4)  # controller_id
    for _ in range(reader.array(flexible)):
        _skip_topic(reader, version)
    if 8 <= version <= 10:
        reader.skip(4)  # cluster_authorized_operations
    if version >= 13:
        reader.skip(2)  # error_code
    reader.skip_tags(flexible)  # trailing bytes are passed on to the client, which ignores them
    return splice(response, start, end, brokers)


def _read_topic(reader: Reader, version: int) -> Topic:
    flexible = version >= FLEXIBLE_FROM
    error_code = reader.i16()
    name = reader.nullable_string(flexible) if version >= 12 else reader.string(flexible)
    topic_id = reader.raw(16) if version >= TOPIC_ID_FROM else NO_TOPIC_ID
    is_internal = reader.boolean() if version >= 1 else False
    partitions = tuple([_read_partition(reader, version) for _ in range(reader.array(flexible))])
    if version >= 8:
        reader.skip(4)  # topic_authorized_operations
    reader.skip_tags(flexible)
    return Topic(error_code, name, topic_id, is_internal, partitions)


def _read_partition(reader: Reader, version: int) -> Partition:
    error_code = reader.i16()
    partition_index = reader.i32()
    leader_id = reader.i32()
    leader_epoch = reader.i32() if version >= 7 else -1
    flexible = version >= FLEXIBLE_FROM
    replicas = _read_nodes(reader, flexible=flexible)
    isr = _read_nodes(reader, flexible=flexible)
    offline = _read_nodes(reader, flexible=flexible) if version >= 5 else ()
    reader.skip_tags(flexible)
    return Partition(error_code, partition_index, leader_id, leader_epoch, replicas, isr, offline)


def _read_nodes(reader: Reader, *, flexible: bool) -> tuple[int, ...]:
    return tuple([reader.i32() for _ in range(reader.array(flexible))])


def _skip_topic(reader: Reader, version: int) -> None:
    """Skip what _read_topic reads, building nothing: a client may ask for ten thousand partitions."""
    flexible = version >= FLEXIBLE_FROM
    reader.skip(2)  # error_code
    if version >= 12:
        reader.nullable_string(flexible)  # name
    else:
        reader.string(flexible)
    if version >= TOPIC_ID_FROM:
        reader.skip(16)  # topic_id
    if version >= 1:
        reader.skip(1)  # is_internal
    # error_code, partition_index, leader_id, leader_epoch
    fixed = 14 if version >= 7 else 10
    for _ in range(reader.array(flexible)):
        reader.skip(fixed)
        _skip_replicas(reader, version)
    if version >= 8:
        reader.skip(4)  # topic_authorized_operations
    reader.skip_tags(flexible)


def _skip_replicas(reader: Reader, version: int) -> None:
    """Skip replica_nodes, isr_nodes and offline_replicas (v5+), arrays of int32, and the partition's tagged fields."""
    flexible = version >= FLEXIBLE_FROM
    for _ in range(3 if version >= 5 else 2):
        reader.skip(4 * reader.array(flexible))
    reader.skip_tags(flexible)
