"""Produce responses, v0 to v12: brokers' are read, those for clients written.

Responses are read from correlation_id on, without the size prefix, and written with it. Reading raises Malformed.
v1+ throttle_time_ms; v2+ log_append_time; v5+ log_start_offset; v8+ record_errors and error_message; v9+ flexible;
v10+ current_leader (tagged field 0 of a partition) and node_endpoints (tagged field 0 of the response), KIP-951.
Source: Kafka's ProduceResponse.json.
"""

from __future__ import annotations

from typing import final

from forebay_codecs.primitives import FLEXIBLE, Reader, Writer
from forebay_codecs.produce_request import FLEXIBLE_FROM


@final
class PartitionResponse:
    """The outcome for one partition. Offsets are −1 if unknown; log_append_time in ms, −1 with CreateTime.

    `record_errors` are (index in the batch, message); `current_leader` is (node id, leader epoch) if it was named.
    """

    __slots__ = (
        "base_offset",
        "current_leader",
        "error_code",
        "error_message",
        "log_append_time",
        "log_start_offset",
        "partition",
        "record_errors",
    )

    def __init__(
        self,
        partition: int,
        error_code: int,
        base_offset: int,
        log_append_time: int,
        log_start_offset: int,
        record_errors: list[tuple[int, str | None]],
        error_message: str | None,
        current_leader: tuple[int, int] | None = None,
    ) -> None:
        self.partition = partition
        self.error_code = error_code
        self.base_offset = base_offset
        self.log_append_time = log_append_time
        self.log_start_offset = log_start_offset
        self.record_errors = record_errors
        self.error_message = error_message
        self.current_leader = current_leader

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PartitionResponse) and self._all() == other._all()

    def __repr__(self) -> str:
        return f"PartitionResponse{self._all()}"

    def _all(self) -> tuple[object, ...]:
        offsets = self.base_offset, self.log_append_time, self.log_start_offset
        return self.partition, self.error_code, offsets, self.record_errors, self.error_message, self.current_leader


@final
class ProduceResponse:
    """A response: [(topic name, its partitions)], and in `nodes` (node id, host, port) of the leaders it names."""

    __slots__ = ("nodes", "throttle_time_ms", "topics")

    def __init__(
        self,
        topics: list[tuple[str, list[PartitionResponse]]],
        throttle_time_ms: int,
        nodes: tuple[tuple[int, str, int], ...] = (),
    ) -> None:
        self.topics = topics
        self.throttle_time_ms = throttle_time_ms
        self.nodes = nodes

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ProduceResponse) and self._all() == other._all()

    def __repr__(self) -> str:
        return f"ProduceResponse{self._all()}"

    def _all(self) -> tuple[object, ...]:
        return self.topics, self.throttle_time_ms, self.nodes


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


def is_plain(data: bytes, version: int) -> bool:
    """Whether a response says no more than that all is appended: no errors, no leaders. Raises Malformed.

    It is a third of the work of `parse`.
    """
    flexible = version >= FLEXIBLE_FROM
    offsets = 8 + 8 * (version >= 2) + 8 * (version >= 5)
    reader = Reader(data, 4)
    reader.skip_tags(flexible)
    for _ in range(reader.array(flexible)):
        reader.string(flexible)
        for _ in range(reader.array(flexible)):
            reader.skip(4)
            if reader.i16():
                return False
            reader.skip(offsets)
            if version >= 8 and (reader.array(flexible) or reader.nullable_string(flexible) is not None):
                return False
            if flexible and reader.uvarint():
                return False
        reader.skip_tags(flexible)
    reader.skip(4 if version >= 1 else 0)
    return not (flexible and reader.uvarint())


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
