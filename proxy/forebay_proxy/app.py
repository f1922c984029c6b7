"""One process of the proxy: all its parts, put together, started and drained.

    listeners → client connections → produce handler → accumulator → senders → delivery → completions
                       ↕                                    ↑
                opaque connections                  metadata updater → cluster

In: settings. Out: a running proxy until `drain` (stop accepting, flush, answer what was answered) or `abort`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from random import Random
from time import monotonic

from forebay_codecs import produce_response
from forebay_policies import retry
from forebay_policies.accumulator import Accumulator, PartitionQueue
from forebay_policies.buffer_pool import BufferPool
from forebay_policies.eligibility import Eligibility
from forebay_policies.intake import Intake
from forebay_policies.linger import Linger
from forebay_policies.metadata_cache import Ages, MetadataCache
from forebay_policies.producer_batch import ProducerBatch
from forebay_policies.uniform_partitioner import UniformPartitioner
from forebay_proxy.brokers.broker_versions import BrokerVersions
from forebay_proxy.brokers.cluster import Cluster, Node
from forebay_proxy.brokers.metadata_updater import MetadataUpdater
from forebay_proxy.clients.client_connection import ClientConnection, Shared
from forebay_proxy.clients.connections import Connections
from forebay_proxy.clients.descriptors import raise_limit
from forebay_proxy.clients.listener import Listeners
from forebay_proxy.clients.metadata_handler import MetadataHandler
from forebay_proxy.clients.opaque_connection import OpaqueConnection
from forebay_proxy.config.settings import HostPort, Settings
from forebay_proxy.journal.files import JournalFiles
from forebay_proxy.journal.gauges import gauge_row
from forebay_proxy.journal.recorder import Journal, Sink
from forebay_proxy.logs import RateLimited, get_logger
from forebay_proxy.metrics.registry import Stats
from forebay_proxy.metrics.traffic import FlushMetrics, TrafficMetrics
from forebay_proxy.produce.deadlines import Deadlines
from forebay_proxy.produce.delivery import Delivery
from forebay_proxy.produce.handler import ProduceHandler
from forebay_proxy.produce.journal_topic import JournalTopic
from forebay_proxy.produce.ledger import Ledger
from forebay_proxy.produce.sender import Sender
from forebay_proxy.produce.sorting import Sorter
from forebay_proxy.produce.topic_partitioners import TopicPartitioners

log = get_logger()

HOUSEKEEPING = 5.0
"""Seconds between two looks for idle connections to brokers."""

OPAQUE_GRACE = 1.0
"""Seconds that a drain gives to requests that wait at a broker by their nature (Fetch, JoinGroup)."""

DRAIN_STEP = 0.02

SETTLE_S = 1.0
"""After a change of topics all is asked for, for so long: not all brokers know of it at once."""

LOST_AGAIN_S = 1.0
"""Clients that cannot reach a broker make its topics asked for, not more often than this: they try again and again."""


class App:
    """See the module."""

    def __init__(self, settings: Settings, stats: Stats, worker: int = 0, rng: Random | None = None) -> None:
        rng = rng or Random()
        self._settings = settings
        self._stats = stats
        self._rng = rng
        self._loop = asyncio.get_running_loop()
        self._log = RateLimited(log)
        self._metrics = TrafficMetrics(stats)
        self._flushed = FlushMetrics(stats)
        self._senders: dict[int, Sender] = {}
        self._draining = False
        self._failed = ""
        self._all_closed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

        self._linger = Linger(settings.linger_ms)
        self._opened: list[tuple[PartitionQueue, ProducerBatch, int]] = []
        self._pool = BufferPool(settings.buffer_memory, settings.batch_initial_size, settings.batch_size)
        self._accumulator = Accumulator(self._pool, settings.batch_size, settings.batch_max_size, self._batch_opened)
        self._accumulator.on_ready = self._wake
        self._cluster = Cluster(self._accumulator)
        self._cluster.on_node = self._node_changed
        ages = Ages.of_ms(settings.metadata_soft_age_ms, settings.metadata_max_age_ms, settings.metadata_max_idle_ms)
        self._cache = MetadataCache(ages, settings.metadata_max_topics, settings.metadata_refresh_group_size, rng)
        self._deadlines = Deadlines(stats, lambda: self._accumulator.drop_abandoned(monotonic()))
        self._journal = self._journal_of(settings, worker)
        self._updater = MetadataUpdater(self._cluster, self._cache, settings, stats, rng, self._journal)
        self._delivery = Delivery(self._accumulator, settings, stats, self._updater.leader_changed, rng)
        self._cluster.on_topic_gone = self._delivery.gone
        self._delivery.journal = self._journal
        on_switch = self._journal.choice if self._journal is not None else None
        self._partitioners = TopicPartitioners(settings, stats, rng, on_switch)
        self._cluster.on_forgotten = self._partitioners.forget
        self._delivery.acknowledged_hook = self._partitioners.acknowledged
        self._versions = BrokerVersions(self._addresses, settings, stats, self._log)
        self._intake = Intake(settings.queued_max_request_bytes, settings.socket_request_timeout_ms / 1000)
        self._connections = Connections(
            settings,
            raise_limit(settings.max_connections),
            self._intake,
            self._metrics,
            self._log,
            lambda node_id: ClientConnection(self._shared, node_id),
        )
        self._connections.on_empty = self._all_closed.set
        self._listeners = Listeners(settings, self._connections.accepted)
        eligibility = Eligibility(
            settings.topics_include, settings.topics_exclude, settings.client_ids_include, settings.client_ids_exclude
        )
        sorter = Sorter(eligibility, self._cluster.is_internal, settings.max_decompressed_bytes, stats)
        handler = ProduceHandler(
            self._accumulator,
            sorter,
            self._partitioners.of,
            self._cluster,
            self._updater,
            self._deadlines,
            settings,
            stats,
            Ledger(self._journal) if self._journal is not None and settings.journal_ledger else None,
        )
        self._shared = Shared(
            self,
            self._connections,
            handler,
            MetadataHandler(self._cache, self._updater, settings.request_timeout_ms / 1000, stats),
            self._metrics,
            self._log,
            self._intake,
            settings.socket_request_max_bytes,
            settings.client_max_in_flight_requests,
            str(settings.admin) if settings.admin is not None else "",
        )
        self._gauges()

    def _journal_of(self, settings: Settings, worker: int) -> Journal | None:
        """Not open yet; None where none is wanted."""
        sink: Sink
        if settings.journal_dir:
            sink = JournalFiles(
                settings.journal_dir,
                worker,
                settings.journal_segment_bytes,
                settings.journal_roll_ms / 1000,
                settings.journal_queue_bytes,
                settings.journal_retention_bytes,
            )
        elif settings.journal_topic:
            sink = JournalTopic(
                settings.journal_topic,
                settings.journal_queue_bytes,
                self._accumulator,
                self._cluster,
                self._want_topic,
                self._deadlines,
                UniformPartitioner(self._rng, settings.batch_size),
            )
        else:
            return None
        journal = Journal(sink, worker, self._stats, settings.journal_topic)
        journal.gauges = lambda: gauge_row(journal, self._stats)
        return journal

    def _want_topic(self, name: str, ready: Callable[[], None]) -> None:
        """For the journal's topic: the journal is there before the updater, which tells it of its requests."""
        self._updater.want(name, ready)

    def _gauges(self) -> None:
        accumulator, pool = self._accumulator, self._pool
        readings: dict[str, Callable[[], float]] = {
            "forebay_queued_bytes": lambda: accumulator.queued_bytes,
            "forebay_queued_batches": lambda: accumulator.queued_batches,
            "forebay_in_flight_requests": lambda: sum(sender.in_flight for sender in self._senders.values()),
            "forebay_buffer_memory_total_bytes": lambda: pool.memory,
            "forebay_buffer_memory_available_bytes": lambda: pool.available,
            "forebay_buffer_memory_waiters": lambda: pool.waiting,
            "forebay_queued_request_bytes": lambda: self._intake.total,
            "forebay_upstream_connections": lambda: (
                sum(sender.connected for sender in self._senders.values())
                + sum(connection.has_upstream for connection in self._connections)
            ),
            "forebay_tasks": lambda: len(asyncio.all_tasks(self._loop)),
        }
        for name, read in readings.items():
            self._stats.gauge(name, read)

    # Life

    async def start(self) -> None:
        """Open the bootstrap listener; those of the brokers follow as soon as a broker tells of them."""
        if self._journal is not None:
            self._journal.start()
        self._listeners.open_bootstrap()
        await self._listeners.ready()
        self._tasks = [
            self._loop.create_task(self._updater.run()),
            self._loop.create_task(self._housekeeping()),
            self._loop.create_task(self._connections.mind()),
        ]
        for task in self._tasks:
            task.add_done_callback(self._task_ended)

    def ready(self) -> str | None:
        if self._draining:
            return "draining"
        if self._failed:
            return self._failed
        if self._cluster.updated_at is None:
            return "no broker has told its metadata yet"
        return None

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        """These tasks never end by themselves: that is a fault of ours, and must not go unseen."""
        if not task.cancelled():
            self._failed = "a part of the proxy has failed: see the log"
            log.error(self._failed, exc_info=task.exception())

    async def drain(self) -> None:
        """Stop accepting and reading, flush everything, answer what brokers answer. The caller bounds the time."""
        self._leave()
        for connection in self._connections:
            connection.drain()
        until = monotonic() + OPAQUE_GRACE
        while len(self._deadlines) or self._accumulator.in_flight_bytes or self._awaiting(until):
            self._accumulator.flush_all(monotonic())
            await asyncio.sleep(DRAIN_STEP)
        self._all_closed.clear()
        for connection in self._connections:
            connection.close()
        if self._connections:
            await self._all_closed.wait()
        if self._journal is not None:
            await self._journal.close()
        self._stop()

    def _awaiting(self, until: float) -> bool:
        grace = monotonic() < until
        return any(connection.awaiting if grace else connection.owing for connection in self._connections)

    def abort(self) -> None:
        self._leave()
        for connection in self._connections:
            connection.abort()
        self._stop()

    def _leave(self) -> None:
        self._draining = True
        self._listeners.close()
        self._connections.close()

    def _stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        for sender in self._senders.values():
            sender.close()
        self._updater.close()
        self._versions.close()
        self._deadlines.close()
        self._log.flush()

    async def _housekeeping(self) -> None:
        """Leave idle brokers before they leave."""
        upstream_idle = self._settings.upstream_max_idle_ms / 1000
        while True:
            await asyncio.sleep(HOUSEKEEPING)
            self._log.flush()
            now = monotonic()
            self._accumulator.drop_abandoned(now)
            if upstream_idle >= 0:
                for sender in self._senders.values():
                    sender.leave_if_idle(now, upstream_idle)

    # Batches

    def _batch_opened(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Schedule the new batch's flush. It names the batch's number: an orphaned flush does nothing."""
        if self._pool.exhausted:
            batch.due = True  # others wait for its memory
        elif self._linger.adaptive:
            if not self._opened:
                self._loop.call_soon(self._flush_opened)
            self._opened.append((queue, batch, batch.number))
        elif self._linger.delay:
            self._loop.call_later(self._linger.delay, self._flush, queue, batch, batch.number)
        else:
            batch.due = True

    def _flush_opened(self) -> None:
        """What was opened in one turn of the loop is due; a busy loop sends it in the next one."""
        opened, self._opened = self._opened, []
        now = monotonic()
        for queue, batch, number in opened:
            self._accumulator.flush(queue, batch, number, now)
        if not self._linger.busy(now - opened[0][1].opened_at):
            for sender in self._senders.values():
                sender.hurry()

    def _flush(self, queue: PartitionQueue, batch: ProducerBatch, number: int) -> None:
        self._accumulator.flush(queue, batch, number, monotonic())

    # Brokers

    def _wake(self, leader: int) -> None:
        sender = self._senders.get(leader)
        if sender is not None:
            sender.wake()
        elif not self._draining:
            self._loop.call_soon(self._without_leader, leader)

    def _without_leader(self, leader: int) -> None:
        """Records are ready and nobody is known to take them: what may goes elsewhere, for the rest we ask."""
        if leader not in self._senders and self._accumulator.has_ready(leader):
            self._delivery.unreachable(leader)
            names = [name for name in self._cluster.topics if self._cluster.waits_for_leader(name)]
            if names:
                self._updater.invalidate(names, "error")

    def _node_changed(self, node: Node, there: bool) -> None:
        self._versions.forget(node.id)
        sender = self._senders.get(node.id)
        if not there:
            self._listeners.close_node(node.id)
            if sender is not None:
                self._senders.pop(node.id).close()
            return
        self._listeners.open_node(node.id)
        if sender is not None:
            sender.address_changed()
            return
        self._senders[node.id] = Sender(
            node,
            self._cluster,
            self._accumulator,
            self._delivery,
            self._settings,
            self._stats,
            self._flushed.flushed,
            self._unreachable,
            self._rng,
        )
        if self._accumulator.has_ready(node.id):
            self._wake(node.id)

    def _unreachable(self, node: Node) -> None:
        node.lost_at = monotonic()
        self._versions.forget(node.id)
        self._cache.invalidate_node(node.id, monotonic())
        names: Iterable[str] = [name for name, state in self._cluster.topics.items() if node.id in state.nodes]
        self._updater.invalidate(names, "connection")

    def _addresses(self, node_id: int | None) -> list[HostPort]:
        """Where a broker is; for the bootstrap listener any broker, those that can be reached first."""
        if node_id is not None:
            node = self._cluster.nodes.get(node_id)
            return [HostPort(node.host, node.port)] if node is not None else []
        nodes = list(self._cluster.nodes.values())
        self._rng.shuffle(nodes)
        known = [HostPort(node.host, node.port) for node in sorted(nodes, key=lambda node: node.down)]
        return known + [server for server in self._settings.bootstrap_servers if server not in known]

    # Client connections (gateway.Gateway)

    def translate(self, advertised_host: str, node_id: int, host: str, port: int) -> tuple[str, int] | None:
        self._cluster.learn(node_id, host, port, monotonic())
        node_port = self._listeners.port(node_id)
        if node_port is None or not self._listeners.open_node(node_id):
            return None
        return self._settings.advertised_host or advertised_host, node_port

    async def connect(self, node_id: int | None, protocol: OpaqueConnection) -> None:
        addresses = self._addresses(node_id)
        error: OSError = ConnectionError("the broker is not known any more")
        for host, port in addresses:
            try:
                async with asyncio.timeout(self._settings.socket_connection_setup_timeout_ms / 1000):
                    await self._loop.create_connection(lambda: protocol, host, port)
                return
            except OSError as failure:  # TimeoutError is one
                error = failure
        node = self._cluster.nodes.get(node_id) if node_id is not None else None
        if node is not None and monotonic() - node.lost_at >= LOST_AGAIN_S:
            self._unreachable(node)
        raise error

    def produce_answered(self, response: bytes, version: int) -> None:
        parsed = produce_response.parse(response, version)
        for node_id, host, port in parsed.nodes:
            self._cluster.learn(node_id, host, port, monotonic())
        for topic, partitions in parsed.topics:
            for partition in partitions:
                if retry.refusal(partition.error_code):
                    self._updater.leader_changed(topic, partition.partition, partition.current_leader)

    def takes(self, api_key: int, version: int) -> bool:
        return self._updater.takes(api_key, version)

    def topics_changed(self) -> None:
        self._cache.invalidate_all(monotonic() + SETTLE_S)

    def api_versions(self, node_id: int | None, version: int, ready: Callable[[bytes | None], None]) -> None:
        self._versions.get(node_id, version, ready)
