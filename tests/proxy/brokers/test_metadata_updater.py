"""One Metadata request in flight; the next carries all that came meanwhile; one that fails goes to another broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from time import monotonic
from typing import Any

import pytest

from forebay_codecs.api_keys import METADATA
from forebay_codecs.error_codes import NONE, REBOOTSTRAP_REQUIRED, UNKNOWN_TOPIC_OR_PARTITION
from forebay_codecs.metadata import NO_TOPIC_ID, Topic
from forebay_codecs.metadata_response import assemble, encode_cluster, encode_topic
from forebay_policies import metadata_requests
from forebay_policies.metadata_cache import NEVER, Ages, MetadataCache
from forebay_policies.missing_topics import TRIES
from forebay_proxy.brokers import metadata_updater
from forebay_proxy.brokers.broker_addresses import BrokerAddresses
from forebay_proxy.brokers.cluster import Cluster
from forebay_proxy.brokers.connector import Connector
from forebay_proxy.brokers.metadata_updater import MetadataUpdater
from forebay_proxy.metrics.registry import MetricRegistry
from tests.kit import fakes_proxy as fakes
from tests.kit.app import settings
from tests.kit.event_loop import PATIENCE, in_loop, turns, until
from tests.kit.fake_broker import Asked, FakeCluster
from tests.kit.ports import LOOPBACK
from tests.kit.wire import keyed


def topics(asked: Asked) -> list[str]:
    return asked.metadata.names


def knows_nothing(asked: Asked, error_code: int) -> None:
    """Answer without brokers, that there are no such topics."""
    told = [Topic(UNKNOWN_TOPIC_OR_PARTITION, name, NO_TOPIC_ID, False, ()) for name in topics(asked)]
    cluster = encode_cluster(asked.version, {}, None, -1)
    answer = assemble(asked.version, 0, cluster, [encode_topic(topic, asked.version) for topic in told])[8:]
    if asked.version >= 13:
        answer = answer[:-3] + error_code.to_bytes(2, "big") + b"\0"
    asked.respond(answer)


class Updating:
    def __init__(self, brokers: FakeCluster, rng: Random, **changed: Any) -> None:
        self.brokers = brokers
        self.accumulator = fakes.accumulator()
        self.cluster = Cluster(self.accumulator)
        self.stats = MetricRegistry()
        told = settings(brokers.bootstrap, 1, **changed)
        ages = Ages.of_ms(told.metadata_soft_age_ms, told.metadata_max_age_ms, told.metadata_max_idle_ms)
        self.cache = MetadataCache(ages, told.metadata_max_topics, told.metadata_refresh_group_size, rng)
        addresses = BrokerAddresses(self.cluster, told.bootstrap_servers, rng)
        connector = Connector(told, self.stats)
        self.updater = MetadataUpdater(self.cluster, self.cache, addresses, connector, told, self.stats, rng)
        self.ready: list[str] = []

    def want(self, *names: str) -> None:
        for name in names:
            self.updater.want(name, lambda name=name: self.ready.append(name))  # type: ignore[misc]

    def asked(self) -> list[list[str]]:
        """The topics of each request, over all brokers in order of their ids."""
        return [topics(asked) for broker in self.brokers.brokers.values() for asked in broker.requests(METADATA)]


@asynccontextmanager
async def updating(brokers: FakeCluster, seed: int = 1, **changed: Any) -> AsyncIterator[Updating]:
    """Past its first refresh, which learns of the brokers."""
    running = Updating(brokers, Random(seed), **changed)
    task = asyncio.get_running_loop().create_task(running.updater.run())
    try:
        await until(lambda: running.cluster.updated_at is not None)
        await until(lambda: running.updater._connection is not None)
        for broker in brokers.brokers.values():
            broker.forget()
        yield running
    finally:
        task.cancel()
        running.updater.close()
        await turns()


@in_loop
async def test_the_next_request_carries_all_that_came_meanwhile() -> None:
    async with FakeCluster({"a": [0], "b": [0], "c": [0]}) as brokers, updating(brokers) as running:
        brokers[0].holds(METADATA)
        running.want("a")
        first = await brokers[0].receives(METADATA)
        running.want("b", "c")
        running.want("b")
        running.updater.invalidate(["a"], "error")
        await turns(100)
        assert running.asked() == [["a"]]
        first.answer()
        second = await brokers[0].receives(METADATA)
        assert topics(second) == ["a", "b", "c"]
        assert running.ready == ["a"]
        second.answer()
        await until(lambda: sorted(running.ready) == ["a", "b", "b", "c"])


@in_loop
async def test_nothing_is_asked_while_nothing_is_wanted() -> None:
    async with FakeCluster({"a": [0]}) as brokers, updating(brokers, retry_backoff_ms=1) as running:
        await turns(1000)
        assert running.asked() == []


@in_loop
async def test_brokers_alone_are_asked_for_never_all_topics() -> None:
    async with FakeCluster({"a": [0]}) as brokers, updating(brokers) as running:
        running.updater.invalidate([], "connection")
        asked = await brokers[0].receives(METADATA)
        assert asked.body[:4] == b"\0\0\0\0"  # null, −1, would be all


@in_loop
async def test_a_broker_that_fails_is_followed_by_another() -> None:
    async with FakeCluster({"a": [0]}, nodes=3) as brokers, updating(brokers) as running:
        for broker in brokers.brokers.values():
            broker.holds(METADATA)
        running.want("a")
        failed: set[int] = set()
        while len(failed) < 3:  # the generator may choose one twice, but not for ever
            await until(lambda: any(broker.requests(METADATA) for broker in brokers.brokers.values()))
            for broker in brokers.brokers.values():
                for asked in broker.requests(METADATA):
                    failed.add(broker.node_id)
                    asked.close()
                broker.forget()
        for broker in brokers.brokers.values():
            broker.releases(METADATA)
        await until(lambda: running.ready == ["a"])
        assert running.stats.take().counters["forebay_errors_total", ("upstream", "metadata")] >= 3


@in_loop
@pytest.mark.parametrize("error_code", [0, 48], ids=["it is starting", "something has failed there"])
async def test_an_answer_without_brokers_is_not_believed(error_code: int) -> None:
    """What it says of topics, that there are none, would refuse all records that wait for a leader."""
    async with FakeCluster({"a": [0]}) as brokers, updating(brokers) as running:
        running.want("a")
        await until(lambda: running.ready == ["a"])
        brokers[0].forget()
        brokers[0].holds(METADATA)
        running.updater.invalidate(["a"], "error")
        asked = await brokers[0].receives(METADATA)
        brokers[0].releases(METADATA)
        knows_nothing(asked, error_code)
        failed = ("forebay_errors_total", ("upstream", "metadata"))
        await until(lambda: running.stats.take().counters[failed] == 1)
        assert running.cluster.usable("a") is not None
        assert running.cache.brokers is not None
        assert running.cache.brokers.there
        await until(lambda: running.cache.find("a", monotonic()) is not None)


@in_loop
async def test_brokers_that_are_down_are_asked_last() -> None:
    for seed in range(5):
        async with FakeCluster({"a": [0]}, nodes=3) as brokers, updating(brokers, seed) as running:
            for node_id in (0, 2):
                running.cluster.set_down(running.cluster.nodes[node_id], down=True)
            brokers[1].holds(METADATA)
            running.updater.close()
            await turns()
            running.want("a")
            await brokers[1].receives(METADATA)


@in_loop
async def test_which_broker_is_asked_is_the_generators_choice() -> None:
    chosen = []
    for seed in range(12):
        async with FakeCluster({"a": [0]}, nodes=3) as brokers, updating(brokers, seed) as running:
            running.updater.close()
            await turns()
            running.want("a")
            await until(lambda running=running: running.ready)  # type: ignore[misc]
            chosen += [node for node, broker in brokers.brokers.items() if broker.requests(METADATA)]
    expected = []
    for seed in range(12):
        nodes = [0, 1, 2]
        Random(seed).shuffle(nodes)
        expected.append(nodes[0])
    assert chosen == expected
    assert len(set(chosen)) > 1


@in_loop
async def test_a_topic_that_stays_unknown_is_told_after_some_tries() -> None:
    async with FakeCluster({"a": [0]}) as brokers, updating(brokers, retry_backoff_ms=1) as running:
        running.want("nowhere")
        await until(lambda: running.ready == ["nowhere"])
        assert running.asked() == [["nowhere"]] * TRIES
        running.want("nowhere")
        await until(lambda: running.ready == ["nowhere"] * 2)


@in_loop
async def test_a_topic_that_turns_up_is_told_at_once() -> None:
    async with FakeCluster({}) as brokers, updating(brokers) as running:
        running.want("late")
        await brokers[0].receives(METADATA)
        await brokers[0].receives(METADATA)
        brokers.topics["late"] = [0]
        await until(lambda: running.ready == ["late"])
        assert len(running.asked()) < TRIES


@in_loop
async def test_records_that_wait_for_a_leader_keep_their_topic_asked_for_until_there_is_one() -> None:
    async with FakeCluster({"a": [-1]}) as brokers, updating(brokers, retry_backoff_ms=1) as running:
        running.want("a")
        await until(lambda: running.ready == ["a"])
        queue = running.cluster.topics["a"].queues.queue(0)
        fakes.append(running.accumulator, queue, keyed("x"))
        running.updater.invalidate(["a"], "error")
        for _ in range(3):
            assert topics(await brokers[0].receives(METADATA)) == ["a"]
        brokers.topics["a"] = [0]
        await until(lambda: queue.leader == 0)
        await until(lambda: not running.updater.requests._wanted)


@in_loop
async def test_all_topics_are_refreshed_at_least_as_often_as_set_and_idle_ones_forgotten() -> None:
    async with (
        FakeCluster({"a": [0]}) as brokers,
        updating(brokers, metadata_max_age_ms=100, metadata_max_idle_ms=150, retry_backoff_ms=1) as running,
    ):
        running.want("a")
        await until(lambda: running.ready == ["a"])
        brokers[0].forget()
        assert topics(await brokers[0].receives(METADATA)) in (["a"], [])
        await until(lambda: "a" not in running.cluster.topics)


@in_loop
async def test_no_broker_at_the_start_is_tried_again() -> None:
    async with FakeCluster({"a": [0]}) as brokers:
        brokers[0].down()
        running = Updating(brokers, Random(1))
        task = asyncio.get_running_loop().create_task(running.updater.run())
        failures = running.stats.counter("forebay_errors_total", side="upstream", kind="metadata")
        await until(lambda: failures.value >= 2)
        await brokers[0].up()
        await until(lambda: running.cluster.updated_at is not None)
        task.cancel()
        running.updater.close()
        await turns()


@in_loop
async def test_each_pause_after_a_failure_is_twice_as_long_as_the_one_before() -> None:
    async with FakeCluster({"a": [0]}) as brokers:
        brokers[0].down()
        running = Updating(brokers, Random(1), retry_backoff_ms=10, retry_backoff_max_ms=1000)
        task = asyncio.get_running_loop().create_task(running.updater.run())
        failures = running.stats.counter("forebay_errors_total", side="upstream", kind="metadata")
        began = monotonic()
        await until(lambda: failures.value >= 6)
        assert monotonic() - began >= 0.8 * (0.01 + 0.02 + 0.04 + 0.08 + 0.16)
        task.cancel()
        running.updater.close()
        await turns()


@in_loop
async def test_more_topics_than_a_broker_takes_in_a_request_are_asked_for_one_part_after_the_other() -> None:
    names = [f"t{number}" for number in range(7)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(metadata_requests, "MAX_TOPICS", 3)
        async with FakeCluster({name: [0] for name in names}) as brokers, updating(brokers) as running:
            running.want(*names)
            await until(lambda: sorted(running.ready) == names)
            assert [len(asked) for asked in running.asked()] == [3, 3, 1]


@in_loop
async def test_a_topic_that_does_not_exist_takes_no_place_once_that_is_told() -> None:
    async with FakeCluster({"a": [0]}) as brokers, updating(brokers, retry_backoff_ms=1) as running:
        told: list[int] = []
        running.updater.want("nowhere", lambda: told.append(running.cluster.topics["nowhere"].error_code))
        await until(lambda: told == [UNKNOWN_TOPIC_OR_PARTITION])
        assert "nowhere" not in running.cluster.topics
        assert "nowhere" not in running.accumulator.topics


@in_loop
async def test_a_leader_that_a_broker_names_is_taken_over_without_a_request() -> None:
    async with FakeCluster({"a": [0, 0, 0]}, nodes=2) as brokers, updating(brokers) as running:
        running.want("a")
        await until(lambda: running.ready == ["a"])
        asked = len(running.asked())
        known = running.cluster.topics["a"].queues
        running.updater.leaders_named("a", {1: (1, 4), 2: (1, 4)})
        assert list(known.leaders) == [0, 1, 1]
        await turns(100)
        assert len(running.asked()) == asked
        assert running.stats.value("forebay_metadata_leaders_named_total") == 2


@pytest.mark.parametrize(
    "named",
    [
        pytest.param({}, id="nobody is named"),
        pytest.param({1: (-1, 4)}, id="no leader"),
        pytest.param({1: (7, 4)}, id="nobody knows broker 7"),
        pytest.param({1: (1, 3)}, id="of an epoch that is known"),
        pytest.param({0: (1, 4), 1: (7, 4)}, id="one of two"),
    ],
)
@in_loop
async def test_brokers_are_asked_where_the_leader_is_not_named_or_no_news(named: dict[int, tuple[int, int]]) -> None:
    brokers = FakeCluster({"a": [0, 0]}, nodes=2)
    brokers.metadata_versions = (0, 9)
    brokers.epochs["a"] = 3
    async with brokers, updating(brokers) as running:
        running.want("a")
        await until(lambda: running.ready == ["a"])
        brokers.topics["a"] = [0, 1]
        asked = len(running.asked())
        if named:
            running.updater.leaders_named("a", named)
        else:
            running.updater.leader_changed("a")
        assert running.cluster.topics["a"].queues.leaders[1] == 0
        await until(lambda: running.cluster.topics["a"].queues.leaders[1] == 1)
        assert running.asked()[asked:] == [["a"]]


@in_loop
async def test_what_nobody_waits_for_any_more_is_not_asked_for() -> None:
    """Brokers may be away for an hour, and clients may name a new topic every second."""

    class Asking:
        def __getattr__(self, name: str) -> Any:
            raise AssertionError("told after it left")

    brokers = FakeCluster({"a": [0], "b": [0], "c": [0]})
    brokers.metadata_versions = (0, 12)  # in which ids are asked for
    async with brokers, updating(brokers, retry_backoff_ms=1) as running:
        brokers[0].holds(METADATA)
        running.updater.invalidate([], "error")
        under_way = await brokers[0].receives(METADATA)
        gone = [Asking() for _ in range(3)]
        for asker in gone:
            running.updater.requests.ask_topic("b", NEVER, asker, monotonic(), creates=False)
            running.updater.requests.ask_topic("c", NEVER, asker, monotonic(), creates=True)
            running.updater.requests.ask_id(bytes(16), NEVER, asker)
        running.want("a")
        for asker in gone:
            running.updater.requests.drop(["b", "c"], [bytes(16)], asker)
        assert running.updater.requests.may_create("c", monotonic()), "nobody was asked to"
        brokers[0].releases(METADATA)
        under_way.answer()
        await until(lambda: running.ready == ["a"])
        assert running.asked()[1:] == [["a"]]
        assert not any(asked.metadata.ids for asked in brokers[0].requests(METADATA))
        assert not running.updater.requests._clients.by_name
        assert not running.updater.requests._clients.by_id


@in_loop
async def test_a_failed_request_does_not_bring_back_what_nobody_waits_for() -> None:
    asker: Any = object()
    for creates in (False, True):
        brokers = FakeCluster({"a": [0]})
        brokers.metadata_versions = (0, 12)
        async with brokers, updating(brokers, retry_backoff_ms=1) as running:
            brokers[0].holds(METADATA)
            running.updater.requests.ask_topic("b", NEVER, asker, monotonic(), creates=creates)
            if not creates:  # which is a request of its own
                running.updater.requests.ask_id(bytes(16), NEVER, asker)
            under_way = await brokers[0].receives(METADATA)
            assert under_way.metadata.names == ["b"]
            running.updater.requests.drop(["b"], [bytes(16)], asker)
            brokers.brokers[0].forget()
            brokers[0].releases(METADATA)
            under_way.close()
            running.want("a")
            await until(lambda: running.ready == ["a"])
            assert [name for names in running.asked() for name in names] == ["a"]
            assert not any(asked.metadata.ids for asked in brokers[0].requests(METADATA))


@in_loop
async def test_records_find_a_topic_that_a_client_asked_for() -> None:
    async with FakeCluster({"a": [0]}) as brokers, updating(brokers) as running:
        running.want("a")
        await until(lambda: running.ready == ["a"])
        running.cluster._forget("a")
        running.want("a")
        await until(lambda: running.ready == ["a", "a"])
        assert running.cluster.usable("a") is not None
        assert running.asked() == [["a"]]


def once_all_have_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers come in the same turn."""
    first = metadata_updater._first

    async def all_at_once(open_: metadata_updater._Attempts) -> Any:
        await asyncio.wait(open_)
        return await first(open_)

    monkeypatch.setattr(metadata_updater, "_first", all_at_once)


class TestABrokerThatDoesNotHelp:
    @in_loop
    @pytest.mark.parametrize("seed", range(4))
    async def test_a_hung_broker_costs_a_moment_and_not_its_timeout(
        self, seed: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(metadata_updater, "HEDGE_S", 0.02)
        async with FakeCluster({"ponds": [0]}, nodes=3) as brokers, updating(brokers, seed) as running:
            (asked,) = [node for node in range(3) if brokers[node].connections]
            brokers[asked].holds(METADATA)
            running.want("ponds")
            await until(lambda: running.ready == ["ponds"])
            await until(lambda: not brokers[asked].connections)

    @in_loop
    @pytest.mark.parametrize("seed", range(4))
    async def test_of_two_that_answer_in_the_same_turn_one_connection_stays_and_it_is_known_whose_it_is(
        self, seed: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(metadata_updater, "HEDGE_S", 0.02)
        once_all_have_answered(monkeypatch)
        async with FakeCluster({"ponds": [0]}, nodes=3) as brokers, updating(brokers, seed) as running:
            for broker in brokers.brokers.values():
                broker.holds(METADATA)
            running.want("ponds")
            await until(lambda: len(running.asked()) == 2)
            for broker in brokers.brokers.values():
                broker.releases(METADATA)
                for asked in broker.requests(METADATA):
                    asked.answer()
            await until(lambda: running.ready == ["ponds"])
            await until(lambda: sum(len(broker.connections) for broker in brokers.brokers.values()) == 1)
            (stays,) = [broker for broker in brokers.brokers.values() if broker.connections]
            assert running.updater._address == (LOOPBACK, stays.port)

    @in_loop
    async def test_where_there_is_no_other_broker_the_answer_is_waited_for(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(metadata_updater, "HEDGE_S", 0.01)
        async with FakeCluster({"ponds": [0]}) as brokers, updating(brokers) as running:
            brokers[0].holds(METADATA)
            running.want("ponds")
            asked = await brokers[0].receives(METADATA)
            while asked.metadata.names != ["ponds"]:
                asked = await brokers[0].receives(METADATA)
            await asyncio.sleep(0.05)
            assert running.asked().count(["ponds"]) == 1
            asked.answer()
            await until(lambda: running.ready == ["ponds"])

    @in_loop
    @pytest.mark.parametrize("seed", range(4))
    async def test_an_answer_that_does_not_cure_the_error_is_not_asked_for_there_again(self, seed: int) -> None:
        """One broker lags behind: it tells of the old leader."""
        async with FakeCluster({"ponds": [0]}, nodes=3) as brokers, updating(brokers, seed) as running:
            running.want("ponds")
            await until(lambda: running.ready == ["ponds"])
            by_name = {
                node: len([a for a in brokers[node].requests(METADATA) if topics(a) == ["ponds"]]) for node in range(3)
            }
            (first,) = [node for node, count in by_name.items() if count]
            running.updater.leader_changed("ponds")
            await until(lambda: running.asked().count(["ponds"]) == 2)
            assert len([a for a in brokers[first].requests(METADATA) if topics(a) == ["ponds"]]) == 1

    @in_loop
    async def test_the_one_that_answered_last_is_never_the_next_while_there_is_another(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(metadata_updater, "HEDGE_S", PATIENCE)
        async with FakeCluster({"ponds": [0]}, nodes=2) as brokers, updating(brokers, retry_backoff_ms=1) as running:
            running.want("ponds")
            await until(lambda: running.ready == ["ponds"])
            answered = []
            for _ in range(10):
                for broker in brokers.brokers.values():
                    broker.forget()
                running.updater.leader_changed("ponds")
                await until(lambda: running.asked() == [["ponds"]])
                answered += [node for node in range(2) if brokers[node].requests(METADATA)]
            assert answered in ([0, 1] * 5, [1, 0] * 5)

    @in_loop
    async def test_one_that_took_its_time_is_not_asked_again_at_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """For as long as a partition has no leader, brokers take turns."""
        monkeypatch.setattr(metadata_updater, "HEDGE_S", 0.05)
        async with FakeCluster({"ponds": [-1]}, nodes=3) as brokers, updating(brokers, retry_backoff_ms=1) as running:
            brokers[1].holds(METADATA)
            running.want("ponds")
            await until(lambda: running.ready == ["ponds"])
            fakes.append(running.accumulator, running.cluster.topics["ponds"].queues.queue(0), keyed("x"))
            running.updater.invalidate(["ponds"], "error")
            await until(lambda: len(running.asked()) > 30)
            assert len(brokers[1].requests(METADATA)) <= 1

    @in_loop
    async def test_brokers_that_take_turns_are_asked_on_the_connections_of_before(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """For as long as a partition has no leader, they are asked every `retry.backoff.ms`."""
        monkeypatch.setattr(metadata_updater, "HEDGE_S", PATIENCE)
        async with FakeCluster({"ponds": [-1]}, nodes=3) as brokers, updating(brokers, retry_backoff_ms=1) as running:
            running.want("ponds")
            await until(lambda: running.ready == ["ponds"])
            fakes.append(running.accumulator, running.cluster.topics["ponds"].queues.queue(0), keyed("x"))
            running.updater.invalidate(["ponds"], "error")
            await until(lambda: len(running.asked()) > 30)
            assert [broker.accepted for broker in brokers.brokers.values()] == [1, 1, 1]
            running.updater.leave_idle(monotonic(), 60.0)
            await until(lambda: len(running.asked()) > 40)
            assert [broker.accepted for broker in brokers.brokers.values()] == [1, 1, 1]
            brokers.topics["ponds"] = [0]
            await until(lambda: running.cluster.topics["ponds"].queues.leaders[0] == 0)
            running.updater.leave_idle(monotonic() + 61.0, 60.0)
            await until(lambda: sum(len(broker.connections) for broker in brokers.brokers.values()) == 1)


@asynccontextmanager
async def moved(seed: int, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Updating, FakeCluster]]:
    """Three brokers are known, which do not answer yet; `bootstrap.servers` lead to another cluster by now."""
    old, new = FakeCluster({"a": [0]}, nodes=3), FakeCluster({"a": [0]})
    old.metadata_versions = (0, 13)
    monkeypatch.setattr(metadata_updater, "HEDGE_S", PATIENCE)
    async with old, new, updating(old, seed, retry_backoff_ms=1) as running:
        for broker in old.brokers.values():
            broker.holds(METADATA)
        running.updater._addresses = BrokerAddresses(running.cluster, new.bootstrap, Random(seed))
        running.updater.close()
        await turns()
        yield running, new


async def once_asked(brokers: FakeCluster) -> Asked:
    """The one request that a broker has to answer now."""
    await until(lambda: any(broker.requests(METADATA) for broker in brokers.brokers.values()))
    ((asked,),) = (requests for broker in brokers.brokers.values() if (requests := broker.requests(METADATA)))
    for broker in brokers.brokers.values():
        broker.forget()
    return asked


class TestBrokersThatDoNotKnowTheCluster:
    @in_loop
    @pytest.mark.parametrize("seed", range(4))
    async def test_each_is_asked_once_and_then_a_bootstrap_server(
        self, seed: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with moved(seed, monkeypatch) as (running, new):
            running.want("a")
            who = set()
            for _ in range(3):
                asked = await once_asked(running.brokers)
                who.add(asked.connection.broker.node_id)
                assert not new[0].requests(METADATA)
                knows_nothing(asked, NONE)
            await until(lambda: running.ready == ["a"])
            assert len(who) == 3
            assert new[0].requests(METADATA)
            assert running.cluster.nodes[0].port == new[0].port

    @in_loop
    @pytest.mark.parametrize("seed", range(4))
    async def test_a_bootstrap_server_is_next_where_one_of_them_says_so(
        self, seed: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with moved(seed, monkeypatch) as (running, _):
            running.want("a")
            knows_nothing(await once_asked(running.brokers), REBOOTSTRAP_REQUIRED)
            await until(lambda: running.ready == ["a"])
            assert running.asked() == []

    @in_loop
    @pytest.mark.parametrize("seed", range(4))
    async def test_they_take_turns_with_bootstrap_servers_that_do_not_know_it_either(
        self, seed: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with moved(seed, monkeypatch) as (running, new):
            new[0].holds(METADATA)
            running.want("a")
            for _ in range(2):
                knows_nothing(await once_asked(running.brokers), REBOOTSTRAP_REQUIRED)
                knows_nothing(await once_asked(new), NONE)
            running.brokers.metadata_versions = (0, 4)
            (await once_asked(running.brokers)).answer()
            await until(lambda: running.ready == ["a"])

    @in_loop
    async def test_no_such_answer_cuts_short_one_that_takes_its_time(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A bootstrap server may be far away, and is asked on a new connection."""
        async with moved(1, monkeypatch) as (running, new):
            new[0].holds(METADATA)
            running.want("a")
            asked = await once_asked(running.brokers)
            monkeypatch.setattr(metadata_updater, "HEDGE_S", 0.02)
            knows_nothing(asked, REBOOTSTRAP_REQUIRED)
            slow = await once_asked(new)
            for _ in range(3):  # the one that was asked before, too
                knows_nothing(await once_asked(running.brokers), REBOOTSTRAP_REQUIRED)
            await until(lambda: not any(broker.connections for broker in running.brokers.brokers.values()))
            slow.answer()
            await until(lambda: running.ready == ["a"])
            assert running.asked() == []

    @in_loop
    @pytest.mark.parametrize("hung", [0, 1], ids=["the first hangs", "the one beside it hangs"])
    async def test_beside_one_that_hangs_the_next_is_asked_at_once(
        self, hung: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(metadata_updater, "HEDGE_S", 0.02)
        async with FakeCluster({"a": [0]}, nodes=3) as brokers:
            brokers.metadata_versions = (0, 13)
            async with updating(brokers, request_timeout_ms=100_000) as running:
                for broker in brokers.brokers.values():
                    broker.holds(METADATA)
                running.want("a")
                asked = [await once_asked(brokers), await once_asked(brokers)]
                knows_nothing(asked[1 - hung], NONE)
                asked.append(await once_asked(brokers))
                asked[2].answer()
                await until(lambda: running.ready == ["a"])
                assert len({each.connection.broker.node_id for each in asked}) == 3
                await until(lambda: sum(len(broker.connections) for broker in brokers.brokers.values()) == 1)

    @in_loop
    @pytest.mark.parametrize("helps", [0, 1])
    @pytest.mark.parametrize("seed", range(4))
    async def test_an_answer_counts_where_one_that_does_not_help_comes_in_the_same_turn(
        self, seed: int, helps: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(metadata_updater, "HEDGE_S", 0.02)
        once_all_have_answered(monkeypatch)
        async with FakeCluster({"a": [0]}, nodes=2) as brokers:
            brokers.metadata_versions = (0, 13)
            async with updating(brokers, seed) as running:
                for broker in brokers.brokers.values():
                    broker.holds(METADATA)
                running.want("a")
                asked = [await once_asked(brokers), await once_asked(brokers)]
                knows_nothing(asked[1 - helps], NONE)
                asked[helps].answer()
                await until(lambda: running.ready == ["a"])
                assert running.asked() == []
                await until(lambda: sum(len(broker.connections) for broker in brokers.brokers.values()) == 1)
                assert asked[helps].connection in asked[helps].connection.broker.connections
