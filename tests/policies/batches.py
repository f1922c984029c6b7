"""Client batches to append, owners that remember what they are told, and what a sent batch holds.

Batches are built and read with aiokafka's record codec, so that neither side of a comparison is Forebay's own.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import NamedTuple

from aiokafka.record.default_records import (  # type: ignore[import-untyped]
    DefaultRecordBatch,
    DefaultRecordBatchBuilder,
)

from forebay_codecs.compression import NONE
from forebay_codecs.record_batch import ClientBatch, open_batch, read_header
from forebay_policies.producer_batch import Lane, ProducerBatch, RecordRun

KEPT = Lane(acks=1, codec=NONE, movable=False)
MOVABLE = Lane(acks=1, codec=NONE, movable=True)

Buffers = Iterable[bytes | memoryview]


class Record(NamedTuple):
    """A record as aiokafka reads it. Timestamp in ms."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes]]


class Sent(NamedTuple):
    """A record batch as a broker reads it."""

    codec: int
    base_timestamp: int
    max_timestamp: int
    last_offset_delta: int
    records: list[Record]

    @property
    def values(self) -> list[bytes | None]:
        return [record.value for record in self.records]

    @property
    def offsets(self) -> list[int]:
        return [record.offset for record in self.records]


def batch_bytes(
    values: Iterable[bytes],
    codec: int = NONE,
    timestamps: Iterable[int] | None = None,
    key: bytes | None = None,
    headers: list[tuple[str, bytes]] | None = None,
) -> bytes:
    """One whole v2 batch; `timestamps` in ms, 1000 1001 1002 … if not given."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 30,
    )
    values = list(values)
    times = list(timestamps) if timestamps is not None else range(1000, 1000 + len(values))
    for offset, (timestamp, value) in enumerate(zip(times, values, strict=True)):
        builder.append(offset, timestamp, key, value, headers or [])
    return bytes(builder.build())


def client_batch(
    *values: bytes,
    codec: int = NONE,
    timestamps: Iterable[int] | None = None,
    key: bytes | None = None,
    headers: list[tuple[str, bytes]] | None = None,
) -> ClientBatch:
    data = batch_bytes(values, codec, timestamps, key, headers)
    header = read_header(data, 0, len(data))
    assert header is not None
    return open_batch(data, header, 1 << 30)


def sized(size: int, codec: int = NONE, fill: bytes = b"x", timestamp: int = 1000) -> ClientBatch:
    """A batch of one record whose records section takes exactly `size` bytes, uncompressed."""
    length = size
    while True:
        batch = client_batch(fill * length, codec=codec, timestamps=[timestamp])
        if len(batch.section) <= size:
            assert len(batch.section) == size, f"no record takes {size} bytes"
            return batch
        length -= 1 if len(batch.section) - size < 16 else len(batch.section) - size - 12


def split_off(batch: ClientBatch) -> ClientBatch:
    """The same records as split off a mixed batch, which has no header of its own."""
    return with_header(batch, b"")


def with_header(batch: ClientBatch, header: bytes) -> ClientBatch:
    """The same records behind another header; uncompressed without one."""
    return ClientBatch(
        header,
        batch.records if header else batch.section,
        batch.section,
        batch.codec,
        batch.record_count,
        batch.null_keys,
        batch.base_timestamp,
        batch.max_timestamp,
    )


def read_sent(buffers: Buffers) -> Sent:
    """What a broker reads; an assertion fails where its checksum or its numbers would be refused."""
    data = b"".join(buffers)
    batch = DefaultRecordBatch(bytearray(data))
    assert batch.validate_crc()
    assert batch.base_offset == 0
    sent = Sent(
        batch.compression_type,
        batch.first_timestamp,
        batch.max_timestamp,
        batch.last_offset_delta,
        [Record(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in batch],
    )
    assert sent.offsets == list(range(sent.last_offset_delta + 1))
    assert sent.max_timestamp == max(record.timestamp for record in sent.records)
    return sent


def encoded(batch: ProducerBatch) -> bytes:
    size, buffers = batch.encode()
    data = b"".join(buffers)
    assert len(data) == size
    return data


def sent(batch: ProducerBatch) -> Sent:
    return read_sent([encoded(batch)])


class FakeOwner:
    """A client request: remembers each thing it is told of its runs."""

    def __init__(self, timeout_ms: int = 1500, client: Hashable = None, client_id: str | None = "client") -> None:
        self.client = client if client is not None else self
        self.client_id: str | None = client_id
        self.done = False
        self.left = False
        self.timeout_ms = timeout_ms
        self.told: list[tuple[RecordRun, int, int]] = []
        """(run, error code, offset of the run's first record)."""

    def acknowledged(self, run: RecordRun, base_offset: int, log_append_time: int, log_start_offset: int) -> None:
        self.told.append((run, 0, base_offset + run.first))

    def failed(
        self, run: RecordRun, error_code: int, message: str | None, record_errors: list[tuple[int, str | None]]
    ) -> None:
        self.told.append((run, error_code, -1))

    def throttle(self, throttle_time_ms: int) -> None:
        pass


def run_of(batch: ClientBatch, owner: FakeOwner | None = None, slot: int = 0, overhead: int = 0) -> RecordRun:
    return RecordRun(owner or FakeOwner(), slot, batch.record_count, moved=False, whole=True, overhead=overhead)
