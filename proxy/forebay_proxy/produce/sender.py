"""Sends what is ready to one broker: `max.in.flight.requests.per.connection` Produce requests at a time.

In: a wake-up when something became ready for this broker. Out: Produce requests, each with at most one batch of every
partition, and their answers to Delivery. The connection is opened when there is something to send, and again when
it was lost; while the broker cannot be reached, it is tried with backoff, since partitioners avoid it meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from time import monotonic

from forebay_codecs import error_codes, produce_request, produce_response
from forebay_codecs.errors import Malformed
from forebay_policies import retry
from forebay_policies.accumulator import Accumulator, PartitionQueue
from forebay_policies.producer_batch import ProducerBatch
from forebay_proxy.brokers.cluster import Cluster, Node
from forebay_proxy.brokers.upstream_connection import CLIENT_ID, UpstreamConnection, open_connection
from forebay_proxy.config.settings import Settings
from forebay_proxy.logs import get_logger
from forebay_proxy.metrics.registry import MetricRegistry
from forebay_proxy.produce.delivery import Delivery

log = get_logger()

Drained = list[tuple[PartitionQueue, ProducerBatch]]


class Sender:
    """Takes no batch that it does not either send or hand to Delivery.

    `flushed` is told of each batch as it leaves, `on_unreachable` when the broker cannot be connected to.
    """

    def __init__(
        self,
        node: Node,
        cluster: Cluster,
        accumulator: Accumulator,
        delivery: Delivery,
        settings: Settings,
        stats: MetricRegistry,
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
        self._flushed = flushed
        self._on_unreachable = on_unreachable
        self._rng = rng
        self._loop = asyncio.get_running_loop()
        self._connection: UpstreamConnection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._scheduled = False
        self._closed = False
        self._used_at = 0.0
        self._most = settings.max_in_flight_requests_per_connection
        self._max_size = settings.max_request_size
        self._requests = stats.counter("forebay_produce_requests_total", side="upstream")
        self._request_timeout_ms = settings.request_timeout_ms

    @property
    def in_flight(self) -> int:
        return self._connection.in_flight if self._connection is not None else 0

    @property
    def connected(self) -> bool:
        return self._connection is not None

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
        connection = self._connection
        if connection is None or connection.closed:
            if self.node.down:
                self._delivery.unreachable(self.node.id)
            self._connect()
            return
        while connection.in_flight < self._most and not connection.closed:
            drained = self._accumulator.drain(self.node.id, self._max_size, monotonic())
            if not drained:
                return
            self._send(connection, drained)

    def _send(self, connection: UpstreamConnection, drained: Drained) -> None:
        try:
            self._write(connection, drained)
        except Exception as error:  # whatever it is: a batch left in flight would hold up its partition for good
            log.error("a produce request could not be written", broker=connection.name, exc_info=error)
            connection.close()
            for queue, batch in drained:
                if queue.in_flight is batch:
                    self._delivery.fail(
                        queue, batch, error_codes.UNKNOWN_SERVER_ERROR, "the request could not be written"
                    )

    def _write(self, connection: UpstreamConnection, drained: Drained) -> None:
        now = self._used_at = monotonic()
        topics: dict[str, list[tuple[int, int, list[bytes | memoryview]]]] = {}
        timeout_ms = 0
        sent: Drained = []
        for queue, batch in drained:
            self._flushed(batch, now)
            batch.sent(self.node.id, queue.queued_bytes, now)
            try:
                size, buffers = batch.encode()
            except Exception as error:  # its neighbours are sound
                log.error("a batch could not be encoded", topic=queue.topic.name, exc_info=error)
                self._delivery.fail(queue, batch, error_codes.UNKNOWN_SERVER_ERROR, "the batch could not be encoded")
                continue
            sent.append((queue, batch))
            topics.setdefault(queue.topic.name, []).append((queue.index, size, buffers))
            timeout_ms = max(timeout_ms, max(run.owner.timeout_ms for run in batch.runs))
        if not sent:
            return
        version = min(produce_request.MAX_VERSION, connection.versions[produce_request.API_KEY][1])
        # acks=0 has no answer, so a refusal would go unseen: one step more is asked of the broker, never one less.
        acks = drained[0][1].lane.acks or 1
        timeout_ms = min(timeout_ms, self._request_timeout_ms)
        self._requests.value += 1
        connection.send(
            lambda upstream_correlation_id: produce_request.encode(
                version, upstream_correlation_id, CLIENT_ID, acks, timeout_ms, list(topics.items())
            ),
            lambda response: self._answered(connection, sent, version, response),
        )

    def _answered(self, connection: UpstreamConnection, drained: Drained, version: int, response: bytes | None) -> None:
        answers = {}
        throttle_time_ms = 0
        if response is not None:
            try:
                parsed = produce_response.parse(response, version)
                throttle_time_ms = parsed.throttle_time_ms
                for node_id, host, port in parsed.nodes:
                    self._cluster.learn(node_id, host, port, monotonic())
                for topic, partitions in parsed.topics:
                    for partition in partitions:
                        answers[topic, partition.partition] = partition
            except Malformed as error:
                self._stats.counter("forebay_errors_total", side="upstream", kind="protocol").value += 1
                log.error("broker broke the protocol", broker=connection.name, error=str(error))
                connection.close()
        for queue, batch in drained:
            if queue.in_flight is not batch:
                continue  # it was told that the request could not be written
            if throttle_time_ms:
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
        self.wake()

    # The connection

    def _connect(self) -> None:
        if self._connecting is None:
            self._connecting = self._loop.create_task(self._keep_connecting())

    async def _keep_connecting(self) -> None:
        tries = 0
        first, most = self._settings.reconnect_backoff_ms / 1000, self._settings.reconnect_backoff_max_ms / 1000
        try:
            while not self._closed:
                node = self.node
                try:
                    connection = await open_connection(node.host, node.port, self._settings, self._stats)
                    lowest, highest = connection.versions.get(produce_request.API_KEY, (0, -1))
                    if highest < produce_request.RECORD_BATCHES_FROM or lowest > produce_request.MAX_VERSION:
                        connection.close()
                        raise ConnectionError("the broker offers no Produce that is spoken here")
                except (OSError, UnicodeError, Malformed) as error:
                    self._failed(node, tries, str(error))
                    tries += 1
                    await asyncio.sleep(retry.backoff(tries - 1, first, most, self._rng))
                    continue
                self._opened(node, connection, tries)
                return
        finally:
            self._connecting = None

    def _failed(self, node: Node, tries: int, error: str) -> None:
        self._stats.counter("forebay_errors_total", side="upstream", kind="connect").value += 1
        if self._cluster.set_down(node, down=True) or tries == 0:
            log.warning("broker unreachable", node=node.id, host=node.host, port=node.port, error=error)
        self._delivery.unreachable(node.id)
        self._on_unreachable(node)

    def _opened(self, node: Node, connection: UpstreamConnection, tries: int) -> None:
        if self._closed:
            connection.close()
            return
        self._connection = connection
        self._used_at = monotonic()
        connection.on_closed = lambda: self._connection_closed(connection)
        if self._cluster.set_down(node, down=False) or tries:
            log.info("broker reached again", node=node.id, host=node.host, port=node.port, tries=tries)
        self.wake()

    def _connection_closed(self, connection: UpstreamConnection) -> None:
        """A broker closes idle connections: that is no failure. What is ready opens a new one."""
        if self._connection is connection:
            self._connection = None
        self.wake()

    def leave_if_idle(self, now: float, max_idle: float) -> None:
        """Close the connection before the broker does, so that no request meets a closing one."""
        if self._connection is not None and not self._connection.in_flight and now - self._used_at > max_idle:
            self._connection.close()

    def address_changed(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def close(self) -> None:
        self._closed = True
        if self._connecting is not None:
            self._connecting.cancel()
        if self._connection is not None:
            self._connection.close()
