"""Client batches merged by policies' ProducerBatch, as the proxy does it."""

from __future__ import annotations

from collections.abc import Iterable

from forebay_codecs.compression import NONE
from forebay_codecs.record_batch import ClientBatch
from forebay_policies.buffer_pool import BufferPool
from forebay_policies.producer_batch import Lane, ProducerBatch, RecordRun


class Nobody:
    """An owner who does not care."""

    client = "nobody"
    client_id = "nobody"
    done = False
    left = False
    timeout_ms = 0

    def acknowledged(self, run: RecordRun, base_offset: int, log_append_time: int, log_start_offset: int) -> None: ...

    def failed(
        self, run: RecordRun, error_code: int, message: str | None, record_errors: list[tuple[int, str | None]]
    ) -> None: ...

    def throttle(self, throttle_time_ms: int) -> None: ...


def merged(batches: Iterable[ClientBatch], codec: int = NONE, chunk_size: int = 64) -> ProducerBatch:
    """Small chunks, so that records lie across them."""
    pool = BufferPool(1 << 26, chunk_size, 1024)
    merge = ProducerBatch(1, Lane(1, codec, movable=False), 0, pool, 1 << 20, 1 << 24, 0.0)
    for batch in batches:
        if merge.runs:
            assert merge.has_room(batch)
        merge.append(RecordRun(Nobody(), 0, batch.record_count, moved=False, whole=True), batch)
    return merge


def encoded(batch: ProducerBatch) -> bytes:
    size, buffers = batch.encode()
    data = b"".join(buffers)
    assert len(data) == size
    return data
