"""Between proxy and broker: what a broker's answer, silence or absence means for the client, in the whole proxy."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from random import Random
from time import monotonic
from typing import Any
from unittest.mock import Mock, call

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i32, i64

from forebay_codecs.api_keys import METADATA, PRODUCE
from forebay_codecs.error_codes import (
    INVALID_RECORD,
    MESSAGE_TOO_LARGE,
    NONE,
    NOT_ENOUGH_REPLICAS,
    NOT_LEADER_OR_FOLLOWER,
    REQUEST_TIMED_OUT,
    UNKNOWN_SERVER_ERROR,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from forebay_codecs.record_batch import HEADER_SIZE
from forebay_policies.dispatch_groups import MAX_GROUPS
from forebay_policies.loop_turns import SLICE_S
from forebay_proxy.produce import sender as sender_module
from tests.codecs.kio_oracle import encode_response, example, message
from tests.kit.app import Running, running
from tests.kit.event_loop import in_loop, turns, until
from tests.kit.fake_broker import Asked, FakeCluster
from tests.kit.wire import WireClient, batch, echo, keyed, null_key, only, produce


def refused(topic: str, named: dict[int, tuple[int, int]]) -> Any:
    """A response of v10: other brokers lead these partitions now, each with its epoch."""
    leader, partition = message("produce", 10, "LeaderIdAndEpoch"), message("produce", 10, "PartitionProduceResponse")
    of_topic = message("produce", 10, "TopicProduceResponse")
    partitions = tuple(
        replace(
            example(partition),
            index=i32(index),
            error_code=ErrorCode(NOT_LEADER_OR_FOLLOWER),
            base_offset=i64(-1),
            record_errors=(),
            current_leader=replace(example(leader), leader_id=BrokerId(node_id), leader_epoch=i32(epoch)),
        )
        for index, (node_id, epoch) in named.items()
    )
    whole = replace(example(of_topic), name=TopicName(topic), partition_responses=partitions)
    cls = message("produce", 10, "ProduceResponse")
    return replace(example(cls), responses=(whole,), throttle_time=timedelta(), node_endpoints=())


async def warm(client: WireClient, cluster: FakeCluster, topic: str = "ponds") -> None:
    """The proxy knows the topic and is connected to the leader of partition 0; the fake forgets it."""
    client.send(produce(-1, (topic, 0, batch(keyed("warm")))))
    await client.receive()
    cluster.log.clear()
    for broker in cluster.brokers.values():
        broker.forget()


async def merged(forebay: Running, cluster: FakeCluster, *batches: bytes) -> tuple[list[WireClient], Asked]:
    """A client each for these batches of partition 0, which reach the broker as one."""
    cluster[0].holds(PRODUCE)
    first = await forebay.client(0)
    first.send(produce(0, ("ponds", 0, batch(keyed("first")))))
    away = await cluster[0].receives(PRODUCE)
    clients = [await forebay.client(0) for _ in batches]
    before = forebay.count("forebay_produce_requests_total", "client")
    for client, records in zip(clients, batches, strict=True):
        client.send(produce(1, ("ponds", 0, records)))
    await until(lambda: forebay.count("forebay_produce_requests_total", "client") == before + len(batches))
    away.answer()
    await first.receives(0)
    cluster.log.clear()
    return clients, await cluster[0].receives(PRODUCE)


class TestRetries:
    @in_loop
    async def test_movable_records_go_to_another_brokers_partition_at_once(self) -> None:
        async with FakeCluster({"ponds": [0, 1]}, nodes=2) as cluster, running(cluster.bootstrap) as forebay:
            for broker in cluster.brokers.values():
                broker.holds(PRODUCE)
            client = await forebay.client(0)
            client.send(produce(1, ("ponds", 0, batch(null_key("a")))))
            await until(lambda: cluster[0].requests(PRODUCE) or cluster[1].requests(PRODUCE))
            chosen = 0 if cluster[0].requests(PRODUCE) else 1
            for broker in cluster.brokers.values():
                broker.releases(PRODUCE)
            (await cluster[chosen].receives(PRODUCE)).answer(error_code=NOT_LEADER_OR_FOLLOWER)
            answer = only((await client.receives(1))[0])
            assert (answer.error_code, answer.base_offset) == (NONE, -1)
            assert cluster.log.keys() == {("ponds", 1 - chosen)}

    @in_loop
    async def test_keyed_records_are_sent_back_to_their_partition_and_metadata_is_asked(self) -> None:
        async with FakeCluster({"ponds": [0, 1]}, nodes=2) as cluster, running(cluster.bootstrap) as forebay:
            client = await forebay.client(0)
            await warm(client, cluster)
            cluster[0].holds(PRODUCE)
            client.send(produce(1, ("ponds", 0, batch(keyed("a")))))
            asked = await cluster[0].receives(PRODUCE)
            cluster.topics["ponds"] = [1, 1]
            cluster[0].releases(PRODUCE)
            asked.answer()
            answer = only((await client.receives(1))[0])
            assert (answer.error_code, answer.base_offset) == (NONE, 0)
            assert [request.values for request in cluster[1].requests(PRODUCE)] == [["a"]]

    @in_loop
    async def test_a_lost_office_that_names_an_offset_may_have_been_appended_and_the_client_is_told_so(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            client = await forebay.client(0)
            await warm(client, cluster)
            cluster[0].holds(PRODUCE)
            client.send(produce(1, ("ponds", 0, batch(keyed("a")))))
            (await cluster[0].receives(PRODUCE)).answer(error_code=NOT_LEADER_OR_FOLLOWER, base_offset=9)
            answer = only((await client.receives(1))[0])
            assert answer.error_code == REQUEST_TIMED_OUT
            assert len(cluster[0].requests(PRODUCE)) == 1

    @in_loop
    @pytest.mark.parametrize("code", [NOT_ENOUGH_REPLICAS, REQUEST_TIMED_OUT])
    async def test_other_errors_are_told_in_the_brokers_words(self, code: int) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            client = await forebay.client(0)
            await warm(client, cluster)
            cluster[0].holds(PRODUCE)
            client.send(produce(1, ("ponds", 0, batch(null_key("a"))), version=8))
            (await cluster[0].receives(PRODUCE)).answer(error_code=code)
            answer = only((await client.receives(1))[0], 8)
            assert (answer.error_code, answer.base_offset, answer.error_message) == (code, -1, "refused")

    @in_loop
    async def test_brokers_that_an_answer_names_are_known_from_then_on(self) -> None:
        cls, endpoint = message("produce", 10, "ProduceResponse"), message("produce", 10, "NodeEndpoint")
        moved = replace(example(endpoint), node_id=BrokerId(7), host="moved.example", port=i32(9093))
        answer = replace(example(cls), responses=(), node_endpoints=(moved,))
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            cluster.produce_versions = (3, 10)
            client = await forebay.client(0)
            await warm(client, cluster)
            cluster[0].holds(PRODUCE)
            client.send(produce(1, ("ponds", 0, batch(keyed("a")))))
            (await cluster[0].receives(PRODUCE)).respond(encode_response(answer)[4:])
            await client.receives(1)
            known = forebay.app._realm.handler.cluster.nodes[7]
            assert (known.host, known.port) == ("moved.example", 9093)

    @in_loop
    @pytest.mark.parametrize("broken", [False, True])
    async def test_leaders_that_an_answer_names_are_taken_over_together(self, *, broken: bool) -> None:
        """Each time costs as much as the topic has partitions."""
        async with FakeCluster({"ponds": [0, 0, 0]}, nodes=2) as cluster, running(cluster.bootstrap) as forebay:
            cluster.produce_versions = (3, 10)
            client = await forebay.client(0)
            await warm(client, cluster)
            sender = forebay.app._realm.dispatcher._senders[0]
            named = Mock(side_effect=RuntimeError("broken")) if broken else Mock(wraps=sender._leaders_named)
            sender._leaders_named = named
            cluster[0].holds(PRODUCE)
            client.send(produce(1, *[("ponds", index, batch(keyed("a"))) for index in (1, 2)]))
            asked = await cluster[0].receives(PRODUCE)
            cluster[0].releases(PRODUCE)
            cluster.topics["ponds"] = [0, 1, 1]
            for broker in cluster.brokers.values():
                broker.forget()
            asked.respond(encode_response(refused("ponds", {1: (1, 5), 2: (1, 5)}))[4:])
            await client.receives(1)
            assert named.mock_calls == [call("ponds", {1: (1, 5), 2: (1, 5)})]
            assert [len(cluster.values("ponds", index)) for index in (1, 2)] == [1, 1]
            if not broken:
                assert forebay.count("forebay_metadata_leaders_named_total") == 2
                assert [broker.requests(METADATA) for broker in cluster.brokers.values()] == [[], []]

    @in_loop
    async def test_a_partition_without_a_leader_is_sent_to_when_it_has_one(self) -> None:
        async with FakeCluster({"ponds": [0, -1]}, nodes=2) as cluster, running(cluster.bootstrap) as forebay:
            client = await forebay.client(0)
            await warm(client, cluster)
            client.send(produce(1, ("ponds", 1, batch(keyed("a")))))
            await until(lambda: forebay.count("forebay_queued_bytes") > 0)
            cluster.topics["ponds"] = [0, 1]
            (response,) = await client.receives(1)
            assert only(response).error_code == NONE

    @in_loop
    async def test_keyed_records_follow_their_partition_to_its_new_leader_when_the_old_is_gone(self) -> None:
        async with FakeCluster({"ponds": [1, 0]}, nodes=2) as cluster, running(cluster.bootstrap) as forebay:
            client = await forebay.client(0)
            await warm(client, cluster)
            connected = forebay.count("forebay_upstream_connections")
            cluster[1].down()
            await until(lambda: forebay.count("forebay_upstream_connections") < connected)
            client.send(produce(1, ("ponds", 0, batch(keyed("a")))))
            await until(lambda: forebay.count("forebay_errors_total", "upstream", "connect") >= 2)
            cluster.topics["ponds"] = [0, 0]
            (response,) = await client.receives(1)
            assert only(response).error_code == NONE
            assert [request.values for request in cluster[0].requests(PRODUCE)] == [["a"]]

    @in_loop
    async def test_movable_records_leave_a_broker_that_cannot_be_reached(self) -> None:
        async with FakeCluster({"ponds": [0, 1]}, nodes=2) as cluster, running(cluster.bootstrap) as forebay:
            client = await forebay.client(0)
            cluster[1].down()
            client.send(*[produce(n, ("ponds", 1, batch(null_key(str(n) * 9000)))) for n in range(10)])
            for response in await client.receives(*range(10)):
                assert only(response).error_code == NONE
            assert len(cluster.values("ponds", 0)) == 10

    @in_loop
    async def test_a_broker_that_comes_back_is_sent_to_again(self) -> None:
        async with FakeCluster({"ponds": [0, 1]}, nodes=2) as cluster, running(cluster.bootstrap) as forebay:
            client = await forebay.client(0)
            cluster[1].down()
            client.send(produce(1, ("ponds", 1, batch(keyed("kept")))))
            await until(lambda: forebay.count("forebay_errors_total", "upstream", "connect") >= 2)
            await cluster[1].up()
            (response,) = await client.receives(1)
            assert only(response).error_code == NONE

    @in_loop
    async def test_every_wait_is_bounded_by_the_clients_timeout(self) -> None:
        async with FakeCluster({"ponds": [0, 1]}, nodes=2) as cluster, running(cluster.bootstrap) as forebay:
            cluster[1].down()
            client = await forebay.client(0)
            client.send(produce(1, ("ponds", 1, batch(keyed("a"))), timeout_ms=1000))
            (response,) = await client.receives(1)
            assert only(response).error_code == REQUEST_TIMED_OUT
            await until(lambda: forebay.count("forebay_queued_bytes") == 0)
            await cluster[1].up()
            client.send(produce(2, ("ponds", 1, batch(keyed("b")))))
            await client.receives(2)
            assert cluster.values("ponds", 1) == ["b"]

    @pytest.mark.parametrize(
        ("given_ms", "asked_ms"),
        [
            ((20_000, 5_000, 5_000), 20_000),
            ((5_000, 20_000, 5_000), 20_000),
            ((5_000, 5_000, 20_000), 20_000),
            ((5_000, 60_000, 5_000), 30_000),
        ],
    )
    @in_loop
    async def test_a_broker_is_given_what_the_most_patient_client_gives_but_no_more_than_request_timeout_ms(
        self, given_ms: tuple[int, int, int], asked_ms: int
    ) -> None:
        async with (
            FakeCluster({"ponds": [0, 0]}) as cluster,
            running(cluster.bootstrap, request_timeout_ms=30_000) as forebay,
        ):
            cluster[0].holds(PRODUCE)
            first, *clients = [await forebay.client(0) for _ in range(4)]
            first.send(produce(0, *(("ponds", partition, batch(keyed("first"))) for partition in (0, 1))))
            away = await cluster[0].receives(PRODUCE)
            for client, partition, timeout_ms in zip(clients, (0, 0, 1), given_ms, strict=True):
                client.send(produce(1, ("ponds", partition, batch(keyed("a"))), timeout_ms=timeout_ms))
            await until(lambda: forebay.count("forebay_produce_requests_total", "client") == 4)
            away.answer()
            merged = await cluster[0].receives(PRODUCE)
            assert merged.values == ["a"] * 3
            assert merged.produce.timeout_ms == asked_ms

    @in_loop
    async def test_a_topic_that_is_deleted_is_told(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            client = await forebay.client(0)
            await warm(client, cluster)
            cluster[0].holds(PRODUCE)
            client.send(produce(1, ("ponds", 0, batch(keyed("a")))))
            asked = await cluster[0].receives(PRODUCE)
            client.send(produce(2, ("ponds", 0, batch(keyed("b")))))
            await until(lambda: forebay.count("forebay_produce_requests_total", "client") == 3)
            del cluster.topics["ponds"]
            cluster[0].releases(PRODUCE)  # what is tried again before it is known that the topic is gone
            asked.answer(error_code=UNKNOWN_TOPIC_OR_PARTITION)
            for response in await client.receives(1, 2):
                assert only(response).error_code == UNKNOWN_TOPIC_OR_PARTITION

    @in_loop
    async def test_so_is_a_partition_that_the_topic_lacks_when_it_is_made_again(self) -> None:
        async with FakeCluster({"ponds": [0, 0]}) as cluster:
            cluster.metadata_versions = (0, 10)
            cluster.topic_ids["ponds"] = b"a" * 16
            async with running(cluster.bootstrap) as forebay:
                client, other = [await forebay.client(0) for _ in range(2)]
                await warm(client, cluster)
                cluster[0].holds(PRODUCE)
                client.send(produce(1, ("ponds", 1, batch(keyed("a"))), timeout_ms=1000))
                asked = await cluster[0].receives(PRODUCE)
                cluster.topics["ponds"], cluster.topic_ids["ponds"] = [0], b"b" * 16
                other.send(produce(2, ("ponds", 2, batch(keyed("b")))))
                await other.receives(2)  # by now it is known
                asked.answer()
                (response,) = await client.receives(1)
                assert only(response).error_code == UNKNOWN_TOPIC_OR_PARTITION


class TestLostConnection:
    @in_loop
    async def test_what_was_written_is_told_to_every_owner_and_never_sent_again(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            clients, asked = await merged(forebay, cluster, batch(keyed("a")), batch(keyed("b")))
            cluster[0].releases(PRODUCE)
            asked.close()
            for client in clients:
                (response,) = await client.receives(1)
                assert only(response).error_code == REQUEST_TIMED_OUT
            clients[0].send(produce(2, ("ponds", 0, batch(keyed("later")))))
            await clients[0].receives(2)
            assert cluster.values("ponds", 0) == ["later"]

    @in_loop
    async def test_what_was_not_written_yet_is_sent_on_the_next_connection(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            client = await forebay.client(0)
            await warm(client, cluster)
            cluster[0].holds(PRODUCE)
            client.send(produce(1, ("ponds", 0, batch(keyed("away")))))
            asked = await cluster[0].receives(PRODUCE)
            client.send(produce(2, ("ponds", 0, batch(keyed("queued")))))
            await until(lambda: forebay.count("forebay_produce_requests_total", "client") == 3)
            cluster[0].releases(PRODUCE)
            asked.close()
            first, second = await client.receives(1, 2)
            assert (only(first).error_code, only(second).error_code) == (REQUEST_TIMED_OUT, NONE)
            assert cluster.values("ponds", 0) == ["queued"]

    @in_loop
    async def test_a_connection_that_was_closed_idle_is_no_failure(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            client = await forebay.client(0)
            await warm(client, cluster)
            for number in range(3):
                cluster[0].close_connections()
                await until(lambda: forebay.count("forebay_upstream_connections") == 0)
                client.send(produce(number, ("ponds", 0, batch(keyed(f"{number}")))))
                (response,) = await client.receives(number)
                assert only(response).error_code == NONE

    @in_loop
    async def test_a_broker_that_does_not_answer_in_time_is_given_up(self) -> None:
        async with (
            FakeCluster({"ponds": [0]}) as cluster,
            running(cluster.bootstrap, request_timeout_ms=200) as forebay,
        ):
            client = await forebay.client(0)
            await warm(client, cluster)
            cluster[0].holds(PRODUCE)
            client.send(produce(1, ("ponds", 0, batch(keyed("a")))))
            await cluster[0].receives(PRODUCE)
            (response,) = await client.receives(1)
            assert only(response).error_code == REQUEST_TIMED_OUT

    @in_loop
    async def test_a_broker_that_answers_out_of_turn_is_left(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            client = await forebay.client(0)
            await warm(client, cluster)
            cluster[0].holds(PRODUCE)
            client.send(produce(1, ("ponds", 0, batch(keyed("a")))))
            asked = await cluster[0].receives(PRODUCE)
            asked.correlation_id += 1
            asked.answer()
            (response,) = await client.receives(1)
            assert only(response).error_code == REQUEST_TIMED_OUT
            assert forebay.count("forebay_errors_total", "upstream", "protocol") == 1

    @in_loop
    async def test_an_answer_that_cannot_be_read_or_lacks_a_partition_is_no_answer(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            client = await forebay.client(0)
            await warm(client, cluster)
            cluster[0].holds(PRODUCE)
            for number, body in enumerate((b"\0\0\0\1", b"\0\0\0\0\0\0\0\0")):
                client.send(produce(number, ("ponds", 0, batch(keyed("a")))))
                (await cluster[0].receives(PRODUCE)).respond(body)
                (response,) = await client.receives(number)
                assert only(response).error_code == REQUEST_TIMED_OUT

    @in_loop
    @pytest.mark.parametrize("offered", [(0, 2), (-5, -1), (13, 14)])
    async def test_a_broker_whose_produce_is_not_spoken_here_is_not_sent_any(self, offered: tuple[int, int]) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            cluster.produce_versions = offered
            client = await forebay.client(0)
            client.send(produce(1, ("ponds", 0, batch(keyed("a"))), timeout_ms=1))
            (response,) = await client.receives(1)
            assert only(response).error_code == REQUEST_TIMED_OUT
            assert cluster[0].requests(PRODUCE) == []


class TestRefusedBatches:
    @in_loop
    @pytest.mark.parametrize("code", [MESSAGE_TOO_LARGE, INVALID_RECORD])
    async def test_in_a_merged_batch_only_the_owner_of_what_is_wrong_fails(self, code: int) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            names = ["a", "b", "bad", "c", "d"]
            clients, asked = await merged(forebay, cluster, *[batch(keyed(name, f"{name}2")) for name in names])
            assert len(asked.values) == 10
            waiting = len(names)
            while waiting:
                if "bad" in asked.values:
                    waiting -= len(asked.values) == 2
                    asked.answer(error_code=code, record_errors=[(1, "because")])
                else:
                    waiting -= len(asked.values) // 2
                    asked.answer()
                if waiting:
                    asked = await cluster[0].receives(PRODUCE)
            for name, client in zip(names, clients, strict=True):
                answer = only((await client.receives(1))[0])
                if name == "bad":
                    assert answer.error_code == code
                else:
                    assert answer.error_code == NONE
                    assert cluster.values("ponds", 0)[answer.base_offset] == name
            kept = [name for name in names if name != "bad"]
            assert cluster.values("ponds", 0) == [value for name in kept for value in (name, f"{name}2")]

    @in_loop
    async def test_record_numbers_are_told_where_they_are_the_clients_own(self) -> None:
        async with FakeCluster({"ponds": [0, 0]}) as cluster, running(cluster.bootstrap) as forebay:
            client = await forebay.client(0)
            await warm(client, cluster)
            cluster[0].holds(PRODUCE)
            client.send(produce(1, ("ponds", 0, batch(keyed("a", "b"))), version=8))
            (await cluster[0].receives(PRODUCE)).answer(error_code=INVALID_RECORD, record_errors=[(1, "no")])
            assert only((await client.receives(1))[0], 8).record_errors == [(1, "no")]
            client.send(produce(2, ("ponds", 0, batch([*keyed("a"), *null_key("b")])), version=8))
            asked = await cluster[0].receives(PRODUCE)
            cluster[0].releases(PRODUCE)
            asked.answer(error_code=INVALID_RECORD, record_errors=[(0, "no")])
            assert only((await client.receives(2))[0], 8).record_errors == []


class TestRequests:
    @in_loop
    async def test_each_batch_is_measured_as_it_leaves(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap, linger_ms=50) as forebay:
            clients = [await forebay.client(0) for _ in range(2)]
            for client in clients:
                client.send(produce(1, ("ponds", 0, batch(keyed("a")))))
            for client in clients:
                await client.receives(1)
            (asked,) = cluster[0].requests(PRODUCE)
            ((_, _, start, end),) = [(n, *place) for n, places in asked.produce.topics for place in places]
            assert forebay.observed("forebay_batch_records") == (1, 2)
            assert forebay.observed("forebay_batch_bytes") == (1, end - start - HEADER_SIZE)
            assert forebay.count("forebay_batches_flushed_total", "linger") == 1

    @in_loop
    async def test_one_batch_of_a_partition_is_away_at_a_time_and_no_more_requests_than_set(self) -> None:
        async with (
            FakeCluster({"ponds": [0] * 9}) as cluster,
            running(cluster.bootstrap, max_in_flight_requests_per_connection=2, max_request_size=20_000) as forebay,
        ):
            client = await forebay.client(0)
            await warm(client, cluster)
            cluster[0].holds(PRODUCE)
            for number in range(18):
                client.send(produce(number, ("ponds", number % 9, batch(keyed(f"{number}" * 4_000)))))
            client.send(echo(18))
            answered = 0
            while answered < 18:
                asked = await cluster[0].receives(PRODUCE)
                await turns()
                away = cluster[0].requests(PRODUCE)
                assert len(away) <= 2
                partitions = [where for request in away for where in request.partitions]
                assert len(partitions) == len(set(partitions))
                answered += len(asked.values)
                cluster[0].seen.remove(asked)
                asked.answer()
            await client.receives(*range(19))

    @in_loop
    async def test_many_requests_leave_over_several_turns_of_the_loop(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Else writing them would hold up everybody. Here each look at the clock takes more than a slice."""
        turn = 0
        looked: list[int] = []

        def others() -> None:
            nonlocal turn
            turn += 1
            if len(cluster[0].requests(PRODUCE)) < 3:
                asyncio.get_running_loop().call_soon(others)

        def clock() -> float:
            looked.append(turn)
            return began + 2 * SLICE_S * len(looked)

        one_a_request = {"max_request_size": 500, "batch_size": 400, "batch_max_size": 400}
        async with FakeCluster({"ponds": [0] * 3}) as cluster, running(cluster.bootstrap, **one_a_request) as forebay:
            client = await forebay.client(0)
            request = [("ponds", index, batch(keyed("x" * 300))) for index in range(3)]
            cluster[0].holds(PRODUCE)
            client.send(produce(0, *request))
            await until(lambda: len(cluster[0].requests(PRODUCE)) == 3)
            for asked in cluster[0].requests(PRODUCE):  # so that three connections are free
                asked.answer()
            await client.receives(0)
            cluster[0].forget()
            began = monotonic()
            monkeypatch.setattr(sender_module, "monotonic", clock)
            client.send(produce(1, *request))
            others()
            await until(lambda: len(cluster[0].requests(PRODUCE)) == 3)
            assert len(set(looked)) > 1

    @in_loop
    async def test_requests_that_want_another_acks_do_not_share_one(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap, linger_ms=10) as forebay:
            client = await forebay.client(0)
            await warm(client, cluster)
            for number, acks in enumerate((1, -1, 1, -1)):
                client.send(produce(number, ("ponds", 0, batch(null_key(f"acks {acks}"))), acks=acks))
            await client.receives(*range(4))
            for asked in cluster[0].requests(PRODUCE):
                assert set(asked.values) == {f"acks {asked.produce.acks}"}

    @in_loop
    async def test_topics_whose_metadata_is_needed_are_asked_for_together(self) -> None:
        names = [f"topic-{number}" for number in range(10)]
        async with (
            FakeCluster({name: [0] for name in [*names, "ponds"]}) as cluster,
            running(cluster.bootstrap) as forebay,
        ):
            clients = [await forebay.client(0) for _ in names]
            await warm(clients[0], cluster)
            cluster[0].holds(METADATA)
            for name, client in zip(names, clients, strict=True):
                client.send(produce(1, (name, 0, batch(keyed("a")))))
                first = cluster[0].requests(METADATA) or [await cluster[0].receives(METADATA)]
            await until(lambda: forebay.count("forebay_produce_requests_total", "client") == 11)
            await turns()
            assert cluster[0].requests(METADATA) == first
            cluster[0].releases(METADATA)
            first[0].answer()
            for client in clients:
                await client.receives(1)
            assert len(cluster[0].requests(METADATA)) == 2


class TestWhoWaitsForWhom:
    """The brokers answer one request of a connection at a time, as Kafka does, and hold some."""

    @in_loop
    @pytest.mark.parametrize("topic", ["wide", "fine"])
    async def test_acks_all_holds_up_no_acks_1_not_even_of_its_partition(self, topic: str) -> None:
        async with FakeCluster({"wide": [0], "fine": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            cluster.one_at_a_time = True
            slow, fast = await forebay.client(0), await forebay.client(0)
            await warm(fast, cluster, "fine")
            await warm(fast, cluster, "wide")
            cluster[0].holds_produce(lambda asked: asked.produce.acks == -1)
            slow.send(produce(1, (topic, 0, batch(keyed("all"))), acks=-1))
            asked = await cluster[0].receives(PRODUCE)
            for number in range(20):
                fast.send(produce(number, ("fine", 0, batch(keyed(f"{number}")))))
                assert only((await fast.receives(number))[0]).error_code == NONE
            asked.answer()
            assert only((await slow.receives(1))[0]).error_code == NONE

    @in_loop
    async def test_a_stopped_follower_holds_up_only_what_it_replicates(self) -> None:
        topics = {"wide": [0, 0], "fine": [0, 0]}
        async with FakeCluster(topics) as cluster, running(cluster.bootstrap) as forebay:
            cluster.one_at_a_time = True
            cluster.replicas = {"wide": [(0, 1), (0, 1)], "fine": [(0, 2), (2, 0)]}
            slow, fast = await forebay.client(0), await forebay.client(0)
            await warm(fast, cluster, "fine")
            await warm(fast, cluster, "wide")
            cluster[0].holds_produce(lambda asked: ("wide", 0) in asked.partitions or ("wide", 1) in asked.partitions)
            for number in range(2):
                slow.send(produce(number, ("wide", number, batch(keyed("a"))), acks=-1))
                await cluster[0].receives(PRODUCE)
            for number in range(20):
                fast.send(produce(number, ("fine", number % 2, batch(keyed(f"{number}"))), acks=-1))
                assert only((await fast.receives(number))[0]).error_code == NONE

    @in_loop
    async def test_replica_sets_without_number_share_connections(self) -> None:
        names = [f"topic-{number}" for number in range(60)]
        async with FakeCluster({name: [0] for name in [*names, "ponds"]}) as cluster:
            cluster.one_at_a_time = True
            cluster.replicas = {name: [(0, 1 + number, 99)] for number, name in enumerate(names)}
            async with running(cluster.bootstrap) as forebay:
                clients = [await forebay.client(0) for _ in names]
                await warm(clients[0], cluster)
                cluster[0].holds_produce(lambda asked: asked.produce.acks == -1)
                for name, client in zip(names, clients, strict=True):
                    client.send(produce(1, (name, 0, batch(keyed(name))), acks=-1))
                for _ in range(MAX_GROUPS):
                    await cluster[0].receives(PRODUCE)
                await turns()
                away = cluster[0].requests(PRODUCE)
                assert len(away) == forebay.count("forebay_in_flight_requests") < 2 * MAX_GROUPS
                clients[0].send(produce(2, ("ponds", 0, batch(keyed("beside them")))))
                await until(lambda: cluster.values("ponds", 0) == ["beside them"])
                assert forebay.count("forebay_upstream_connections") <= len(away) + 2
                cluster[0].releases(PRODUCE)
                for asked in away:
                    asked.answer()
                for client in clients:
                    assert only((await client.receives(1))[0]).error_code == NONE
                await clients[0].receives(2)
                assert all(cluster.values(name, 0) == [name] for name in names)

    @in_loop
    async def test_a_partition_that_proved_slow_goes_alone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async with FakeCluster({"ponds": [0, 0]}) as cluster, running(cluster.bootstrap) as forebay:
            cluster.one_at_a_time = True
            clients = [await forebay.client(0) for _ in range(2)]
            await warm(clients[0], cluster)
            time = [monotonic()]
            monkeypatch.setattr("forebay_proxy.produce.sender.monotonic", lambda: time[0])
            cluster[0].holds(PRODUCE)
            both = (("ponds", 0, batch(keyed("a"))), ("ponds", 1, batch(keyed("b"))))
            clients[0].send(produce(1, *both))
            asked = await cluster[0].receives(PRODUCE)
            assert len(asked.partitions) == 2
            time[0] += 3
            asked.answer()
            await clients[0].receives(1)

            clients[0].send(produce(2, *both))
            away = [await cluster[0].receives(PRODUCE) for _ in range(2)]
            slow, fast = sorted(away, key=lambda asked: asked.partitions)
            assert (slow.partitions, fast.partitions) == ([("ponds", 0)], [("ponds", 1)])
            fast.answer()
            clients[1].send(produce(1, ("ponds", 1, batch(keyed("c")))))
            (await cluster[0].receives(PRODUCE)).answer()
            await clients[1].receives(1)
            slow.answer()
            await clients[0].receives(2)

            clients[0].send(produce(3, *both))  # neither was slow alone: they are together again
            asked = await cluster[0].receives(PRODUCE)
            assert len(asked.partitions) == 2
            asked.answer()
            await clients[0].receives(3)

    @in_loop
    async def test_a_connection_that_dies_takes_no_other_with_it(self) -> None:
        async with FakeCluster({"ponds": [0, 0]}) as cluster, running(cluster.bootstrap) as forebay:
            cluster.one_at_a_time = True
            first, second = await forebay.client(0), await forebay.client(0)
            await warm(first, cluster)
            cluster[0].holds(PRODUCE)
            first.send(produce(1, ("ponds", 0, batch(keyed("lost"))), acks=-1))
            dying = await cluster[0].receives(PRODUCE)
            second.send(produce(1, ("ponds", 0, batch(keyed("a")))))
            living = await cluster[0].receives(PRODUCE)
            dying.close()
            assert only((await first.receives(1))[0]).error_code == REQUEST_TIMED_OUT
            living.answer()
            assert only((await second.receives(1))[0]).error_code == NONE
            cluster[0].releases(PRODUCE)
            first.send(produce(2, ("ponds", 0, batch(keyed("b"))), acks=-1))
            assert only((await first.receives(2))[0]).error_code == NONE
            assert cluster.values("ponds", 0) == ["a", "b"]
            assert len(cluster[0].requests(PRODUCE)) == 3

    @in_loop
    @pytest.mark.parametrize("seed", range(4))
    async def test_a_clients_records_keep_their_order_within_a_partition(self, seed: int) -> None:
        """Eight clients, each with an acks of its own, codecs as they come, and answers in any order."""
        rng = Random(seed)
        async with (
            FakeCluster({"ponds": [0, 1, 0], "seas": [0, 0, 1]}, nodes=2) as cluster,
            running(cluster.bootstrap, max_request_size=2_000, batch_size=500, batch_max_size=1_000) as forebay,
        ):
            cluster.one_at_a_time = True
            cluster.replicas = {"ponds": [(0, 1), (1, 2), (0, 2)], "seas": [(0, 1), (0, 3), (1, 0)]}
            clients = [await forebay.client(0) for _ in range(8)]
            held: list[Asked] = []

            def hold(asked: Asked) -> bool:
                if rng.random() < 0.8:
                    held.append(asked)
                return asked in held[-1:]

            for broker in cluster.brokers.values():
                broker.holds_produce(hold)
            for number in range(40):
                for name, client in enumerate(clients):
                    topic, partition = rng.choice(["ponds", "seas"]), rng.randrange(3)
                    value = f"{name}:{number:02}:" + "x" * rng.choice([0, 50, 300])
                    records = batch(keyed(value), codec=rng.choice([0, 0, 1, 3]))
                    acks = -1 if name % 2 else 1
                    to_send = produce(number, (topic, partition, records), acks=acks, client_id=f"client {name}")
                    client.send(to_send)
            sent = 40 * len(clients)
            while sum(len(values) for values in cluster.log.values()) < sent:
                if held:
                    held.pop(rng.randrange(len(held))).answer()
                await turns(2)
            for client in clients:
                for response in await client.receives(*range(40)):
                    assert only(response).error_code == NONE
            logs = [cluster.values(topic, index) for topic in ("ponds", "seas") for index in range(3)]
            assert sum(map(len, logs)) == sent
            for log in logs:
                for name in range(8):
                    mine = [value.split(":")[1] for value in log if value.startswith(f"{name}:")]
                    assert mine == sorted(mine)


class TestFaultsOfOurs:
    """What should never be; a partition that waits for ever for the batch it befell would be worse."""

    @in_loop
    async def test_a_request_that_cannot_be_written_fails_and_its_partition_goes_on(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            client = await forebay.client(0)
            await warm(client, cluster)
            (sender,) = forebay.app._realm.dispatcher._senders.values()
            for connection in sender._pool._connections:
                connection.versions = {}  # in which version is not known
            client.send(produce(1, ("ponds", 0, batch(keyed("a")))))
            assert only((await client.receives(1))[0]).error_code == UNKNOWN_SERVER_ERROR
            client.send(produce(2, ("ponds", 0, batch(keyed("after")))))
            assert only((await client.receives(2))[0]).error_code == NONE
            assert cluster.values("ponds", 0) == ["after"]

    @in_loop
    async def test_an_answer_that_cannot_be_worked_on_leaves_its_partition_free(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            client = await forebay.client(0)
            await warm(client, cluster)
            delivery = forebay.app._realm._delivery
            sound, delivery._leader_changed = delivery._leader_changed, Mock(side_effect=RuntimeError("broken"))
            cluster[0].holds(PRODUCE)
            client.send(produce(1, ("ponds", 0, batch(keyed("a"))), timeout_ms=1_000))
            (await cluster[0].receives(PRODUCE)).answer(error_code=NOT_LEADER_OR_FOLLOWER)
            assert only((await client.receives(1))[0]).error_code == REQUEST_TIMED_OUT
            delivery._leader_changed = sound
            cluster[0].releases(PRODUCE)
            client.send(produce(2, ("ponds", 0, batch(keyed("after")))))
            assert only((await client.receives(2))[0]).error_code == NONE
            assert forebay.count("forebay_buffer_memory_available_bytes") == 33_554_432
