"""Clients' Metadata requests through the proxy, before brokers whose every answer the test decides."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any

import pytest

from forebay_codecs.api_keys import METADATA, PRODUCE
from forebay_codecs.error_codes import (
    FENCED_LEADER_EPOCH,
    INVALID_TOPIC_EXCEPTION,
    LEADER_NOT_AVAILABLE,
    MESSAGE_TOO_LARGE,
    NONE,
    NOT_LEADER_OR_FOLLOWER,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from forebay_codecs.metadata import Metadata, Topic, parse_metadata_response
from forebay_codecs.metadata_request import encode_metadata_request
from forebay_codecs.primitives import Writer
from forebay_policies import metadata_requests
from forebay_proxy.brokers import metadata_updater
from forebay_proxy.clients import metadata_handler
from forebay_proxy.clients.client_connection import MAX_UNSENT
from forebay_proxy.clients.metadata_handler import QUESTIONS
from tests.kit.app import Running, running
from tests.kit.event_loop import in_loop, until
from tests.kit.fake_broker import Asked, FakeCluster
from tests.kit.ports import LOOPBACK
from tests.kit.wire import WireClient, batch, echo, framed, keyed, only, produce, request

CREATE_TOPICS = 19
ID = bytes(range(16))


def asks(correlation_id: int, *topics: str, creates: bool = False, version: int = 4) -> bytes:
    return framed(encode_metadata_request(correlation_id, "client", version, topics, allow_auto_topic_creation=creates))


def asks_all(correlation_id: int, version: int = 4) -> bytes:
    return framed(encode_metadata_request(correlation_id, "client", version, None))


async def told(client: WireClient, correlation_id: int, version: int = 4) -> Metadata:
    (response,) = await client.receives(correlation_id)
    return parse_metadata_response(response.whole, version)


async def ask(client: WireClient, correlation_id: int, *topics: str, creates: bool = False) -> dict[str, Topic]:
    """What is told of each topic."""
    client.send(asks(correlation_id, *topics, creates=creates))
    answer = await told(client, correlation_id)
    return {topic.name or "": topic for topic in answer.topics}


def seen(cluster: FakeCluster) -> list[Asked]:
    """Metadata requests of all brokers."""
    return [asked for broker in cluster.brokers.values() for asked in broker.requests(METADATA)]


@asynccontextmanager
async def before(cluster: FakeCluster, **changed: Any) -> AsyncIterator[Running]:
    async with cluster, running(cluster.bootstrap, **changed) as forebay:
        for broker in cluster.brokers.values():
            broker.forget()
        yield forebay


class Clock:
    now = 100.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for module in (metadata_handler, metadata_updater):
        monkeypatch.setattr(module, "monotonic", lambda: clock.now)
    return clock


class TestFromTheCache:
    @in_loop
    async def test_brokers_are_asked_once_for_all_clients(self) -> None:
        cluster = FakeCluster({"ponds": [0, 0], "lakes": [0]})
        async with before(cluster) as forebay:
            for number in range(10):
                client = await forebay.client(0)
                answer = await ask(client, number, "ponds", "lakes")
                assert [len(answer[name].partitions) for name in ("ponds", "lakes")] == [2, 1]
            assert len(seen(cluster)) == 1
            assert forebay.count("forebay_metadata_requests_total", "from_cache") == 9
            assert forebay.count("forebay_metadata_requests_total", "after_asking") == 1
            assert forebay.count("forebay_metadata_topics_total", "hit") == 18
            assert forebay.count("forebay_metadata_topics_total", "miss") == 2
            assert forebay.count("forebay_metadata_cached_topics") == 2
            assert forebay.count("forebay_metadata_upstream_requests_total") == 2, "with the one of the start"

    @in_loop
    async def test_how_old_it_is_is_measured(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async with before(FakeCluster({"ponds": [0]})) as forebay:
            first, later = await forebay.client(0), await forebay.client(0)
            await ask(first, 1, "ponds")
            answers, fresh_s = forebay.observed("forebay_metadata_age_seconds")
            now = monotonic() + 20
            monkeypatch.setattr(metadata_handler, "monotonic", lambda: now)
            await ask(later, 1, "ponds")
            assert forebay.count("forebay_metadata_requests_total", "from_cache") == 1
            assert forebay.observed("forebay_metadata_age_seconds")[0] == answers + 1 == 2
            assert forebay.observed("forebay_metadata_age_seconds")[1] >= 20 > fresh_s

    @in_loop
    async def test_a_leader_is_told_as_soon_as_there_is_one(self, clock: Clock) -> None:
        """Scala producers, ruby-kafka and others open a connection for each question: none of them asks again."""
        cluster = FakeCluster({"ponds": [0, -1], "lakes": [0]})
        async with before(cluster) as forebay:
            for seconds, leader in ((0, -1), (0.9, -1), (0.2, 0), (20, 0)):
                clock.now += seconds
                answer = await ask(await forebay.client(0), 1, "ponds", "lakes")
                assert answer["ponds"].partitions[1].leader_id == leader
                cluster.topics["ponds"] = [0, 0]
            assert [asked.metadata.names for asked in seen(cluster)] == [["lakes", "ponds"], ["ponds"]]

    @in_loop
    async def test_addresses_are_the_proxys(self) -> None:
        async with before(FakeCluster({"ponds": [0, 1]}, nodes=2)) as forebay:
            client = await forebay.client()
            client.send(asks(1, "ponds"))
            brokers = (await told(client, 1)).brokers
            assert {node: (broker.host, broker.port) for node, broker in brokers.items()} == {
                node: ("127.0.0.1", forebay.node_port(node)) for node in (0, 1)
            }

    @in_loop
    async def test_an_answer_from_the_cache_does_not_undo_what_was_learned_of_a_broker_since(self) -> None:
        """From a Fetch response, say: the broker has come back with another address."""
        async with before(FakeCluster({"ponds": [0]})) as forebay:
            client = await forebay.client()
            client.send(asks(1, "ponds"))
            await told(client, 1)
            nodes = forebay.app._realm.view.cluster
            nodes.learn(0, "elsewhere.example", 9, monotonic())
            client.send(asks(2))
            assert (await told(client, 2)).brokers.keys() == {0}
            assert (nodes.nodes[0].host, nodes.nodes[0].port) == ("elsewhere.example", 9)

    @in_loop
    async def test_a_broker_that_has_left_is_told_of_while_its_clients_wait_for_answers(self) -> None:
        """Else librdkafka, told that it is gone, sends again what it still waits for."""
        cluster = FakeCluster({"ponds": [0, 1]}, nodes=2)
        async with before(cluster) as forebay:
            client = await forebay.client(1)
            await ask(client, 0, "ponds")
            cluster[1].holds(PRODUCE)
            client.send(produce(1, ("ponds", 1, batch(keyed("a")))))
            held = await cluster[1].receives(PRODUCE)
            left = cluster.brokers.pop(1)
            other = await forebay.client(0)
            other.send(asks(1, "ponds", "lakes"))  # which are not in the cache
            assert set((await told(other, 1)).brokers) == {0, 1}
            held.answer()
            await client.receives(1)
            other.send(asks(2, "ponds", "seas"))
            assert set((await told(other, 2)).brokers) == {0, 1}, "the answer may be on its way yet"
            left.down()

    @pytest.mark.parametrize("version", range(5))
    @in_loop
    async def test_every_version_is_answered_in_its_own_layout(self, version: int) -> None:
        async with before(FakeCluster({"ponds": [0]})) as forebay:
            client = await forebay.client(0)
            body = Writer()
            body.array(1, False)
            body.string("ponds", False)
            if version >= 4:
                body.boolean(False)
            client.send(request(METADATA, version, 7, body.getvalue()))
            answer = await told(client, 7, version)
            assert [topic.name for topic in answer.topics] == ["ponds"]

    @in_loop
    async def test_v0_asks_for_all_with_an_empty_list_and_later_ones_with_null(self) -> None:
        cluster = FakeCluster({"ponds": [0], "lakes": [0]})
        async with before(cluster) as forebay:
            client = await forebay.client(0)
            client.send(request(METADATA, 0, 1, b"\0\0\0\0"), asks_all(2), asks(3))
            assert sorted(topic.name or "" for topic in (await told(client, 1, 0)).topics) == ["lakes", "ponds"]
            assert sorted(topic.name or "" for topic in (await told(client, 2)).topics) == ["lakes", "ponds"]
            alone = await told(client, 3)
            assert (alone.topics, set(alone.brokers)) == ((), {0})
            assert [asked.metadata.all_topics for asked in seen(cluster)] == [True], "one question for two clients"

    @in_loop
    async def test_a_list_beyond_what_is_kept_is_told_whole(self) -> None:
        names = [f"t{number}" for number in range(5)]
        cluster = FakeCluster({name: [0] for name in names})
        async with before(cluster, metadata_max_topics=2) as forebay:
            client = await forebay.client(0)
            for number in range(2):
                client.send(asks_all(number))
                assert sorted(topic.name or "" for topic in (await told(client, number)).topics) == names
            assert len(await ask(client, 9, *names)) == 5
            assert forebay.count("forebay_metadata_cached_topics") == 2

    @in_loop
    async def test_topics_are_found_by_id(self) -> None:
        cluster = FakeCluster({"ponds": [0, 0]})
        cluster.topic_ids = {"ponds": ID}
        cluster.metadata_versions = (0, 12)
        async with before(cluster) as forebay:
            client = await forebay.client(0)
            for number in (1, 2):
                client.send(framed(encode_metadata_request(number, None, 12, ["ponds"], ids=[ID, bytes(15) + b"\1"])))
                answer = await told(client, number, 12)
                by_id = {topic.topic_id: topic for topic in answer.topics}
                assert (by_id[ID].name, len(by_id[ID].partitions)) == ("ponds", 2)
                assert by_id[bytes(15) + b"\1"].error_code == UNKNOWN_TOPIC_ID

    @in_loop
    async def test_operations_that_are_allowed_are_the_brokers_to_say(self) -> None:
        cluster = FakeCluster({"ponds": [0]})
        cluster.metadata_versions = (0, 8)
        async with before(cluster) as forebay:
            client = await forebay.client(0)
            frame = bytearray(asks(1, "ponds", version=8))
            frame[-1] = 1
            for number in range(3):
                frame[8:12] = number.to_bytes(4, "big")
                client.send(bytes(frame))
                answer = await told(client, number, 8)
                assert set(answer.brokers) == {0}
                assert answer.brokers[0].port == forebay.node_port(0)
            assert [asked.client_id for asked in seen(cluster)] == ["client"] * 3
            assert forebay.count("forebay_metadata_requests_total", "by_broker") == 3

    @in_loop
    async def test_a_name_that_no_topic_can_have_is_not_asked_for(self) -> None:
        cluster = FakeCluster({})
        async with before(cluster) as forebay:
            client = await forebay.client(0)
            answer = await ask(client, 1, "x" * 250)
            assert answer["x" * 250].error_code == INVALID_TOPIC_EXCEPTION
            assert seen(cluster) == []


class TestAsking:
    @in_loop
    async def test_one_request_is_under_way_and_the_next_carries_what_came_meanwhile(self) -> None:
        names = [f"t{number}" for number in range(20)]
        cluster = FakeCluster({name: [0] for name in names})
        async with before(cluster) as forebay:
            cluster[0].holds(METADATA)
            clients = [await forebay.client(0) for _ in names]
            clients[0].send(asks(1, names[0]))
            first = await cluster[0].receives(METADATA)
            for client, name in zip(clients[1:], names[1:], strict=True):
                client.send(asks(1, name), asks(2, names[0]))
            await until(lambda: forebay.count("forebay_metadata_requests_total", "after_asking") == len(names))
            assert len(seen(cluster)) == 1
            cluster[0].releases(METADATA)
            first.answer()
            for client in clients:
                await told(client, 1)
            assert [len(asked.metadata.names) for asked in seen(cluster)] == [1, 19]

    @in_loop
    async def test_who_has_what_it_asked_for_does_not_wait_for_others(self) -> None:
        cluster = FakeCluster({"ponds": [0], "lakes": [0]})
        async with before(cluster) as forebay:
            producer, waiting = await forebay.client(0), await forebay.client(0)
            await ask(producer, 1, "ponds")
            producer.send(produce(2, ("ponds", 0, batch(keyed("a")))))
            await producer.receives(2)
            cluster[0].forget()
            cluster[0].holds(METADATA)
            waiting.send(asks(1, "lakes"), echo(2))
            asked = await cluster[0].receives(METADATA)
            other = await forebay.client(0)
            assert (await ask(other, 1, "ponds"))["ponds"].error_code == NONE
            producer.send(produce(3, ("ponds", 0, batch(keyed("b")))))
            assert only((await producer.receives(3))[0]).error_code == NONE
            asked.answer()
            assert [topic.name for topic in (await told(waiting, 1)).topics] == ["lakes"]
            await waiting.receives(2)

    @in_loop
    async def test_what_no_broker_tells_in_time_has_no_leader_yet(self) -> None:
        cluster = FakeCluster({"ponds": [0], "lakes": [0]})
        async with before(cluster, request_timeout_ms=300) as forebay:
            client = await forebay.client(0)
            await ask(client, 1, "ponds")
            cluster[0].holds(METADATA)
            answer = await ask(client, 2, "ponds", "lakes")
            assert (answer["ponds"].error_code, answer["lakes"].error_code) == (NONE, LEADER_NOT_AVAILABLE)
            cluster[0].releases(METADATA)
            client.send(asks(3, "lakes"))
            assert (await told(client, 3)).topics[0].error_code == NONE

    @in_loop
    async def test_nor_is_a_topic_unknown_by_an_id_that_no_broker_tells_of_in_time(self) -> None:
        cluster = FakeCluster({"ponds": [0], "lakes": [0]})
        cluster.topic_ids = {"lakes": ID}
        cluster.metadata_versions = (0, 12)
        async with before(cluster, request_timeout_ms=300) as forebay:
            client = await forebay.client(0)
            await ask(client, 1, "ponds")
            cluster[0].holds(METADATA)
            client.send(framed(encode_metadata_request(2, None, 12, [], ids=[ID])))
            (topic,) = (await told(client, 2, 12)).topics
            assert (topic.name, topic.topic_id, topic.error_code) == (None, ID, LEADER_NOT_AVAILABLE)
            cluster[0].releases(METADATA)
            client.send(framed(encode_metadata_request(3, None, 12, [], ids=[ID])))
            (topic,) = (await told(client, 3, 12)).topics
            assert (topic.name, topic.error_code) == ("lakes", NONE)

    @in_loop
    async def test_what_nobody_waits_for_any_more_is_not_asked_for(self) -> None:
        cluster = FakeCluster({"ponds": [0], "lakes": [0]})
        async with before(cluster, request_timeout_ms=300) as forebay:
            known = await forebay.client(0)
            await ask(known, 1, "ponds")
            cluster[0].holds(METADATA)
            first, second = await forebay.client(0), await forebay.client(0)
            first.send(asks(1, "lakes"))
            await cluster[0].receives(METADATA)
            assert (await ask(second, 1, "ponds", "seas"))["seas"].error_code == LEADER_NOT_AVAILABLE
            await first.receives(1)
            cluster[0].releases(METADATA)
            await ask(first, 2, "lakes")
            assert not [asked for asked in seen(cluster) if "seas" in asked.metadata.names]

    @in_loop
    async def test_a_client_that_leaves_while_it_waits_leaves_nothing_behind(self) -> None:
        cluster = FakeCluster({"ponds": [0]})
        async with before(cluster) as forebay:
            cluster[0].holds(METADATA)
            client = await forebay.client(0)
            client.send(asks(1, "ponds"))
            asked = await cluster[0].receives(METADATA)
            client.close()
            asked.answer()
            await until(lambda: forebay.count("forebay_open_connections", "node") == 0)
            cluster[0].releases(METADATA)
            assert (await ask(await forebay.client(0), 1, "ponds"))["ponds"].error_code == NONE

    @in_loop
    async def test_a_broker_that_fails_is_not_seen_by_clients(self) -> None:
        cluster = FakeCluster({"ponds": [0]}, nodes=2)
        async with before(cluster) as forebay:
            for broker in cluster.brokers.values():
                broker.holds(METADATA)
            client = await forebay.client(0)
            client.send(asks(1, "ponds"))
            await until(lambda: seen(cluster))
            for asked in seen(cluster):
                asked.close()
            for broker in cluster.brokers.values():
                broker.releases(METADATA)
            assert (await told(client, 1)).topics[0].error_code == NONE

    @in_loop
    async def test_what_cannot_be_read_is_asked_for_again(self) -> None:
        cluster = FakeCluster({"ponds": [0]})
        async with before(cluster) as forebay:
            cluster[0].holds(METADATA)
            client = await forebay.client(0)
            client.send(asks(1, "ponds"))
            asked = await cluster[0].receives(METADATA)
            cluster[0].releases(METADATA)
            asked.respond(b"\0\0\0\0\0\0\0\1\0\0\0\0\0\x09127")
            assert (await told(client, 1)).topics[0].error_code == NONE


class TestAskingAgain:
    @pytest.fixture(autouse=True)
    def at_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(metadata_handler, "PIPELINED_S", -1.0)

    @in_loop
    async def test_what_was_asked_before_the_answer_came_is_answered_alike(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """librdkafka asks again and again while it waits; each would wait for an answer of its own."""
        monkeypatch.setattr(metadata_handler, "PIPELINED_S", 60.0)
        cluster = FakeCluster({"ponds": [0]})
        async with before(cluster) as forebay:
            cluster[0].holds(METADATA)
            client = await forebay.client(0)
            client.send(*[asks(number, "ponds") for number in range(20)])
            (await cluster[0].receives(METADATA)).answer()
            for number in range(20):
                assert (await told(client, number)).topics[0].error_code == NONE
            assert len(seen(cluster)) == 1

    @in_loop
    async def test_who_asks_without_a_pause_is_told_anew_too(
        self, monkeypatch: pytest.MonkeyPatch, clock: Clock
    ) -> None:
        monkeypatch.setattr(metadata_handler, "PIPELINED_S", 0.05)
        cluster = FakeCluster({"ponds": [0]}, nodes=2)
        async with before(cluster) as forebay:
            client = await forebay.client(0)
            await ask(client, 1, "ponds")
            cluster.topics["ponds"] = [1]
            leaders = []
            for _ in range(6):
                clock.now += 0.02
                leaders.append((await ask(client, 1, "ponds"))["ponds"].partitions[0].leader_id)
            assert leaders == [0, 0, 1, 1, 1, 1]

    @in_loop
    async def test_a_client_that_asks_again_is_told_anew(self) -> None:
        """A consumer whose leader has moved asks for metadata because of that: the cache knows it no better."""
        cluster = FakeCluster({"ponds": [0], "lakes": [0]}, nodes=2)
        async with before(cluster) as forebay:
            client = await forebay.client(0)
            await ask(client, 1, "ponds", "lakes")
            cluster.topics["ponds"] = [1]
            answer = await ask(client, 2, "ponds", "lakes")
            assert answer["ponds"].partitions[0].leader_id == 1
            other = await forebay.client(0)
            await ask(other, 1, "ponds", "lakes")
            assert len(seen(cluster)) == 2

    @in_loop
    async def test_the_order_of_topics_makes_no_other_question(self) -> None:
        """franz-go's is that of a map: another one each time."""
        cluster = FakeCluster({"ponds": [0], "lakes": [0], "seas": [0]}, nodes=2)
        async with before(cluster) as forebay:
            client = await forebay.client(0)
            await ask(client, 1, "ponds", "lakes", "seas")
            cluster.topics["ponds"] = [1]
            answer = await ask(client, 2, "seas", "ponds", "lakes")
            assert answer["ponds"].partitions[0].leader_id == 1
            await ask(client, 3, "seas", "ponds")
            await ask(client, 4, "seas", "ponds", "lakes", creates=True)
            assert len(seen(cluster)) == 2, "fewer topics are another question, and so is a creation"

    @in_loop
    async def test_another_question_is_answered_from_the_cache(self) -> None:
        """A producer asks for all topics that it knows whenever it meets a new one (KIP-526)."""
        cluster = FakeCluster({f"t{number}": [0] for number in range(10)})
        async with before(cluster) as forebay:
            first, second = await forebay.client(0), await forebay.client(0)
            for client in (first, second):
                for count in range(1, 11):
                    await ask(client, count, *[f"t{number}" for number in range(count)])
            assert [asked.metadata.names for asked in seen(cluster)] == [[f"t{number}"] for number in range(10)]

    @in_loop
    async def test_who_asks_again_by_id_is_told_by_another_broker(self) -> None:
        """The one that does not know the topic may be cut off from the controller."""
        cluster = FakeCluster({}, nodes=2)
        cluster.metadata_versions = (0, 12)
        async with before(cluster) as forebay:
            client = await forebay.client(0)
            for number in range(4):
                client.send(framed(encode_metadata_request(number, None, 12, [], ids=[ID])))
                assert (await told(client, number, 12)).topics[0].error_code == UNKNOWN_TOPIC_ID
            assert [len(broker.requests(METADATA)) for broker in cluster.brokers.values()] == [2, 2]

    @in_loop
    async def test_questions_in_turn_are_told_anew_each(self) -> None:
        """Sarama's consumers ask for one partition's topic each, on one connection."""
        cluster = FakeCluster({"ponds": [0], "lakes": [0]}, nodes=2)
        async with before(cluster) as forebay:
            client = await forebay.client(0)
            await ask(client, 1, "ponds")
            await ask(client, 2, "lakes")
            cluster.topics = {"ponds": [1], "lakes": [1]}
            for name in ("ponds", "lakes"):
                assert (await ask(client, 3, name))[name].partitions[0].leader_id == 1

    @in_loop
    async def test_what_a_client_asked_last_is_remembered_and_no_more(self) -> None:
        names = [f"t{number}" for number in range(QUESTIONS + 1)]
        cluster = FakeCluster({name: [0] for name in names})
        async with before(cluster) as forebay:
            await ask(await forebay.client(0), 0, *names)
            client = await forebay.client(0)
            for name in names:
                await ask(client, 1, name)
            assert max(len(each._client.told) for each in forebay.app._connections) == QUESTIONS
            cluster[0].forget()
            for number in (1, 1, 2, 0):  # the first of all is a new question by now
                await ask(client, 2, names[number])
            assert [asked.metadata.names for asked in seen(cluster)] == [[names[number]] for number in (1, 1, 2)]

    @in_loop
    async def test_beside_bad_news_what_is_a_second_old_is_asked_for_again_too(self, clock: Clock) -> None:
        """Where a topic does not exist, every answer is bad news: the others' leaders move all the same."""
        cluster = FakeCluster({"ponds": [0]}, nodes=2)
        async with before(cluster) as forebay:
            client = await forebay.client(0)
            assert (await ask(client, 1, "ponds", "new"))["new"].error_code == UNKNOWN_TOPIC_OR_PARTITION
            cluster.topics["ponds"] = [1]
            leaders = []
            for _ in range(6):
                clock.now += 0.3
                leaders.append((await ask(client, 2, "ponds", "new"))["ponds"].partitions[0].leader_id)
            assert leaders == [0, 0, 0, 1, 1, 1]
            names = [asked.metadata.names for asked in seen(cluster)]
            assert (names.count(["new", "ponds"]), names.count(["new"])) == (2, 5)

    @in_loop
    async def test_beside_bad_news_what_is_newer_than_the_last_answer_will_do(self, clock: Clock) -> None:
        cluster = FakeCluster({"ponds": [0]})
        async with before(cluster) as forebay:
            client, other = await forebay.client(0), await forebay.client(0)
            for each, seconds in ((client, 0), (other, 0), (other, 10), (client, 5)):
                clock.now += seconds
                await ask(each, 1, "ponds", "new")
            assert [asked.metadata.names for asked in seen(cluster)] == [["new", "ponds"], ["new", "ponds"], ["new"]]

    @in_loop
    async def test_only_what_has_no_leader_is_asked_for_again(self, clock: Clock) -> None:
        cluster = FakeCluster({"ponds": [0], "lakes": [-1]})
        async with before(cluster) as forebay:
            client = await forebay.client(0)
            await ask(client, 1, "ponds", "lakes")
            cluster.topics["lakes"] = [0]
            clock.now += 0.3
            assert (await ask(client, 2, "ponds", "lakes"))["lakes"].partitions[0].leader_id == 0
            assert [asked.metadata.names for asked in seen(cluster)] == [["lakes", "ponds"], ["lakes"]]

    @in_loop
    async def test_only_what_was_bad_news_is_asked_for_again(self, clock: Clock) -> None:
        cluster = FakeCluster({"ponds": [0]})
        async with before(cluster) as forebay:
            client = await forebay.client(0)
            assert (await ask(client, 1, "ponds", "new"))["new"].error_code == UNKNOWN_TOPIC_OR_PARTITION
            cluster.topics["new"] = [0]
            clock.now += 0.3
            assert (await ask(client, 2, "ponds", "new"))["new"].error_code == NONE
            assert [asked.metadata.names for asked in seen(cluster)] == [["new", "ponds"], ["new"]]

    @in_loop
    async def test_administrators_changes_are_seen_at_once(self) -> None:
        cluster = FakeCluster({"ponds": [0]})
        async with before(cluster) as forebay:
            client, other = await forebay.client(0), await forebay.client(0)
            await ask(client, 1, "ponds")
            cluster.topics["ponds"] = [0, 0]
            client.send(request(CREATE_TOPICS, 0, 2, b"whatever"))
            await client.receives(2)
            assert len((await ask(other, 1, "ponds"))["ponds"].partitions) == 2

    @in_loop
    async def test_a_broker_that_does_not_know_of_a_change_yet_is_not_believed_for_long(self) -> None:
        cluster = FakeCluster({"ponds": [0]}, nodes=2)
        async with before(cluster) as forebay:
            client, other = await forebay.client(0), await forebay.client(1)
            client.send(request(CREATE_TOPICS, 0, 1, b"whatever"))
            await client.receives(1)
            await ask(other, 2, "ponds")
            cluster.topics["ponds"] = [0, 0]

            another = await forebay.client(1)
            assert len((await ask(another, 1, "ponds"))["ponds"].partitions) == 2

    @in_loop
    async def test_who_has_changed_topics_is_told_by_the_broker_that_it_told(self) -> None:
        """Which knows of them before others do; KafkaJS takes it for final that another does not."""
        cluster = FakeCluster({"ponds": [0]}, nodes=2)
        async with before(cluster) as forebay:
            for node_id in (0, 1):
                client, beside = await forebay.client(node_id), await forebay.client(node_id)
                client.send(request(CREATE_TOPICS, 0, 1, b"whatever"))
                await client.receives(1)
                for broker in cluster.brokers.values():
                    broker.forget()

                await ask(client, 2, "ponds")
                await ask(beside, 3, "ponds")

                assert [asked.metadata.correlation_id for asked in cluster[node_id].requests(METADATA)] == [2, 3]
            assert forebay.count("forebay_metadata_requests_total", "by_broker") == 4


class TestNews:
    """What brokers say to one client holds for all."""

    @staticmethod
    async def leaders(forebay: Running) -> list[int]:
        """What a client is told that has asked for nothing so far."""
        client = await forebay.client(0)
        return [partition.leader_id for partition in (await ask(client, 1, "ponds"))["ponds"].partitions]

    @pytest.mark.parametrize("code", [NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_OR_PARTITION, FENCED_LEADER_EPOCH])
    @pytest.mark.parametrize("mixed", [False, True])
    @in_loop
    async def test_a_refusal_of_untouched_records(self, code: int, mixed: bool) -> None:
        cluster = FakeCluster({"ponds": [0], "lakes": [0]}, nodes=2)
        async with before(cluster) as forebay:
            assert await self.leaders(forebay) == [0]
            cluster.topics["ponds"] = [1]
            idempotent = await forebay.client(0)
            cluster[0].holds(PRODUCE)
            touched = [("lakes", 0, batch(keyed("a")))] if mixed else []
            idempotent.send(produce(1, ("ponds", 0, batch(keyed("a"), producer_id=7)), *touched))
            for _ in range(1 + mixed):
                asked = await cluster[0].receives(PRODUCE)
                asked.answer(code if asked.partitions == [("ponds", 0)] else NONE)
            await idempotent.receives(1)
            assert await self.leaders(forebay) == [1]
            assert await self.leaders(forebay) == [1]
            assert [asked.metadata.names for asked in seen(cluster)].count(["ponds"]) == 2, "once more"

    @in_loop
    async def test_other_errors_say_nothing_of_leaders(self) -> None:
        cluster = FakeCluster({"ponds": [0]})
        async with before(cluster) as forebay:
            await self.leaders(forebay)
            idempotent = await forebay.client(0)
            cluster[0].holds(PRODUCE)
            idempotent.send(produce(1, ("ponds", 0, batch(keyed("a"), producer_id=7))))
            (await cluster[0].receives(PRODUCE)).answer(MESSAGE_TOO_LARGE)
            await idempotent.receives(1)
            await self.leaders(forebay)
            assert len(seen(cluster)) == 1

    @in_loop
    async def test_a_leader_that_is_named_to_one_client(self) -> None:
        """KIP-951: nobody has to be asked."""
        cluster = FakeCluster({"ponds": [0]}, nodes=2)
        cluster.produce_versions, cluster.metadata_versions = (3, 12), (0, 9)
        async with before(cluster) as forebay:
            assert await self.leaders(forebay) == [0]
            idempotent = await forebay.client(0)
            cluster[0].holds(PRODUCE)
            idempotent.send(produce(1, ("ponds", 0, batch(keyed("a"), producer_id=7)), version=10))
            asked = await cluster[0].receives(PRODUCE)
            body = Writer()
            body.tags()
            body.array(1, True)
            body.string("ponds", True)
            body.array(1, True)
            body.i32(0)
            body.i16(NOT_LEADER_OR_FOLLOWER)
            for _ in range(3):
                body.i64(-1)
            body.array(0, True)
            body.nullable_string(None, True)
            body.raw(b"\1\0\x09" + (1).to_bytes(4, "big") + (5).to_bytes(4, "big") + b"\0")  # CurrentLeader
            body.tags()
            body.i32(0)
            body.tags()
            asked.respond(body.getvalue())
            await idempotent.receives(1)
            assert await self.leaders(forebay) == [1]
            assert len(seen(cluster)) == 1

    @in_loop
    async def test_a_broker_that_no_client_reaches(self) -> None:
        """Those are asked for that it led, and no others; once, though client after client finds it gone."""
        cluster = FakeCluster({"ponds": [1], "lakes": [0]}, nodes=2)
        async with before(cluster) as forebay:
            client = await forebay.client(0)
            await ask(client, 1, "ponds", "lakes")
            cluster[1].down()
            cluster.topics["ponds"] = [0]
            for _ in range(3):
                consumer = await forebay.client(1)
                consumer.send(echo(1))
                assert await consumer.is_closed()
                assert await self.leaders(forebay) == [0]
            again = [asked.metadata.names for asked in seen(cluster)][1:]
            assert again in ([["ponds"]], [[], ["ponds"]]), "the brokers as well, at once or before"

    @in_loop
    async def test_a_controller_that_has_moved(self) -> None:
        """NOT_CONTROLLER is an answer to what changes topics: the brokers are asked for anew."""
        cluster = FakeCluster({"ponds": [0]}, nodes=2)
        async with before(cluster) as forebay:
            administrator, other = await forebay.client(0), await forebay.client(0)
            administrator.send(asks(1))
            assert (await told(administrator, 1)).controller_id == 0
            cluster.controller_id = 1
            administrator.send(request(CREATE_TOPICS, 0, 2, b"whatever"))
            await administrator.receives(2)
            other.send(asks(1))
            assert (await told(other, 1)).controller_id == 1


class TestCreating:
    @pytest.fixture(autouse=True)
    def at_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(metadata_handler, "PIPELINED_S", -1.0)

    @in_loop
    async def test_creation_goes_upstream_once(self) -> None:
        cluster = FakeCluster({})
        async with before(cluster) as forebay:
            cluster[0].holds(METADATA)
            clients = [await forebay.client(0) for _ in range(5)]
            for client in clients:
                client.send(asks(1, "new", creates=True))
            await until(lambda: forebay.count("forebay_metadata_requests_total", "after_asking") == 5)
            cluster[0].releases(METADATA)
            (await cluster[0].receives(METADATA)).answer()
            for client in clients:
                assert (await told(client, 1)).topics[0].error_code == UNKNOWN_TOPIC_OR_PARTITION
            cluster.topics["new"] = [0]
            for client in clients:
                assert (await ask(client, 2, "new", creates=True))["new"].error_code == NONE
            created = [asked for asked in seen(cluster) if asked.metadata.allow_auto_topic_creation]
            assert [asked.metadata.names for asked in created] == [["new"]]

    @in_loop
    async def test_what_was_not_created_may_be_asked_for_again_later(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(metadata_requests, "CREATE_AGAIN_S", 0.0)
        cluster = FakeCluster({})
        async with before(cluster) as forebay:
            client = await forebay.client(0)
            await ask(client, 1, "new", creates=True)
            cluster.creates = True
            assert (await ask(client, 2, "new", creates=True))["new"].error_code == NONE

    @in_loop
    async def test_a_client_that_forbids_it_creates_nothing(self) -> None:
        cluster = FakeCluster({})
        cluster.creates = True
        async with before(cluster) as forebay:
            client = await forebay.client(0)
            assert (await ask(client, 1, "new"))["new"].error_code == UNKNOWN_TOPIC_OR_PARTITION
            assert cluster.topics == {}

    @in_loop
    async def test_who_may_not_create_it_is_told_so_each_time_and_others_that_there_is_none(self) -> None:
        """As by brokers, to each of whom both may go: it is the request that asks for it, not the user."""
        cluster = FakeCluster({"ponds": [0]})
        cluster.may_create = False
        async with before(cluster) as forebay:
            creator, other = await forebay.client(0), await forebay.client(0)
            assert (await ask(creator, 1, "new", creates=True))["new"].error_code == TOPIC_AUTHORIZATION_FAILED
            assert (await ask(other, 1, "new"))["new"].error_code == UNKNOWN_TOPIC_OR_PARTITION
            for client in (creator, await forebay.client(0)):
                answer = await ask(client, 2, "new", creates=True)
                assert answer["new"].error_code == TOPIC_AUTHORIZATION_FAILED
            created = [asked for asked in seen(cluster) if asked.metadata.allow_auto_topic_creation]
            assert [asked.metadata.names for asked in created] == [["new"]]
            cluster.topics["new"] = [0]
            for client, creates in ((creator, True), (other, False)):
                assert (await ask(client, 3, "new", creates=creates))["new"].error_code == NONE

    @in_loop
    async def test_who_comes_while_a_creation_is_refused_is_told_what_it_asked_for(self) -> None:
        cluster = FakeCluster({})
        cluster.may_create = False
        async with before(cluster) as forebay:
            cluster[0].holds(METADATA)
            creator, other = await forebay.client(0), await forebay.client(0)
            creator.send(asks(1, "new", creates=True))
            under_way = await cluster[0].receives(METADATA)
            other.send(asks(1, "new"))
            await until(lambda: forebay.count("forebay_metadata_requests_total", "after_asking") == 2)
            cluster[0].releases(METADATA)
            under_way.answer()
            assert (await told(creator, 1)).topics[0].error_code == TOPIC_AUTHORIZATION_FAILED
            assert (await told(other, 1)).topics[0].error_code == UNKNOWN_TOPIC_OR_PARTITION

    @in_loop
    async def test_produce_creates_nothing(self) -> None:
        cluster = FakeCluster({})
        cluster.creates = True
        async with before(cluster) as forebay:
            client = await forebay.client(0)
            client.send(produce(1, ("new", 0, batch(keyed("a")))))
            assert only((await client.receives(1))[0]).error_code == UNKNOWN_TOPIC_OR_PARTITION
            assert cluster.topics == {}


class TestRefreshing:
    @in_loop
    async def test_past_its_soft_age_a_topic_is_served_and_refreshed(self) -> None:
        cluster = FakeCluster({"ponds": [0]}, nodes=2)
        async with before(cluster, metadata_soft_age_ms=100) as forebay:
            await ask(await forebay.client(0), 1, "ponds")
            cluster.topics["ponds"] = [1]
            await until(lambda: len(seen(cluster)) >= 3)
            client = await forebay.client(0)
            assert (await ask(client, 1, "ponds"))["ponds"].partitions[0].leader_id == 1
            assert forebay.count("forebay_metadata_requests_total", "after_asking") == 1

    @in_loop
    async def test_who_lists_all_topics_has_none_asked_for_by_its_name(self) -> None:
        cluster = FakeCluster({"ponds": [0], "lakes": [0]})
        async with before(cluster, metadata_soft_age_ms=100) as forebay:
            while sum(asked.metadata.all_topics for asked in seen(cluster)) < 4:
                client = await forebay.client(0)
                client.send(asks_all(1))
                assert len((await told(client, 1)).topics) == 2
            assert not any(asked.metadata.names for asked in seen(cluster))

    @in_loop
    async def test_what_is_due_is_refreshed_though_clients_keep_asking_for_more(self) -> None:
        cluster = FakeCluster({"ponds": [0]}, nodes=2)
        async with before(cluster, metadata_soft_age_ms=100) as forebay:
            client = await forebay.client(0)
            await ask(client, 0, "ponds")
            number = 0
            while sum("ponds" in asked.metadata.names for asked in seen(cluster)) < 4:
                number += 1
                cluster.topics[f"t{number}"] = [0]
                await ask(client, number, f"t{number}")

    @in_loop
    async def test_a_refresh_that_fails_leaves_what_is_known(self) -> None:
        cluster = FakeCluster({"ponds": [0]})
        async with before(cluster, metadata_soft_age_ms=50) as forebay:
            await ask(await forebay.client(0), 1, "ponds")
            cluster[0].holds(METADATA)
            await until(lambda: len(cluster[0].requests(METADATA)) >= 2)
            client = await forebay.client(0)
            assert (await ask(client, 1, "ponds"))["ponds"].error_code == NONE

    @in_loop
    async def test_past_its_max_age_a_topic_is_asked_for_before_it_is_served(self) -> None:
        cluster = FakeCluster({"ponds": [0]}, nodes=2)
        async with before(cluster, metadata_max_age_ms=0) as forebay:
            client = await forebay.client(0)
            await ask(client, 1, "ponds")
            cluster.topics["ponds"] = [1]
            other = await forebay.client(0)
            assert (await ask(other, 1, "ponds"))["ponds"].partitions[0].leader_id == 1


LARGE_CLUSTER = {f"{number:03}" * 20: [0] * 100 for number in range(50)}


class TestLargeAnswers:
    @in_loop
    async def test_who_does_not_read_them_is_closed_where_others_wait_and_small_ones_wait_for_nobody(self) -> None:
        async with before(FakeCluster(LARGE_CLUSTER)) as forebay:
            untaken, deaf = forebay.app._untaken, NeverReads()
            deaf.client_slow = True
            assert untaken.admits(deaf, 10**9)
            reads, asks_little = await forebay.client(0), await forebay.client(0)
            reads.send(asks_all(1))
            await until(lambda: untaken._waiting)
            assert len(await ask(asks_little, 1, "000" * 20)) == 1
            assert not deaf.closed
            await until(lambda: deaf.closed)
            untaken.gone(deaf)
            assert len((await told(reads, 1)).topics) == len(LARGE_CLUSTER)
            await until(lambda: untaken.total == 0)

    @in_loop
    async def test_whoever_pipelines_them_and_reads_later_has_them_all(self) -> None:
        async with before(FakeCluster(LARGE_CLUSTER)) as forebay:
            forebay.app._untaken._limit = 1
            client = await forebay.client(0)
            client.send(*[asks_all(number) for number in range(150)])
            await until(lambda: any("client slow" in connection.holds for connection in forebay.app._connections))
            assert 0 < forebay.app._untaken.total < 2 * MAX_UNSENT
            await client.receives(*range(150))
            await until(lambda: forebay.app._untaken.total == 0)

    @in_loop
    async def test_one_that_leaves_while_it_waits_for_room_is_forgotten(self) -> None:
        async with before(FakeCluster(LARGE_CLUSTER)) as forebay:
            untaken = forebay.app._untaken
            assert untaken.admits(NeverReads(), 10**9)
            client = await forebay.client(0)
            client.send(asks_all(1))
            await until(lambda: untaken._waiting)
            (connection,) = forebay.app._connections
            assert connection.holds == ["pending request"]
            connection.abort()
            await until(lambda: not forebay.app._connections)
            assert (untaken._waiting, connection.holds) == ({}, ["closing"])

    @in_loop
    async def test_one_that_closes_its_sending_half_while_it_waits_for_room_is_answered(self) -> None:
        async with before(FakeCluster(LARGE_CLUSTER)) as forebay:
            untaken, deaf = forebay.app._untaken, NeverReads()
            assert untaken.admits(deaf, 10**9)
            client = await forebay.client(0)
            client.send(asks_all(1))
            await until(lambda: untaken._waiting)
            client.finish()
            (connection,) = forebay.app._connections
            await until(lambda: connection.hung_up)
            forebay.app._connections.sweep(monotonic())
            assert connection.done
            untaken.gone(deaf)
            assert len((await told(client, 1)).topics) == len(LARGE_CLUSTER)
            assert await client.is_closed()

    @in_loop
    async def test_one_that_finds_no_room_in_time_is_closed(self) -> None:
        async with before(FakeCluster(LARGE_CLUSTER), request_timeout_ms=500) as forebay:
            other = await forebay.client(0)  # the answer is in the cache then, and all of the time is for room
            other.send(asks_all(1))
            await told(other, 1)
            await until(lambda: forebay.app._untaken.total == 0)
            assert forebay.app._untaken.admits(NeverReads(), 10**9)
            client = await forebay.client(0)
            client.send(asks_all(1))
            assert await client.is_closed()
            await until(lambda: not forebay.app._untaken._waiting)
            assert forebay.count("forebay_frames_refused_total", "no_room") == 1

    @in_loop
    async def test_one_whose_time_was_up_while_brokers_were_asked_waits_for_no_room(self) -> None:
        cluster = FakeCluster(LARGE_CLUSTER)
        async with before(cluster, request_timeout_ms=300) as forebay:
            await ask(await forebay.client(0), 1, *LARGE_CLUSTER)
            await until(lambda: forebay.app._untaken.total == 0)
            assert forebay.app._untaken.admits(NeverReads(), 10**9)
            cluster[0].holds(METADATA)
            client = await forebay.client(0)
            client.send(asks(2, *LARGE_CLUSTER, "not known"))
            assert await client.is_closed()
            assert forebay.count("forebay_frames_refused_total", "no_room") == 1


class NeverReads:
    """Another client of the same host, that brokers owe an answer before this one."""

    host = LOOPBACK
    untaken = 10**9
    client_slow = closed = False

    def go_on(self) -> None: ...

    def not_taken(self) -> None:
        self.closed = True
