"""Whoever is ready is looked at: a batch that opened is flushed, a ready partition wakes its leader's sender, and where
there is none its topics are asked for."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Mapping
from random import Random
from time import monotonic
from typing import Any

import pytest

from forebay_codecs.api_keys import PRODUCE
from forebay_policies.accumulator import Accumulator
from forebay_policies.memory_shares import MemoryRequest
from forebay_policies.metadata_cache import Ages, MetadataCache
from forebay_policies.throttling import QUIET_S
from forebay_proxy.brokers.broker_addresses import BrokerAddresses
from forebay_proxy.brokers.broker_versions import BrokerVersions
from forebay_proxy.brokers.connector import Connector
from forebay_proxy.brokers.metadata_updater import MetadataUpdater
from forebay_proxy.brokers.reachability import Reachability
from forebay_proxy.config.settings import HostPort
from forebay_proxy.logs import RateLimited, get_logger
from forebay_proxy.metrics.registry import Key, MetricRegistry
from forebay_proxy.produce.delivery import Delivery
from forebay_proxy.produce.dispatcher import Dispatcher
from tests.kit import fakes_proxy as fakes
from tests.kit.app import settings
from tests.kit.event_loop import in_loop, turns, until
from tests.kit.fake_broker import FakeCluster
from tests.kit.wire import keyed, null_key


class Dock:
    """Topic "ponds"; partition i is led by broker `leaders[i]`, each a real one of `cluster`."""

    def __init__(self, cluster: FakeCluster, leaders: list[int], **changed: Any) -> None:
        self.stats = MetricRegistry()
        rng = Random(1)
        told = settings(cluster.bootstrap, 2, **changed)
        self.accumulator: Accumulator = fakes.accumulator()
        self.cluster = fakes.known(self.accumulator, {}, nodes=())
        cache = MetadataCache(Ages(60, 60, 60), 10, 10, rng)
        connector = Connector(told, self.stats)
        addresses = BrokerAddresses(self.cluster, told.bootstrap_servers, rng)
        self.updater = MetadataUpdater(self.cluster, cache, addresses, connector, told, self.stats, rng)
        versions = BrokerVersions(lambda node_id: [], connector, RateLimited(get_logger()))
        delivery = Delivery(
            self.accumulator, told, self.stats, self.updater.leader_changed, lambda queue, seconds: None, rng
        )
        reachability = Reachability(self.cluster, cache, self.updater, versions)
        self.dispatcher = Dispatcher(
            told, self.stats, self.accumulator, self.cluster, self.updater, delivery, reachability, connector, rng
        )
        self.cluster.apply(fakes.metadata({"ponds": leaders}, nodes=()), {"ponds"}, 0.0, 300.0)
        self._brokers = cluster

    def meet(self, node_id: int) -> None:
        """A response named the broker."""
        address: HostPort = self._brokers.bootstrap[node_id]
        self.cluster.learn(node_id, address.host, address.port, 0.0)

    def append(self, value: str, partition: int = 0) -> fakes.FakeOwner:
        queue = self.cluster.topics["ponds"].queues.queue(partition)
        return fakes.append(self.accumulator, queue, keyed(value))

    def of_broker(self, values: Mapping[Key, float], name: str, node_id: int) -> float:
        return values[f"forebay_broker_{name}", (str(node_id),)]

    def asked_for(self, cause: str) -> float:
        return self.stats.take().counters["forebay_metadata_refreshes_total", (cause,)]


@in_loop
@pytest.mark.parametrize("linger_ms", [-1, 0, 1])
async def test_what_is_appended_is_delivered_whatever_the_linger(linger_ms: int) -> None:
    async with FakeCluster({"ponds": [0, 1]}, nodes=2) as cluster:
        dock = Dock(cluster, [0, 1], linger_ms=linger_ms)
        dock.meet(0)
        dock.meet(1)
        owners = [dock.append("a", 0), dock.append("b", 1)]
        await until(lambda: all(owner.told for owner in owners))
        assert (cluster.values("ponds", 0), cluster.values("ponds", 1)) == (["a"], ["b"])
        dock.dispatcher.close()
        await turns()


@in_loop
async def test_nothing_of_a_batch_that_has_left_is_kept_until_its_linger_is_over() -> None:
    """A minute's batches, the connections of their clients among them, took megabytes."""
    async with FakeCluster({"ponds": [0]}) as cluster:
        dock = Dock(cluster, [0], linger_ms=60_000)
        dock.meet(0)
        owner = weakref.ref(dock.append("a"))
        dock.accumulator.flush_all(0.0)
        await until(lambda: not dock.cluster.topics["ponds"].queues.loads())
        await turns()
        gc.collect()
        assert owner() is None
        dock.dispatcher.close()
        await turns()


@in_loop
async def test_what_opens_while_others_wait_for_memory_does_not_linger() -> None:
    async with FakeCluster({"ponds": [0]}) as cluster:
        dock = Dock(cluster, [0], linger_ms=60_000)
        dock.meet(0)
        dock.accumulator.pool.wait(MemoryRequest("somebody"), lambda: None)
        owner = dock.append("a")
        await until(lambda: owner.told)
        assert cluster.values("ponds", 0) == ["a"]
        dock.dispatcher.close()
        await turns()


@in_loop
async def test_records_that_were_ready_before_their_leader_was_met_wait_for_it_and_it_is_asked_for() -> None:
    async with FakeCluster({"ponds": [0]}) as cluster:
        dock = Dock(cluster, [0], linger_ms=0)
        owner = dock.append("early")
        await turns()
        assert dock.asked_for("error") == 1
        assert owner.told == []
        dock.meet(0)
        await until(lambda: owner.told)
        assert cluster.values("ponds", 0) == ["early"]
        dock.dispatcher.close()
        await turns()


@in_loop
async def test_what_waits_for_a_leader_and_may_go_elsewhere_goes_as_soon_as_there_is_an_elsewhere() -> None:
    async with FakeCluster({"ponds": [-1, 0]}) as cluster:
        dock = Dock(cluster, [-1, -1], linger_ms=0)
        dock.meet(0)
        queue = dock.cluster.topics["ponds"].queues.queue(0)
        moved = fakes.append(dock.accumulator, queue, null_key("moved"), movable=True)
        kept = dock.append("kept", 0)
        await turns()
        dock.cluster.apply(fakes.metadata({"ponds": [-1, 0]}, nodes=()), {"ponds"}, 0.0, 300.0)
        await until(lambda: moved.told)
        assert (cluster.values("ponds", 0), cluster.values("ponds", 1)) == ([], ["moved"])
        assert kept.told == []
        dock.dispatcher.close()
        await turns()


@in_loop
async def test_those_that_have_no_leader_in_a_turn_of_the_loop_are_looked_at_once_however_many_they_are() -> None:
    """Hundreds, for each of which all were looked at, held up the loop for a second."""
    leaders = [0] * 20
    async with FakeCluster({"ponds": leaders}) as cluster:
        dock = Dock(cluster, [-1] * len(leaders), linger_ms=0)
        dock.meet(0)
        owners = [dock.append("early", partition) for partition in range(19)]
        await turns()
        assert dock.asked_for("error") == 1
        owners.append(dock.append("late", 19))
        await turns()
        assert dock.asked_for("error") == 2
        dock.cluster.apply(fakes.metadata({"ponds": leaders}, nodes=()), {"ponds"}, 0.0, 300.0)
        await until(lambda: all(owner.told for owner in owners))
        dock.dispatcher.close()
        await turns()


@in_loop
async def test_a_broker_that_is_gone_takes_its_connection_with_it() -> None:
    async with FakeCluster({"ponds": [0]}) as cluster:
        dock = Dock(cluster, [0], linger_ms=0)
        dock.meet(0)
        owner = dock.append("a")
        await until(lambda: owner.told)
        assert cluster[0].connections
        dock.cluster.apply(fakes.metadata({}, nodes=()), set(), 1000.0, 300.0)
        await until(lambda: not cluster[0].connections)
        assert dock.stats.value("forebay_upstream_connections") == 0


@in_loop
async def test_measures_by_broker() -> None:
    async with FakeCluster({"ponds": [0, 1]}, nodes=2) as cluster:
        dock = Dock(cluster, [0, 1], linger_ms=0)
        running = asyncio.create_task(dock.dispatcher.run())
        dock.meet(0)
        dock.meet(1)
        cluster[1].holds(PRODUCE)
        owner = dock.append("a", 0)
        dock.append("b", 1)
        await until(lambda: owner.told)
        await cluster[1].receives(PRODUCE)
        now = dock.stats.take()

        assert [dock.of_broker(now.counters, "records_total", node) for node in (0, 1)] == [1, 1]
        assert dock.of_broker(now.counters, "bytes_total", 1) > 61
        assert [dock.of_broker(now.gauges, "in_flight_requests", node) for node in (0, 1)] == [0, 1]
        assert dock.of_broker(now.gauges, "queued_bytes", 0) == 0
        assert dock.of_broker(now.gauges, "queued_bytes", 1) > 0
        assert [dock.of_broker(now.gauges, "up", node) for node in (0, 1)] == [1, 1]
        answered = [sum(now.histograms["forebay_broker_latency_seconds", (node,)].counts) for node in "01"]
        assert answered == [1, 0]

        dock.cluster.set_down(dock.cluster.nodes[1], down=True)
        dock.cluster.nodes[1].last_seen = monotonic()
        assert [dock.of_broker(dock.stats.take().gauges, "up", node) for node in (0, 1)] == [1, 0]
        running.cancel()
        await turns()
        assert ("forebay_broker_up", ("1",)) not in dock.stats.take().gauges, "who rests would not see that it is back"
        dock.dispatcher.close()
        await turns()


@in_loop
async def test_a_broker_that_throttles_no_more_is_sent_merged_requests_again() -> None:
    async with FakeCluster({"ponds": [0]}) as cluster:
        dock = Dock(cluster, [0], linger_ms=60_000)
        dock.append("a")
        queue = dock.cluster.topics["ponds"].queues.queue(0)
        now = monotonic()
        dock.accumulator.throttled(0, "forebay", 1.0, now)
        assert queue.clients is not None
        dock.dispatcher.sweep(now + 2.0)
        assert queue.clients is not None
        dock.dispatcher.sweep(now + 2.0 + QUIET_S)
        assert queue.clients is None
        dock.dispatcher.close()


@in_loop
async def test_once_retired_nobody_is_asked_about_records_without_a_leader() -> None:
    async with FakeCluster({"ponds": [0]}) as cluster:
        dock = Dock(cluster, [0], linger_ms=0)
        dock.dispatcher.retire()
        dock.append("late")
        await turns()
        assert dock.asked_for("error") == 0


@in_loop
async def test_but_those_that_may_go_elsewhere_go_there() -> None:
    async with FakeCluster({"ponds": [0, 0]}) as cluster:
        dock = Dock(cluster, [-1, 0], linger_ms=0)
        dock.meet(0)
        dock.cluster.apply(fakes.metadata({"ponds": [-1, 0]}, nodes=()), {"ponds"}, 0.0, 300.0)
        dock.dispatcher.retire()
        queue = dock.cluster.topics["ponds"].queues.queue(0)
        owner = fakes.append(dock.accumulator, queue, null_key("late"), movable=True)
        await until(lambda: owner.told)
        assert cluster.values("ponds", 1) == ["late"]
        assert dock.asked_for("error") == 0
        dock.dispatcher.close()
        await turns()
