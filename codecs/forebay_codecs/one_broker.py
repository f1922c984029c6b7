"""A cluster as clients of one port see it: one broker, which leads and holds every partition.

In: what a broker says of its cluster. Out: the same with NODE_ID in place of every broker, at the address that
`translate` tells; epochs and topic ids stay, as does a partition that has no leader. Never several ids at one address:
librdkafka before 2.10 takes them for one broker. Raises Malformed.

A Produce response loses what it says of leaders (KIP-951), which are none of the client's.
Sources: Kafka's MetadataResponse.json, DescribeClusterResponse.json, ProduceResponse.json.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from forebay_codecs import produce_response
from forebay_codecs.addresses import Translate, names_controllers
from forebay_codecs.api_keys import DESCRIBE_CLUSTER, METADATA, PRODUCE
from forebay_codecs.apis import APIS, Api
from forebay_codecs.header import response_header_size
from forebay_codecs.metadata import FLEXIBLE_FROM, TOPIC_ID_FROM, Broker, Partition, Topic
from forebay_codecs.primitives import FLEXIBLE, Reader, Writer

NODE_ID: Final = 0
_NOBODY: Final = -1


def only_broker(translate: Translate) -> dict[int, Broker]:
    """The brokers of such a cluster, by node id."""
    address = translate(NODE_ID, "", 0)
    return {NODE_ID: Broker(*address, None)} if address is not None else {}


def of_topic(topic: Topic) -> Topic:
    """The topic on that broker."""
    return topic._replace(partitions=tuple([_of_partition(partition) for partition in topic.partitions]))


def _of_partition(partition: Partition) -> Partition:
    return partition._replace(
        leader_id=_of_node(partition.leader_id),
        replicas=(NODE_ID,) if partition.replicas else (),
        isr=(NODE_ID,) if partition.isr else (),
        offline=(),
    )


def _of_node(node_id: int) -> int:
    return NODE_ID if node_id >= 0 else _NOBODY


def rewrite_metadata(response: bytes, version: int, translate: Translate) -> bytes:
    """A broker's answer as that broker would give it."""
    flexible = version >= FLEXIBLE_FROM
    reader = Reader(response, response_header_size(response, flexible=flexible))
    out = Writer()
    if version >= 3:
        reader.skip(4)  # throttle_time_ms
    out.raw(response[: reader.pos])
    for _ in range(reader.array(flexible)):
        reader.skip(4)  # node_id
        reader.string(flexible)
        reader.skip(4)  # port
        if version >= 1:
            reader.nullable_string(flexible)  # rack
        reader.skip_tags(flexible)
    brokers = only_broker(translate)
    out.array(len(brokers), flexible)
    for broker in brokers.values():
        _write_broker(out, broker, flexible=flexible)
        if version >= 1:
            out.nullable_string(None, flexible)
        if flexible:
            out.tags()
    start = reader.pos
    if version >= 2:
        reader.nullable_string(flexible)  # cluster_id
    out.raw(response[start : reader.pos])
    if version >= 1:
        out.i32(_of_node(reader.i32()))  # controller_id
    count = reader.array(flexible)
    out.array(count, flexible)
    for _ in range(count):
        _rewrite_topic(reader, out, version)
    start = reader.pos
    if 8 <= version <= 10:
        reader.skip(4)  # cluster_authorized_operations
    if version >= 13:
        reader.skip(2)  # error_code
    reader.skip_tags(flexible)
    out.raw(response[start:])
    return out.getvalue()


def _rewrite_topic(reader: Reader, out: Writer, version: int) -> None:
    flexible = version >= FLEXIBLE_FROM
    start = reader.skip(2)  # error_code
    reader.nullable_string(flexible)  # name
    if version >= TOPIC_ID_FROM:
        reader.skip(16)
    if version >= 1:
        reader.skip(1)  # is_internal
    count = reader.array(flexible)
    out.raw(reader.data[start : reader.pos])
    for _ in range(count):
        out.raw(reader.raw(6))  # error_code, partition_index
        out.i32(_of_node(reader.i32()))
        if version >= 7:
            out.raw(reader.raw(4))  # leader_epoch
        for _ in ("replicas", "isr"):
            found = reader.array(flexible)
            reader.skip(4 * found)
            out.array(min(1, found), flexible)
            if found:
                out.i32(NODE_ID)
        if version >= 5:
            reader.skip(4 * reader.array(flexible))  # offline_replicas
            out.array(0, flexible)
        start = reader.pos
        reader.skip_tags(flexible)
        out.raw(reader.data[start : reader.pos])
    start = reader.pos
    if version >= 8:
        reader.skip(4)  # topic_authorized_operations
    reader.skip_tags(flexible)
    out.raw(reader.data[start : reader.pos])


def rewrite_describe_cluster(response: bytes, version: int, translate: Translate) -> bytes:
    """A broker's answer as that broker would give it; controllers, which have no address here, are left out."""
    reader = Reader(response, response_header_size(response, flexible=True))
    controllers = names_controllers(reader, version)
    out = Writer()
    out.raw(response[: reader.pos])
    out.i32(_of_node(reader.i32()))  # controller_id
    there = reader.array(FLEXIBLE)
    for _ in range(there):
        reader.skip(4)  # broker_id
        reader.string(FLEXIBLE)
        reader.skip(4)  # port
        reader.nullable_string(FLEXIBLE)  # rack
        if version >= 2:
            reader.skip(1)  # is_fenced
        reader.skip_tags()
    brokers = only_broker(translate) if there and not controllers else {}
    out.array(len(brokers), FLEXIBLE)
    for broker in brokers.values():
        _write_broker(out, broker, flexible=FLEXIBLE)
        out.nullable_string(None, FLEXIBLE)
        if version >= 2:
            out.boolean(value=False)
        out.tags()
    start = reader.pos
    reader.skip(4)  # cluster_authorized_operations
    reader.skip_tags()
    out.raw(response[start:])
    return out.getvalue()


def rewrite_produce(response: bytes, version: int, translate: Translate) -> bytes:
    """A broker's answer without leaders and their addresses."""
    parsed = produce_response.parse(response, version)
    correlation_id = Reader(response).i32()
    return produce_response.encode(version, correlation_id, parsed.topics, parsed.throttle_time_ms)[4:]


def _write_broker(out: Writer, broker: Broker, *, flexible: bool) -> None:
    out.i32(NODE_ID)
    out.string(broker.host, flexible)
    out.i32(broker.port)


REWRITTEN: Final[Mapping[int, Api]] = MappingProxyType(
    {
        key: dataclasses.replace(APIS[key], rewrite=rewrite)
        for key, rewrite in (
            (PRODUCE, rewrite_produce),
            (METADATA, rewrite_metadata),
            (DESCRIBE_CLUSTER, rewrite_describe_cluster),
        )
    }
)
"""By API key: those whose answers differ from the ones that clients of brokers' own ports get."""
