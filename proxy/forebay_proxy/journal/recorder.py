"""The telemetry journal: what the proxy did, as rows (policies.journal_rows), for the pipeline.

    rows → JSON lines, many rows at once → a bounded buffer → a sink: rolling files, or a topic

In: what happens to batches, partitions' choices, metadata requests; once a second, how the process stands. Out: lines
handed to the sink four times a second, or sooner when there are many. A row costs a microsecond or two; the sink never
holds anybody up: what it has no room for is dropped, counted and logged.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Callable
from time import monotonic
from typing import Final, Protocol

import msgspec

from forebay_policies.accumulator import PartitionQueue, TopicQueues
from forebay_policies.journal_rows import (
    MOST_LOADS,
    BatchFate,
    BatchRow,
    ChoiceRow,
    GaugeRow,
    MetadataRow,
    Row,
)
from forebay_policies.partitioner import TopicView
from forebay_policies.producer_batch import ProducerBatch
from forebay_proxy.metrics.registry import Stats

HAND_OVER_S: Final = 0.25
ROWS_AT_ONCE: Final = 32
"""So many are made lines together, which costs half of what they cost one by one. A sink is given at most so many rows
more than it wants: a ledger's row is as long as its client's id."""
GAUGES_S: Final = 1.0


class Sink(Protocol):
    """Where lines go. Nothing here waits or raises, but for `open` and `close`."""

    @property
    def at_once(self) -> int:
        """Bytes that it wants to be given together, when rows are many."""

    def open(self) -> None:
        """StartError where it cannot be written to."""

    def put(self, lines: bytes, rows: int) -> None:
        """Whole lines; they are dropped and counted where there is no room."""

    @property
    def dropped(self) -> int:
        """Rows lost so far."""

    async def close(self) -> None:
        """Everything that was put is where others find it, or counted as dropped; within a bounded time."""


class Journal:
    """Never holds anybody up: rows go to the sink from `start` on, or are dropped. Times are those of `monotonic`.

    `own_topic`: rows of batches of that topic are not written.
    """

    def __init__(self, worker: int, stats: Stats, own_topic: str = "") -> None:
        self.worker = worker
        self.started_us = time.time_ns() // 1000
        self.process = f"{socket.gethostname()}-{os.getpid()}-{self.started_us:x}"
        self._sink: Sink | None = None
        self._gauges: Callable[[], GaugeRow] | None = None
        self._own_topic = own_topic
        self._at_once = 0
        self._rows: list[Row] = []
        self._lines: list[bytes] = []
        self._size = 0
        """Of the lines, in bytes."""
        self._encoded = 0
        """Rows that are lines."""
        self._encoder = msgspec.json.Encoder()
        self._written = stats.counter("forebay_journal_rows_total")
        stats.counter_from("forebay_journal_rows_dropped_total", self._dropped)
        self._offset = time.time() - monotonic()
        self._task: asyncio.Task[None] | None = None

    def _dropped(self) -> int:
        return self._sink.dropped if self._sink is not None else 0

    def start(self, sink: Sink, gauges: Callable[[], GaugeRow] | None = None) -> None:
        """Open `sink` and write to it; `gauges` makes a row once a second. StartError where it cannot be opened."""
        sink.open()
        self._sink = sink
        self._at_once = sink.at_once
        self._gauges = gauges
        self._task = asyncio.get_running_loop().create_task(self._keep_handing_over())

    async def close(self) -> None:
        """The last rows go to the sink, and the sink's are where others find them."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
            self._hand_over()
            assert self._sink is not None
            await self._sink.close()

    def time_us(self, now: float) -> int:
        """Microseconds since 1970 of a moment of `monotonic`."""
        return int((now + self._offset) * 1_000_000)

    def write(self, row: Row) -> None:
        self._rows.append(row)
        if len(self._rows) >= ROWS_AT_ONCE:
            self._encode()
            if self._size >= self._at_once and self._sink is not None:
                self._hand_over()

    def batch(
        self, queue: PartitionQueue, batch: ProducerBatch, now: float, fate: BatchFate, error_code: int, offset: int
    ) -> None:
        """The fate of a batch that was sent. To be told before the batch gives its memory back."""
        topic = queue.topic.name
        if topic == self._own_topic:
            return
        sent_at = batch.sent_at
        self.write(
            BatchRow(
                self.time_us(now),
                self.worker,
                self.process,
                topic,
                batch.partition,
                batch.sent_to,
                batch.flush_reason,
                batch.record_count,
                batch.size,
                len(batch.parts),
                batch.lane.acks,
                batch.lane.codec,
                batch.lane.movable,
                batch.tries,
                int((sent_at - batch.opened_at) * 1_000_000),
                int((now - sent_at) * 1_000_000),
                batch.load,
                fate,
                error_code,
                offset,
            )
        )

    def choice(self, topic: TopicView, partition: int) -> None:
        """A partition was chosen anew for records without a key."""
        assert isinstance(topic, TopicQueues)  # so its parts are at hand when compiled, not asked for by name
        loads = topic.loads()
        partitions, sizes = list(loads.keys()), list(loads.values())
        if len(partitions) > MOST_LOADS:
            del partitions[MOST_LOADS:], sizes[MOST_LOADS:]
        self.write(
            ChoiceRow(
                self.time_us(monotonic()),
                self.worker,
                self.process,
                topic.name,
                partition,
                topic.partition_count,
                len(topic.available),
                len(loads),
                partitions,
                sizes,
            )
        )

    def metadata(
        self, topics: int, ids: int, creates: bool, asked_at: float, request: int, response: int, error: str
    ) -> None:
        """A Metadata request has ended; sizes in bytes."""
        now = monotonic()
        took_us = int((now - asked_at) * 1_000_000)
        place = self.time_us(now), self.worker, self.process
        self.write(MetadataRow(*place, topics, ids, creates, took_us, request, response, error))

    async def _keep_handing_over(self) -> None:
        next_gauges = monotonic()
        while True:
            if self._gauges is not None and monotonic() >= next_gauges:
                next_gauges = max(next_gauges + GAUGES_S, monotonic())
                self.write(self._gauges())
            self._hand_over()
            self._offset = time.time() - monotonic()  # the clock of the day is set now and then
            await asyncio.sleep(HAND_OVER_S)

    def _encode(self) -> None:
        if not self._rows:
            return
        lines = self._encoder.encode_lines(self._rows)
        self._lines.append(lines)
        self._size += len(lines)
        self._encoded += len(self._rows)
        self._rows.clear()

    def _hand_over(self) -> None:
        self._encode()
        if self._encoded:
            lines, rows = b"".join(self._lines), self._encoded
            self._lines.clear()
            self._size = self._encoded = 0
            self._written.value += rows
            assert self._sink is not None
            self._sink.put(lines, rows)
