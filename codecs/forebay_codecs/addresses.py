"""Broker addresses inside responses, put in the proxy's terms: an address that leaks leads the client around the proxy.

In: a whole response, from correlation_id on (no size prefix), its API version, and `translate`. Out: the same response
with every broker's host and port replaced, everything else byte for byte as it came, what stands behind the last field
included. Wrong bytes: Malformed.

`translate` is called for every broker that a response names, so the proxy learns of brokers through it. Where it
answers None the broker has no listener, and its entry is left out. A coordinator cannot be left out, since the client
waits for that very answer: it becomes COORDINATOR_NOT_AVAILABLE, which the client retries.

Sources: Kafka's FindCoordinatorResponse, DescribeClusterResponse, ProduceResponse, ShareFetchResponse and
ShareAcknowledgeResponse.json; NodeEndpoints is KIP-951. Metadata and Fetch have files of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from forebay_codecs.error_codes import COORDINATOR_NOT_AVAILABLE
from forebay_codecs.header import response_header_size
from forebay_codecs.primitives import Reader, Writer

Translate: TypeAlias = Callable[[int, str, int], tuple[str, int] | None]
"""(node_id, host, port) of a broker → (host, port) of the proxy's listener for it; None: it has no listener."""

NODE_ENDPOINTS_TAG: Final = 0
"""The tagged field of NodeEndpoints in Produce and Fetch responses."""

PRODUCE_NAMES_BROKERS_FROM: Final = 10

_FIND_COORDINATOR_FLEXIBLE_FROM: Final = 3
_FIND_COORDINATOR_ARRAY_FROM: Final = 4
_CONTROLLERS: Final = 2
"""DescribeCluster's endpoint_type for controllers."""


def rewrite_brokers(reader: Reader, flexible: bool, translate: Translate, skip_rest: Callable[[Reader], None]) -> bytes:
    """Read an array of [node_id int32, host string, port int32, rest] and give it back translated.

    `skip_rest` walks the rest of an element (rack and the like), which is copied.
    """
    kept = 0
    elements = Writer()
    for _ in range(reader.array(flexible)):
        node_id = reader.i32()
        host = reader.string(flexible)
        port = reader.i32()
        rest = reader.pos
        skip_rest(reader)
        address = translate(node_id, host, port)
        if address is None:
            continue
        kept += 1
        _write_node(elements, node_id, address, flexible)
        elements.raw(reader.data[rest : reader.pos])
    array = Writer()
    array.array(kept, flexible)
    array.raw(elements.out)
    return array.getvalue()


def rewrite_node_endpoints(
    data: bytes, fields: list[tuple[int, int, int]], translate: Translate
) -> list[tuple[int, bytes]]:
    """The tagged fields (tag, start, end) of `data` as (tag, bytes), NodeEndpoints translated, the others copied."""
    rewritten = []
    for tag, start, end in fields:
        value = data[start:end]
        if tag == NODE_ENDPOINTS_TAG:
            reader = Reader(value)
            value = rewrite_brokers(reader, True, translate, _skip_rack) + value[reader.pos :]
        rewritten.append((tag, value))
    return rewritten


def rewrite_find_coordinator(response: bytes, version: int, translate: Translate) -> bytes:
    """v0–v3 name one coordinator, v4+ one a key. An entry with an error has node id −1 and stays as it is."""
    flexible = version >= _FIND_COORDINATOR_FLEXIBLE_FROM
    reader = Reader(response, response_header_size(response, flexible))
    if version >= 1:
        reader.skip(4)  # throttle_time_ms
    start = reader.pos
    out = Writer()
    if version >= _FIND_COORDINATOR_ARRAY_FROM:
        count = reader.array(True)
        out.array(count, True)
        for _ in range(count):
            _rewrite_coordinator(reader, out, translate)
    else:
        _rewrite_only_coordinator(reader, out, version, translate)
    end = reader.pos
    reader.skip_tags(flexible)
    return splice(response, start, end, out.getvalue())


def _rewrite_only_coordinator(reader: Reader, out: Writer, version: int, translate: Translate) -> None:
    """error_code, error_message (v1+), node_id, host, port."""
    flexible = version >= _FIND_COORDINATOR_FLEXIBLE_FROM
    start = reader.pos
    reader.skip(2)  # error_code
    if version >= 1:
        reader.nullable_string(flexible)  # error_message
    node = reader.pos
    node_id, host, port = _read_node(reader, flexible)
    if node_id < 0:
        out.raw(reader.data[start : reader.pos])
        return
    address = translate(node_id, host, port)
    if address is not None:
        out.raw(reader.data[start:node])
        _write_node(out, node_id, address, flexible)
        return
    out.i16(COORDINATOR_NOT_AVAILABLE)
    if version >= 1:
        out.nullable_string(None, flexible)
    _write_node(out, -1, ("", -1), flexible)


def _rewrite_coordinator(reader: Reader, out: Writer, translate: Translate) -> None:
    """key, node_id, host, port, error_code, error_message, tagged fields."""
    start = reader.pos
    reader.string(True)  # key
    node = reader.pos
    node_id, host, port = _read_node(reader, True)
    error = reader.pos
    reader.skip(2)  # error_code
    reader.nullable_string(True)  # error_message
    tags = reader.pos
    reader.skip_tags()
    if node_id < 0:
        out.raw(reader.data[start : reader.pos])
        return
    address = translate(node_id, host, port)
    out.raw(reader.data[start:node])
    if address is not None:
        _write_node(out, node_id, address, True)
        out.raw(reader.data[error : reader.pos])
        return
    _write_node(out, -1, ("", -1), True)
    out.i16(COORDINATOR_NOT_AVAILABLE)
    out.nullable_string(None, True)
    out.raw(reader.data[tags : reader.pos])


def rewrite_describe_cluster(response: bytes, version: int, translate: Translate) -> bytes:
    """Brokers are translated; controllers (endpoint_type 2) are left out, since no listener stands for a controller."""
    reader = Reader(response, response_header_size(response, True))
    reader.skip(6)  # throttle_time_ms, error_code
    reader.nullable_string(True)  # error_message
    controllers = version >= 1 and reader.i8() == _CONTROLLERS
    reader.string(True)  # cluster_id
    reader.skip(4)  # controller_id
    start = reader.pos

    def skip_rest(broker: Reader) -> None:
        broker.nullable_string(True)  # rack
        if version >= 2:
            broker.skip(1)  # is_fenced
        broker.skip_tags()

    brokers = rewrite_brokers(reader, True, _no_listener if controllers else translate, skip_rest)
    end = reader.pos
    reader.skip(4)  # cluster_authorized_operations
    reader.skip_tags()
    return splice(response, start, end, brokers)


def rewrite_produce(response: bytes, version: int, translate: Translate) -> bytes:
    """NodeEndpoints is tagged field 0 at the end of v10+; older responses name no broker and come back unread."""
    if version < PRODUCE_NAMES_BROKERS_FROM:
        return response
    reader = Reader(response, response_header_size(response, True))
    for _ in range(reader.array(True)):
        if version >= 13:
            reader.skip(16)  # topic_id
        else:
            reader.string(True)  # name
        for _ in range(reader.array(True)):
            reader.skip(30)  # index, error_code, base_offset, log_append_time_ms, log_start_offset
            for _ in range(reader.array(True)):
                reader.skip(4)  # batch_index
                reader.nullable_string(True)  # batch_index_error_message
                reader.skip_tags()
            reader.nullable_string(True)  # error_message
            reader.skip_tags()
        reader.skip_tags()
    reader.skip(4)  # throttle_time_ms
    start = reader.pos
    fields = reader.tags()
    tags = Writer()
    tags.tags(rewrite_node_endpoints(response, fields, translate))
    return splice(response, start, reader.pos, tags.getvalue())


def rewrite_share_fetch(response: bytes, version: int, translate: Translate) -> bytes:
    """v1+ (v0 was early access and is gone). NodeEndpoints stands behind the topics; records are jumped over."""
    reader = Reader(response, response_header_size(response, True))
    reader.skip(6)  # throttle_time_ms, error_code
    reader.nullable_string(True)  # error_message
    reader.skip(4)  # acquisition_lock_timeout_ms
    for _ in range(reader.array(True)):
        reader.skip(16)  # topic_id
        for _ in range(reader.array(True)):
            reader.skip(6)  # partition_index, error_code
            reader.nullable_string(True)  # error_message
            reader.skip(2)  # acknowledge_error_code
            reader.nullable_string(True)  # acknowledge_error_message
            _skip_current_leader(reader)
            reader.nullable_bytes(True)  # records
            for _ in range(reader.array(True)):
                reader.skip(18)  # first_offset, last_offset, delivery_count
                reader.skip_tags()
            reader.skip_tags()
        reader.skip_tags()
    return _rewrite_last_node_endpoints(reader, translate)


def rewrite_share_acknowledge(response: bytes, version: int, translate: Translate) -> bytes:
    """v1+ (v0 was early access and is gone)."""
    reader = Reader(response, response_header_size(response, True))
    reader.skip(6)  # throttle_time_ms, error_code
    reader.nullable_string(True)  # error_message
    if version >= 2:
        reader.skip(4)  # acquisition_lock_timeout_ms
    for _ in range(reader.array(True)):
        reader.skip(16)  # topic_id
        for _ in range(reader.array(True)):
            reader.skip(6)  # partition_index, error_code
            reader.nullable_string(True)  # error_message
            _skip_current_leader(reader)
            reader.skip_tags()
        reader.skip_tags()
    return _rewrite_last_node_endpoints(reader, translate)


def _rewrite_last_node_endpoints(reader: Reader, translate: Translate) -> bytes:
    """NodeEndpoints as the last field of a response, tagged fields behind it."""
    start = reader.pos
    endpoints = rewrite_brokers(reader, True, translate, _skip_rack)
    end = reader.pos
    reader.skip_tags()
    return splice(reader.data, start, end, endpoints)


def splice(data: bytes, start: int, end: int, replacement: bytes) -> bytes:
    """`data` with data[start:end] replaced. Views, because a ShareFetch response may be large."""
    view = memoryview(data)
    return b"".join((view[:start], replacement, view[end:]))


def _skip_current_leader(reader: Reader) -> None:
    reader.skip(8)  # leader_id, leader_epoch
    reader.skip_tags()


def _skip_rack(reader: Reader) -> None:
    reader.nullable_string(True)  # rack
    reader.skip_tags()


def _read_node(reader: Reader, flexible: bool) -> tuple[int, str, int]:
    return reader.i32(), reader.string(flexible), reader.i32()


def _write_node(writer: Writer, node_id: int, address: tuple[str, int], flexible: bool) -> None:
    host, port = address
    writer.i32(node_id)
    writer.string(host, flexible)
    writer.i32(port)


def _no_listener(_node_id: int, _host: str, _port: int) -> None:
    return None
