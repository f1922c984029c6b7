"""What the journal tells, row by row: the one place where its schema is written.

The proxy writes these rows (as JSON lines, each with its `kind`), the pipeline derives its own schema from them.

Rules of change: a field is never renamed, retyped or given another meaning; new ones go to the end, with a default,
and VERSION grows. So older rows stay readable (what they lack is null), and newer ones to older readers, too.

Each row says when, which worker of its proxy wrote it (a number), and which process that is (host, process id, start).
Numbers of requests and connections are a process's own.

Units: `_us` microseconds; `time_us` and `received_us` since 1970 (UTC), all others durations. `bytes` of records,
uncompressed unless said otherwise. Errors are Kafka's codes, codecs the numbers of record batch attributes.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

VERSION: Final = 1


FlushReason = Literal["full", "linger", "adopted", "closed"]
"""Why a batch left just then."""

BatchFate = Literal["acknowledged", "retried", "split", "refused", "unknown"]
"""What came of a batch that was sent."""


class BatchRow(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="batch"):
    """One batch that was sent to its broker, written when its fate was known; sent again it is another row."""

    time_us: int
    worker: int
    process: str
    topic: str
    partition: int
    leader: int
    """Node id of the broker."""
    reason: FlushReason
    records: int
    bytes: int
    """What it took in memory: as it came, where the reason is adopted, else uncompressed."""
    runs: int
    """Runs of records of one client batch each, merged in it."""
    acks: int
    """As the clients asked: 0 is sent as 1."""
    codec: int
    movable: bool
    """Its records have no key: the partitioner chose the partition."""
    tries: int
    """Earlier ones."""
    linger_us: int
    """From its first record to its sending."""
    upstream_us: int
    """From its sending to its fate."""
    load: int
    """Bytes of its partition, queued and in flight, when it was sent; its own among them."""
    fate: BatchFate
    error_code: int
    base_offset: int
    """-1 where none was told."""
    v: int = VERSION


MOST_LOADS: Final = 64


class ChoiceRow(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="choice"):
    """A partition newly chosen for records without a key: the beginning of a turn."""

    time_us: int
    worker: int
    process: str
    topic: str
    partition: int
    partitions: int
    available: int
    """Partitions with a leader that can be reached."""
    loaded: int
    """Partitions with anything queued or in flight."""
    loaded_partitions: list[int]
    """The first MOST_LOADS of them."""
    loads: list[int]
    """Bytes queued and in flight for each of these."""
    v: int = VERSION


class MetadataRow(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="metadata"):
    """One Metadata request to the brokers."""

    time_us: int
    worker: int
    process: str
    topics: int
    """Asked for by name; -1: all."""
    ids: int
    """Asked for by topic id."""
    creates: bool
    took_us: int
    request_bytes: int
    response_bytes: int
    error: str
    """Empty where it was answered."""
    v: int = VERSION


class GaugeRow(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="gauge"):
    """How one worker stood, once a second. Bytes and numbers now, but for those that count since its start."""

    time_us: int
    worker: int
    process: str
    started_us: int
    """When the process began: counts begin anew with it."""
    pool_bytes: int
    """`buffer.memory`."""
    pool_available_bytes: int
    pool_waiters: int
    queued_bytes: int
    queued_batches: int
    queued_request_bytes: int
    in_flight_requests: int
    client_connections: int
    upstream_connections: int
    pool_waits_total: int
    metadata_hits_total: int
    metadata_misses_total: int
    metadata_waits_total: int
    rows_dropped_total: int
    """Rows of this journal that were lost, because the disk was slow or full."""
    v: int = VERSION


class LedgerPart(msgspec.Struct, frozen=True, gc=False):
    """Records of a client batch that travelled together: all of them, or those with a key, or those without."""

    partition: int
    """Where they were last put."""
    base_offset: int
    """Of the first of them; -1: they were not acknowledged."""
    records: int
    bytes: int
    movable: bool
    """They have no key."""
    crc: int
    """CRC-32 over the CRC-32s of the records in their order, each as 4 bytes, most significant first.

    A record's CRC-32 is that of its key's length, key, value's length and value. Lengths are 4 bytes, most significant
    first, ff ff ff ff for null.
    """
    first_crc: int
    """The CRC-32 of the first record."""


class LedgerRow(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="ledger"):
    """What a client sent to one partition in one Produce request, and what it was told; written when it was."""

    time_us: int
    worker: int
    process: str
    number: int
    """Of the request, in the order of arrival."""
    received_us: int
    connection: int
    client_id: str
    host: str
    version: int
    """Of its Produce request."""
    topic: str
    partition: int
    """The client's own choice."""
    acks: int
    reason: str
    """What was done with the batch (policies.eligibility.Reason)."""
    records: int
    """As the batch says: 0 where it says nothing, being refused or untouched and of an old format."""
    stamped: int
    """Records that had no timestamp and were given the time of arrival (message format v0)."""
    parts: list[LedgerPart]
    """Empty where nothing was touched: then only the answer can be audited, if it is known."""
    base_offset: int
    """Told to the client; -1 also where its records moved."""
    error_code: int | None = None
    """Told to the client; None where it is not known here, since the request went on as it came."""
    v: int = VERSION


Row = BatchRow | ChoiceRow | MetadataRow | GaugeRow | LedgerRow
ROWS: Final = (BatchRow, ChoiceRow, MetadataRow, GaugeRow, LedgerRow)

FILE_SUFFIX: Final = ".jsonl.zst"
"""Closed files: `<journal.dir>/dt=2026-11-21/hour=09/<name>.jsonl.zst`, by the time (UTC) at which they were begun."""
