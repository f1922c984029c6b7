"""Whether brokers answer is found out without a login, and once."""

from __future__ import annotations

import asyncio
from random import Random

import structlog

from forebay_codecs.api_keys import API_VERSIONS
from forebay_proxy.brokers.broker_addresses import BrokerAddresses
from forebay_proxy.brokers.broker_probe import BrokerProbe
from forebay_proxy.brokers.connector import Connector
from forebay_proxy.metrics.registry import MetricRegistry
from tests.kit import fakes_proxy as fakes
from tests.kit.app import settings
from tests.kit.event_loop import in_loop, turns, until
from tests.kit.fake_broker import FakeCluster


def probe_of(cluster: FakeCluster) -> BrokerProbe:
    told = settings(cluster.bootstrap, 1, security_protocol="SASL_PLAINTEXT")
    addresses = BrokerAddresses(fakes.known(fakes.accumulator(), {}, nodes=()), cluster.bootstrap, Random(1))
    return BrokerProbe(addresses, Connector(told, MetricRegistry()), told, Random(1))


@in_loop
async def test_the_first_broker_that_answers_will_do_and_is_asked_for_nothing_else() -> None:
    async with FakeCluster({}, nodes=2) as cluster:
        cluster.exchange = [(b"token", None)]
        cluster[0].down()
        probe = probe_of(cluster)
        running = asyncio.get_running_loop().create_task(probe.run())
        await until(lambda: probe.answered)
        await turns()
        assert [asked.api_key for asked in cluster[1].seen] == [API_VERSIONS]
        assert not running.done()
        running.cancel()


@in_loop
async def test_none_is_given_up() -> None:
    async with FakeCluster({}) as cluster:
        cluster[0].down()
        probe = probe_of(cluster)
        with structlog.testing.capture_logs() as logs:
            running = asyncio.get_running_loop().create_task(probe.run())
            await until(lambda: len(logs) >= 3)
            assert not probe.answered
            assert [line["tries"] for line in logs[:3]] == [1, 2, 4]
            await cluster[0].up()
            await until(lambda: probe.answered)
        assert logs[-1]["event"] == "a broker answers"
        running.cancel()
