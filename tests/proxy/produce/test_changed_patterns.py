"""What may be touched changes while clients send: their records stay in order, whichever way they went before."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from forebay_codecs.api_keys import API_VERSIONS, PRODUCE
from forebay_codecs.error_codes import NONE
from forebay_proxy.config.settings import Settings
from forebay_proxy.console.api import NOTHING_TOLD
from forebay_proxy.process.in_force import Read, SettingsInForce
from forebay_proxy.process.overrides import Overrides
from tests.codecs.message_oracle import messages
from tests.codecs.record_oracle import Record
from tests.kit.app import Running, running
from tests.kit.event_loop import in_loop, turns, until
from tests.kit.fake_broker import FakeCluster
from tests.kit.wire import WireClient, batch, keyed, null_key, old_produce, only, produce, produced

TOPIC = "ponds"


def exclude(forebay: Running) -> None:
    forebay.change(topics_exclude=(TOPIC,))


def include(forebay: Running) -> None:
    forebay.change(topics_exclude=())


def one(number: int, *values: str, acks: int = 1) -> bytes:
    return produce(number, (TOPIC, 0, batch(keyed(*values))), acks=acks)


@asynccontextmanager
async def lingering(*others: str) -> AsyncIterator[tuple[FakeCluster, Running, WireClient]]:
    """A cluster that has TOPIC, and others; a client whose first record lingers, for long."""
    topics = {topic: [0, 0] for topic in (TOPIC, *others)}
    async with FakeCluster(topics) as cluster, running(cluster.bootstrap, linger_ms=60_000) as forebay:
        client = await forebay.client(0)
        client.send(one(1, "first"))
        await until(lambda: forebay.app._realm.accumulator.queued_batches == 1)
        yield cluster, forebay, client


def reasons(forebay: Running, reason: str) -> float:
    return forebay.count("forebay_batches_in_total", reason)


@in_loop
async def test_records_that_linger_are_sent_before_those_of_a_topic_that_is_excluded_now() -> None:
    async with lingering() as (cluster, forebay, client):
        exclude(forebay)
        client.send(one(2, "second"), one(3, "third"))
        assert [only(answer).error_code for answer in await client.receives(1, 2, 3)] == [NONE] * 3
        assert cluster.values(TOPIC, 0) == ["first", "second", "third"]
        assert (reasons(forebay, "keyed"), reasons(forebay, "topic_excluded")) == (1, 2)


@in_loop
async def test_records_on_the_clients_own_connection_are_written_before_those_that_are_merged_now() -> None:
    async with FakeCluster({TOPIC: [0, 0]}) as cluster, running(cluster.bootstrap, topics_exclude=(TOPIC,)) as forebay:
        client = await forebay.client(0)
        cluster[0].holds(PRODUCE)
        client.send(one(1, "first"))
        away = await cluster[0].receives(PRODUCE)
        include(forebay)
        client.send(one(2, "second"), one(3, "third"))
        behind = await cluster[0].receives(PRODUCE)
        assert (behind.connection, behind.values) == (away.connection, ["second"])
        cluster[0].releases(PRODUCE)
        away.answer()
        assert reasons(forebay, "settings_changed") == 1
        behind.answer()
        await client.receives(1, 2, 3)
        assert cluster.values(TOPIC, 0) == ["first", "second", "third"]
        assert reasons(forebay, "keyed") == 1, "the third is merged again"


@in_loop
async def test_a_client_that_waits_for_each_answer_notices_nothing() -> None:
    async with FakeCluster({TOPIC: [0, 0]}) as cluster, running(cluster.bootstrap) as forebay:
        client = await forebay.client(0)
        for number in range(4):
            client.send(one(number, str(number)))
            await client.receives(number)
            (exclude if number % 2 == 0 else include)(forebay)
        assert cluster.values(TOPIC, 0) == ["0", "1", "2", "3"]
        assert reasons(forebay, "settings_changed") == 0
        assert (reasons(forebay, "keyed"), reasons(forebay, "topic_excluded")) == (2, 2)


@in_loop
@pytest.mark.parametrize("acks", [0, 1, -1])
async def test_without_acks_too(acks: int) -> None:
    async with FakeCluster({TOPIC: [0, 0]}) as cluster, running(cluster.bootstrap, linger_ms=60_000) as forebay:
        client = await forebay.client(0)
        client.send(one(1, "first", acks=acks))
        await until(lambda: forebay.app._realm.accumulator.queued_batches == 1)
        exclude(forebay)
        client.send(one(2, "second", acks=acks), one(3, "third"))
        await client.receives(*([1, 2, 3] if acks else [3]))
        assert cluster.values(TOPIC, 0) == ["first", "second", "third"]


@in_loop
async def test_old_message_sets_become_batches_on_that_way_as_well() -> None:
    async with lingering() as (cluster, forebay, client):
        exclude(forebay)
        client.send(old_produce(2, (TOPIC, 0, messages([Record(b"k", b"second")], magic=0))))
        await client.receives(1, 2)
        assert cluster.values(TOPIC, 0) == ["first", "second"]


@in_loop
async def test_one_topic_of_a_request_stays_and_the_other_does_not() -> None:
    async with lingering("lakes") as (cluster, forebay, client):
        exclude(forebay)
        client.send(produce(2, ("lakes", 0, batch(keyed("lake"))), (TOPIC, 0, batch(keyed("second")))))
        await client.receives(1, 2)
        assert cluster.values(TOPIC, 0) == ["first", "second"]
        assert reasons(forebay, "settings_changed") == 1


@in_loop
async def test_a_request_that_does_not_name_the_topic_is_not_the_last_to_wait() -> None:
    async with lingering("lakes") as (cluster, forebay, client):
        exclude(forebay)
        client.send(produce(2, ("lakes", 0, batch(keyed("lake")))), one(3, "second"))
        await client.receives(1, 2, 3)
        assert cluster.values(TOPIC, 0) == ["first", "second"]


@in_loop
async def test_a_request_that_waits_for_metadata_is_judged_as_when_it_came() -> None:
    """Its records of a known topic would else overtake those of the request before it."""
    async with lingering("lakes") as (cluster, forebay, client):
        client.send(produce(2, (TOPIC, 0, batch(keyed("second"))), ("lakes", 0, batch(keyed("lake")))))
        await until(lambda: forebay.count("forebay_produce_requests_total", "client") == 2)
        exclude(forebay)
        await until(lambda: forebay.app._realm.accumulator.queued_batches == 2)
        assert cluster.values(TOPIC, 0) == [], "both linger"
        client.send(one(3, "third"))
        await client.receives(1, 2, 3)
        assert cluster.values(TOPIC, 0) == ["first", "second", "third"]


@in_loop
async def test_other_clients_go_on_meanwhile() -> None:
    async with FakeCluster({TOPIC: [0, 0], "lakes": [1, 1]}, nodes=2) as cluster, running(cluster.bootstrap) as forebay:
        client, other = await forebay.client(0), await forebay.client(1)
        other.send(produce(1, ("lakes", 0, batch(null_key("a")))))
        await other.receives(1)
        cluster[0].holds(PRODUCE)
        client.send(one(1, "first"))
        away = await cluster[0].receives(PRODUCE)
        exclude(forebay)
        client.send(one(2, "second"))
        await until(lambda: reasons(forebay, "topic_excluded") == 1)
        other.send(produce(2, ("lakes", 0, batch(null_key("b")))))
        assert only((await other.receives(2))[0]).error_code == NONE
        cluster[0].releases(PRODUCE)
        away.answer()
        await client.receives(1, 2)
        assert cluster.values(TOPIC, 0) == ["first", "second"]


ON_TWO_BROKERS = {TOPIC: [0, 1]}
EXCLUDED: dict[str, Any] = {"producers_only": True, "topics_exclude": (TOPIC,)}


def on_second(number: int, value: str) -> bytes:
    """To the second broker."""
    return produce(number, (TOPIC, 1, batch(keyed(value))))


@asynccontextmanager
async def one_port() -> AsyncIterator[tuple[FakeCluster, Running, WireClient]]:
    """A client that sees one broker for two, each of which it has sent records that are untouched."""
    async with FakeCluster(ON_TWO_BROKERS, nodes=2) as cluster, running(cluster.bootstrap, **EXCLUDED) as forebay:
        client = await forebay.client()
        client.send(produce(0, *((TOPIC, index, batch(keyed("0"))) for index in range(2))))
        await client.receives(0)
        cluster[0].forget()
        cluster[0].holds(PRODUCE)
        yield cluster, forebay, client


@in_loop
async def test_where_the_client_has_a_connection_to_each_broker_none_may_have_earlier_records_on_its_way() -> None:
    async with one_port() as (cluster, forebay, client):
        client.send(one(1, "1"))
        away = await cluster[0].receives(PRODUCE)
        include(forebay)
        client.send(on_second(2, "2"), one(3, "3"))
        behind = await cluster[0].receives(PRODUCE)
        assert (behind.connection, behind.values) == (away.connection, ["3"])
        away.answer()
        behind.answer()
        await client.receives(1, 2, 3)
        assert reasons(forebay, "settings_changed") == 2
        client.send(one(4, "4"))
        last = await cluster[0].receives(PRODUCE)
        assert last.connection is not away.connection, "it is merged again"
        last.answer()
        await client.receives(4)
        assert cluster.values(TOPIC, 0) == ["0", "1", "3", "4"]


@in_loop
async def test_there_a_broker_shows_that_it_has_records_without_acks_before_later_ones_are_merged() -> None:
    async with one_port() as (cluster, forebay, client):
        cluster[0].holds(API_VERSIONS)
        client.send(one(1, "1", acks=0))
        away = await cluster[0].receives(PRODUCE)
        include(forebay)
        for number in (2, 3):
            client.send(on_second(number, str(number)))
            await client.receives(number)
        assert reasons(forebay, "settings_changed") == 2
        asked = await cluster[0].receives(API_VERSIONS)
        assert asked.connection is away.connection
        assert len(cluster[0].requests(API_VERSIONS)) == 1, "once is enough"
        away.answer()
        asked.answer()
        number = 3
        while not reasons(forebay, "keyed"):  # merged again, as soon as Forebay has read that
            number += 1
            client.send(on_second(number, str(number)))
            await client.receives(number)
        assert cluster.values(TOPIC, 1) == ["0", *map(str, range(2, number + 1))]


def patterns(rng: Random, topics: tuple[str, ...]) -> dict[str, Any]:
    return {"topics_exclude": topics, "client_ids_exclude": ("*",) if rng.random() < 0.1 else ()}


def observed(rng: Random, topics: tuple[str, ...]) -> dict[str, Any]:
    return {"moves": rng.choice(["on", "observe"]), "topics_move": topics, "topics_observe": topics[:1]}


@in_loop
@pytest.mark.parametrize("drawn", [patterns, observed])
@pytest.mark.parametrize("seed", range(6))
async def test_whatever_changes_when_every_key_stays_in_order(
    seed: int, drawn: Callable[[Random, tuple[str, ...]], dict[str, Any]]
) -> None:
    """A client with five requests in flight, several partitions, several topics, and changes at any moment."""
    rng = Random(seed)
    topics = {TOPIC: [0, 0], "lakes": [0, 0]}
    sent: dict[tuple[str, int], list[str]] = {(topic, index): [] for topic in topics for index in range(2)}
    async with FakeCluster(topics) as cluster, running(cluster.bootstrap, linger_ms=5 * (seed % 2)) as forebay:
        client = await forebay.client(0)
        away: list[int] = []
        for number in range(200):
            if rng.random() < 0.2:
                names = [name for name in topics if rng.random() < 0.5]
                forebay.change(**drawn(rng, tuple(names)))
            places = rng.sample(sorted(sent), rng.randint(1, 3))
            for place in places:
                sent[place].append(str(number))
            client.send(produce(number, *((*place, batch(keyed(str(number)))) for place in sorted(places))))
            away.append(number)
            while len(away) > rng.randint(0, 4):
                (answer,) = await client.receives(away.pop(0))
                assert {told.error_code for told in produced(answer).values()} == {NONE}
        await client.receives(*away)
        for (topic, index), values in sent.items():
            assert cluster.values(topic, index) == values
        assert forebay.count("forebay_buffer_memory_available_bytes") == forebay.app._settings.buffer_memory


class Slow:
    """Brokers that take one request of a connection after the other, and answer Produce requests when they like."""

    def __init__(self, cluster: FakeCluster, rng: Random) -> None:
        self._rng = rng
        self._brokers = cluster.brokers.values()
        self._done = dict.fromkeys(self._brokers, 0)
        cluster.one_at_a_time = True
        for broker in self._brokers:
            broker.holds(PRODUCE)

    def answer(self, *likely: float) -> None:
        """Of each of them all that it has, or nothing."""
        for broker, chance in zip(self._brokers, likely, strict=True):
            if self._rng.random() < chance:
                asked = broker.requests(PRODUCE)
                for each in asked[self._done[broker] :]:
                    each.answer()
                self._done[broker] = len(asked)


@in_loop
@pytest.mark.parametrize("acks", [0, 1, -1])
@pytest.mark.parametrize("seed", range(2))
async def test_whatever_changes_when_every_key_stays_in_order_on_one_port_for_slow_brokers(
    seed: int, acks: int
) -> None:
    """The same with a connection of the client's to each of two brokers, one slower than the other."""
    rng = Random(seed)
    topics = {TOPIC: [0, 1], "lakes": [1, 0]}
    sent: dict[tuple[str, int], list[str]] = {(topic, index): [] for topic in topics for index in range(2)}
    async with (
        FakeCluster(topics, nodes=2) as cluster,
        running(cluster.bootstrap, producers_only=True, linger_ms=5 * (seed % 2)) as forebay,
    ):
        slow = Slow(cluster, rng)
        client = await forebay.client()
        away: list[int] = []

        def all_there() -> bool:
            slow.answer(1.0, 1.0)
            return {place: cluster.values(*place) for place in sent} == sent

        for number in range(200):
            if rng.random() < 0.2:
                forebay.change(**patterns(rng, tuple(name for name in topics if rng.random() < 0.5)))
            places = rng.sample(sorted(sent), rng.choice([1, 1, 2]))
            for place in places:
                sent[place].append(str(number))
            client.send(produce(number, *((*place, batch(keyed(str(number)))) for place in sorted(places)), acks=acks))
            if acks:
                away.append(number)
            await turns(rng.randint(1, 4))
            slow.answer(0.1, 0.9)
        await until(all_there)
        await client.receives(*away)


@in_loop
@pytest.mark.parametrize("seed", range(4))
async def test_overrides_lose_double_and_reorder_nothing(seed: int) -> None:
    """The same with overrides of all that concerns records, brokers that are avoided, and their ends, at any moment."""
    rng = Random(seed)
    topics = {TOPIC: [0, 1], "lakes": [1, 0]}
    sent: dict[tuple[str, int], list[str]] = {(topic, index): [] for topic in topics for index in range(2)}
    moving: list[str] = []
    async with FakeCluster(topics, nodes=2) as cluster, running(cluster.bootstrap, linger_ms=5 * (seed % 2)) as forebay:
        clients = [await forebay.client(node) for node in (0, 1)]
        in_force = SettingsInForce(Read(forebay.app._settings, NOTHING_TOLD), Only(forebay))
        now = 0.0
        overrides = Overrides(in_force, lambda: now, lambda: now)
        away: list[list[int]] = [[], []]
        for number in range(150):
            now += 1.0
            await overrides.expire()
            if rng.random() < 0.3:
                name, value = rng.choice(CHANGES)
                await overrides.add({name: value}, "a test", rng.uniform(0.5, 5.0))
            if rng.random() < 0.2:
                await overrides.avoid(rng.randrange(2), {0, 1, 2}, "a test", rng.uniform(0.5, 5.0))
            node = rng.randrange(2)
            led = [(topic, index) for topic, leaders in topics.items() for index in range(2) if leaders[index] == node]
            for place in led:
                sent[place].append(str(number))
            keyed_parts = [(*place, batch(keyed(str(number)))) for place in led]
            free = f"free-{number}"
            moving.append(free)
            clients[node].send(produce(number, *keyed_parts))
            clients[node].send(produce(1000 + number, (*led[0], batch(null_key(free)))))
            away[node] += [number, 1000 + number]
            while len(away[node]) > rng.randint(0, 4):
                (answer,) = await clients[node].receives(away[node].pop(0))
                assert {told.error_code for told in produced(answer).values()} == {NONE}
        for client, numbers in zip(clients, away, strict=True):
            await client.receives(*numbers)
        found = {place: cluster.values(*place) for place in sent}
        for place, values in sent.items():
            assert [value for value in found[place] if not value.startswith("free-")] == values
        assert sorted(v for values in found.values() for v in values if v.startswith("free-")) == sorted(moving)
        assert forebay.count("forebay_buffer_memory_available_bytes") == forebay.app._settings.buffer_memory


CHANGES: list[tuple[str, object]] = [
    ("topics.exclude", [TOPIC]),
    ("topics.exclude", ["lakes"]),
    ("topics.include", ["p*"]),
    ("client.ids.exclude", ["*"]),
    ("linger.ms", 0),
    ("linger.ms", 3),
    ("linger.ms", -1),
    ("partitioner.sticky.batch.size", 1),
    ("metadata.max.age.ms", 0),
]


class Only:
    """The App of a test, as in_force.Served."""

    def __init__(self, forebay: Running) -> None:
        self._app = forebay.app

    async def prepare(self, settings: Settings) -> Callable[[], None]:
        return self._app.prepare(settings)

    async def replace(self, settings: Settings) -> Callable[[], None]:
        raise AssertionError("no setting of workers has changed")


@in_loop
async def test_movable_records_leave_a_broker_alone_while_it_is_avoided_and_keyed_ones_do_not() -> None:
    topics = {TOPIC: [0, 1, 0, 1]}
    async with FakeCluster(topics, nodes=2) as cluster, running(cluster.bootstrap) as forebay:
        client = await forebay.client(0)
        forebay.change(brokers_avoid=(0,))
        for number in range(40):
            client.send(produce(number, (TOPIC, 0, batch(null_key(f"free-{number}")))))
            await client.receives(number)
        client.send(produce(50, (TOPIC, 0, batch(keyed("kept")))))
        await client.receives(50)
        assert cluster.values(TOPIC, 0) == ["kept"]
        assert cluster.values(TOPIC, 2) == []
        assert len(cluster.values(TOPIC, 1)) + len(cluster.values(TOPIC, 3)) == 40
        forebay.change(brokers_avoid=(1,))
        for number in range(60, 80):
            client.send(produce(number, (TOPIC, 0, batch(null_key(f"free-{number}")))))
            await client.receives(number)
        assert len(cluster.values(TOPIC, 0)) + len(cluster.values(TOPIC, 2)) == 21
