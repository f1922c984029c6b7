"""Forebay's produce path without I/O or clock: the real policies, event by event.

In: Produce requests with their times, the settings, the partitions' leaders, the brokers' service times. Out: an
Outcome. Partitioners, linger, accumulator, batches and buffer pool are those of forebay_policies. What the proxy does
around them is here, as briefly as possible: a request is let in (or waits for memory, and its connection with it); its
records are placed; a batch is flushed; a broker is sent what is ready, a request for each group of partitions that
share one, as far as their limits allow; its answer goes to the records' requests, the accumulator and the partitioner.

What the event loop does later (a flush, a sender's turn) happens one turn later. Each request has a connection to
itself, which always stands, and takes its own time. Nothing fails, no leader changes, and requests arrive at their
given times, whatever became of earlier ones. Times are seconds from the start, sizes bytes. All randomness comes from
the given generator.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from random import Random
from typing import NamedTuple

from forebay_codecs import compression
from forebay_pipeline.jobs.histogram import bucket_of
from forebay_pipeline.replay.broker import Broker
from forebay_pipeline.replay.records import records_of
from forebay_pipeline.replay.service_times import BrokerTimes, Times
from forebay_pipeline.replay.settings import Simulated
from forebay_policies.accumulator import Accumulator, PartitionQueue, TopicQueues
from forebay_policies.buffer_pool import BufferPool
from forebay_policies.builtin_partitioners import make_partitioner
from forebay_policies.dispatch_groups import DispatchGroup
from forebay_policies.linger import Linger
from forebay_policies.memory_shares import MemoryRequest
from forebay_policies.partitioner import Partitioner
from forebay_policies.producer_batch import Lane, ProducerBatch, RecordRun, run_overhead


class Run(NamedTuple):
    """Records of one client batch that stay together; `partition` is the client's choice, `size` is in bytes."""

    topic: str
    partition: int
    lane: Lane
    records: int
    size: int


class Request:
    """What one client sent at `at`. Its connection's next request waits while this one waits for memory."""

    __slots__ = ("at", "connection", "records", "runs", "size")

    def __init__(self, at: float, connection: int, runs: Sequence[Run]) -> None:
        self.at = at
        self.connection = connection
        self.runs = runs
        self.size = sum([run.size for run in runs])
        self.records = sum([run.records for run in runs])


@cache
def lane_of(acks: int, *, movable: bool) -> Lane:
    """The lane of uncompressed records; the same object for the same arguments."""
    return Lane(acks, compression.NONE, movable)


class World(NamedTuple):
    """What does not depend on the settings."""

    leaders: Mapping[str, Sequence[int]]
    """Topic → the leader of each partition."""
    brokers: Mapping[int, BrokerTimes]
    turn: Times
    """From when a batch is due until it is sent."""
    way: Times
    """A request's way from the client to its batch and back, in addition to the batch's time."""


class Outcome:
    """Totals of the requests that arrive, and of the batches that are opened, from `counted_from` on."""

    __slots__ = (
        "batch_bytes",
        "batch_records",
        "batches",
        "counted_from",
        "latencies",
        "latency_us",
        "pool_peak",
        "records",
        "requests",
        "shares",
    )

    def __init__(self, counted_from: float, leaders: Mapping[str, Sequence[int]]) -> None:
        self.counted_from = counted_from
        self.records = 0
        self.latency_us = 0
        """Sum over all records."""
        self.latencies: dict[int, int] = {}
        """Bucket (of histogram) → records."""
        self.requests = 0
        """To brokers."""
        self.batches = 0
        self.batch_bytes = 0
        self.batch_records = 0
        self.shares = {topic: [0] * len(partitions) for topic, partitions in leaders.items()}
        """Topic → records of each partition."""
        self.pool_peak = 0
        """The most bytes held at once, in whole chunks."""

    def answered(self, records: int, seconds: float) -> None:
        """A request with so many records was answered after that time."""
        us = round(seconds * 1e6)
        self.records += records
        self.latency_us += us * records
        bucket = bucket_of(us)
        self.latencies[bucket] = self.latencies.get(bucket, 0) + records

    def sent(self, batches: Iterable[ProducerBatch]) -> None:
        """A request with these batches was sent to a broker."""
        counted = [batch for batch in batches if batch.opened_at >= self.counted_from]
        self.requests += bool(counted)
        self.batches += len(counted)
        for batch in counted:
            self.batch_bytes += batch.size
            self.batch_records += batch.record_count


class _Client:
    """The owner of one request's parts (producer_batch.Owner): answers the request with the last of them."""

    __slots__ = (
        "_request",
        "_simulation",
        "charges",
        "client",
        "client_id",
        "done",
        "left",
        "open_runs",
        "overhead",
        "timeout_ms",
    )

    def __init__(self, request: Request, simulation: Simulation) -> None:
        self._request = request
        self._simulation = simulation
        self.client = request.connection
        self.client_id: str | None = None
        self.charges: dict[int, int] = {}
        """Broker → bytes of memory that the client is charged with until it is answered."""
        self.done = False
        self.left = False
        self.timeout_ms = 0
        self.open_runs = len(request.runs)
        self.overhead = run_overhead(len(request.runs))

    def acknowledged(self, run: RecordRun, base_offset: int, log_append_time: int, log_start_offset: int) -> None:
        self.open_runs -= 1
        if not self.open_runs:
            self.done = True
            for leader, held in self.charges.items():
                self._simulation.charge(self.client, leader, -held)
            self._simulation.answered(self._request)

    def failed(
        self, run: RecordRun, error_code: int, message: str | None, record_errors: list[tuple[int, str | None]]
    ) -> None:
        raise AssertionError("nothing fails in a simulation")

    def throttle(self, throttle_time_ms: int) -> None:
        raise AssertionError("nobody is throttled in a simulation")


class Simulation:
    """One run of the produce path with one set of settings. The same arguments give the same Outcome.

    `run` may be called once. Requests before `counted_from` (seconds) warm it up and do not count.
    """

    def __init__(self, settings: Simulated, world: World, rng: Random, counted_from: float = 0.0) -> None:
        self.now = 0.0
        self.outcome = Outcome(counted_from, world.leaders)
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = 0
        self._turn = world.turn
        self._way = world.way
        self._rng = rng
        self._max_request = settings.max_request_size
        self._linger = Linger(settings.linger_ms)
        self._opened: list[tuple[PartitionQueue, ProducerBatch, int]] = []
        self._pool = BufferPool(settings.buffer_memory, settings.batch_initial_size, settings.batch_size)
        self._pool.observe(freed=self._memory_freed)
        self._looks_soon = False
        self._accumulator = Accumulator(self._pool, settings.batch_size, settings.batch_max_size)
        self._accumulator.observe(opened=self._batch_opened, ready=self._wake)
        self._held: dict[int, deque[Request]] = {}
        """Connections that are not read because a request waits for memory, and what they sent meanwhile."""
        most = settings.max_in_flight_requests_per_connection
        self._brokers = {leader: Broker(leader, times, most, rng) for leader, times in world.brokers.items()}
        self._topics: dict[str, tuple[TopicQueues, Partitioner]] = {}
        for name, leaders in world.leaders.items():
            topic = self._accumulator.topic(name)
            topic.available = tuple(range(len(leaders)))
            self._accumulator.set_leaders(topic, list(leaders), 0.0)
            self._topics[name] = topic, _partitioner(settings, rng)

    def run(self, requests: Iterable[Request]) -> Outcome:
        """Simulate until the last of `requests`, which come in the order of time, is answered."""
        for request in requests:
            self._until(request.at)
            self.now = request.at
            self._received(request)
        self._until(float("inf"))
        return self.outcome

    def charge(self, client: int, leader: int, held: int, charged: int = 0) -> None:
        """The client holds so many bytes more of the broker's share, beside what its request has been `charged`."""
        self._pool.charge(client, leader, held, charged)

    def answered(self, request: Request) -> None:
        """All records of a request are acknowledged."""
        if request.at >= self.outcome.counted_from:
            self.outcome.answered(request.records, self.now - request.at + self._way.draw(self._rng))

    # Events.

    def _until(self, end: float) -> None:
        events = self._events
        while events and events[0][0] <= end:
            self.now, _, act = heapq.heappop(events)
            act()

    def _at(self, when: float, act: Callable[[], None]) -> None:
        self._numbers += 1
        heapq.heappush(self._events, (when, self._numbers, act))

    def _soon(self, act: Callable[[], None]) -> None:
        """In the event loop's next turn."""
        self._at(self.now + self._turn.draw(self._rng), act)

    # Requests arrive. In the proxy: produce/handler.py.

    def _received(self, request: Request) -> None:
        held = self._held.get(request.connection)
        if held is not None:
            held.append(request)
            return
        asked = self._memory_request(request)
        if self._pool.fits(asked):
            self._append(request)
            return
        self._held[request.connection] = deque()
        self._accumulator.flush_all(self.now)
        self._pool.wait(asked, partial(self._let_in, request))

    def _memory_request(self, request: Request) -> MemoryRequest:
        asked = MemoryRequest(request.connection)
        for run in request.runs:
            topic, _ = self._topics[run.topic]
            size = self._pool.whole_chunks(run.size)
            if run.lane.movable:
                asked.add_movable(topic, size)
            else:
                asked.add(partial(topic.queue, run.partition, run.lane.acks), size)
        return asked

    def _memory_freed(self) -> None:
        if not self._looks_soon:
            self._looks_soon = True
            self._soon(self._grant)

    def _grant(self) -> None:
        self._looks_soon = False
        self._pool.grant()

    def _let_in(self, request: Request) -> None:
        self._append(request)
        self._soon(partial(self._read_again, request.connection))

    def _read_again(self, connection: int) -> None:
        for request in self._held.pop(connection):
            self._received(request)

    def _append(self, request: Request) -> None:
        client = _Client(request, self)
        counts = request.at >= self.outcome.counted_from
        for run in request.runs:
            used = self._pool.used
            partition = self._place(run, client)
            if grown := (self._pool.used - used) * self._pool.chunk_size:
                leader = self._topics[run.topic][0].leaders[partition]
                charged = client.charges.get(leader, 0)
                client.charges[leader] = charged + grown
                self.charge(client.client, leader, grown, charged)
            if counts:
                self.outcome.shares[run.topic][partition] += run.records
        if counts:
            self.outcome.pool_peak = max(self.outcome.pool_peak, self._pool.used * self._pool.chunk_size)

    def _place(self, run: Run, client: _Client) -> int:
        """Append a run; the partition that it got."""
        topic, partitioner = self._topics[run.topic]
        accumulator, now = self._accumulator, self.now
        _, partition, lane, records, size = run
        batch = records_of(size, records)
        if lane.movable:
            partition = partitioner.partition(topic, size, now)
            if not accumulator.has_room(topic.queue(partition, lane.acks), lane, batch) and partitioner.on_new_batch(
                topic, partition
            ):
                partition = partitioner.partition(topic, size, now)
            room = self._pool.whole_chunks(size)
            if not self._pool.has_room(topic.queue(partition, lane.acks), room):
                other = self._pool.roomiest(topic, room)
                partition = other if other >= 0 else partition
        elif not accumulator.has_room(topic.queue(partition, lane.acks), lane, batch):
            partitioner.on_new_batch(topic, partition)
        moved = partition != run.partition
        sent = RecordRun(client, 0, records, moved=moved, whole=True, overhead=client.overhead)
        accumulator.append(topic.queue(partition, lane.acks), lane, sent, batch, now)
        return partition

    # Batches are opened and become due.

    def _batch_opened(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        if self._pool.exhausted:
            batch.due = True
        elif self._linger.adaptive:
            if not self._opened:
                self._soon(self._flush_opened)
            self._opened.append((queue, batch, batch.number))
        elif self._linger.delay:
            self._at(self.now + self._linger.delay, partial(self._flush, queue, batch.lane, batch.number))
        else:
            batch.due = True

    def _flush(self, queue: PartitionQueue, lane: Lane, number: int) -> None:
        self._accumulator.flush(queue, lane, number, self.now)

    def _flush_opened(self) -> None:
        opened, self._opened = self._opened, []
        for queue, batch, number in opened:
            self._accumulator.flush(queue, batch.lane, number, self.now)
        for broker in self._brokers.values():  # no further turn: if the loop was busy, this one was longer already
            if broker.scheduled:
                self._send_ready(broker)

    # Brokers are sent requests and answer. In the proxy: produce/sender.py, produce/delivery.py.

    def _wake(self, leader: int) -> None:
        broker = self._brokers[leader]
        if not broker.scheduled:
            broker.scheduled = True
            self._soon(partial(self._send_ready, broker))

    def _send_ready(self, broker: Broker) -> None:
        broker.scheduled = False
        while (group := self._next_group(broker)) is not None:
            drained = self._accumulator.drain_group(group, self._max_request, self.now)
            if drained:
                self.outcome.sent(batch for _, batch in drained)
                took = broker.send(group, sum([batch.size for _, batch in drained]))
                self._at(self.now + took, partial(self._answer, broker, group, drained, took))

    def _next_group(self, broker: Broker) -> DispatchGroup | None:
        for group in self._accumulator.ready_groups(broker.leader):
            if broker.in_flight.may_send(group):
                return group
        return None

    def _answer(
        self,
        broker: Broker,
        group: DispatchGroup,
        drained: Sequence[tuple[PartitionQueue, ProducerBatch]],
        took: float,
    ) -> None:
        for queue, batch in drained:
            for run in batch.runs:
                run.owner.acknowledged(run, -1, -1, -1)
            self._accumulator.completed(queue, batch, self.now)
            self._topics[queue.topic.name][1].on_acknowledged(queue.index, self.now - batch.opened_at)
        broker.answered(group)
        self._accumulator.answered(group, drained, took)
        self._wake(broker.leader)


def _partitioner(settings: Simulated, rng: Random) -> Partitioner:
    return make_partitioner(
        settings.partitioner,
        rng=rng,
        batch_size=settings.batch_size,
        sticky_batch_size=settings.partitioner_sticky_batch_size,
        adaptive_enabled=settings.partitioner_adaptive_partitioning_enable,
        availability_timeout_s=settings.partitioner_availability_timeout_ms / 1000,
        min_share=settings.partitioner_min_share,
    )
