"""The journal's rows: the one definition of its schema.

The proxy writes these rows (as JSON lines, each with its `kind`); the pipeline derives its schema from them.

Evolution: a field is never renamed, retyped or given another meaning. New fields go last, with a default, and VERSION
grows. So newer readers understand older rows (missing fields are null), and older readers newer rows.

Each row says when it was written, by which worker of its proxy (a number), and by which process (host, process id,
start). Requests and connections are numbered per process. `seq` numbers the rows of one process and kind, 1, 2, 3 …, as
they were written: a number that is not there is a row that was lost.

Units: `_us` are microseconds; `time_us` and `received_us` since 1970 (UTC), all others durations. `bytes` are those of
records, uncompressed unless noted. Errors are Kafka's codes, codecs the numbers in record batch attributes.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

VERSION: Final = 6

LONGEST_CLIENT_ID: Final = 255
"""Characters. Clients may send 32,767 bytes, which each row of a request would have anew."""

FlushReason = Literal["full", "linger", "adopted", "closed"]
"""Why a batch was sent when it was."""

BatchFate = Literal["acknowledged", "retried", "split", "refused", "unknown"]
"""What became of a batch that was sent."""


class BatchRow(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="batch"):
    """One batch sent to its broker, written when its fate is known. A retry is another row."""

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
    """Its size in memory: as it came if the reason is adopted, else uncompressed."""
    runs: int
    """Runs of records merged in it, each from one client batch."""
    acks: int
    """As asked by the clients; 0 is sent as 1."""
    codec: int
    movable: bool
    """Its records have no key; the partitioner chose the partition."""
    tries: int
    """Earlier ones; 0 at first."""
    linger_us: int
    """From its first record to its sending."""
    upstream_us: int
    """From its sending to the outcome."""
    load: int
    """Bytes queued and in flight for its partition when it was sent, its own included."""
    fate: BatchFate
    error_code: int
    base_offset: int
    """-1 if the broker gave none."""
    v: int = VERSION
    seq: int | None = None
    principal: str = ""
    """Whose records they are, as Kafka writes it (User:alice), where they were sent as a client's user; else empty."""


MAX_LOADS: Final = 64


class ChoiceRow(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="choice"):
    """A new choice of partition for records without a key: the beginning of a turn."""

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
    """The first MAX_LOADS of them."""
    loads: list[int]
    """Bytes queued and in flight for each of these."""
    v: int = VERSION
    seq: int | None = None


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
    """Empty if it was answered."""
    v: int = VERSION
    seq: int | None = None


MAX_FILES_BEFORE: Final = 64


class GaugeRow(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="gauge"):
    """The state of one worker, once a second: current values, except `_total`, which count since its start."""

    time_us: int
    worker: int
    process: str
    started_us: int
    """When the process started, and with it the counts."""
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
    """Rows of this journal that were lost because the disk was slow or full."""
    v: int = VERSION
    seq: int | None = None
    batch_rows_total: int | None = None
    """Rows of each kind written before this one; of gauges, `seq` says it."""
    choice_rows_total: int | None = None
    metadata_rows_total: int | None = None
    ledger_rows_total: int | None = None
    cluster_id: str = ""
    """As the brokers told; empty before, and if they tell none."""
    last: bool = False
    """Nothing of this process follows: it exited in order."""
    same_rack_bytes_total: int | None = None
    """Of clients' batches, as they sent them, to leaders in their client's rack; null where no client's rack is set."""
    other_rack_bytes_total: int | None = None
    unknown_rack_bytes_total: int | None = None
    """The client's rack, or the leader's, is not known."""
    observed_rows_total: int | None = None
    rack_rows_total: int | None = None
    files_before: list[str] | None = None
    """In a process's first row, where its journal is files: the newest file of each process that had written to the
    folder in its last hours, MAX_FILES_BEFORE at most, by its name without a suffix."""


class LedgerPart(msgspec.Struct, frozen=True, gc=False):
    """Records of a client batch that travelled together: all of them, or those with a key, or those without."""

    partition: int
    """Where they were put last."""
    base_offset: int
    """Of the first of them; -1 if they were not acknowledged."""
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
    first_xxh64: int | None = None
    """The XXH64 of the same bytes of the first record, with a seed of 42, signed, both as Spark has it. Of a million
    parts of one record and a million other records, some 230 have the same CRC-32 by chance."""
    keys: list[int] | None = None
    """With `journal.ledger.keys`, where all records have a key: the XXH64 of each one's, as above."""
    tombstones: list[int] | None = None
    """With `keys`: which of them have no value, 0 being the first."""


class LedgerRow(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="ledger"):
    """What a client sent to one partition in one Produce request, and how it was answered. Written then."""

    time_us: int
    worker: int
    process: str
    number: int
    """The request's, in order of arrival."""
    received_us: int
    connection: int
    client_id: str
    """At most LONGEST_CLIENT_ID characters of it."""
    host: str
    version: int
    """Of its Produce request."""
    topic: str
    """Of a name that is too long for Kafka, the first 249 characters."""
    partition: int
    """The client's own choice."""
    acks: int
    reason: str
    """What was done with the batch (policies.eligibility.Reason)."""
    records: int
    """According to the batch; 0 if it does not say, being refused. Earlier proxies did not count what was untouched and
    of an old format, either."""
    stamped: int
    """Records that had no timestamp (message format v0) and were given the time of arrival."""
    parts: list[LedgerPart]
    """Empty if the batch was not touched: then only the answer can be audited, if it is known."""
    base_offset: int
    """As the client was told; -1 also if its records were moved."""
    error_code: int | None = None
    """As the client was told; None if unknown here, because the request was passed on as it came."""
    v: int = VERSION
    seq: int | None = None
    topic_id: str = ""
    """As Kafka writes it, base64; empty if it is not known. It may be that of a topic deleted a moment ago, of the same
    name: it is as old as the proxy's metadata."""
    principal: str = ""
    """As in BatchRow: of a client that was served as its user."""


class ObservedRow(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="observed"):
    """A client's batch that is only observed: it went on as it came. Written once its request is answered, or at once
    where none is expected; of a request whose answer never came there is no row."""

    time_us: int
    worker: int
    process: str
    number: int
    """The request's, in order of arrival among those that are observed."""
    received_us: int
    connection: int
    client_id: str
    """At most LONGEST_CLIENT_ID characters of it."""
    host: str
    version: int
    """Of its Produce request; below 3 its records were converted."""
    topic: str
    partition: int
    """The client's choice, where the records are."""
    partitions: int
    """Of the topic; 0: not known yet."""
    leader: int
    """Node id of the broker; -1: not known."""
    acks: int
    codec: int
    records: int
    bytes: int
    """Of all its records, uncompressed."""
    null_key_records: int
    """Those that would be movable; 0 where the topic has a single partition."""
    null_key_bytes: int
    chosen: int
    """The partition that they would have gone to; -1: none was chosen."""
    opens: int
    """Batches that its records would have opened, rather than join one that waits: 0 to 2; -1: not known."""
    took_us: int
    """From when the request was written to its answer; -1 if that is not known, or says nothing about the broker, since
    others of the connection, or the connecting, came first."""
    error_code: int | None = None
    """As the broker told; None: it told nothing."""
    v: int = VERSION
    seq: int | None = None
    principal: str = ""
    """As in BatchRow: of a client that is served as its user."""


class RackRow(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="rack"):
    """Bytes of clients' batches of one topic in the last minute, as the clients sent them, by whether they went to a
    leader in their client's rack; where any client's rack is set."""

    time_us: int
    worker: int
    process: str
    topic: str
    """Empty: all topics beyond the first thousand."""
    same_bytes: int
    other_bytes: int
    unknown_bytes: int
    """The client's rack, or the leader's, is not known."""
    v: int = VERSION
    seq: int | None = None


Row = BatchRow | ChoiceRow | MetadataRow | GaugeRow | LedgerRow | ObservedRow | RackRow
ROWS: Final = (BatchRow, ChoiceRow, MetadataRow, GaugeRow, LedgerRow, ObservedRow, RackRow)

FILE_SUFFIX: Final = ".jsonl.zst"
"""Closed files: `<journal.dir>/dt=2026-11-21/hour=09/<name>.jsonl.zst`, by the UTC time at which they were begun."""
