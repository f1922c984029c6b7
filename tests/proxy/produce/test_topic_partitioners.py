"""Racks from the settings to the partitions that records go to."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

from forebay_policies.accumulator import Accumulator
from forebay_policies.buffer_pool import BufferPool
from forebay_proxy.brokers.cluster import Cluster
from forebay_proxy.config.kinds import ListenerAddress
from forebay_proxy.config.listeners import ListenerSettings
from forebay_proxy.config.settings import HostPort, Settings
from forebay_proxy.metrics.registry import MetricRegistry
from forebay_proxy.produce.topic_partitioners import TopicPartitioners
from tests.kit.app import NODES, running
from tests.kit.event_loop import in_loop
from tests.kit.fake_broker import FakeCluster
from tests.kit.ports import LOOPBACK, free_run
from tests.kit.wire import WireClient, batch, null_key, produce
from tests.policies.fakes import FakeTopic

LEADERS = (0, 1, 2, 0, 1, 2)
RACKS = {0: "a", 1: "b", 2: "c"}
REQUESTS = 120


async def racks_of(records: int = REQUESTS, port: int | None = None, **settings: Any) -> Counter[str]:
    """How many records of a client with these settings went to leaders in each rack. `port`: of another listener."""
    async with FakeCluster({"ponds": LEADERS}, nodes=3) as cluster:
        cluster.racks = RACKS
        async with running(cluster.bootstrap, partitioner_sticky_batch_size=512, **settings) as forebay:
            client = await (forebay.client(0) if port is None else WireClient.connect(port + 1))
            for number in range(records):
                client.send(produce(number, ("ponds", 0, batch(null_key("x" * 200)))))
                await client.receives(number)
            count = Counter({RACKS[leader]: 0 for leader in LEADERS})
            client.close()
            for partition, leader in enumerate(LEADERS):
                count[RACKS[leader]] += len(cluster.values("ponds", partition))
            return count


@in_loop
async def test_records_stay_in_their_clients_rack_as_long_as_the_skew_allows() -> None:
    networks = {"127.0.0.0/8": "b"}
    stay = await racks_of(client_racks=networks, partitioner_rack_aware=True, partitioner_rack_max_skew=1.0)
    assert stay["b"] == pytest.approx(REQUESTS * 2 / 3, rel=0.15)  # twice a fair share
    assert stay.total() == REQUESTS


@in_loop
async def test_where_forebay_knows_its_own_rack_alone_all_stay() -> None:
    assert (await racks_of(client_rack="b", partitioner_rack_aware=True))["b"] == REQUESTS


@in_loop
async def test_without_the_setting_racks_do_not_matter() -> None:
    assert max((await racks_of(client_rack="b")).values()) < REQUESTS * 0.6


@in_loop
async def test_every_partitioner_is_aware_of_racks() -> None:
    for partitioner in ("uniform", "round_robin", "expected_wait", "sticky"):
        found = await racks_of(
            60, client_rack="c", partitioner=partitioner, partitioner_rack_aware=True, partitioner_rack_max_skew=1.0
        )
        assert found["c"] > max(found["a"], found["b"]), partitioner


@in_loop
async def test_a_network_comes_before_the_listener_and_that_before_forebays_own() -> None:
    aware = {"partitioner_rack_aware": True, "partitioner_rack_max_skew": 1.0, "client_rack": "a"}
    port = free_run(1 + NODES)
    listener: dict[str, Any] = {
        "listen": None,
        "listeners": (ListenerAddress("PLAINTEXT", LOOPBACK, port),),
        "listener_name": {"plaintext": ListenerSettings(client_rack="b")},
    }
    networks = {"client_racks": {"127.0.0.0/8": "c"}}
    for where, settings, rack in (
        (None, aware, "a"),
        (port, aware | listener, "b"),
        (port, aware | listener | networks, "c"),
    ):
        assert (await racks_of(60, where, **settings)).most_common(1)[0][0] == rack


@in_loop
async def test_choices_stay_counted_when_their_topic_is_forgotten() -> None:
    async with FakeCluster({"ponds": LEADERS}, nodes=3) as cluster:
        cluster.racks = RACKS
        settings = {"client_rack": "a", "partitioner_rack_aware": True, "partitioner": "round_robin"}
        async with running(cluster.bootstrap, **settings) as forebay:
            client = await forebay.client(0)
            for number in range(3):
                client.send(produce(number, ("ponds", 0, batch(null_key("x")))))
                await client.receives(number)
            before = forebay.count("forebay_partitioner_choices_total", "round_robin", "switch")
            forebay.app._realm.view.cluster.forget_idle(float("inf"), 0.0)
            assert before == 3
            assert forebay.count("forebay_partitioner_choices_total", "round_robin", "switch") == 3


@pytest.mark.parametrize(
    ("partitioner", "timeout_ms", "left"),
    [("adaptive", 500, True), ("expected_wait", 0, True), ("adaptive", 0, False), ("uniform", 500, False)],
)
def test_a_rack_whose_broker_hangs_is_left_by_partitioners_that_leave_partitions(
    partitioner: str, timeout_ms: int, *, left: bool
) -> None:
    settings = Settings(
        bootstrap_servers=(HostPort(LOOPBACK, 1),),
        client_rack="a",
        partitioner=partitioner,
        partitioner_rack_aware=True,
        partitioner_availability_timeout_ms=timeout_ms,
    )
    made = TopicPartitioners(
        settings,
        MetricRegistry(),
        Random(1),
        Cluster(Accumulator(BufferPool(1 << 20, 512, 512), 512, 4096)),
    )
    topic = FakeTopic(2, led_in="ab", loads={0: 512})
    topic.waiting = {0: 0.0}
    assert made.of("ponds", "a").partition(topic, 100, 2.0) == (1 if left else 0)
