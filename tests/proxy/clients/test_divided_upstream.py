"""One port for all brokers: what each of them gets of a client's requests, and what the client is answered."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import structlog

from forebay_codecs import error_codes
from forebay_codecs.api_keys import (
    API_VERSIONS,
    DESCRIBE_CLUSTER,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    METADATA,
    PRODUCE,
)
from forebay_codecs.api_versions import parse_api_versions
from forebay_codecs.metadata import parse_metadata_response
from forebay_codecs.primitives import Reader
from forebay_proxy.clients import divided_upstream
from tests.kit.app import Running, running
from tests.kit.event_loop import in_loop, soon, turns, until
from tests.kit.fake_broker import FakeCluster
from tests.kit.ports import LOOPBACK
from tests.kit.wire import (
    LIST_GROUPS,
    WireClient,
    batch,
    echo,
    keyed,
    metadata,
    metadata_of,
    null_key,
    only,
    produce,
    produced,
    request,
    transactional,
)

PONDS = {"ponds": [0, 1, 0]}
UNTOUCHED: dict[str, Any] = {"producers_only": True, "topics_exclude": ("ponds",)}
ID = 7


def idempotent(*values: str, first: int = 0, epoch: int = 0) -> bytes:
    return batch(null_key(*values), producer_id=ID, producer_epoch=epoch, base_sequence=first)


async def connected(forebay: Running) -> WireClient:
    """A client that has asked for the topic, as all do."""
    client = await forebay.client()
    client.send(metadata(0, "ponds"))
    await client.receives(0)
    return client


class TestDivided:
    @in_loop
    async def test_each_broker_gets_what_it_leads_and_the_answers_are_one(self) -> None:
        async with FakeCluster(PONDS, 2) as cluster, running(cluster.bootstrap, producers_only=True) as forebay:
            client = await connected(forebay)
            parts = [("ponds", partition, idempotent(f"to {partition}")) for partition in (2, 1, 0)]
            client.send(produce(1, *parts, acks=-1))
            (answer,) = await client.receives(1)
            found = produced(answer)
            assert list(found) == [("ponds", 2), ("ponds", 1), ("ponds", 0)]
            assert [(part.error_code, part.base_offset) for part in found.values()] == [(0, 0)] * 3
            asked = [(await cluster[node].receives(PRODUCE)).partitions for node in (0, 1)]
            assert asked == [[("ponds", 2), ("ponds", 0)], [("ponds", 1)]]
            assert [cluster.values("ponds", partition) for partition in range(3)] == [["to 0"], ["to 1"], ["to 2"]]

    @in_loop
    async def test_batches_arrive_byte_for_byte(self) -> None:
        async with FakeCluster(PONDS, 2) as cluster, running(cluster.bootstrap, producers_only=True) as forebay:
            client = await connected(forebay)
            sent = idempotent("one", "two")
            client.send(produce(1, ("ponds", 1, sent), acks=-1, version=8))
            await client.receives(1)
            asked = await cluster[1].receives(PRODUCE)
            ((_, ((_, start, end),)),) = asked.produce.topics
            assert asked.frame[start:end] == sent
            assert (asked.version, asked.produce.acks, asked.client_id) == (8, -1, "old-producer")

    @in_loop
    async def test_untouched_batches_beside_touched_ones_are_divided_too(self) -> None:
        async with FakeCluster(PONDS, 2) as cluster, running(cluster.bootstrap, producers_only=True) as forebay:
            client = await connected(forebay)
            client.send(
                produce(
                    1,
                    ("ponds", 0, idempotent("a")),
                    ("ponds", 1, idempotent("b")),
                    ("ponds", 2, batch(keyed("c"))),
                    acks=-1,
                )
            )
            (answer,) = await client.receives(1)
            assert {part.error_code for part in produced(answer).values()} == {0}
            assert [cluster.values("ponds", partition) for partition in range(3)] == [["a"], ["b"], ["c"]]

    @in_loop
    async def test_a_topic_that_is_not_known_yet_is_asked_for(self) -> None:
        async with FakeCluster(PONDS, 2) as cluster, running(cluster.bootstrap, producers_only=True) as forebay:
            client = await forebay.client()
            client.send(produce(1, ("ponds", 1, idempotent("a")), acks=-1), echo(2))
            answer, _ = await client.receives(1, 2)
            assert only(answer).error_code == 0

    @in_loop
    async def test_clients_use_a_version_that_brokers_take_which_are_not_upgraded_yet(self) -> None:
        async with FakeCluster(PONDS, 2) as cluster:
            cluster.produce_versions = (3, 12)
            async with running(cluster.bootstrap, producers_only=True) as forebay:
                client = await forebay.client()
                client.send(request(API_VERSIONS, 0, 1, b""))
                (answer,) = await client.receives(1)
                assert parse_api_versions(answer.whole, 0)[PRODUCE] == (0, 8)

    @in_loop
    async def test_what_no_broker_knows_is_refused_as_one_would(self) -> None:
        async with FakeCluster(PONDS, 2) as cluster, running(cluster.bootstrap, producers_only=True) as forebay:
            client = await connected(forebay)
            client.send(
                produce(
                    1,
                    ("ponds", 9, idempotent("a")),
                    ("lakes", 0, idempotent("b")),
                    ("ponds", 1, idempotent("c")),
                    acks=-1,
                )
            )
            (answer,) = await client.receives(1)
            assert {key: part.error_code for key, part in produced(answer).items()} == {
                ("ponds", 9): error_codes.UNKNOWN_TOPIC_OR_PARTITION,
                ("lakes", 0): error_codes.UNKNOWN_TOPIC_OR_PARTITION,
                ("ponds", 1): error_codes.NONE,
            }

    @in_loop
    async def test_a_partition_without_a_leader_is_refused_and_asked_for(self) -> None:
        lacking = FakeCluster({"ponds": [-1, 1]}, 2)
        async with lacking as cluster, running(cluster.bootstrap, producers_only=True) as forebay:
            client = await connected(forebay)
            client.send(produce(1, ("ponds", 0, idempotent("a")), acks=-1))
            (answer,) = await client.receives(1)
            assert only(answer).error_code == error_codes.NOT_LEADER_OR_FOLLOWER
            cluster.topics["ponds"][0] = 0
            for correlation_id in range(2, 500):
                client.send(produce(correlation_id, ("ponds", 0, idempotent("a")), acks=-1))
                (answer,) = await client.receives(correlation_id)
                if only(answer).error_code == 0:
                    break
            assert cluster.values("ponds", 0) == ["a"]

    @in_loop
    async def test_answers_come_in_the_order_of_the_requests(self) -> None:
        async with FakeCluster(PONDS, 2) as cluster, running(cluster.bootstrap, producers_only=True) as forebay:
            client = await connected(forebay)
            cluster[0].holds(PRODUCE)
            client.send(
                produce(1, ("ponds", 0, idempotent("a")), acks=-1), produce(2, ("ponds", 1, idempotent("b")), acks=-1)
            )
            slow = await cluster[0].receives(PRODUCE)
            await until(lambda: cluster.values("ponds", 1))
            slow.answer()
            await client.receives(1, 2)

    @in_loop
    async def test_the_longest_throttle_time_is_told(self) -> None:
        async with FakeCluster(PONDS, 2) as cluster, running(cluster.bootstrap, producers_only=True) as forebay:
            client = await connected(forebay)
            for node in (0, 1):
                cluster[node].holds(PRODUCE)
            client.send(produce(1, ("ponds", 0, idempotent("a")), ("ponds", 1, idempotent("b")), acks=-1))
            for node, throttle in ((0, 70), (1, 30)):
                (await cluster[node].receives(PRODUCE)).answer(throttle_time_ms=throttle)
            (answer,) = await client.receives(1)
            assert int.from_bytes(answer.whole[-4:], "big") == 70

    @in_loop
    async def test_an_empty_request_has_an_empty_answer(self) -> None:
        async with FakeCluster(PONDS, 2) as cluster, running(cluster.bootstrap, producers_only=True) as forebay:
            client = await connected(forebay)
            client.send(produce(1, acks=-1))
            (answer,) = await client.receives(1)
            assert produced(answer) == {}


async def whose_leader_is_being_asked_for(cluster: FakeCluster, forebay: Running, *, leaves: bool) -> None:
    """Records without acks of a client, which `leaves` or stays."""
    client = await forebay.client()
    client.send(echo(0))
    await client.receives(0)
    for node in (0, 1):
        cluster[node].holds(METADATA)
    client.send(produce(1, ("ponds", 1, batch(null_key("a"))), acks=0))
    (connection,) = forebay.app._connections
    await until(lambda: connection.holds)
    if leaves:
        connection.abort()
        await until(lambda: not len(forebay.app._connections))


class TestWithoutAcks:
    @in_loop
    async def test_records_arrive_and_nothing_is_answered(self) -> None:
        async with FakeCluster(PONDS, 2) as cluster, running(cluster.bootstrap, **UNTOUCHED) as forebay:
            client = await connected(forebay)
            parts = [("ponds", partition, batch(null_key(f"to {partition}"))) for partition in (0, 1)]
            client.send(produce(1, *parts, acks=0), echo(2))
            await client.receives(2)
            await until(lambda: cluster.values("ponds", 0) and cluster.values("ponds", 1))

    @pytest.mark.parametrize("leaves", [False, True])
    @in_loop
    async def test_a_drain_waits_for_those_whose_leader_is_being_asked_for(self, leaves: bool) -> None:
        async with FakeCluster(PONDS, 2) as cluster, running(cluster.bootstrap, **UNTOUCHED) as forebay:
            await whose_leader_is_being_asked_for(cluster, forebay, leaves=leaves)
            draining = asyncio.create_task(forebay.app.drain())
            await turns(50)
            assert not draining.done()
            for node in (0, 1):
                cluster[node].releases(METADATA)
                for asked in cluster[node].requests(METADATA):
                    asked.answer()
            await soon(draining)
            await until(lambda: cluster.values("ponds", 1) == ["a"])

    @in_loop
    async def test_who_stops_at_once_does_not_wait_for_their_leader(self) -> None:
        async with FakeCluster(PONDS, 2) as cluster, running(cluster.bootstrap, **UNTOUCHED) as forebay:
            await whose_leader_is_being_asked_for(cluster, forebay, leaves=True)
            assert forebay.app._realm.departing
            forebay.app.abort()
            assert not forebay.app._realm.departing

    @in_loop
    async def test_a_refusal_closes_the_client_behind_the_answers_before(self) -> None:
        async with FakeCluster(PONDS, 2) as cluster, running(cluster.bootstrap, **UNTOUCHED) as forebay:
            client = await connected(forebay)
            client.send(echo(1), produce(2, ("ponds", 9, batch(null_key("a"))), acks=0))
            await client.receives(1)
            assert await client.is_closed()

    @in_loop
    async def test_a_broker_that_closes_on_them_closes_the_client(self) -> None:
        async with FakeCluster(PONDS, 2) as cluster, running(cluster.bootstrap, **UNTOUCHED) as forebay:
            client = await connected(forebay)
            cluster[1].holds(PRODUCE)
            client.send(produce(2, ("ponds", 1, batch(null_key("a"))), acks=0))
            (await cluster[1].receives(PRODUCE)).close()
            assert await client.is_closed()

    @in_loop
    async def test_a_broker_that_cannot_be_reached_closes_the_client_and_is_told_once(self) -> None:
        async with FakeCluster(PONDS, 2) as cluster, running(cluster.bootstrap, **UNTOUCHED) as forebay:
            client = await connected(forebay)
            cluster[1].down()
            with structlog.testing.capture_logs() as logs:
                client.send(produce(2, ("ponds", 1, batch(null_key("a"))), acks=0))
                assert await client.is_closed()
            told = [line["event"] for line in logs if line.get("node") == 1]
            assert told == ["no connection to the broker for a client"]


class TestMovedLeaders:
    @in_loop
    async def test_a_moved_leader_is_found_by_the_clients_next_try(self) -> None:
        async with FakeCluster(PONDS, 2) as cluster, running(cluster.bootstrap, producers_only=True) as forebay:
            client = await connected(forebay)
            client.send(produce(1, ("ponds", 1, idempotent("a")), acks=-1))
            await client.receives(1)
            cluster.topics["ponds"][1] = 0
            cluster.epochs["ponds"] = 1
            codes = []
            for correlation_id in range(2, 500):
                client.send(produce(correlation_id, ("ponds", 1, idempotent("b", first=1)), acks=-1))
                (answer,) = await client.receives(correlation_id)
                codes.append(only(answer).error_code)
                if not codes[-1]:
                    break
            assert set(codes[:-1]) == {error_codes.NOT_LEADER_OR_FOLLOWER}
            assert cluster.values("ponds", 1) == ["a", "b"]

    @in_loop
    async def test_what_follows_an_unanswered_request_does_not_overtake_it_at_the_new_leader(self) -> None:
        async with FakeCluster(PONDS, 2) as cluster, running(cluster.bootstrap, producers_only=True) as forebay:
            cluster.idempotent = True
            client = await connected(forebay)
            cluster[1].holds(PRODUCE)
            client.send(produce(1, ("ponds", 1, idempotent("a")), acks=-1))
            first = await cluster[1].receives(PRODUCE)
            await moved(cluster, forebay, 1, 0)
            client.send(produce(2, ("ponds", 1, idempotent("b", first=1)), acks=-1))
            second = await cluster[1].receives(PRODUCE)
            first.answer()
            (answer,) = await client.receives(1)
            assert only(answer).error_code == error_codes.NOT_LEADER_OR_FOLLOWER
            second.answer()
            await client.receives(2)
            await settle(client, ("a", 0), ("b", 1))
            assert cluster.values("ponds", 1) == ["a", "b"]

    @in_loop
    async def test_what_a_client_sent_before_it_knew_of_a_failure_does_not_overtake_what_failed(self) -> None:
        async with FakeCluster(PONDS, 2) as cluster, running(cluster.bootstrap, producers_only=True) as forebay:
            cluster.idempotent = True
            client = await connected(forebay)
            cluster[1].holds(PRODUCE)
            client.send(produce(1, ("ponds", 1, idempotent("a")), acks=-1))
            first = await cluster[1].receives(PRODUCE)
            await moved(cluster, forebay, 1, 0)
            first.answer()
            await until(lambda: all(not connection.awaiting for connection in forebay.app._connections))
            client.send(produce(2, ("ponds", 1, idempotent("b", first=1)), acks=-1))
            answers = await client.receives(1, 2)
            assert [only(answer).error_code for answer in answers] == [error_codes.NOT_LEADER_OR_FOLLOWER] * 2
            await settle(client, ("a", 0), ("b", 1))
            assert cluster.values("ponds", 1) == ["a", "b"]

    @in_loop
    @pytest.mark.parametrize("error", [error_codes.NOT_LEADER_OR_FOLLOWER, error_codes.UNKNOWN_TOPIC_OR_PARTITION])
    async def test_a_broker_that_leads_again_gets_nothing_before_what_it_refused(self, error: int) -> None:
        async with FakeCluster(PONDS, 2) as cluster, running(cluster.bootstrap, producers_only=True) as forebay:
            cluster.idempotent = True
            client = await connected(forebay)
            cluster[1].holds(PRODUCE)
            client.send(produce(1, ("ponds", 1, idempotent("a")), acks=-1))
            first = await cluster[1].receives(PRODUCE)
            cluster[1].releases(PRODUCE)
            first.answer(error_code=error)
            await until(lambda: all(not connection.awaiting for connection in forebay.app._connections))
            await moved(cluster, forebay, 1, 1)
            client.send(produce(2, ("ponds", 1, idempotent("b", first=1)), acks=-1))
            answers = await client.receives(1, 2)
            assert [only(answer).error_code for answer in answers] == [error, error_codes.NOT_LEADER_OR_FOLLOWER]
            await settle(client, ("a", 0), ("b", 1))
            assert cluster.values("ponds", 1) == ["a", "b"]


async def moved(cluster: FakeCluster, forebay: Running, partition: int, to: int) -> None:
    """Forebay knows by then."""
    cluster.topics["ponds"][partition] = to
    cluster.epochs["ponds"] = cluster.epochs.get("ponds", 0) + 1
    forebay.app._realm.view.updater.invalidate(("ponds",), "error")
    await until(lambda: forebay.app._realm.view.cluster.topics["ponds"].queues.leader_of(partition) == to)


async def settle(client: WireClient, *batches: tuple[str, int]) -> None:
    """Send each again until it is taken, in their order, as clients do."""
    number = 100
    for value, first in batches:
        while True:
            number += 1
            assert number < 1000
            client.send(produce(number, ("ponds", 1, idempotent(value, first=first)), acks=-1))
            (answer,) = await client.receives(number)
            if not only(answer).error_code:
                break


class TestLostBrokers:
    @in_loop
    async def test_a_lost_broker_costs_its_parts_and_nothing_else(self) -> None:
        async with FakeCluster(PONDS, 2) as cluster, running(cluster.bootstrap, producers_only=True) as forebay:
            client = await connected(forebay)
            for node in (0, 1):
                cluster[node].holds(PRODUCE)
            client.send(produce(1, ("ponds", 0, idempotent("a")), ("ponds", 1, idempotent("b")), acks=-1))
            (await cluster[1].receives(PRODUCE)).close()
            (await cluster[0].receives(PRODUCE)).answer()
            (answer,) = await client.receives(1)
            assert [part.error_code for part in produced(answer).values()] == [0, error_codes.REQUEST_TIMED_OUT]
            cluster[1].releases(PRODUCE)
            client.send(produce(2, ("ponds", 1, idempotent("b")), acks=-1))
            (answer,) = await client.receives(2)
            assert only(answer).error_code == 0
            assert forebay.count("forebay_errors_total", "upstream", "connection_lost") == 1

    @in_loop
    async def test_of_one_that_cannot_be_reached_nothing_was_sent(self) -> None:
        async with FakeCluster(PONDS, 2) as cluster, running(cluster.bootstrap, producers_only=True) as forebay:
            client = await connected(forebay)
            cluster[1].down()
            with structlog.testing.capture_logs() as logs:
                client.send(produce(1, ("ponds", 1, idempotent("b")), ("ponds", 0, idempotent("a")), acks=-1))
                (answer,) = await client.receives(1)
            assert [part.error_code for part in produced(answer).values()] == [error_codes.NOT_LEADER_OR_FOLLOWER, 0]
            told = [(line["event"], line["node"]) for line in logs if "client" in line]
            assert told == [("no connection to the broker for a client", 1)], "what never stood was not closed"
            client.send(echo(2))
            await client.receives(2)

    @in_loop
    async def test_one_that_does_not_answer_is_left_before_the_client_gives_up(self) -> None:
        async with FakeCluster(PONDS, 2) as cluster, running(cluster.bootstrap, producers_only=True) as forebay:
            client = await connected(forebay)
            cluster[1].holds(PRODUCE)
            client.send(
                produce(1, ("ponds", 1, idempotent("b")), ("ponds", 0, idempotent("a")), acks=-1, timeout_ms=10)
            )
            (answer,) = await client.receives(1)
            assert [part.error_code for part in produced(answer).values()] == [error_codes.REQUEST_TIMED_OUT, 0]
            cluster[1].releases(PRODUCE)
            client.send(produce(2, ("ponds", 1, idempotent("b")), acks=-1))
            (answer,) = await client.receives(2)
            assert only(answer).error_code == 0

    @in_loop
    async def test_no_client_is_waited_for_beyond_the_time_that_a_record_has(self) -> None:
        short: dict[str, Any] = {"linger_ms": 0, "request_timeout_ms": 500, "delivery_timeout_ms": 500}
        async with (
            FakeCluster(PONDS, 2) as cluster,
            running(cluster.bootstrap, producers_only=True, **short) as forebay,
        ):
            client = await connected(forebay)
            cluster[1].holds(PRODUCE)
            client.send(produce(1, ("ponds", 1, idempotent("b")), acks=-1, timeout_ms=3_600_000))
            (answer,) = await client.receives(1)
            assert only(answer).error_code == error_codes.REQUEST_TIMED_OUT

    @in_loop
    async def test_an_answer_that_cannot_be_read_counts_as_lost(self) -> None:
        async with FakeCluster(PONDS, 2) as cluster, running(cluster.bootstrap, producers_only=True) as forebay:
            client = await connected(forebay)
            cluster[1].holds(PRODUCE)
            client.send(produce(1, ("ponds", 1, idempotent("b")), acks=-1))
            (await cluster[1].receives(PRODUCE)).respond(b"\x7f\xff\xff\xff")
            (answer,) = await client.receives(1)
            assert only(answer).error_code == error_codes.REQUEST_TIMED_OUT
            client.send(echo(2))
            await client.receives(2)

    @in_loop
    async def test_a_partition_that_an_answer_leaves_out_counts_as_lost(self) -> None:
        async with FakeCluster(PONDS, 2) as cluster, running(cluster.bootstrap, producers_only=True) as forebay:
            client = await connected(forebay)
            cluster[1].holds(PRODUCE)
            client.send(produce(1, ("ponds", 1, idempotent("b")), acks=-1))
            (await cluster[1].receives(PRODUCE)).respond(bytes(8))
            (answer,) = await client.receives(1)
            assert only(answer).error_code == error_codes.REQUEST_TIMED_OUT

    @in_loop
    async def test_a_client_that_leaves_takes_all_of_its_connections_along(self) -> None:
        async with FakeCluster(PONDS, 2) as cluster, running(cluster.bootstrap, producers_only=True) as forebay:
            before = [len(cluster[node].connections) for node in (0, 1)]
            client = await connected(forebay)
            client.send(produce(1, ("ponds", 0, idempotent("a")), ("ponds", 1, idempotent("b")), acks=-1))
            await client.receives(1)
            assert forebay.count("forebay_upstream_connections") == 1
            client.close()
            await until(lambda: [len(cluster[node].connections) for node in (0, 1)] <= before)

    @in_loop
    async def test_a_broker_that_does_not_read_holds_the_client(self) -> None:
        async with FakeCluster(PONDS, 2) as cluster, running(cluster.bootstrap, producers_only=True) as forebay:
            client = await connected(forebay)
            cluster[1].reads(False)
            large = "x" * 900_000
            for number in range(1, 60):
                client.send(produce(number, ("ponds", 1, idempotent(large, first=number - 1)), acks=-1))
            await until(lambda: any(connection.held for connection in forebay.app._connections))
            cluster[1].reads(True)
            await client.receives(*range(1, 60))


class TestOneBroker:
    @in_loop
    async def test_metadata_knows_of_one(self) -> None:
        async with FakeCluster({"ponds": [0, 1, -1]}, 2) as cluster:
            cluster.replicas["ponds"] = [(0, 1), (1, 0), (0, 1)]
            async with running(cluster.bootstrap, producers_only=True) as forebay:
                client = await forebay.client()
                client.send(metadata(1, "ponds"))
                (answer,) = await client.receives(1)
                found = metadata_of(answer)
                assert {node: (it.host, it.port) for node, it in found.brokers.items()} == {0: (LOOPBACK, forebay.port)}
                assert found.controller_id == 0
                (topic,) = found.topics
                assert [(it.leader_id, it.replicas, it.isr) for it in topic.partitions] == [
                    (0, (0,), (0,)),
                    (0, (0,), (0,)),
                    (-1, (0,), (0,)),
                ]

    @in_loop
    async def test_there_is_no_other_port(self) -> None:
        async with FakeCluster(PONDS, 2) as cluster, running(cluster.bootstrap, producers_only=True) as forebay:
            await connected(forebay)
            for node in (0, 1):
                with pytest.raises(ConnectionRefusedError):
                    await forebay.client(node)

    @in_loop
    @pytest.mark.parametrize("api_key", [METADATA, DESCRIBE_CLUSTER, API_VERSIONS, FIND_COORDINATOR])
    async def test_no_broker_address_is_in_any_byte(self, api_key: int) -> None:
        async with FakeCluster(PONDS, 2) as cluster, running(cluster.bootstrap, producers_only=True) as forebay:
            client = await connected(forebay)
            body = {
                METADATA: b"\xff\xff\xff\xff\1",
                DESCRIBE_CLUSTER: b"\0\0\0",
                API_VERSIONS: b"",
                FIND_COORDINATOR: b"\0\1g",
            }
            version = 4 if api_key == METADATA else 0
            client.send(request(api_key, version, 1, body[api_key]))
            (answer,) = await client.receives(1)
            for node in (0, 1):
                assert cluster[node].port.to_bytes(4, "big") not in answer.whole
            if api_key in (METADATA, DESCRIBE_CLUSTER):
                assert forebay.port.to_bytes(4, "big") in answer.whole

    @in_loop
    async def test_metadata_that_only_a_broker_can_answer_knows_of_one_too(self) -> None:
        async with FakeCluster(PONDS, 2) as cluster, running(cluster.bootstrap, producers_only=True) as forebay:
            client = await forebay.client()
            asked = b"\0\0\0\1\0\5ponds" + b"\0\1\1"  # with the operations that it may carry out
            client.send(request(METADATA, 8, 1, asked))
            (answer,) = await client.receives(1)
            found = parse_metadata_response(answer.whole, 8)
            assert {node: (it.host, it.port) for node, it in found.brokers.items()} == {0: (LOOPBACK, forebay.port)}
            assert [it.leader_id for topic in found.topics for it in topic.partitions] == [0, 0, 0]


class TestRefused:
    @in_loop
    async def test_a_group_and_a_transaction_have_no_coordinator(self) -> None:
        async with FakeCluster(PONDS, 2) as cluster, running(cluster.bootstrap, producers_only=True) as forebay:
            client = await connected(forebay)
            client.send(request(FIND_COORDINATOR, 1, 1, b"\0\1g\0"), request(FIND_COORDINATOR, 1, 2, b"\0\1t\1"))
            for answer, code in zip(await client.receives(1, 2), (30, 53), strict=True):
                reader = Reader(answer.body, 4)
                assert (reader.i16(), reader.string(False)) == (code, "this port takes producers only")
            assert not cluster[0].requests(FIND_COORDINATOR) + cluster[1].requests(FIND_COORDINATOR)

    @in_loop
    async def test_a_producer_id_is_given_but_not_for_transactions(self) -> None:
        async with FakeCluster(PONDS, 2) as cluster, running(cluster.bootstrap, producers_only=True) as forebay:
            client = await connected(forebay)
            client.send(request(INIT_PRODUCER_ID, 0, 1, b"\0\1t" + bytes(4)))
            (answer,) = await client.receives(1)
            assert Reader(answer.body, 4).i16() == error_codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            client.send(request(INIT_PRODUCER_ID, 0, 2, b"\xff\xff" + bytes(4)))
            await client.receives(2)
            asked = [it for node in (0, 1) for it in cluster[node].requests(INIT_PRODUCER_ID)]
            assert [it.correlation_id for it in asked if it.client_id == "old-producer"] == [2]

    @in_loop
    async def test_transactional_records_are_refused(self) -> None:
        async with FakeCluster(PONDS, 2) as cluster, running(cluster.bootstrap, producers_only=True) as forebay:
            client = await connected(forebay)
            client.send(transactional(produce(1, ("ponds", 0, idempotent("a")), acks=-1)))
            (answer,) = await client.receives(1)
            assert only(answer).error_code == error_codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            assert cluster.values("ponds", 0) == []

    @in_loop
    async def test_a_login_ends_the_connection(self) -> None:
        async with FakeCluster(PONDS, 2) as cluster, running(cluster.bootstrap, producers_only=True) as forebay:
            client = await connected(forebay)
            client.send(request(17, 1, 1, b"\0\5PLAIN"))
            assert await client.is_closed()

    @in_loop
    async def test_other_requests_go_to_one_broker(self) -> None:
        async with FakeCluster(PONDS, 2) as cluster, running(cluster.bootstrap, producers_only=True) as forebay:
            client = await connected(forebay)
            client.send(*(echo(number) for number in range(1, 9)))
            await client.receives(*range(1, 9))
            assert sorted(len(cluster[node].requests(LIST_GROUPS)) for node in (0, 1)) == [0, 8]


def test_a_broker_is_left_before_a_java_client_leaves_the_port() -> None:
    assert divided_upstream.PATIENCE < 1
