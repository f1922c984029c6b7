"""What a broker offers is asked once for all who want to know, and kept for a while."""

from __future__ import annotations

import pytest
import structlog

from forebay_codecs.api_keys import API_VERSIONS, PRODUCE
from forebay_codecs.api_versions import parse_api_versions
from forebay_proxy.brokers import broker_versions
from forebay_proxy.brokers.broker_versions import BrokerVersions
from forebay_proxy.brokers.connector import Connector
from forebay_proxy.config.settings import HostPort
from forebay_proxy.logs import RateLimited, get_logger
from forebay_proxy.metrics.registry import MetricRegistry
from tests.kit.app import settings
from tests.kit.event_loop import in_loop, turns, until
from tests.kit.fake_broker import FakeCluster


class Asking:
    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self.versions = BrokerVersions(
            self.addresses, Connector(settings(cluster.bootstrap, 1), MetricRegistry()), RateLimited(get_logger())
        )
        self.answers: list[bytes | None] = []

    def addresses(self, node_id: int | None) -> list[HostPort]:
        if node_id is None:
            return list(self.cluster.bootstrap)
        return [self.cluster.bootstrap[node_id]] if node_id in self.cluster.brokers else []

    async def get(self, node_id: int | None, version: int = 2) -> bytes | None:
        self.versions.get(node_id, version, self.answers.append)
        await until(lambda: self.answers)
        return self.answers.pop()


@in_loop
async def test_those_that_ask_at_the_same_time_share_one_answer_and_later_ones_have_it_at_once() -> None:
    async with FakeCluster({}) as cluster:
        asking = Asking(cluster)
        for _ in range(5):
            asking.versions.get(0, 2, asking.answers.append)
        await until(lambda: len(asking.answers) == 5)
        assert cluster[0].accepted == 1
        asking.versions.get(0, 2, asking.answers.append)
        assert len(asking.answers) == 6
        first = asking.answers[0]
        assert first is not None
        assert parse_api_versions(first, 2)[PRODUCE] == (0, cluster.produce_versions[1])
        assert len(set(asking.answers)) == 1


@in_loop
async def test_each_broker_and_each_version_has_its_own() -> None:
    async with FakeCluster({}, nodes=2) as cluster:
        asking = Asking(cluster)
        answers = {await asking.get(node, version) for node in (0, 1) for version in (0, 3)}
        assert len(answers) == 2  # v0 and v3; the brokers are equal
        assert (cluster[0].accepted, cluster[1].accepted) == (2, 2)


@in_loop
@pytest.mark.parametrize("version", range(4))
async def test_no_client_is_told_the_throttle_time_of_who_asked(version: int) -> None:
    async with FakeCluster({}) as cluster:
        usual = await Asking(cluster).get(0, version)
        cluster.versions_throttle_ms = 800
        assert await Asking(cluster).get(0, version) == usual


@in_loop
async def test_an_old_answer_is_asked_for_again() -> None:
    async with FakeCluster({}) as cluster:
        asking = Asking(cluster)
        await asking.get(0)
        (key,) = asking.versions._known
        when, answer = asking.versions._known[key]
        asking.versions._known[key] = when - broker_versions.MAX_AGE, answer
        cluster.produce_versions = (3, 5)
        again = await asking.get(0)
        assert again is not None
        assert parse_api_versions(again, 2)[PRODUCE] == (0, 5)


@in_loop
async def test_a_broker_that_was_away_may_have_come_back_another() -> None:
    async with FakeCluster({}, nodes=2) as cluster:
        asking = Asking(cluster)
        for node in (0, 1, None):
            await asking.get(node)
        asking.versions.forget(0)
        assert [node for node, _ in asking.versions._known] == [1]


@in_loop
async def test_the_last_answer_in_a_version_outlives_whoever_gave_it() -> None:
    async with FakeCluster({}, nodes=2) as cluster:
        asking = Asking(cluster)
        assert asking.versions.last(2) is None
        await asking.get(0)
        cluster.produce_versions = (3, 5)
        newest = await asking.get(1)
        for node in (0, 1):
            cluster[node].down()
            asking.versions.forget(node)
            assert await asking.get(node) is None
        assert (asking.versions.last(2), asking.versions.last(3)) == (newest, None)


@in_loop
async def test_any_broker_will_do_for_the_bootstrap_listener() -> None:
    async with FakeCluster({}, nodes=2) as cluster:
        cluster[0].down()
        assert await Asking(cluster).get(None) is not None


@in_loop
async def test_no_broker_no_answer_and_nothing_is_kept() -> None:
    async with FakeCluster({}) as cluster:
        asking = Asking(cluster)
        cluster[0].down()
        assert await asking.get(0) is None
        assert await asking.get(9) is None
        await cluster[0].up()
        assert await asking.get(0) is not None


@in_loop
async def test_closing_ends_what_waits() -> None:
    async with FakeCluster({}) as cluster:
        cluster[0].holds(API_VERSIONS)
        asking = Asking(cluster)
        asking.versions.get(0, 2, asking.answers.append)
        await cluster[0].receives(API_VERSIONS)
        asking.versions.close()
        await until(lambda: asking.answers == [None])
        await until(lambda: not cluster[0].connections)
        await turns()


@in_loop
async def test_closing_ends_what_has_not_even_begun_to_be_asked() -> None:
    async with FakeCluster({}) as cluster:
        asking = Asking(cluster)
        asking.versions.get(0, 2, asking.answers.append)
        asking.versions.get(0, 2, asking.answers.append)
        asking.versions.close()
        assert asking.answers == [None, None]
        await turns()
        assert asking.answers == [None, None]
        assert cluster[0].accepted == 0
        assert asking.versions._tasks == set()


@in_loop
async def test_who_asks_again_when_told_of_the_end_is_told_at_once() -> None:
    async with FakeCluster({}) as cluster:
        cluster[0].holds(API_VERSIONS)
        asking = Asking(cluster)
        asking.versions.get(0, 0, lambda _: asking.versions.get(None, 0, asking.answers.append))
        await cluster[0].receives(API_VERSIONS)
        asking.versions.close()
        assert asking.answers == [None]
        await until(lambda: not cluster[0].connections)
        assert len(cluster[0].requests(API_VERSIONS)) == 1


@in_loop
async def test_a_broker_that_does_not_tell_is_told_of_once_until_it_does() -> None:
    async with FakeCluster({}) as cluster:
        asking = Asking(cluster)
        with structlog.testing.capture_logs() as logs:
            for _ in range(2):
                cluster[0].down()
                for version in range(3):
                    assert await asking.get(0, version) is None
                await cluster[0].up()
                assert await asking.get(0) is not None
                asking.versions.forget(0)
        assert [line["event"] for line in logs] == ["a broker did not tell its versions"] * 2
