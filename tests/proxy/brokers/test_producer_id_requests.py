"""Producer ids are asked for until there are some, of any broker; a refusal is told once, and not for ever."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import pytest
import structlog

from forebay_codecs.api_keys import INIT_PRODUCER_ID
from forebay_codecs.error_codes import CLUSTER_AUTHORIZATION_FAILED, COORDINATOR_LOAD_IN_PROGRESS
from forebay_policies.idempotence import MAX_EPOCH, MAX_IDS, ProducerIds
from forebay_proxy.brokers import producer_id_requests
from forebay_proxy.brokers.broker_addresses import BrokerAddresses
from forebay_proxy.brokers.connector import Connector
from forebay_proxy.brokers.producer_id_requests import ProducerIdRequests
from forebay_proxy.metrics.registry import MetricRegistry
from tests.kit import fakes_proxy as fakes
from tests.kit.app import settings
from tests.kit.event_loop import in_loop, turns, until
from tests.kit.fake_broker import FakeCluster


class Asking:
    def __init__(self, cluster: FakeCluster, seed: int = 1) -> None:
        self.ids = ProducerIds()
        self.stats = MetricRegistry()
        told = settings(cluster.bootstrap, 1)
        self.has_sent = False
        addresses = BrokerAddresses(fakes.known(fakes.accumulator(), {}, nodes=()), cluster.bootstrap, Random(1))
        connector = Connector(told, self.stats)
        self.requests = ProducerIdRequests(
            self.ids, addresses, connector, told, self.stats, Random(seed), lambda: self.has_sent
        )

    @property
    def refused(self) -> float:
        return self.stats.take().counters["forebay_errors_total", ("upstream", "idempotence")]

    @property
    def without(self) -> float:
        return self.stats.take().gauges["forebay_identities_without_producer_ids", ()]


@asynccontextmanager
async def asking(cluster: FakeCluster, seed: int = 1) -> AsyncIterator[Asking]:
    it = Asking(cluster, seed)
    task = asyncio.get_running_loop().create_task(it.requests.run())
    try:
        yield it
    finally:
        task.cancel()


@in_loop
async def test_a_worker_begins_with_two_ids_of_any_broker() -> None:
    async with FakeCluster({}, nodes=2) as cluster:
        cluster.idempotent = True
        cluster[0].down()
        async with asking(cluster) as it:
            await until(lambda: it.ids.count == 2)
        assert it.stats.take().gauges["forebay_producer_ids", ()] == 2
        found = [it.ids.of((waits, False, "forebay")) for waits in (False, True)]
        assert sorted(one.number for one in found if one is not None) == [100, 101]


@in_loop
async def test_an_id_begins_with_a_random_epoch_as_a_cluster_that_was_wiped_gives_out_the_same_ids_again() -> None:
    epochs = []
    for seed in range(4):
        async with FakeCluster({}) as cluster:
            cluster.idempotent = True
            async with asking(cluster, seed) as it:
                await until(lambda: it.ids.count == 2)
            found = [it.ids.of((waits, False, "forebay")) for waits in (False, True)]
            epochs += [one.first_epoch for one in found if one is not None]
    assert len(set(epochs)) == 8
    assert all(0 < epoch <= MAX_EPOCH // 2 for epoch in epochs), "as many again can be raised to"


@in_loop
async def test_a_broker_that_hangs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_id_requests, "BESIDE_S", 0.02)
    async with FakeCluster({}, nodes=3) as cluster:
        cluster.idempotent = True
        cluster[0].holds(INIT_PRODUCER_ID)
        cluster[1].down()
        async with asking(cluster) as it:
            await until(lambda: it.ids.count == 2)
            await until(lambda: not cluster[0].connections)


@asynccontextmanager
async def slow_cluster(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeCluster]:
    """Of two brokers that are both asked, since neither answers at once."""
    monkeypatch.setattr(producer_id_requests, "BESIDE_S", 0.02)
    async with FakeCluster({}, nodes=2) as cluster:
        cluster.idempotent = True
        for broker in cluster.brokers.values():
            broker.holds(INIT_PRODUCER_ID)
        yield cluster


@in_loop
async def test_two_brokers_that_are_both_well_share_what_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    async with slow_cluster(monkeypatch) as cluster:
        async with asking(cluster) as it:
            await until(lambda: it.ids.wanted)
            for number in range(18):
                it.ids.of((False, True, str(number)))
            both = [await broker.receives(INIT_PRODUCER_ID) for broker in cluster.brokers.values()]
            for broker, first in zip(cluster.brokers.values(), both, strict=True):
                broker.releases(INIT_PRODUCER_ID)
                first.answer()
            await until(lambda: it.ids.count == 20)
        assert sum(len(broker.requests(INIT_PRODUCER_ID)) for broker in cluster.brokers.values()) <= 21, (
            "but for one in the middle"
        )


@in_loop
async def test_a_broker_that_refuses_ends_nothing_that_another_one_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    async with slow_cluster(monkeypatch) as cluster:
        async with asking(cluster) as it:
            first, beside = [await broker.receives(INIT_PRODUCER_ID) for broker in cluster.brokers.values()]
            cluster.id_errors = [CLUSTER_AUTHORIZATION_FAILED]
            beside.answer()
            await until(lambda: len(cluster[1].connections) == 0)
            assert it.ids.enabled
            cluster[0].releases(INIT_PRODUCER_ID)
            first.answer()
            await until(lambda: it.ids.count == 2)
        assert it.refused == 0


@in_loop
async def test_a_coordinator_that_loads_is_asked_again() -> None:
    async with FakeCluster({}) as cluster:
        cluster.idempotent = True
        cluster.id_errors = [COORDINATOR_LOAD_IN_PROGRESS] * 3
        async with asking(cluster) as it:
            await until(lambda: it.ids.count == 2)
        assert len(cluster[0].requests(INIT_PRODUCER_ID)) == 5
        assert it.refused == 0


@in_loop
async def test_a_refusal_is_told_once_and_asked_again_later() -> None:
    async with FakeCluster({}) as cluster:
        cluster.idempotent = True
        cluster.id_errors = [CLUSTER_AUTHORIZATION_FAILED] * 3
        pause, producer_id_requests.AGAIN_S = producer_id_requests.AGAIN_S, 0.01  # type: ignore[misc]
        try:
            with structlog.testing.capture_logs() as logs:
                async with asking(cluster) as it:
                    await until(lambda: it.refused == 1)
                    assert not it.ids.enabled
                    await until(lambda: it.ids.count == 2)
        finally:
            producer_id_requests.AGAIN_S = pause  # type: ignore[misc]
        assert it.refused == 3
        assert [line["event"].split(":")[0] for line in logs] == [
            "brokers give out no producer ids",
            "brokers give out producer ids again",
        ]


@in_loop
async def test_a_user_without_ids_is_missed_by_nobody_until_records_are_sent() -> None:
    """Forebay's own may be allowed nothing but tokens for its clients, where it sends nothing itself."""
    async with FakeCluster({}) as cluster:
        cluster.idempotent = True
        cluster.id_errors = [CLUSTER_AUTHORIZATION_FAILED]
        async with asking(cluster) as it:
            await until(lambda: it.refused == 1)
            assert it.without == 0
            it.has_sent = True
            assert it.without == 1
            it.ids.enable()
            await until(lambda: it.ids.count > 0)
            assert it.without == 0


@in_loop
async def test_brokers_that_know_no_such_request_are_not_sent_one() -> None:
    async with FakeCluster({}) as cluster:
        cluster.hidden = {INIT_PRODUCER_ID}
        async with asking(cluster) as it:
            await until(lambda: it.refused == 1)
            assert not it.ids.enabled
        assert cluster[0].requests(INIT_PRODUCER_ID) == []


@in_loop
async def test_an_id_that_is_wanted_later_is_asked_for_then() -> None:
    async with FakeCluster({}) as cluster:
        cluster.idempotent = True
        async with asking(cluster) as it:
            await until(lambda: it.ids.count == 2)
            assert it.ids.of((False, True, "shop")) is None
            await until(lambda: it.ids.count == 3)


@in_loop
async def test_that_there_are_no_more_is_told_once() -> None:
    async with FakeCluster({}) as cluster:
        cluster.idempotent = True
        with structlog.testing.capture_logs() as logs:
            async with asking(cluster) as it:
                for number in range(MAX_IDS + 2):
                    it.ids.arrived((False, True, str(number)), number, 0)
                await until(lambda: not it.ids.wanted)
                for name in "late", "later":
                    it.ids.of((False, True, name))
                    await turns()
        assert [(line["log_level"], line["most"]) for line in logs if "no more" in line["event"]] == [
            ("warning", MAX_IDS)
        ]
