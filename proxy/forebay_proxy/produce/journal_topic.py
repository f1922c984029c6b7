"""The journal as records of a topic: one row a record, through the accumulator, as clients' records go.

In: lines, from the event loop. Out: batches for `journal.topic` with acks=all. Clients come first: rows that would have
to wait for memory, or that find more than `journal.queue.bytes` of rows on their way, are dropped and counted, and so
are those that the brokers refuse. The journal does not tell of its own topic.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import Final

from librt.strings import BytesWriter

from forebay_codecs import compression
from forebay_codecs.record_batch import ClientBatch
from forebay_codecs.records import append_record
from forebay_policies.accumulator import Accumulator
from forebay_policies.memory_shares import MemoryRequest
from forebay_policies.partitioner import Partitioner
from forebay_policies.producer_batch import Lane
from forebay_proxy.brokers.cluster import Cluster
from forebay_proxy.brokers.metadata_updater import MetadataUpdater
from forebay_proxy.logs import RateLimited, get_logger
from forebay_proxy.produce.completion import JOURNAL, ProduceCompletion
from forebay_proxy.produce.deadlines import Deadlines
from forebay_proxy.produce.handler import Lingering

TIMEOUT_S: Final = 30.0
CLOSE_S: Final = 10.0
AT_ONCE: Final = 65_536
"""Bytes: a batch's."""
MOST_AT_ONCE: Final = 262_144
"""Bytes of rows in one batch, unless one row alone has more: what brokers refuse is that row, and no others with it."""
_LANE: Final = Lane(-1, compression.LZ4, movable=True)


class JournalTopic:
    """A Sink (see recorder.py). `flush_in_time` is the produce handler's."""

    def __init__(
        self,
        topic: str,
        queue_bytes: int,
        accumulator: Accumulator,
        cluster: Cluster,
        updater: MetadataUpdater,
        deadlines: Deadlines,
        partitioner: Partitioner,
        flush_in_time: Callable[[Lingering, float], object],
    ) -> None:
        self._topic = topic
        self._queue_bytes = queue_bytes
        self._accumulator = accumulator
        self._cluster = cluster
        self._updater = updater
        self._deadlines = deadlines
        self._partitioner = partitioner
        self._flush_in_time = flush_in_time
        self._log = RateLimited(get_logger())
        self._waiting: list[tuple[bytes, int]] = []
        """For the topic's metadata."""
        self._bytes = 0
        """Of rows whose fate is open."""
        self.dropped = 0
        self.at_once = AT_ONCE
        self.files_before: list[str] | None = None

    @property
    def crowded(self) -> bool:
        return self._bytes > self._queue_bytes // 2

    def open(self) -> None:
        """Nothing to do: brokers may be away at the start."""

    def put(self, lines: bytes, rows: int) -> None:
        for some, count in _pieces(lines, rows):
            self._put(some, count)

    def _put(self, lines: bytes, rows: int) -> None:
        if self._bytes + len(lines) > self._queue_bytes:
            self._drop(rows, "the brokers are too slow")
            return
        self._bytes += len(lines)
        if self._cluster.usable(self._topic) is not None:
            self._append(lines, rows)
            return
        self._waiting.append((lines, rows))
        if len(self._waiting) == 1:
            self._updater.want(self._topic, self._known)

    async def close(self) -> None:
        until = monotonic() + CLOSE_S
        while self._bytes and monotonic() < until:
            self._accumulator.flush_all(monotonic())
            await asyncio.sleep(0.02)
        if self._bytes:
            self._log.warning("the journal's topic did not take everything in time", waited_s=CLOSE_S)

    def _known(self) -> None:
        """The topic is there, or it is known that it is not."""
        waiting, self._waiting = self._waiting, []
        there = self._cluster.usable(self._topic) is not None
        for lines, rows in waiting:
            if there:
                self._append(lines, rows)
            else:
                self._bytes -= len(lines)
                self._drop(rows, "the topic does not exist")

    def _append(self, lines: bytes, rows: int) -> None:
        batch = _as_batch(lines, time.time_ns() // 1_000_000)
        now = monotonic()
        state = self._cluster.topics[self._topic]
        state.used_at = now
        topic = state.queues
        partition = self._partitioner.partition(topic, batch.size, now)
        pool = self._accumulator.pool
        asked = MemoryRequest(JOURNAL, self._accumulator.tenant)
        asked.add(partial(topic.queue, partition, _LANE.acks), pool.whole_chunks(batch.size))
        if not pool.fits(asked):
            self._bytes -= len(lines)
            self._drop(rows, "buffer.memory is for clients")
            return

        def done(completion: ProduceCompletion, frame: bytes | None) -> None:
            self._deadlines.remove(completion)
            self._bytes -= len(lines)
            if completion.any_refused:
                self._drop(rows, "the brokers did not take them")

        completion = ProduceCompletion(9, 0, -1, int(TIMEOUT_S * 1000), now + TIMEOUT_S, done, JOURNAL)
        self._deadlines.add(completion)
        completion.add_topic(self._topic)
        run = completion.add_run(completion.add_partition(partition), rows, moved=False, whole=True)
        run.partition = partition
        queue = topic.queue(partition, _LANE.acks)
        current = self._accumulator.append(queue, _LANE, run, batch, now)
        self._flush_in_time([(queue, _LANE, current.number)], completion.deadline)
        completion.all_added()

    def _drop(self, rows: int, why: str) -> None:
        self.dropped += rows
        self._log.warning("journal rows dropped", rows=rows, why=why)


def _pieces(lines: bytes, rows: int) -> list[tuple[bytes, int]]:
    """The same lines in their order, MOST_AT_ONCE bytes at once or a single one, and how many these are."""
    if len(lines) <= MOST_AT_ONCE:
        return [(lines, rows)]
    pieces = []
    begin = end = count = 0
    while end < len(lines):
        after = lines.index(b"\n", end) + 1
        if count and after - begin > MOST_AT_ONCE:
            pieces.append((lines[begin:end], count))
            begin, count = end, 0
        end = after
        count += 1
    pieces.append((lines[begin:], count))
    return pieces


def _as_batch(lines: bytes, now_ms: int) -> ClientBatch:
    """A record without a key for each line."""
    out = BytesWriter()
    start = count = 0
    while (end := lines.find(b"\n", start)) >= 0:
        append_record(out, 0, count, lines, 0, -1, start, end - start)
        start = end + 1
        count += 1
    section = out.getvalue()
    return ClientBatch(b"", section, section, compression.LZ4, count, count, now_ms, now_ms)
