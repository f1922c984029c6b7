"""What may be touched changes while clients send: their records stay in order, whichever way they went before."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from forebay_codecs.apis import PRODUCE
from forebay_codecs.error_codes import NONE
from tests.codecs.message_oracle import messages
from tests.codecs.record_oracle import Record
from tests.kit.app import Running, running
from tests.kit.event_loop import in_loop, until
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
