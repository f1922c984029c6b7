"""One process of the proxy: constructs its parts, starts them, drains or aborts them.

    listeners → client connections → produce handler → accumulator ⇄ dispatcher → senders → delivery → completions
                       ↕                                    ↑
             opaque connections                  metadata updater → cluster

In: settings. Out: a running proxy until `drain` (stop accepting, flush, answer what was answered) or `abort`. A part is
given what it needs when it is constructed; whoever wants to hear of another's news registers with it there.
"""

from __future__ import annotations

import asyncio
from functools import partial
from random import Random
from time import monotonic
from typing import Final

from forebay_policies.accumulator import Accumulator
from forebay_policies.buffer_pool import BufferPool
from forebay_policies.eligibility import Eligibility
from forebay_policies.inbound_memory import InboundMemory
from forebay_policies.loop_turns import LoopTurns
from forebay_policies.metadata_cache import Ages, MetadataCache
from forebay_policies.response_memory import ResponseMemory
from forebay_policies.throttling import Throttling
from forebay_policies.uniform_partitioner import UniformPartitioner
from forebay_proxy.brokers.broker_addresses import BrokerAddresses
from forebay_proxy.brokers.broker_probe import BrokerProbe
from forebay_proxy.brokers.broker_versions import BrokerVersions
from forebay_proxy.brokers.cluster import Cluster
from forebay_proxy.brokers.connector import Connector
from forebay_proxy.brokers.metadata_updater import MetadataUpdater
from forebay_proxy.brokers.producer_id_requests import ProducerIdRequests
from forebay_proxy.brokers.reachability import Reachability
from forebay_proxy.clients.client_listeners import ClientListeners
from forebay_proxy.clients.client_racks import ClientRacks
from forebay_proxy.clients.connection_context import ConnectionContext
from forebay_proxy.clients.connections import ConnectionRegistry
from forebay_proxy.clients.departed_brokers import DepartedBrokers
from forebay_proxy.clients.descriptors import raise_limit
from forebay_proxy.clients.gateway import Gateway
from forebay_proxy.clients.handshakes import MAX_PENDING, Handshakes
from forebay_proxy.clients.listener import Listener
from forebay_proxy.clients.metadata_handler import MetadataHandler
from forebay_proxy.config.settings import Settings
from forebay_proxy.journal.files import JournalFiles
from forebay_proxy.journal.gauges import gauge_row
from forebay_proxy.journal.recorder import Journal, Sink
from forebay_proxy.logs import RateLimited, get_logger
from forebay_proxy.metrics.registry import MetricRegistry
from forebay_proxy.metrics.traffic import HandshakeMetrics, RenewalMetrics, TrafficMetrics
from forebay_proxy.metrics.worker_vitals import WorkerVitals
from forebay_proxy.produce.classifier import BatchClassifier
from forebay_proxy.produce.deadlines import Deadlines
from forebay_proxy.produce.delivery import Delivery
from forebay_proxy.produce.dispatcher import Dispatcher
from forebay_proxy.produce.handler import ProduceHandler
from forebay_proxy.produce.idempotent_sample import IdempotentSample
from forebay_proxy.produce.journal_topic import JournalTopic
from forebay_proxy.produce.ledger import Ledger
from forebay_proxy.produce.rack_traffic import RackTraffic
from forebay_proxy.produce.topic_partitioners import TopicPartitioners
from forebay_proxy.security.renewals import Renewals

log = get_logger()

OPAQUE_GRACE: Final = 1.0
"""Seconds that a drain gives to requests that wait at a broker by their nature (Fetch, JoinGroup)."""

DRAIN_STEP: Final = 0.02


class App:
    """Serves clients from `start` on; after `drain` nothing acknowledged or accepted is left undelivered in it."""

    def __init__(self, settings: Settings, stats: MetricRegistry, worker: int = 0, rng: Random | None = None) -> None:
        rng = rng or Random()
        self._settings = settings
        self._stats = stats
        self._worker = worker
        self._rng = rng
        self._log = RateLimited(log)
        self._draining = False
        self._failed = ""
        self._tasks: list[asyncio.Task[None]] = []
        metrics = TrafficMetrics(stats)

        journaled = bool(settings.journal_dir or settings.journal_topic)
        self._journal = Journal(worker, stats, settings.journal_topic) if journaled else None

        # Brokers, and what waits for them.
        self._renewals = Renewals(settings, RenewalMetrics(stats))
        connector = Connector(settings, stats, rng)
        self._renewals.add(connector.renewable)
        self._pool = BufferPool(settings.buffer_memory, settings.batch_initial_size, settings.batch_size)
        throttling = Throttling(merges=settings.merge_across_client_ids, patience=settings.delivery_timeout_ms / 1000)
        self._accumulator = Accumulator(self._pool, settings.batch_size, settings.batch_max_size, throttling)
        self._cluster = Cluster(self._accumulator)
        ages = Ages.of_ms(settings.metadata_soft_age_ms, settings.metadata_max_age_ms, settings.metadata_max_idle_ms)
        cache = MetadataCache(ages, settings.metadata_max_topics, settings.metadata_refresh_group_size, rng)
        self._updater = MetadataUpdater(self._cluster, cache, connector, settings, stats, rng, self._journal)
        addresses = BrokerAddresses(self._cluster, settings.bootstrap_servers, rng)
        self._probe = BrokerProbe(addresses, connector, settings, rng) if settings.only_passes_logins else None
        self._producer_ids = (
            ProducerIdRequests(self._accumulator.ids, addresses, connector, settings, stats, rng)
            if settings.enable_idempotence and not settings.only_passes_logins
            else None
        )
        self._versions = BrokerVersions(addresses.of, connector, self._log)
        reachability = Reachability(self._cluster, cache, self._updater, self._versions)

        ledger = None
        if self._journal is not None and settings.journal_ledger:
            ledger = Ledger(self._journal, self._cluster, keys=settings.journal_ledger_keys)

        # A record's way: handler → accumulator → dispatcher → delivery.
        on_switch = self._journal.choice if self._journal is not None else None
        partitioners = TopicPartitioners(settings, stats, rng, self._cluster, on_switch)
        delivery = Delivery(
            self._accumulator,
            settings,
            stats,
            self._updater.leader_changed,
            partitioners.acknowledged,
            rng,
            self._journal,
        )
        self._dispatcher = Dispatcher(
            settings, stats, self._accumulator, self._cluster, self._updater, delivery, reachability, connector, rng
        )
        self._deadlines = Deadlines(stats, self._accumulator.throttling, self._accumulator.drop_done)
        eligibility = Eligibility(
            settings.topics_include, settings.topics_exclude, settings.client_ids_include, settings.client_ids_exclude
        )
        turns = LoopTurns(monotonic, asyncio.get_running_loop().call_soon)
        self._handler = ProduceHandler(
            self._accumulator,
            BatchClassifier(
                eligibility,
                self._cluster.is_internal,
                self._cluster.has_choice,
                settings.max_decompressed_bytes,
                stats,
            ),
            partitioners.of,
            self._cluster,
            self._updater,
            self._deadlines,
            settings,
            stats,
            turns,
            IdempotentSample(self._cluster.has_choice, stats, rng),
            RackTraffic(self._cluster, stats) if settings.knows_racks else None,
            ledger,
        )

        # Clients.
        inbound_memory = InboundMemory(settings.queued_max_request_bytes, settings.socket_request_timeout_ms / 1000)
        responses = ResponseMemory()
        departed = DepartedBrokers(settings.request_timeout_ms / 1000)
        metadata = MetadataHandler(cache, self._updater, departed, settings.request_timeout_ms / 1000, stats)

        def context_of(listener: Listener) -> ConnectionContext:
            gateway = Gateway(
                settings,
                self._cluster,
                cache,
                self._updater,
                self._versions,
                addresses,
                reachability,
                listener,
                connector,
                responses,
            )
            return ConnectionContext(
                gateway,
                self._handler,
                metadata,
                metrics,
                self._log,
                inbound_memory,
                turns,
                departed,
                settings.socket_request_max_bytes,
                settings.client_max_in_flight_requests,
                ClientRacks(settings.client_racks, listener.settings.told.client_rack or settings.client_rack),
                _admin_address(settings),
            )

        with_tls = any(listener.uses_tls for listener in settings.client_listeners)
        most = raise_limit(settings.max_connections, MAX_PENDING if with_tls else 0)
        self._connections = ConnectionRegistry(
            settings,
            most,
            inbound_memory,
            responses,
            metrics,
            self._log,
            rng,
        )
        handshakes = Handshakes(HandshakeMetrics(stats), most)
        self._listeners = ClientListeners(
            settings, self._connections, handshakes, self._log, self._renewals, context_of
        )
        stats.gauge("forebay_tls_handshakes", lambda: len(handshakes))
        stats.gauge("forebay_queued_request_bytes", lambda: inbound_memory.total)
        stats.gauge("forebay_gathered_response_bytes", lambda: responses.total)
        stats.gauge("forebay_upstream_connections", lambda: sum(c.has_upstream for c in self._connections))
        self._vitals = WorkerVitals(stats, worker, monotonic)
        stats.gauge("forebay_tasks", lambda: len(asyncio.all_tasks()))

    # Start

    async def start(self) -> None:
        """Open the bootstrap listener; those of the brokers follow as soon as a broker tells of them."""
        if self._journal is not None:
            self._journal.start(self._journal_sink(), partial(gauge_row, self._journal, self._stats))
        await self._listeners.open()
        loop = asyncio.get_running_loop()
        parts = (
            self._probe or self._updater,
            self._producer_ids,
            self._dispatcher,
            self._connections,
            self._renewals,
            self._vitals,
        )
        self._tasks = [loop.create_task(part.run()) for part in parts if part is not None]
        for task in self._tasks:
            task.add_done_callback(self._task_ended)

    def _journal_sink(self) -> Sink:
        settings = self._settings
        if settings.journal_dir:
            return JournalFiles(
                settings.journal_dir,
                self._worker,
                settings.journal_segment_bytes,
                settings.journal_roll_ms / 1000,
                settings.journal_queue_bytes,
                settings.journal_retention_bytes,
            )
        return JournalTopic(
            settings.journal_topic,
            settings.journal_queue_bytes,
            self._accumulator,
            self._cluster,
            self._updater,
            self._deadlines,
            UniformPartitioner(self._rng, settings.batch_size),
        )

    def reload(self) -> None:
        """Make everything anew that stands in files: certificates, keys, passwords."""
        self._renewals.now()

    def ready(self) -> str | None:
        """None once clients can be served; else why not."""
        if self._draining:
            return "draining"
        if self._failed:
            return self._failed
        if self._probe is not None:
            return None if self._probe.answered else "no broker has answered yet"
        if self._cluster.updated_at is None:
            return "no broker has told its metadata yet"
        return None

    def unhealthy(self) -> str | None:
        """Why the process should be restarted: a part of it has ended by a fault of ours. None: it need not be."""
        return self._failed or None

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        """These tasks never end by themselves: that is a fault of ours, and must not go unseen."""
        if not task.cancelled():
            self._failed = "a part of the proxy has failed: see the log"
            log.error(self._failed, exc_info=task.exception())

    # Drain, abort

    async def drain(self) -> None:
        """Stop accepting and reading, flush everything, answer what brokers answer. The caller bounds the time."""
        self._leave()
        for connection in self._connections:
            connection.drain()
        until = monotonic() + OPAQUE_GRACE
        while len(self._deadlines) or self._accumulator.in_flight_bytes or self._awaiting(until):
            self._accumulator.flush_all(monotonic())
            await asyncio.sleep(DRAIN_STEP)
        for connection in self._connections:
            connection.close()
        await self._connections.all_gone()
        if self._journal is not None:
            await self._journal.close()
        self._stop()

    def _awaiting(self, until: float) -> bool:
        grace = monotonic() < until
        return any(connection.awaiting if grace else connection.owing for connection in self._connections)

    def abort(self) -> None:
        """Leave at once, whatever is under way."""
        self._leave()
        for connection in self._connections:
            connection.abort()
        self._stop()

    def _leave(self) -> None:
        self._draining = True
        self._dispatcher.retire()
        self._listeners.close()
        self._connections.close()

    def _stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._dispatcher.close()
        self._updater.close()
        self._versions.close()
        self._deadlines.close()
        self._log.flush()


def _admin_address(settings: Settings) -> str:
    """As `forebay clients` is told it: host:port, with https:// where TLS is spoken; empty: there is none."""
    if settings.admin is None:
        return ""
    return f"https://{settings.admin}" if settings.admin_ssl_keystore_location else str(settings.admin)
