"""Sends what is ready to one broker, each Produce request on a connection that carries no other meanwhile.

In: a wake-up when something became ready for this broker. Out: Produce requests, each of one group of partitions
(policies.dispatch_groups) with at most one batch of every queue, and their answers to Delivery. A connection is opened
when there is something to send and none is free; while the broker cannot be reached, it is tried with backoff, since
partitioners avoid it meanwhile. What the broker throttles is not sent until the throttle time is over: it would not be
read, so that nobody could tell any more whether it is appended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from random import Random
from time import monotonic
from typing import Final

from forebay_codecs import error_codes, produce_request, produce_response
from forebay_codecs.api_keys import PRODUCE
from forebay_codecs.errors import Malformed
from forebay_codecs.primitives import Buffer
from forebay_codecs.produce_response import PartitionResponse
from forebay_policies.accumulator import Accumulator, PartitionQueue
from forebay_policies.dispatch_groups import DispatchGroup
from forebay_policies.loop_turns import SLICE_S
from forebay_policies.producer_batch import HURRIED_MS, ProducerBatch
from forebay_policies.requests_in_flight import RequestsInFlight
from forebay_proxy.brokers.cluster import Cluster, Node
from forebay_proxy.brokers.connector import Connector, takes_produce
from forebay_proxy.brokers.upstream_connection import UpstreamConnection
from forebay_proxy.brokers.upstream_pool import UpstreamPool
from forebay_proxy.config.settings import Settings
from forebay_proxy.logs import get_logger
from forebay_proxy.metrics.registry import MetricRegistry
from forebay_proxy.produce.delivery import Delivery
from forebay_proxy.produce.handler import SHORTEST_WAIT
from forebay_proxy.produce.one_principal import ensure_one_principal

log = get_logger()

Drained = list[tuple[PartitionQueue, ProducerBatch]]

ATTEMPTS_PER_TIMEOUT: Final = 3
"""A request that may be sent again is given up after this part of the shortest time that a client waits there: the last
attempt must still be answered before the client has given up. 30 s → 10 s."""

WATCH_S: Final = 0.1
"""Between two looks for requests to be given up."""

TIMER_S: Final = 0.002
"""uvloop's timers count whole milliseconds: one that came a moment before a throttle time is over would wake nobody."""


class Sender:
    """Takes no batch that it does not either send or hand to Delivery. What one group waits for holds up no other.

    `leaders_named` is told leaders and their epochs that a response names, by topic and partition, `flushed` of each
    batch as it leaves, `on_unreachable` when the broker cannot be connected to.
    """

    def __init__(
        self,
        node: Node,
        cluster: Cluster,
        accumulator: Accumulator,
        delivery: Delivery,
        connector: Connector,
        settings: Settings,
        stats: MetricRegistry,
        leaders_named: Callable[[str, Mapping[int, tuple[int, int]]], None],
        flushed: Callable[[ProducerBatch, float], None],
        on_unreachable: Callable[[Node], None],
        rng: Random,
    ) -> None:
        self.node = node
        self._cluster = cluster
        self._accumulator = accumulator
        self._delivery = delivery
        self._settings = settings
        self._stats = stats
        self._leaders_named = leaders_named
        self._flushed = flushed
        self._on_unreachable = on_unreachable
        self._loop = asyncio.get_running_loop()
        self._pool = UpstreamPool(node, self, connector, settings, stats, rng)
        self._away = RequestsInFlight(settings.max_in_flight_requests_per_connection)
        self._throttling = accumulator.throttling
        self._scheduled = False
        self._closed = False
        self._max_size = settings.max_request_size
        self._requests = stats.counter("forebay_produce_requests_total", side="upstream")
        self._records = stats.counter("forebay_broker_records_total", node=str(node.id))
        self._bytes = stats.counter("forebay_broker_bytes_total", node=str(node.id))
        self._topics = stats.topics
        self._latency = stats.histogram("forebay_broker_latency_seconds", node=str(node.id))
        self._request_timeout_ms = settings.request_timeout_ms
        self._watched: dict[_Request, float] = {}
        """Requests that are not answered, and when to give them up, by `monotonic`."""
        self._watching: asyncio.TimerHandle | None = None
        self._throttled_requests = stats.counter("forebay_throttled_requests_total")

    @property
    def in_flight(self) -> int:
        """Requests that the broker has not answered yet."""
        return self._away.count

    @property
    def connected(self) -> int:
        """Connections to the broker."""
        return self._pool.connected

    def wake(self) -> None:
        """Something is ready, or a place became free. What becomes ready in the same turn of the loop goes along."""
        if not self._scheduled and not self._closed:
            self._scheduled = True
            self._loop.call_soon(self._run)

    def send_now(self) -> None:
        """Do at once what it was woken for."""
        if self._scheduled:
            self._run()

    def _run(self) -> None:
        self._scheduled = False
        if self._closed or not self._accumulator.has_ready(self.node.id):
            return
        if self.node.down and not self._pool.connected:
            self._delivery.unreachable(self.node.id)
            self._pool.open()
            return
        until = monotonic() + SLICE_S
        while self._send_round():
            if monotonic() >= until:
                self.wake()  # the loop is others' too
                break

    def _send_round(self) -> bool:
        """A request of each group that may send one, in turn. False: there was none."""
        any_sent = False
        for group in self._accumulator.ready_groups(self.node.id):
            if not self._may_send(group):
                continue
            connection = self._pool.take(group.client_id)
            if connection is None:
                continue
            drained = self._accumulator.drain_group(group, self._max_size, monotonic())
            if drained:
                self._send(connection, group, drained)
                any_sent = True
            else:
                self._pool.give_back(connection, monotonic())
        return any_sent

    def _may_send(self, group: DispatchGroup) -> bool:
        """Whether another request of the group may leave now."""
        throttling = self._throttling
        if throttling.active and throttling.muted(self.node.id, group.client_id, monotonic()):
            # What left merged, and may have been appended, goes merged again: nobody waits for what was said of that.
            return self._accumulator.holds_merged(group) and self._away.may_send(group)
        return self._away.may_send(group)

    def _send(self, connection: UpstreamConnection, group: DispatchGroup, drained: Drained) -> None:
        request = _Request(self, connection, group, drained, monotonic())
        self._away.sent(group)
        try:
            self._write(request)
        except Exception as error:  # whatever it is: a batch left in flight would hold up its partition for good
            log.error("a produce request could not be written", broker=connection.name, exc_info=error)
            connection.close()
            for queue, batch in drained:
                if queue.in_flight is batch:
                    self._delivery.fail(
                        queue, batch, error_codes.UNKNOWN_SERVER_ERROR, "the request could not be written"
                    )
            self._done(request)

    def _done(self, request: _Request) -> None:
        """Its connection is free again, if it still stands."""
        if not request.done:
            request.done = True
            self._watched.pop(request, None)
            self._away.done(request.group)
            self._pool.give_back(request.connection, monotonic())

    def _watch(self, request: _Request, until: float) -> None:
        self._watched[request] = until
        if self._watching is None:
            self._watching = self._loop.call_later(WATCH_S, self._give_up)

    def _give_up(self) -> None:
        """End the connections on which an answer is due: what was sent on them is sent again on another one.

        Those that stand idle may be as dead. A request with a torn batch is given as long once more: whoever waits for
        that batch has no other hope than this answer.
        """
        self._watching = None
        now = monotonic()
        for request in [request for request, until in self._watched.items() if until <= now]:
            if not request.spared and any(batch.is_torn for _, batch in request.drained):
                request.spared = True
                self._watched[request] = now + self._patience([batch for _, batch in request.drained])
                continue
            log.info("broker takes its time, sending again", broker=request.connection.name)
            request.connection.close()
            self._pool.leave_idle(now, 0)
        if self._watched:
            self._watching = self._loop.call_later(WATCH_S, self._give_up)

    def _patience(self, batches: Iterable[ProducerBatch]) -> float:
        """Seconds after which another attempt is due, for those who wait for `batches`: the hurried only if all are."""
        shortest_ms, hurried_ms = -1, -1
        for batch in batches:
            shortest, _ = batch.timeouts_ms
            if shortest < HURRIED_MS:
                hurried_ms = max(hurried_ms, shortest)
            elif shortest_ms < 0 or shortest < shortest_ms:
                shortest_ms = shortest
        if shortest_ms < 0:
            shortest_ms = hurried_ms
        most_ms = self._request_timeout_ms * ATTEMPTS_PER_TIMEOUT
        waits_ms = most_ms if shortest_ms < 0 else min(shortest_ms, most_ms)
        return max(SHORTEST_WAIT, waits_ms / 1000) / ATTEMPTS_PER_TIMEOUT

    def _write(self, request: _Request) -> None:
        connection, now = request.connection, request.sent_at
        ensure_one_principal(connection.principal, request.drained)
        topics: dict[str, list[tuple[int, int, list[Buffer]]]] = {}
        timeout_ms = 0
        may_retry = True
        sent: Drained = []
        for queue, batch in request.drained:
            self._flushed(batch, now)
            batch.sent(self.node.id, queue.topic.loads().get(queue.index, 0), now)
            try:
                size, buffers = batch.encode()
            except Exception as error:  # its neighbours are sound
                log.error("a batch could not be encoded", topic=queue.topic.name, exc_info=error)
                self._delivery.fail(queue, batch, error_codes.UNKNOWN_SERVER_ERROR, "the batch could not be encoded")
                continue
            sent.append((queue, batch))
            self._records.value += batch.record_count
            self._bytes.value += size
            self._topics.sent(queue.topic.name, queue.index, batch.record_count, size)
            topics.setdefault(queue.topic.name, []).append((queue.index, size, buffers))
            timeout_ms = max(timeout_ms, batch.timeouts_ms[1])
            may_retry = may_retry and batch.producer_id >= 0
        if not sent:
            self._done(request)
            return
        acks = request.drained[0][1].lane.acks
        request.drained = sent
        client_id = request.group.client_id
        version = min(produce_request.MAX_VERSION, connection.versions[PRODUCE][1])
        # acks=0 has no answer, so a refusal would go unseen: one step more is asked of the broker, never one less.
        acks = acks or 1
        timeout_ms = min(timeout_ms, self._request_timeout_ms)
        self._requests.value += 1
        if may_retry:  # else whoever is told sooner is told "unknown"
            self._watch(request, now + self._patience([batch for _, batch in sent]))
        request.version = version
        correlation_id = connection.next_correlation_id()
        frame = produce_request.encode(version, correlation_id, client_id, acks, timeout_ms, list(topics.items()))
        connection.send(frame, request.answered)

    def answered(self, request: _Request, response: bytes | None) -> None:
        """The broker's response to `request`; None: its connection was lost."""
        connection, drained = request.connection, request.drained
        answers: dict[tuple[str, int], PartitionResponse] = {}
        named: dict[str, dict[int, tuple[int, int]]] = {}
        throttle_time_ms = 0
        if response is not None:
            try:
                parsed = produce_response.parse(response, request.version)
                throttle_time_ms = parsed.throttle_time_ms
                for node_id, host, port in parsed.nodes:
                    self._cluster.learn(node_id, host, port, monotonic())
                for topic, partitions in parsed.topics:
                    for partition in partitions:
                        answers[topic, partition.partition] = partition
                        if partition.error_code and partition.current_leader is not None:
                            named.setdefault(topic, {})[partition.partition] = partition.current_leader
            except Malformed as error:
                self._stats.counter("forebay_errors_total", side="upstream", kind="protocol").value += 1
                log.error("broker broke the protocol", broker=connection.name, error=str(error))
                connection.close()
        if throttle_time_ms > 0:
            self._throttled(request.group.client_id, throttle_time_ms / 1000)
            if self._throttling.merges and any(queue.root is None for queue, _ in drained):
                connection.close()  # the broker does not read it until then, and nobody is to wait for that
        for topic, leaders in named.items():
            try:
                self._leaders_named(topic, leaders)
            except Exception as fault:  # what is in flight must be told of all the same
                log.error("leaders that a broker named could not be taken over", topic=topic, exc_info=fault)
        for queue, batch in drained:
            if queue.in_flight is not batch:
                continue  # it was told that the request could not be written
            if throttle_time_ms > 0 and queue.root is not None:  # else it is no client's own
                for run in batch.runs:
                    run.owner.throttle(throttle_time_ms)
            answer = answers.get((queue.topic.name, queue.index))
            try:
                if answer is None:
                    self._delivery.lost(queue, batch)
                else:
                    self._delivery.answered(queue, batch, answer)
            except Exception as fault:  # the partition must go on; whoever was not told by now, its deadline answers
                log.error("the fate of a batch could not be told", topic=queue.topic.name, exc_info=fault)
                if queue.in_flight is batch:
                    self._accumulator.completed(queue, batch, monotonic())
        self._done(request)
        took = monotonic() - request.sent_at
        self._accumulator.answered(request.group, drained, took)
        if response is not None:
            self._latency.observe(took)
        self.wake()

    def _throttled(self, client_id: str | None, seconds: float) -> None:
        """Nothing more of the client id is written until then: the broker would not read it."""
        self._throttled_requests.value += 1
        if not self._throttling.by_client(self.node.id):
            log.info("broker throttles: it is sent requests of one client id each", node=self.node.id)
        self._accumulator.throttled(self.node.id, client_id, seconds, monotonic())
        self._loop.call_later(seconds + TIMER_S, self.wake)

    # The connections

    def usable(self, connection: UpstreamConnection) -> bool:
        """Whether the broker takes Produce requests of a version that is spoken here."""
        return takes_produce(connection)

    @property
    def patience(self) -> float:
        """For what can wait the least of all that waits for a connection; a second, in which a login has its time."""
        queues = self._accumulator.ready_queues(self.node.id)
        return max(SHORTEST_WAIT, self._patience([queue.batches[0] for queue in queues if queue.batches]))

    def failed(self, node: Node, tries: int, error: str) -> None:
        """It cannot be reached: what may go elsewhere goes."""
        if self._cluster.set_down(node, down=True) or tries == 0:
            log.warning("broker unreachable", node=node.id, host=node.host, port=node.port, error=error)
        self._delivery.unreachable(node.id)
        self._on_unreachable(node)

    def reached(self, tries: int) -> None:
        """It can be sent to, again or still."""
        node = self.node
        if self._cluster.set_down(node, down=False) or tries:
            log.info("broker reached again", node=node.id, host=node.host, port=node.port, tries=tries)

    def leave_if_idle(self, now: float, max_idle: float) -> None:
        """Close what was not used for `max_idle` seconds before the broker does."""
        self._pool.leave_idle(now, max_idle)

    def address_changed(self) -> None:
        """Whoever listens at the old address is not the broker any more."""
        self._pool.leave_all()

    def close(self) -> None:
        """Send nothing more."""
        self._closed = True
        if self._watching is not None:
            self._watching.cancel()
        self._pool.close()


class _Request:
    """A request of `version` that was written, or is about to be, on a connection of its own. `sent_at` by
    `monotonic`."""

    __slots__ = ("_sender", "connection", "done", "drained", "group", "sent_at", "spared", "version")

    def __init__(
        self,
        sender: Sender,
        connection: UpstreamConnection,
        group: DispatchGroup,
        drained: Drained,
        sent_at: float,
    ) -> None:
        self._sender = sender
        self.version = produce_request.MAX_VERSION
        self.connection = connection
        self.group = group
        self.drained = drained
        self.sent_at = sent_at
        self.done = False
        self.spared = False
        """It was given more time already."""

    def answered(self, response: bytes | None) -> None:
        """By its broker; None: its connection was lost."""
        self._sender.answered(self, response)
