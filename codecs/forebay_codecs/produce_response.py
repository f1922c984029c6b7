"""Produce responses, v0 to v12: brokers' are read, those for clients written.

Responses are read from correlation_id on, without the size prefix, and written with it. Reading raises Malformed.
v1+ throttle_time_ms; v2+ log_append_time; v5+ log_start_offset; v8+ record_errors and error_message; v9+ flexible;
v10+ current_leader (tagged field 0 of a partition) and node_endpoints (tagged field 0 of the response), KIP-951.
Source: Kafka's ProduceResponse.json.
"""

from __future__ import annotations

from typing import NamedTuple

from forebay_codecs.primitives import FLEXIBLE, Reader, Writer
from forebay_codecs.produce_request import FLEXIBLE_FROM


class PartitionResponse(NamedTuple):
    """The outcome for one partition. Offsets are −1 if unknown; log_append_time in ms, −1 with CreateTime.

    `record_errors` are (index in the batch, message); `current_leader` is (node id, leader epoch) if it was named.
    """

    partition: int
    error_code: int
    base_offset: int
    log_append_time: int
    log_start_offset: int
    record_errors: list[tuple[int, str | None]]
    error_message: str | None
    current_leader: tuple[int, int] | None = None


class ProduceResponse(NamedTuple):
    """A response: [(topic name, its partitions)], and in `nodes` (node id, host, port) of the leaders it names."""

    topics: list[tuple[str, list[PartitionResponse]]]
    throttle_time_ms: int
    nodes: tuple[tuple[int, str, int], ...] = ()


def parse(data: bytes, version: int) -> ProduceResponse:
    """Read a broker's response of `version`. Raises Malformed."""
    flexible = version >= FLEXIBLE_FROM
    reader = Reader(data, 4)
    reader.skip_tags(flexible)
    topics = []
    for _ in range(reader.array(flexible)):
        name = reader.string(flexible)
        partitions = [_partition(reader, version, flexible=flexible) for _ in range(reader.array(flexible))]
        reader.skip_tags(flexible)
        topics.append((name, partitions))
    throttle_time_ms = reader.i32() if version >= 1 else 0
    nodes: tuple[tuple[int, str, int], ...] = ()
    if flexible:
        for tag, start, end in reader.tags():
            if tag == 0 and version >= 10:
                nodes = _nodes(Reader(reader.data, start, end))
    return ProduceResponse(topics, throttle_time_ms, nodes)


def _nodes(reader: Reader) -> tuple[tuple[int, str, int], ...]:
    nodes = []
    for _ in range(reader.array(FLEXIBLE)):
        nodes.append((reader.i32(), reader.string(FLEXIBLE), reader.i32()))
        reader.nullable_string(FLEXIBLE)  # rack
        reader.skip_tags()
    return tuple(nodes)


def _partition(reader: Reader, version: int, *, flexible: bool) -> PartitionResponse:
    index = reader.i32()
    error_code = reader.i16()
    base_offset = reader.i64()
    log_append_time = reader.i64() if version >= 2 else -1
    log_start_offset = reader.i64() if version >= 5 else -1
    record_errors: list[tuple[int, str | None]] = []
    error_message = None
    if version >= 8:
        for _ in range(reader.array(flexible)):
            record = reader.i32()
            record_errors.append((record, reader.nullable_string(flexible)))
            reader.skip_tags(flexible)
        error_message = reader.nullable_string(flexible)
    current_leader = None
    if flexible:
        for tag, start, end in reader.tags():
            if tag == 0 and version >= 10:
                leader = Reader(reader.data, start, end)
                current_leader = (leader.i32(), leader.i32())
    return PartitionResponse(
        index,
        error_code,
        base_offset,
        log_append_time,
        log_start_offset,
        record_errors,
        error_message,
        current_leader,
    )


def encode(
    version: int,
    correlation_id: int,
    topics: list[tuple[str, list[PartitionResponse]]],
    throttle_time_ms: int,
) -> bytes:
    """A whole response frame, size prefix included. Leaders and endpoints, which are optional, are not written."""
    flexible = version >= FLEXIBLE_FROM
    writer = Writer()
    writer.i32(0)
    writer.i32(correlation_id)
    if flexible:
        writer.tags()
    writer.array(len(topics), flexible)
    for name, partitions in topics:
        writer.string(name, flexible)
        writer.array(len(partitions), flexible)
        for partition in partitions:
            writer.i32(partition.partition)
            writer.i16(partition.error_code)
            writer.i64(partition.base_offset)
            if version >= 2:
                writer.i64(partition.log_append_time)
            if version >= 5:
                writer.i64(partition.log_start_offset)
            if version >= 8:
                writer.array(len(partition.record_errors), flexible)
                for record, message in partition.record_errors:
                    writer.i32(record)
                    writer.nullable_string(message, flexible)
                    if flexible:
                        writer.tags()
                writer.nullable_string(partition.error_message, flexible)
            if flexible:
                writer.tags()
        if flexible:
            writer.tags()
    if version >= 1:
        writer.i32(throttle_time_ms)
    if flexible:
        writer.tags()
    return writer.framed()
