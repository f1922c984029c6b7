"""What consumers and transactional producers are answered where only producers are served.

In: a request frame without its size. Out: the response frame, size included, that refuses it in words which clients
show to people; None for what a producer may ask. Raises Malformed, also for versions that are not known here.

    FindCoordinator   30 GROUP_AUTHORIZATION_FAILED, 53 TRANSACTIONAL_ID_AUTHORIZATION_FAILED, from v1 on with MESSAGE
    InitProducerId    53, where it is for a transactional id
    Fetch             29 TOPIC_AUTHORIZATION_FAILED for each partition
    ListOffsets       29 for each partition

To hide these APIs instead would cost producers something: librdkafka takes a broker without Fetch and FindCoordinator
for one that is too old for record batches, lz4 and zstd.
Sources: Kafka's schemas of these four messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Protocol

from forebay_codecs.api_keys import (
    DESCRIBE_TOPIC_PARTITIONS,
    FETCH,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    LIST_OFFSETS,
    PRODUCE,
)
from forebay_codecs.apis import APIS
from forebay_codecs.error_codes import (
    GROUP_AUTHORIZATION_FAILED,
    TOPIC_AUTHORIZATION_FAILED,
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)
from forebay_codecs.errors import Malformed
from forebay_codecs.header import peek, read_client_id
from forebay_codecs.primitives import FLEXIBLE, Reader, Writer

MESSAGE: Final = "this port takes producers only"
AT_MOST: Final[Mapping[int, int]] = MappingProxyType({PRODUCE: 8})
"""A request is divided among brokers, of which one has told its versions; in a cluster that is being upgraded others
offer less, but v8 since Kafka 2.4. Later ones have another layout, name leaders, and concern transactions."""
NOT_OFFERED: Final = frozenset({DESCRIBE_TOPIC_PARTITIONS})
"""Its answer names leaders that such a client knows nothing of; Metadata, which clients ask instead, does not."""
MAX_KEYS: Final = 1_000
"""Coordinators that one answer tells of, the first ones: a key may take one byte of the request, and takes 44 here."""
_TRANSACTION: Final = 1
"""key_type in FindCoordinator; all others are groups of some kind."""
_NONE: Final = -1


def refusal(frame: bytes) -> bytes | None:
    """The framed response that refuses this request, or None if a producer may make it. Raises Malformed."""
    key, version, correlation_id = peek(frame, 0)
    refuse, highest = _REFUSED[key]
    if not 0 <= version <= highest:
        raise Malformed(f"{APIS[key].name} v{version} is not known")
    flexible = APIS[key].flexible(version)
    reader = Reader(frame, 8)
    read_client_id(reader, flexible=flexible)
    out = Writer()
    out.i32(0)
    out.i32(correlation_id)
    if flexible:
        out.tags()
    if not refuse(reader, out, version, flexible=flexible):
        return None
    if flexible:
        out.tags()
    return out.framed()


def _find_coordinator(reader: Reader, out: Writer, version: int, *, flexible: bool) -> bool:
    if version < 4:
        reader.string(flexible)  # key
    transaction = version >= 1 and reader.i8() == _TRANSACTION
    error_code = TRANSACTIONAL_ID_AUTHORIZATION_FAILED if transaction else GROUP_AUTHORIZATION_FAILED
    if version >= 1:
        out.i32(0)  # throttle_time_ms
    if version < 4:
        out.i16(error_code)
        if version >= 1:
            out.nullable_string(MESSAGE, flexible)
        _write_no_node(out, flexible=flexible)
        return True
    keys = [reader.string(FLEXIBLE) for _ in range(min(reader.array(FLEXIBLE), MAX_KEYS))]
    out.array(len(keys), FLEXIBLE)
    for key in keys:
        out.string(key, FLEXIBLE)
        _write_no_node(out, flexible=FLEXIBLE)
        out.i16(error_code)
        out.nullable_string(MESSAGE, FLEXIBLE)
        out.tags()
    return True


def _write_no_node(out: Writer, *, flexible: bool) -> None:
    out.i32(_NONE)
    out.string("", flexible)
    out.i32(_NONE)


def _init_producer_id(reader: Reader, out: Writer, version: int, *, flexible: bool) -> bool:
    if reader.nullable_string(flexible) is None:
        return False
    out.i32(0)  # throttle_time_ms
    out.i16(TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    out.i64(_NONE)  # producer_id
    out.i16(_NONE)  # producer_epoch
    if version >= 6:
        out.i64(_NONE)  # ongoing_txn_producer_id
        out.i16(_NONE)  # ongoing_txn_producer_epoch
    return True


def _fetch(reader: Reader, out: Writer, version: int, *, flexible: bool) -> bool:
    if version < 15:
        reader.skip(4)  # replica_id
    reader.skip(8)  # max_wait_ms, min_bytes
    if version >= 3:
        reader.skip(4)  # max_bytes
    if version >= 4:
        reader.skip(1)  # isolation_level
    if version >= 7:
        reader.skip(8)  # session_id, session_epoch
    if version >= 1:
        out.i32(0)  # throttle_time_ms
    if version >= 7:
        out.i16(0)  # error_code
        out.i32(0)  # session_id
    # current_leader_epoch v9+, fetch_offset, last_fetched_epoch v12+, log_start_offset v5+, partition_max_bytes
    size = 12 + 4 * (version >= 9) + 4 * (version >= 12) + 8 * (version >= 5)
    refused = Writer()
    refused.i16(TOPIC_AUTHORIZATION_FAILED)
    refused.i64(_NONE)  # high_watermark
    if version >= 4:
        refused.i64(_NONE)  # last_stable_offset
    if version >= 5:
        refused.i64(_NONE)  # log_start_offset
    if version >= 4:
        refused.array(0, flexible)  # aborted_transactions
    if version >= 11:
        refused.i32(_NONE)  # preferred_read_replica
    refused.array(0, flexible)  # records: of no bytes
    _refuse_partitions(reader, out, size, refused, flexible=flexible, by_id=version >= 13)
    return True


def _list_offsets(reader: Reader, out: Writer, version: int, *, flexible: bool) -> bool:
    reader.skip(4)  # replica_id
    if version >= 2:
        reader.skip(1)  # isolation_level
        out.i32(0)  # throttle_time_ms
    # current_leader_epoch v4+, timestamp, max_num_offsets in v0
    size = 8 + 4 * (version >= 4) + 4 * (version == 0)
    refused = Writer()
    refused.i16(TOPIC_AUTHORIZATION_FAILED)
    if version == 0:
        refused.array(0, flexible)  # old_style_offsets
    else:
        refused.i64(_NONE)  # timestamp
        refused.i64(_NONE)  # offset
    if version >= 4:
        refused.i32(_NONE)  # leader_epoch
    _refuse_partitions(reader, out, size, refused, flexible=flexible)
    return True


def _refuse_partitions(
    reader: Reader, out: Writer, size: int, refused: Writer, *, flexible: bool, by_id: bool = False
) -> None:
    """`refused` behind the index of each partition that is asked for, of which `size` more bytes are passed over."""
    if flexible:
        refused.tags()
    answer = refused.getvalue()
    topics = reader.array(flexible)
    out.array(topics, flexible)
    for _ in range(topics):
        if by_id:
            out.raw(reader.raw(16))
        else:
            out.string(reader.string(flexible), flexible)
        partitions = reader.array(flexible)
        out.array(partitions, flexible)
        for _ in range(partitions):
            out.i32(reader.i32())
            reader.skip(size)
            reader.skip_tags(flexible)
            out.raw(answer)
        reader.skip_tags(flexible)
        if flexible:
            out.tags()


class _Refuse(Protocol):
    """Writes the body of the refusal to what is asked. False: it is not refused."""

    def __call__(self, reader: Reader, out: Writer, version: int, *, flexible: bool) -> bool: ...


_REFUSED: Final[Mapping[int, tuple[_Refuse, int]]] = MappingProxyType(
    {
        FETCH: (_fetch, 18),
        LIST_OFFSETS: (_list_offsets, 11),
        FIND_COORDINATOR: (_find_coordinator, 6),
        INIT_PRODUCER_ID: (_init_producer_id, 6),
    }
)
"""By API key, with the highest version that is known."""

LOOKED_AT: Final = frozenset(_REFUSED)
"""API keys of requests that `refusal` is for."""
