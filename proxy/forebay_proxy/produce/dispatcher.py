"""What leaves for the brokers, and when: the linger, and a sender for each broker.

    append → a batch opens → its flush (linger) → a partition is ready → its leader's sender → one request
                                                                            ↑ again with each answer

In: new batches and ready partitions, as the accumulator announces them; brokers that come, move and go. Out: senders
that are awake. What is ready and has no sender goes to Delivery, and its topics are asked for.
"""

from __future__ import annotations

import asyncio
from random import Random
from time import monotonic
from typing import Final

from forebay_policies.accumulator import Accumulator, PartitionQueue
from forebay_policies.linger import Linger
from forebay_policies.producer_batch import Lane, ProducerBatch
from forebay_proxy.brokers.cluster import Cluster, Node
from forebay_proxy.brokers.connector import Connector
from forebay_proxy.brokers.metadata_updater import MetadataUpdater
from forebay_proxy.brokers.reachability import Reachability
from forebay_proxy.config.settings import Settings
from forebay_proxy.metrics.registry import MetricRegistry
from forebay_proxy.metrics.traffic import FlushMetrics
from forebay_proxy.produce.delivery import Delivery
from forebay_proxy.produce.sender import Sender
from forebay_proxy.produce.topics_now import topics_now

SWEEP_S: Final = 5.0
"""Between two looks for idle connections, for batches that nobody waits for, and for brokers that are back."""


class Dispatcher:
    """Guarantees that each ready partition is looked at: by its leader's sender, or by Delivery where there is none."""

    def __init__(
        self,
        settings: Settings,
        stats: MetricRegistry,
        accumulator: Accumulator,
        cluster: Cluster,
        updater: MetadataUpdater,
        delivery: Delivery,
        reachability: Reachability,
        connector: Connector,
        rng: Random,
    ) -> None:
        self._settings = settings
        self._stats = stats
        self._accumulator = accumulator
        self._cluster = cluster
        self._updater = updater
        self._delivery = delivery
        self._reachability = reachability
        self._connector = connector
        self._rng = rng
        self._loop = asyncio.get_running_loop()
        self._linger_ms = settings.linger_ms
        self._linger = Linger(settings.linger_ms)
        self._idle = settings.upstream_max_idle_ms / 1000
        self._flush_metrics = FlushMetrics(stats)
        self._opened: list[tuple[PartitionQueue, ProducerBatch, int]] = []
        self._senders: dict[int, Sender] = {}
        self._leaderless: set[int] = set()
        """Leaders without a sender for whom something became ready in this turn of the loop."""
        self._runs = False
        self._retired = False
        self._closed = False
        accumulator.pool.lingers(self._flush_all)
        accumulator.observe(opened=self._batch_opened, ready=self._partition_ready, deserted=delivery.deserted)
        cluster.on_node(self._node_changed)
        cluster.on_partitions_gone(delivery.gone)
        cluster.on_available(delivery.available)
        stats.gauge("forebay_queued_bytes", lambda: accumulator.queued_bytes)
        stats.gauge("forebay_queued_batches", lambda: accumulator.queued_batches)
        stats.gauge("forebay_in_flight_requests", lambda: sum(s.in_flight for s in self._senders.values()))
        stats.gauge_of_brokers("forebay_broker_up", self._up)
        stats.topics_now = lambda: topics_now(cluster, monotonic())
        stats.gauge_of_brokers("forebay_broker_queued_bytes", self._queued_by_broker)
        stats.gauge_of_brokers("forebay_broker_in_flight_requests", self.in_flight_by_broker)
        stats.gauge("forebay_upstream_connections", lambda: sum(s.connected for s in self._senders.values()))
        stats.gauge("forebay_throttled_client_ids", lambda: accumulator.throttling.waiting)
        stats.gauge("forebay_unmerged_brokers", lambda: accumulator.throttling.apart)

    def in_flight_by_broker(self) -> dict[int, int]:
        """Unanswered Produce requests by node id."""
        return {sender.node.id: sender.in_flight for sender in self._senders.values()}

    def _up(self) -> dict[int, bool]:
        """None, while nothing is tried: nobody would find out that one can be reached again."""
        return self._reachability.up() if self._runs else {}

    def _queued_by_broker(self) -> dict[int, int]:
        queued = dict.fromkeys(self._senders, 0)
        for topic in self._accumulator.topics.values():
            for index, load in topic.loads().items():
                leader = topic.leader_of(index)
                if leader in queued:
                    queued[leader] += load
        return queued

    def change(self, settings: Settings) -> None:
        """Of these, `linger.ms` and `connections.max.idle.ms` count from now on. Where the former has changed, what
        lingers leaves: nothing waits for longer than is said."""
        self._idle = settings.upstream_max_idle_ms / 1000
        if settings.linger_ms != self._linger_ms:
            self._linger_ms = settings.linger_ms
            self._linger = Linger(settings.linger_ms)
            self._flush_all()

    # A batch opens, and is due

    def _batch_opened(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Schedule the new batch's flush. It names the batch's number: an orphaned flush does nothing."""
        if self._accumulator.pool.exhausted:
            batch.due = True  # others wait for its memory
        elif self._linger.adaptive:
            if not self._opened:
                self._loop.call_soon(self._flush_opened)
            self._opened.append((queue, batch, batch.number))
        elif self._linger.delay:
            self._loop.call_later(self._linger.delay, self._flush, queue, batch.lane, batch.number)
        else:
            batch.due = True

    def _flush_opened(self) -> None:
        """What was opened in one turn of the loop is due; a busy loop sends it in the next one."""
        opened, self._opened = self._opened, []
        now = monotonic()
        for queue, batch, number in opened:
            self._accumulator.flush(queue, batch.lane, number, now)
        if not self._linger.busy(now - opened[0][1].opened_at):
            for sender in self._senders.values():
                sender.send_now()

    def _flush_all(self) -> None:
        self._accumulator.flush_all(monotonic())

    def _flush(self, queue: PartitionQueue, lane: Lane, number: int) -> None:
        self._accumulator.flush(queue, lane, number, monotonic())

    # A partition is ready

    def _partition_ready(self, leader: int) -> None:
        sender = self._senders.get(leader)
        if sender is not None:
            sender.wake()
        elif leader not in self._leaderless and not self._closed:
            self._leaderless.add(leader)
            self._loop.call_soon(self._without_leader, leader)

    def _without_leader(self, leader: int) -> None:
        """Records are ready and nobody is known to take them: what may goes elsewhere, for the rest we ask. What
        becomes ready in the same turn of the loop goes along."""
        self._leaderless.discard(leader)
        if leader not in self._senders:
            self._delivery.unreachable(leader)
            names = {queue.topic.name for queue in self._accumulator.ready_queues(leader)}
            if names and not self._retired:
                self._updater.invalidate(names, "error")

    # Brokers come, move and go

    def _node_changed(self, node: Node) -> None:
        sender = self._senders.get(node.id)
        if node.gone:
            if sender is not None:
                self._senders.pop(node.id).close()
        elif sender is not None:
            sender.address_changed()
        else:
            self._senders[node.id] = self._sender_for(node)
            if self._accumulator.has_ready(node.id):
                self._partition_ready(node.id)

    def _sender_for(self, node: Node) -> Sender:
        return Sender(
            node,
            self._cluster,
            self._accumulator,
            self._delivery,
            self._connector,
            self._settings,
            self._stats,
            self._updater.leaders_named,
            self._flush_metrics.flushed,
            self._reachability.lost,
            self._rng,
        )

    # Life

    async def run(self) -> None:
        """The task: sweep now and then."""
        self._runs = True
        try:
            while True:
                await asyncio.sleep(SWEEP_S)
                self.sweep(monotonic())
        finally:
            self._runs = False

    def sweep(self, now: float) -> None:
        """Drop what nobody waits for, leave idle brokers before they leave, and ask those that clients have lost."""
        self._accumulator.drop_abandoned(now)
        if self._accumulator.throttling.active:
            self._accumulator.settle(now)
        if self._idle >= 0:
            for sender in self._senders.values():
                sender.leave_if_idle(now, self._idle)
            self._updater.leave_idle(now, self._idle)
        self._reachability.look_again()

    def retire(self) -> None:
        """Records without a leader are not asked about any more: the process is leaving."""
        self._retired = True

    def close(self) -> None:
        """End every connection. What is still queued stays unsent."""
        self._closed = True
        self._accumulator.pool.lingers_no_more(self._flush_all)
        for sender in self._senders.values():
            sender.close()
