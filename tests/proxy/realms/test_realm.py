"""A realm by itself: what it holds is its own, and it ends without leaving anything running."""

from __future__ import annotations

import asyncio
from random import Random
from time import monotonic

from forebay_policies.buffer_pool import BufferPool
from forebay_policies.departed_brokers import DepartedBrokers
from forebay_policies.described_topic import DescribedTopics
from forebay_policies.loop_turns import LoopTurns
from forebay_proxy.brokers.broker_versions import BrokerVersions
from forebay_proxy.brokers.connector import Connector
from forebay_proxy.logs import RateLimited, get_logger
from forebay_proxy.metrics.registry import MetricRegistry
from forebay_proxy.realms.realm import Realm, Shared, TouchSettings
from tests.kit import fakes_proxy as fakes
from tests.kit.app import settings
from tests.kit.event_loop import in_loop, until
from tests.kit.fake_broker import FakeCluster
from tests.kit.wire import keyed


class Land:
    """What realms of a test share, in front of `cluster`."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.stats = MetricRegistry()
        told = settings(cluster.bootstrap, 2)
        self.connector = Connector(told, self.stats)
        pool = BufferPool(1 << 20, 4096, 16_384)
        versions = BrokerVersions(lambda node_id: [], self.connector, RateLimited(get_logger()))
        turns = LoopTurns(monotonic, asyncio.get_running_loop().call_soon)
        self.shared = Shared(
            told,
            Random(1),
            pool,
            versions,
            turns,
            DepartedBrokers(30.0),
            None,
            DescribedTopics(1000),
            TouchSettings.of(told).eligibility(),
        )

    def realm(self, *, asks: bool = True) -> Realm:
        return Realm(self.shared, self.connector, self.stats, asks=asks)


@in_loop
async def test_records_of_two_realms_share_memory_and_nothing_else() -> None:
    async with FakeCluster({"ponds": [0]}) as cluster:
        land = Land(cluster)
        realms = [land.realm(), land.realm()]
        tasks = [asyncio.create_task(part) for realm in realms for part in realm.run()]
        for realm in realms:
            realm.view.updater.want("ponds", lambda: None)
        await until(lambda: all(realm.view.cluster.usable("ponds") for realm in realms))
        owners = []
        for number, realm in enumerate(realms):
            queue = realm.view.cluster.topics["ponds"].queues.queue(0)
            owners.append(fakes.append(realm.accumulator, queue, keyed(f"of {number}")))
        assert land.shared.pool.used == 2
        await until(lambda: all(owner.told for owner in owners))
        assert sorted(cluster.values("ponds", 0)) == ["of 0", "of 1"]
        await until(lambda: not any(realm.busy for realm in realms))
        for realm in realms:
            realm.close()
        for task in tasks:
            task.cancel()
    assert realms[0].accumulator.topics["ponds"] is not realms[1].accumulator.topics["ponds"]
    assert realms[0].view.cache is not realms[1].view.cache


@in_loop
async def test_a_realm_without_a_login_asks_brokers_nothing() -> None:
    async with FakeCluster({"ponds": [0]}) as cluster:
        parts = [list(Land(cluster).realm(asks=asks).run()) for asks in (False, True)]
        assert [len(found) for found in parts] == [1, 2]
        for part in (*parts[0], *parts[1]):
            part.close()
