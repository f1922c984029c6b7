"""Broker addresses in responses, replaced by the proxy's own: a client that learns a real one bypasses the proxy.

In: a whole response, from correlation_id on (no size prefix), its API version, and `translate`. Out: the same response
with every broker's host and port replaced; everything else, including bytes after the last field, is copied unchanged.
Raises Malformed.

`translate` is called for every broker that a response names, which is also how the proxy discovers brokers. If it
returns None, the broker has no listener and its entry is dropped. A coordinator cannot be dropped, since it is what the
client asked for: it becomes COORDINATOR_NOT_AVAILABLE, which clients retry.

Sources: Kafka's FindCoordinatorResponse, DescribeClusterResponse and ProduceResponse.json; NodeEndpoints is KIP-951.
Metadata is in metadata.py; Fetch, ShareFetch and ShareAcknowledge stream through a response_filter.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from forebay_codecs.error_codes import COORDINATOR_NOT_AVAILABLE
from forebay_codecs.header import response_header_size
from forebay_codecs.primitives import FLEXIBLE, Reader, Writer

Translate: TypeAlias = Callable[[int, str, int], tuple[str, int] | None]
"""(node_id, host, port) of a broker → (host, port) of the proxy's listener for it; None: there is no listener."""

NODE_ENDPOINTS_TAG: Final = 0
"""NodeEndpoints, as a tagged field of Produce and Fetch responses."""

PRODUCE_NAMES_BROKERS_FROM: Final = 10
"""The first version of Produce responses with NodeEndpoints."""

_FIND_COORDINATOR_FLEXIBLE_FROM: Final = 3
_FIND_COORDINATOR_ARRAY_FROM: Final = 4
_CONTROLLERS: Final = 2
"""endpoint_type in DescribeCluster."""


def rewrite_brokers(
    reader: Reader, translate: Translate, skip_rest: Callable[[Reader], None], *, flexible: bool
) -> bytes:
    """Read an array of [node_id int32, host string, port int32, rest]; return it encoded with translated addresses.

    `skip_rest` moves the reader past the rest of an element (rack and so on), which is copied.
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
        _write_node(elements, node_id, address, flexible=flexible)
        elements.raw(reader.data[rest : reader.pos])
    array = Writer()
    array.array(kept, flexible)
    array.raw(elements.getvalue())
    return array.getvalue()


def rewrite_node_endpoints(
    data: bytes, fields: list[tuple[int, int, int]], translate: Translate
) -> list[tuple[int, bytes]]:
    """Tagged fields given as (tag, start, end) in `data`, returned as (tag, value) with NodeEndpoints translated."""
    rewritten = []
    for tag, start, end in fields:
        value = data[start:end]
        if tag == NODE_ENDPOINTS_TAG:
            reader = Reader(value)
            value = rewrite_brokers(reader, translate, skip_rack, flexible=True) + value[reader.pos :]
        rewritten.append((tag, value))
    return rewritten


def rewrite_find_coordinator(response: bytes, version: int, translate: Translate) -> bytes:
    """v0–v3 name one coordinator, v4+ one for each key. An entry with an error has node_id −1 and is copied."""
    flexible = version >= _FIND_COORDINATOR_FLEXIBLE_FROM
    reader = Reader(response, response_header_size(response, flexible=flexible))
    if version >= 1:
        reader.skip(4)  # throttle_time_ms
    start = reader.pos
    out = Writer()
    if version >= _FIND_COORDINATOR_ARRAY_FROM:
        count = reader.array(FLEXIBLE)
        out.array(count, FLEXIBLE)
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
    node_id, host, port = _read_node(reader, flexible=flexible)
    if node_id < 0:
        out.raw(reader.data[start : reader.pos])
        return
    address = translate(node_id, host, port)
    if address is not None:
        out.raw(reader.data[start:node])
        _write_node(out, node_id, address, flexible=flexible)
        return
    out.i16(COORDINATOR_NOT_AVAILABLE)
    if version >= 1:
        out.nullable_string(None, flexible)
    _write_node(out, -1, ("", -1), flexible=flexible)


def _rewrite_coordinator(reader: Reader, out: Writer, translate: Translate) -> None:
    """key, node_id, host, port, error_code, error_message, tagged fields."""
    start = reader.pos
    reader.string(FLEXIBLE)  # key
    node = reader.pos
    node_id, host, port = _read_node(reader, flexible=True)
    error = reader.pos
    reader.skip(2)  # error_code
    reader.nullable_string(FLEXIBLE)  # error_message
    tags = reader.pos
    reader.skip_tags()
    if node_id < 0:
        out.raw(reader.data[start : reader.pos])
        return
    address = translate(node_id, host, port)
    out.raw(reader.data[start:node])
    if address is not None:
        _write_node(out, node_id, address, flexible=True)
        out.raw(reader.data[error : reader.pos])
        return
    _write_node(out, -1, ("", -1), flexible=True)
    out.i16(COORDINATOR_NOT_AVAILABLE)
    out.nullable_string(None, FLEXIBLE)
    out.raw(reader.data[tags : reader.pos])


def names_controllers(reader: Reader, version: int) -> bool:
    """Read a DescribeCluster response up to controller_id: whether it lists controllers, and not brokers."""
    reader.skip(6)  # throttle_time_ms, error_code
    reader.nullable_string(FLEXIBLE)  # error_message
    controllers = version >= 1 and reader.i8() == _CONTROLLERS
    reader.string(FLEXIBLE)  # cluster_id
    return controllers


def rewrite_describe_cluster(response: bytes, version: int, translate: Translate) -> bytes:
    """Translate brokers; drop controllers (endpoint_type 2), for which there are no listeners."""
    reader = Reader(response, response_header_size(response, flexible=True))
    controllers = names_controllers(reader, version)
    reader.skip(4)  # controller_id
    start = reader.pos

    def skip_rest(broker: Reader) -> None:
        broker.nullable_string(FLEXIBLE)  # rack
        if version >= 2:
            broker.skip(1)  # is_fenced
        broker.skip_tags()

    brokers = rewrite_brokers(reader, _no_listener if controllers else translate, skip_rest, flexible=True)
    end = reader.pos
    reader.skip(4)  # cluster_authorized_operations
    reader.skip_tags()
    return splice(response, start, end, brokers)


def rewrite_produce(response: bytes, version: int, translate: Translate) -> bytes:
    """From v10 on NodeEndpoints is the response's tagged field 0. Older ones name no broker: returned unread."""
    if version < PRODUCE_NAMES_BROKERS_FROM:
        return response
    reader = Reader(response, response_header_size(response, flexible=True))
    for _ in range(reader.array(FLEXIBLE)):
        if version >= 13:
            reader.skip(16)  # topic_id
        else:
            reader.string(FLEXIBLE)  # name
        for _ in range(reader.array(FLEXIBLE)):
            reader.skip(30)  # index, error_code, base_offset, log_append_time_ms, log_start_offset
            for _ in range(reader.array(FLEXIBLE)):
                reader.skip(4)  # batch_index
                reader.nullable_string(FLEXIBLE)  # batch_index_error_message
                reader.skip_tags()
            reader.nullable_string(FLEXIBLE)  # error_message
            reader.skip_tags()
        reader.skip_tags()
    reader.skip(4)  # throttle_time_ms
    start = reader.pos
    fields = reader.tags()
    tags = Writer()
    tags.tags(rewrite_node_endpoints(response, fields, translate))
    return splice(response, start, reader.pos, tags.getvalue())


def splice(data: bytes, start: int, end: int, replacement: bytes) -> bytes:
    """`data` with data[start:end] replaced."""
    view = memoryview(data)  # spares a copy of what may be a large response
    return b"".join((view[:start], replacement, view[end:]))


def skip_rack(reader: Reader) -> None:
    """What follows the port in an element of NodeEndpoints."""
    reader.nullable_string(FLEXIBLE)  # rack
    reader.skip_tags()


def _read_node(reader: Reader, *, flexible: bool) -> tuple[int, str, int]:
    return reader.i32(), reader.string(flexible), reader.i32()


def _write_node(writer: Writer, node_id: int, address: tuple[str, int], *, flexible: bool) -> None:
    host, port = address
    writer.i32(node_id)
    writer.string(host, flexible)
    writer.i32(port)


def _no_listener(_node_id: int, _host: str, _port: int) -> None:
    return None
