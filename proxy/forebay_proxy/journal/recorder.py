"""The telemetry journal: what the proxy did, as rows (policies.journal_rows), for the pipeline.

    rows → JSON lines, many rows at once → a bounded buffer → a sink: rolling files, or a topic

In: the fates of batches, choices of partitions, Metadata requests; what crossed racks, which makes rows once a minute;
once a second, the state of the process. Out: lines, handed to the sink four times a second, sooner when there are many.
A row costs a microsecond or two. The sink never blocks: rows that it has no room for are dropped, counted and logged.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from time import monotonic
from typing import Final, Protocol

import msgspec

from forebay_policies.accumulator import PartitionQueue, TopicQueues
from forebay_policies.eligibility import LONGEST_NAME
from forebay_policies.journal_rows import (
    MAX_LOADS,
    VERSION,
    BatchFate,
    BatchRow,
    ChoiceRow,
    GaugeRow,
    MetadataRow,
    RackRow,
    Row,
)
from forebay_policies.partitioner import TopicView
from forebay_policies.producer_batch import ProducerBatch
from forebay_proxy.logs import RateLimited, get_logger
from forebay_proxy.metrics.registry import MetricRegistry
from forebay_proxy.security.principals import as_kafka_writes

log = RateLimited(get_logger())

HAND_OVER_S: Final = 0.25
ROWS_AT_ONCE: Final = 32
"""Rows encoded together, at half the cost of one by one. A sink may get up to this many rows more than it asked for,
and a ledger's row may be long: it may have a hash of the key of each of its records."""
ROWS_A_TURN: Final = 128
"""Of those of one request, made at once, which takes a millisecond or two."""
MOST_LATER: Final = 8 << 20
"""Bytes of rows that wait for a turn, beside the first request's."""
CROWDED_S: Final = 0.01
"""A pause of those that wait for a turn, where the sink has little room."""
PATIENCE_S: Final = 5.0
"""Further ones, and whose they are, wait no longer for room."""
GAUGES_S: Final = 1.0
RACKS_S: Final = 60.0
MAX_RACK_TOPICS: Final = 1000
"""Topics with rows of their own of what crossed racks in a minute; all others have one together."""


class Sink(Protocol):
    """Where lines go. Only `open` raises, only `close` waits."""

    @property
    def at_once(self) -> int:
        """Bytes that it prefers to get at once when there are many rows."""

    def open(self) -> None:
        """Raises StartError if it cannot be written to."""

    def put(self, lines: bytes, rows: int) -> None:
        """Take whole lines, which hold `rows` rows; if there is no room, drop and count them."""

    @property
    def crowded(self) -> bool:
        """Half of its room is taken: what can wait had better."""

    @property
    def dropped(self) -> int:
        """Rows lost so far."""

    @property
    def files_before(self) -> list[str] | None:
        """What GaugeRow has of that name, once it is open."""

    async def close(self) -> None:
        """Within a bounded time everything put is where others find it, or counted as dropped."""


class _Many:
    """Rows of one request that are made turn by turn: how many are left, about how large they all are, who is told."""

    __slots__ = ("done", "left", "rows", "size")

    def __init__(self, rows: Iterator[Row], left: int, size: int, done: Callable[[int], None]) -> None:
        self.rows = rows
        self.left = left
        self.size = size
        self.done = done


class Journal:
    """Takes rows without ever waiting or raising, and hands them to the sink, from `start` on, in their order.

    `worker` is this worker's number; rows about `own_topic`, the topic that the sink writes to, are left out. All
    moments are seconds of `time.monotonic`.
    """

    def __init__(self, worker: int, stats: MetricRegistry, own_topic: str = "") -> None:
        self.worker = worker
        self.most_later = MOST_LATER
        self.patience_s = PATIENCE_S
        self.started_us = time.time_ns() // 1000
        self.process = f"{socket.gethostname()}-{os.getpid()}-{self.started_us:x}"
        self.batch_rows = 0
        self.choice_rows = 0
        self.metadata_rows = 0
        self.observed_rows = 0
        self.ledger_rows = 0
        self.rack_rows = 0
        self.gauge_rows = 0
        """The last `seq` of each kind. Who makes a row counts it."""
        self.observed_requests = 0
        self.ledger_requests = 0
        """The last `number` of a request of each kind: a client's go on in another realm."""
        self.cluster_id = ""
        """Of the brokers, once they have told it."""
        self._sink: Sink | None = None
        self._gauges: Callable[[], GaugeRow] | None = None
        self._rack_bytes: dict[str, list[int]] = {}
        self._own_topic = own_topic
        self._at_once = 0
        self._later: deque[_Many] = deque()
        self._later_size = 0
        """Bytes, about."""
        self._takes_turns = False
        self._crowded_since: float | None = None
        """Where they wait for room."""
        self._rows: list[Row] = []
        self._lines: list[bytes] = []
        self._size = 0
        """Bytes in `_lines`."""
        self._encoded = 0
        """Rows in `_lines`."""
        self._dropped_here = 0
        self._encoder = msgspec.json.Encoder()
        self._written = stats.counter("forebay_journal_rows_total")
        stats.counter_from("forebay_journal_rows_dropped_total", self._dropped)
        self._offset = time.time() - monotonic()
        self._task: asyncio.Task[None] | None = None

    def _dropped(self) -> int:
        return self._dropped_here + (self._sink.dropped if self._sink is not None else 0)

    @property
    def files_before(self) -> list[str] | None:
        """As the sink says."""
        return self._sink.files_before if self._sink is not None else None

    def start(self, sink: Sink, gauges: Callable[[], GaugeRow] | None = None) -> None:
        """Open `sink` and begin to hand over; `gauges` makes a row once a second, and a last one.

        Raises StartError if the sink cannot be opened.
        """
        sink.open()
        self._sink = sink
        self._at_once = sink.at_once
        self._gauges = gauges
        self._task = asyncio.get_running_loop().create_task(self._keep_handing_over())
        self._task.add_done_callback(_tell_of_failure)

    async def close(self) -> None:
        """Hand over the last rows, and wait until the sink has put all of them where others find them.

        Called again, as where nobody waited until the end, it waits for the sink only.
        """
        if self._task is not None:
            self._task.cancel()
            self._task = None
            try:
                while self._later:
                    if not self._waits_for_room():
                        self._write_some()
                    await asyncio.sleep(CROWDED_S if self._crowded_since is not None else 0)
            finally:
                self._drop_later()
                self._write_racks()
                if self._gauges is not None:
                    self.write(msgspec.structs.replace(self._gauges(), last=True))
                self._hand_over()
        if self._sink is not None:
            await self._sink.close()

    def time_us(self, now: float) -> int:
        """The moment `now` in microseconds since 1970."""
        return int((now + self._offset) * 1_000_000)

    def write(self, row: Row) -> None:
        """Add a row; it leaves with the next hand-over."""
        self._rows.append(row)
        if len(self._rows) >= ROWS_AT_ONCE:
            self._encode()
            if self._size >= self._at_once and self._sink is not None:
                self._hand_over()

    def write_many(self, rows: Iterator[Row], count: int, size: int, done: Callable[[int], None]) -> None:
        """Add `count` rows of about `size` bytes, which `rows` makes, ROWS_A_TURN at a time: so they neither keep
        others waiting nor take the room that others' rows have in the sink.

        `done` is told, later or at once, how many were dropped unmade, for want of room; these are counted.
        """
        many = _Many(rows, count, size, done)
        if self._later and self._later_size + size > self.most_later:
            self._drop(many)
            return
        self._later.append(many)
        self._later_size += size
        if not self._takes_turns:
            self._takes_turns = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        if not self._later:
            self._takes_turns = False
            return
        loop = asyncio.get_running_loop()
        if self._waits_for_room():
            loop.call_later(CROWDED_S, self._turn)
            return
        loop.call_soon(self._turn)
        self._write_some()

    def _waits_for_room(self) -> bool:
        """There is none for what is to be written turn by turn. After `patience_s` of that nothing of it is left."""
        if self._sink is None or not self._sink.crowded:
            self._crowded_since = None
            return False
        now = monotonic()
        if self._crowded_since is None:
            self._crowded_since = now
        if now - self._crowded_since >= self.patience_s:
            self._drop_later()
        return True

    def _drop_later(self) -> None:
        while self._later:
            self._drop(self._taken())

    def _taken(self) -> _Many:
        many = self._later.popleft()
        self._later_size -= many.size
        return many

    def _write_some(self) -> None:
        many = self._taken()
        for row in islice(many.rows, ROWS_A_TURN):
            self.write(row)
        many.left -= ROWS_A_TURN
        if many.left > 0:
            self._later.append(many)
            self._later_size += many.size
        else:
            many.done(0)

    def _drop(self, many: _Many) -> None:
        self._dropped_here += many.left
        log.warning("journal rows dropped", rows=many.left, why="requests of many partitions have more than it takes")
        many.done(many.left)

    def batch(
        self, queue: PartitionQueue, batch: ProducerBatch, now: float, fate: BatchFate, error_code: int, offset: int
    ) -> None:
        """A sent batch has met its fate. To be called before the batch returns its memory.

        `error_code` is Kafka's; `offset` the base offset, -1 if the broker told none.
        """
        topic = queue.topic.name
        if topic == self._own_topic:
            return
        sent_at = batch.sent_at
        self.batch_rows += 1
        self.write(
            BatchRow(  # by position, in the order of its fields: by keyword this method takes 650 ns instead of 550
                self.time_us(now),
                self.worker,
                self.process,
                topic,
                batch.partition,
                batch.sent_to,
                batch.flush_reason,
                batch.record_count,
                batch.size,
                len(batch.runs),
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
                VERSION,
                self.batch_rows,
                as_kafka_writes(batch.lane.principal),
            )
        )

    def choice(self, topic: TopicView, partition: int) -> None:
        """The partitioner has chosen the next `partition` of `topic` for records without a key."""
        assert isinstance(topic, TopicQueues)  # compiled, its attributes are then read without a look-up by name
        loads = topic.loads()
        partitions, sizes = list(loads.keys()), list(loads.values())
        if len(partitions) > MAX_LOADS:
            del partitions[MAX_LOADS:], sizes[MAX_LOADS:]
        self.choice_rows += 1
        self.write(
            ChoiceRow(  # by position: see `batch`
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
                VERSION,
                self.choice_rows,
            )
        )

    def metadata(
        self, topics: int, ids: int, asked_at: float, request: int, response: int, error: str, *, creates: bool
    ) -> None:
        """A Metadata request that was sent at `asked_at` has ended.

        `topics` and `ids`: how many it asked for by name (-1: all) and by id; `creates`: whether it may create topics;
        `request`, `response`: bytes; `error`: empty if it was answered.
        """
        now = monotonic()
        self.metadata_rows += 1
        self.write(
            MetadataRow(
                time_us=self.time_us(now),
                worker=self.worker,
                process=self.process,
                topics=topics,
                ids=ids,
                creates=creates,
                took_us=int((now - asked_at) * 1_000_000),
                request_bytes=request,
                response_bytes=response,
                error=error,
                seq=self.metadata_rows,
            )
        )

    def crossed(self, topic: str, *, same: int = 0, other: int = 0, unknown: int = 0) -> None:
        """So many bytes of a client's batch went to a leader in its rack, in another, in one that is not known."""
        if topic == self._own_topic:
            return
        known = self._rack_bytes
        if len(topic) > LONGEST_NAME or (topic not in known and len(known) >= MAX_RACK_TOPICS):
            topic = ""
        counts = known.setdefault(topic, [0, 0, 0])
        counts[0] += same
        counts[1] += other
        counts[2] += unknown

    def _write_racks(self) -> None:
        now_us = self.time_us(monotonic())
        for topic, (same, other, unknown) in self._rack_bytes.items():
            self.rack_rows += 1
            self.write(RackRow(now_us, self.worker, self.process, topic, same, other, unknown, VERSION, self.rack_rows))
        self._rack_bytes.clear()

    async def _keep_handing_over(self) -> None:
        next_gauges = monotonic()
        next_racks = next_gauges + RACKS_S
        while True:
            if monotonic() >= next_racks:
                next_racks = max(next_racks + RACKS_S, monotonic())
                self._write_racks()
            if self._gauges is not None and monotonic() >= next_gauges:
                next_gauges = max(next_gauges + GAUGES_S, monotonic())
                self.write(self._gauges())
            self._hand_over()
            if self._sink is not None and not self._sink.crowded:
                self._crowded_since = None
            self._offset = time.time() - monotonic()  # the time of day is adjusted now and then
            await asyncio.sleep(HAND_OVER_S)

    def _encode(self) -> None:
        if not self._rows:
            return
        try:
            lines = self._encoder.encode_lines(self._rows)
        except Exception as error:
            self._drop_unwritable(error)
            lines = self._encoder.encode_lines(self._rows)
        self._lines.append(lines)
        self._size += len(lines)
        self._encoded += len(self._rows)
        self._rows.clear()

    def _drop_unwritable(self, error: Exception) -> None:
        """A row that JSON has no form for is a fault of ours: it must cost neither the others nor whoever writes it."""
        rows = len(self._rows)
        self._rows = [row for row in self._rows if self._is_writable(row)]
        self._dropped_here += rows - len(self._rows)
        log.error("journal rows dropped, they cannot be written", rows=rows - len(self._rows), exc_info=error)

    def _is_writable(self, row: Row) -> bool:
        try:
            self._encoder.encode(row)
        except Exception:
            return False
        return True

    def _hand_over(self) -> None:
        self._encode()
        if self._encoded:
            lines, rows = b"".join(self._lines), self._encoded
            self._lines.clear()
            self._size = self._encoded = 0
            self._written.value += rows
            assert self._sink is not None
            self._sink.put(lines, rows)


def _tell_of_failure(task: asyncio.Task[None]) -> None:
    """Clients are served without, so the process goes on; but it must not go unseen."""
    if not task.cancelled():
        log.error("the journal has failed: most rows are not handed over any more", exc_info=task.exception())
