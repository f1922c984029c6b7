"""What a client sees of its connection: order, refusals, and that others are not harmed."""

from __future__ import annotations

import gc
import socket
import struct
from contextlib import suppress
from time import monotonic
from typing import Any, ClassVar

import pytest
import structlog

from forebay_codecs import api_versions
from forebay_codecs.api_keys import API_VERSIONS, FETCH, FIND_COORDINATOR, METADATA, PRODUCE, SASL_HANDSHAKE
from forebay_codecs.compression import GZIP
from forebay_codecs.error_codes import (
    CORRUPT_MESSAGE,
    KAFKA_STORAGE_ERROR,
    NONE,
    NOT_LEADER_OR_FOLLOWER,
    REQUEST_TIMED_OUT,
)
from forebay_proxy.clients.client_connection import WITHOUT_ACKS, ClientConnection
from forebay_proxy.clients.connections import GIVES_WAY_S
from forebay_proxy.config.kinds import BrokerAddress
from forebay_proxy.config.settings import HostPort
from forebay_proxy.metrics import clients_seen
from forebay_proxy.metrics.catalog import PATHS
from forebay_proxy.produce.completion import ProduceCompletion
from tests.codecs.message_oracle import messages, wrapper
from tests.codecs.record_oracle import Record
from tests.kit.app import Running, running
from tests.kit.event_loop import in_loop, soon, turns, until
from tests.kit.fake_broker import FakeCluster
from tests.kit.ports import LOOPBACK, free_port
from tests.kit.wire import (
    CLIENT_ID,
    LIST_GROUPS,
    batch,
    echo,
    keyed,
    metadata,
    metadata_of,
    null_key,
    old_produce,
    only,
    produce,
    produced,
    request,
    transactional,
)


class TestOrder:
    @in_loop
    async def test_a_fast_opaque_answer_waits_for_the_slow_produce_answer_before_it(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            cluster[0].holds(PRODUCE)
            client = await forebay.client(0)
            client.send(produce(1, ("ponds", 0, batch(null_key("a")))), echo(2, b"two"))
            asked = await cluster[0].receives(PRODUCE)
            await cluster[0].receives(LIST_GROUPS)
            client.send(echo(3, b"three"))
            await cluster[0].receives(LIST_GROUPS)
            asked.answer()
            produced_, second, third = await client.receives(1, 2, 3)
            assert only(produced_).error_code == NONE
            assert (second.body, third.body) == (b"two", b"three")

    @in_loop
    async def test_a_fast_produce_answer_waits_for_the_slow_opaque_answer_before_it(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            cluster[0].holds(LIST_GROUPS)
            client = await forebay.client(0)
            client.send(echo(1, b"one"), produce(2, ("ponds", 0, batch(null_key("a")))))
            slow = await cluster[0].receives(LIST_GROUPS)
            await until(lambda: cluster.values("ponds", 0) == ["a"])
            slow.answer()
            await client.receives(1, 2)

    @in_loop
    async def test_an_untouched_batch_beside_a_touched_one_goes_out_behind_the_requests_before_it(self) -> None:
        async with (
            FakeCluster({"ponds": [0], "raw": [0]}) as cluster,
            running(cluster.bootstrap, topics_exclude=("raw",)) as forebay,
        ):
            client = await forebay.client(0)
            client.send(produce(1, ("ponds", 0, batch(null_key("first"))), ("raw", 0, batch(null_key("first")))))
            await client.receives(1)
            client.send(
                echo(2, b"two"),
                produce(3, ("ponds", 0, batch(null_key("a"))), ("raw", 0, batch(null_key("b")))),
                echo(4, b"four"),
            )
            second, mixed, fourth = await client.receives(2, 3, 4)
            assert (second.body, fourth.body) == (b"two", b"four")
            assert {where: answer.error_code for where, answer in produced(mixed).items()} == {
                ("ponds", 0): NONE,
                ("raw", 0): NONE,
            }
            assert cluster.values("raw", 0) == ["first", "b"]

    @in_loop
    async def test_an_untouched_batch_does_not_cut_into_a_request_that_arrived_in_pieces(self) -> None:
        async with (
            FakeCluster({"ponds": [0], "raw": [0]}) as cluster,
            running(cluster.bootstrap, topics_exclude=("raw",)) as forebay,
        ):
            client = await forebay.client(0)
            client.send(produce(1, ("ponds", 0, batch(null_key("first"))), ("raw", 0, batch(null_key("first")))))
            await client.receives(1)
            opaque = echo(2, b"x" * 1000)
            received = forebay.count("forebay_request_bytes_total", "client") + 500
            client.send(opaque[:500])
            await until(lambda: forebay.count("forebay_request_bytes_total", "client") == received)
            mixed = produce(3, ("ponds", 0, batch(null_key("a"))), ("raw", 0, batch(null_key("b"))))
            client.send(opaque[500:], mixed)
            second, _ = await client.receives(2, 3)
            assert second.body == b"x" * 1000

    @in_loop
    @pytest.mark.parametrize("piece", [5_000, 14_000])
    async def test_what_is_left_of_a_read_is_not_overwritten_by_the_next_client(self, piece: int) -> None:
        """All connections read into the same memory. A read ends in the first request, or in the second."""
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            clients = [await forebay.client(0) for _ in range(2)]
            sent = [
                b"".join(produce(number, ("ponds", 0, batch(keyed(fill * 9_000)))) for number in range(3))
                for fill in "ab"
            ]
            taken = forebay.count("forebay_request_bytes_total", "client")
            received = [taken]

            def all_is_taken() -> bool:
                return forebay.count("forebay_request_bytes_total", "client") == sum(received)

            for start in range(0, len(sent[0]), piece):
                for client, whole in zip(clients, sent, strict=True):
                    client.send(whole[start : start + piece])
                    received.append(len(whole[start : start + piece]))
                    await until(all_is_taken)
            for client in clients:
                await client.receives(0, 1, 2)
            assert sorted(cluster.values("ponds", 0)) == ["a" * 9_000] * 3 + ["b" * 9_000] * 3

    @in_loop
    async def test_records_without_acks_do_not_stand_in_the_order(self) -> None:
        async with (
            FakeCluster({"ponds": [0], "raw": [0]}) as cluster,
            running(cluster.bootstrap, topics_exclude=("raw",)) as forebay,
        ):
            cluster[0].holds(PRODUCE)
            client = await forebay.client(0)
            client.send(
                produce(1, ("ponds", 0, batch(null_key("a"))), acks=0),
                echo(2),
                produce(3, ("raw", 0, batch(null_key("b"))), acks=0),
                old_produce(4, acks=0),
                echo(5),
            )
            await client.receives(2, 5)

    @in_loop
    @pytest.mark.parametrize("most", [1, 2, 3])
    async def test_a_client_has_no_more_requests_under_way_than_it_may(self, most: int) -> None:
        async with (
            FakeCluster({"ponds": [0]}) as cluster,
            running(cluster.bootstrap, client_max_in_flight_requests=most) as forebay,
        ):
            cluster[0].holds(LIST_GROUPS)
            client = await forebay.client(0)
            client.send(*[echo(number, bytes([number])) for number in range(10)])
            for number in range(10):
                asked = await cluster[0].receives(LIST_GROUPS)
                assert len(cluster[0].requests(LIST_GROUPS)) <= number + most
                asked.answer()
                (response,) = await client.receives(number)
                assert response.body == bytes([number])

    @in_loop
    async def test_what_lingers_leaves_when_its_client_may_send_no_more(self) -> None:
        limits = {"linger_ms": 60_000, "client_max_in_flight_requests": 2}
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap, **limits) as forebay:
            client = await forebay.client(0)
            client.send(*[produce(number, ("ponds", 0, batch(keyed("a")))) for number in range(4)])
            await client.receives(0, 1, 2, 3)

    @in_loop
    async def test_what_lingers_of_others_stays_but_where_it_is_in_the_same_batch(self) -> None:
        limits = {"linger_ms": 60_000, "client_max_in_flight_requests": 3}
        async with FakeCluster({"ponds": [0, 0]}) as cluster, running(cluster.bootstrap, **limits) as forebay:
            other, client = await forebay.client(0), await forebay.client(0)
            other.send(
                produce(1, ("ponds", 0, batch(keyed("beside")))), produce(2, ("ponds", 1, batch(keyed("apart"))))
            )
            await until(lambda: forebay.count("forebay_queued_batches") == 2)
            client.send(*[produce(number, ("ponds", 0, batch(keyed("a")))) for number in range(3)])
            await client.receives(0, 1, 2)
            await other.receives(1)
            assert forebay.count("forebay_queued_batches") == 1
            assert cluster.values("ponds", 1) == []
            (lingers,) = forebay.app._realm.handler._lingering.values()
            assert len(lingers) == 1, "those that are answered are forgotten"

    @in_loop
    async def test_a_request_that_waits_keeps_nothing_of_others_that_shared_a_batch_with_it(self) -> None:
        """But while that batch would linger: it has a timer."""
        brokers = FakeCluster({"ponds": [0, 1]}, nodes=2)
        async with brokers as cluster, running(cluster.bootstrap, linger_ms=1000) as forebay:
            cluster[0].holds(PRODUCE)
            waits, other = await forebay.client(0), await forebay.client(0)
            waits.send(produce(1, ("ponds", 0, batch(keyed("waits"))), ("ponds", 1, batch(keyed("leaves")))))
            other.send(produce(2, ("ponds", 1, batch(keyed("leaves, too")))))
            other.finish()
            await other.receives(2)
            assert len(cluster[1].requests(PRODUCE)) == 1
            await until(lambda: len([it for it in gc.get_objects() if isinstance(it, ProduceCompletion)]) == 1)
            assert forebay.count("forebay_errors_total", "internal", "expired") == 0

    @in_loop
    async def test_of_requests_without_acks_ten_times_as_many_are_under_way_and_the_others_wait(self) -> None:
        limits = {"linger_ms": 60_000, "client_max_in_flight_requests": 2}
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap, **limits) as forebay:
            cluster[0].holds(PRODUCE)
            client, other = await forebay.client(0), await forebay.client(0)
            values = [str(number) for number in range(50)]
            client.send(*[produce(1, ("ponds", 0, batch(keyed(value))), acks=0) for value in values])
            away = await cluster[0].receives(PRODUCE)  # although they linger
            await turns(50)
            assert [connection.holds for connection in forebay.app._connections if connection.holds] == [["in flight"]]
            assert forebay.count("forebay_produce_requests_total", "client") == 2 * WITHOUT_ACKS
            other.send(echo(1))
            await other.receives(1)
            cluster[0].releases(PRODUCE)
            away.answer()
            await until(lambda: len(cluster.values("ponds", 0)) >= 2 * 2 * WITHOUT_ACKS)
            await soon(forebay.app.drain())
            assert cluster.values("ponds", 0) == values

    @in_loop
    async def test_one_whose_requests_wait_for_others_is_not_idle_and_one_that_does_not_read_is(self) -> None:
        limits = {"client_max_in_flight_requests": 1, "max_connections": 1, "connections_max_idle_ms": 0}
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap, **limits) as forebay:
            cluster[0].holds(PRODUCE)
            client = await forebay.client(0)
            client.send(*[produce(1, ("ponds", 0, batch(keyed("a"))), acks=0)] * 2 * WITHOUT_ACKS)
            away = await cluster[0].receives(PRODUCE)
            (connection,) = forebay.app._connections
            assert connection.holds == ["in flight"]
            later = connection.last_active + GIVES_WAY_S + 1
            forebay.app._connections.sweep(later)
            assert not forebay.app._connections._make_room(later)
            cluster[0].releases(PRODUCE)
            away.answer()
            await until(lambda: len(cluster.values("ponds", 0)) == 2 * WITHOUT_ACKS and not connection.held)
            connection.pause_writing()
            assert connection.holds == ["client slow"]
            assert forebay.app._connections._make_room(later + 1)

    @in_loop
    async def test_who_may_send_no_more_without_acks_goes_on_once_their_fate_is_known(self) -> None:
        limits = {"client_max_in_flight_requests": 1}
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap, **limits) as forebay:
            cluster[0].holds(PRODUCE)
            client = await forebay.client(0)
            client.send(*[produce(1, ("ponds", 0, batch(keyed("a"))), acks=0)] * WITHOUT_ACKS)
            (connection,) = forebay.app._connections
            await until(lambda: connection.holds == ["in flight"])
            away = await cluster[0].receives(PRODUCE)
            client.send(echo(2))
            await turns()
            assert cluster[0].requests(LIST_GROUPS) == []
            cluster[0].releases(PRODUCE)
            away.answer()
            await client.receives(2)


@in_loop
async def test_a_bootstrap_connection_speaks_with_the_broker_that_told_it_the_versions() -> None:
    """Brokers may differ while they are upgraded one by one."""
    async with FakeCluster({"ponds": [0, 1, 2]}, nodes=3) as cluster, running(cluster.bootstrap) as forebay:
        for _ in range(20):
            before = [len(cluster[node].requests(LIST_GROUPS)) for node in range(3)]
            client = await forebay.client()
            client.send(request(API_VERSIONS, 2, 1, b""), echo(2), echo(3))
            await client.receives(1, 2, 3)
            (node,) = [node for node in range(3) if len(cluster[node].requests(LIST_GROUPS)) > before[node]]
            assert [asked for asked in cluster[node].requests(API_VERSIONS) if asked.version == 2]
        assert all(cluster[node].requests(LIST_GROUPS) for node in range(3))


@in_loop
async def test_a_broker_that_does_not_tell_its_versions_is_given_to_no_other_bootstrap_connection() -> None:
    """It has been asked for nothing else: nobody else notices that it is gone."""
    async with FakeCluster({"ponds": [0]}, nodes=3) as cluster, running(cluster.bootstrap) as forebay:
        cluster[2].down()
        closed = 0
        for correlation_id in range(30):
            client = await forebay.client()
            client.send(request(API_VERSIONS, 2, correlation_id, b""))
            try:
                await client.receive()
            except ConnectionResetError:
                closed += 1
        assert closed == 1


REFUSED = {
    "unknown API": request(99, 0, 1, b""),
    "Produce v13": request(PRODUCE, 13, 1, b""),
    "Fetch v19": request(FETCH, 19, 1, b""),
    "short": (3).to_bytes(4, "big") + b"abc",
    "negative": (-1).to_bytes(4, "big", signed=True),
}


class TestTurns:
    @in_loop
    async def test_a_client_that_asks_thousands_of_questions_at_once_lets_others_ask_theirs(self) -> None:
        """All of them are there to be read at once, are answered from the cache, and take a good part of a second."""
        many = 24_000
        async with FakeCluster({"ponds": [0], "lakes": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            hasty, other = await forebay.client(0), await forebay.client(0)
            hasty.send(metadata(0, "ponds"), metadata(1, "lakes"))
            await hasty.receives(0, 1)
            other.send(echo(1, b"one"))
            await other.receives(1)
            # No question twice in a row: that would be taken for doubt, and a broker asked.
            hasty.send(b"".join(metadata(number, ("ponds", "lakes")[number % 2]) for number in range(many)))
            other.send(echo(2, b"two"))
            await other.receives(2)
            answered = forebay.count("forebay_metadata_requests_total", "from_cache")
            assert answered < many / 2
            await hasty.receives(*range(many))  # and each of theirs is answered, in order

    @in_loop
    async def test_what_waits_for_its_turn_is_taken_though_its_client_has_left(self) -> None:
        """Records without acks are written and forgotten: a client that closes then has not taken them back."""
        many = 2_000
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            client = await forebay.client(0)
            client.send(metadata(0, "ponds"))
            await client.receives(0)
            records = [produce(n, ("ponds", 0, batch(null_key(str(n)))), acks=0) for n in range(many)]
            client.send(b"".join(records))
            client.close()
            connections = forebay.app._connections
            while len(connections):
                connections.sweep(monotonic())
                await turns(1)
            await until(lambda: len(cluster.values("ponds", 0)) == many)

    @in_loop
    @pytest.mark.parametrize("resets", [False, True])
    async def test_what_arrived_before_its_client_left_is_taken_though_it_is_not_read_yet(self, resets: bool) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            cluster[0].holds(METADATA)
            values = [f"{number}" for number in range(5)]
            with socket.create_connection((LOOPBACK, forebay.port + 1)) as client:
                client.sendall(produce(0, ("ponds", 0, batch(keyed("first"))), acks=0))
                connections = forebay.app._connections
                await until(lambda: [connection.held for connection in connections] == [True])
                for value in values:
                    client.sendall(produce(1, ("ponds", 0, batch(keyed(value))), acks=0))
                if resets:
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connections.sweep(monotonic())
            cluster[0].releases(METADATA)
            for asked in cluster[0].requests(METADATA):
                asked.answer()
            await until(lambda: cluster.values("ponds", 0) == ["first", *values])
            await until(lambda: not len(connections))

    @in_loop
    async def test_one_that_resets_in_mid_request_keeps_no_memory_that_others_wait_for(self) -> None:
        sent = produce(1, ("ponds", 0, batch(keyed("x" * 900_000))), acks=0)
        async with (
            FakeCluster({"ponds": [0]}) as cluster,
            running(cluster.bootstrap, queued_max_request_bytes=600_000) as forebay,
        ):
            connections = forebay.app._connections
            with (
                socket.create_connection((LOOPBACK, forebay.port + 1)) as other,
                socket.create_connection((LOOPBACK, forebay.port + 1)) as client,
            ):
                for each in (other, client):
                    each.setblocking(False)
                for place in range(0, 480_000, 60_000):
                    for each in (other, client):
                        with suppress(BlockingIOError):
                            each.send(sent[place : place + 60_000])
                    await turns()
                (held,) = [each for each in connections if each.held]
                assert held.pending() > 0
                for each in (other, client):
                    each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            await until(lambda: held.hung_up)


class TestHalfClosed:
    @in_loop
    async def test_who_sends_no_more_is_answered_all_that_it_has_asked_and_then_closed(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            cluster[0].holds(LIST_GROUPS, PRODUCE)
            client = await forebay.client(0)
            client.send(echo(1, b"a"), produce(2, ("ponds", 0, batch(keyed("b")))), metadata(3, "ponds"), echo(4))
            client.finish()
            (connection,) = forebay.app._connections
            asked = [await cluster[0].receives(key) for key in (PRODUCE, LIST_GROUPS, LIST_GROUPS)]
            await until(lambda: connection.done)
            for each in asked:
                each.answer()
            first, *_ = await client.receives(1, 2, 3, 4)
            assert first.body == b"a"
            assert await client.is_closed()
            await until(lambda: not len(forebay.app._connections))
            assert cluster.values("ponds", 0) == ["b"]

    @in_loop
    async def test_what_is_answered_in_the_same_turn_of_the_loop_leaves_too(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            client = await forebay.client(0)
            client.send(metadata(1, "ponds"))  # it is held until brokers have told, and only then read to its end
            client.finish()
            await client.receives(1)

    @in_loop
    async def test_nothing_of_it_lingers(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap, linger_ms=60_000) as forebay:
            client = await forebay.client(0)
            client.send(produce(1, ("ponds", 0, batch(keyed("a")))))
            client.finish()
            await client.receives(1)

    @in_loop
    async def test_though_it_is_held_meanwhile(self) -> None:
        limits = {"client_max_in_flight_requests": 1}
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap, **limits) as forebay:
            cluster[0].holds(LIST_GROUPS)
            client = await forebay.client(0)
            client.send(echo(1))
            asked = await cluster[0].receives(LIST_GROUPS)
            client.finish()
            (connection,) = forebay.app._connections
            await until(lambda: connection.hung_up)
            for _ in range(2):
                forebay.app._connections.sweep(monotonic())
            asked.answer()
            await client.receives(1)
            assert await client.is_closed()

    @in_loop
    async def test_who_is_owed_nothing_or_has_not_finished_a_request_is_closed_at_once(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            cluster[0].holds(LIST_GROUPS)
            for sent in (b"", echo(1, b"abc")[:-1]):
                client = await forebay.client(0)
                client.send(sent)
                client.finish()
                assert await client.is_closed()

    @pytest.mark.parametrize("api_key", [LIST_GROUPS, FIND_COORDINATOR])
    @in_loop
    async def test_a_request_that_its_broker_has_begun_to_receive_costs_no_answers_to_earlier_ones(
        self, api_key: int
    ) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            cluster[0].holds(LIST_GROUPS, PRODUCE)
            client = await forebay.client(0)
            cut_off = request(api_key, 0, 3, b"\0\3abc")[:-1]
            client.send(echo(1, b"a"), produce(2, ("ponds", 0, batch(keyed("b")))), cut_off)
            asked = [await cluster[0].receives(key) for key in (LIST_GROUPS, PRODUCE)]
            client.finish()
            (connection,) = forebay.app._connections
            await until(lambda: connection.done)
            for each in asked:
                each.answer()
            first, _ = await client.receives(1, 2)
            assert first.body == b"a"
            assert await client.is_closed()
            await until(lambda: not len(forebay.app._connections))
            assert forebay.count("forebay_errors_total", "client", "connection_lost") == 1

    @in_loop
    async def test_the_rest_of_a_request_that_will_never_be_whole_takes_no_memory_while_it_is_answered(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            cluster[0].holds(LIST_GROUPS)
            client = await forebay.client(0)
            client.send(echo(1), produce(2, ("ponds", 0, batch(keyed("a" * 100_000))))[:-1])
            asked = await cluster[0].receives(LIST_GROUPS)
            (connection,) = forebay.app._connections
            memory = connection._shared.inbound_memory
            await until(lambda: memory.total > 100_000)
            client.finish()
            await until(lambda: connection.done)
            assert (memory.total, connection._splitter.buffered) == (0, 0)
            asked.answer()
            await client.receives(1)
            assert await client.is_closed()
            await until(lambda: not len(forebay.app._connections))
            assert forebay.count("forebay_errors_total", "client", "connection_lost") == 1
            assert cluster.values("ponds", 0) == []

    @in_loop
    async def test_its_records_count_as_those_of_one_that_has_left(self) -> None:
        """Which of both it is nobody can tell: it may send the same again elsewhere (ProducerBatch.deserted)."""
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            cluster[0].holds(PRODUCE)
            client = await forebay.client(0)
            client.send(produce(1, ("ponds", 0, batch(keyed("a")))))
            asked = await cluster[0].receives(PRODUCE)
            client.finish()
            (connection,) = forebay.app._connections
            await until(lambda: connection.done)
            assert connection._client.left
            asked.answer(NOT_LEADER_OR_FOLLOWER)
            assert only((await client.receives(1))[0]).error_code == REQUEST_TIMED_OUT
            assert await client.is_closed()


class TestRefusals:
    @in_loop
    @pytest.mark.parametrize("frame", REFUSED.values(), ids=REFUSED)
    async def test_what_is_not_offered_or_malformed_closes_its_own_connection_only(self, frame: bytes) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            neighbour, client = await forebay.client(0), await forebay.client(0)
            client.send(frame)
            assert await client.is_closed()
            neighbour.send(echo(1))
            await neighbour.receives(1)

    @in_loop
    @pytest.mark.parametrize("frame", REFUSED.values(), ids=REFUSED)
    async def test_what_was_asked_before_is_answered_before_the_connection_closes(self, frame: bytes) -> None:
        async with (
            FakeCluster({"ponds": [0], "raw": [0]}) as cluster,
            running(cluster.bootstrap, topics_exclude=("raw",)) as forebay,
        ):
            cluster[0].holds(PRODUCE, LIST_GROUPS)
            client = await forebay.client(0)
            touched, untouched = ("ponds", 0, batch(null_key("a"))), ("raw", 0, batch(null_key("b")))
            client.send(produce(1, touched), echo(2, b"two"), produce(3, untouched), frame, echo(5))
            second = await cluster[0].receives(LIST_GROUPS)
            asked = [await cluster[0].receives(PRODUCE) for _ in range(2)]
            second.answer()
            for request_ in asked:
                request_.answer()
            first, _, third = await client.receives(1, 2, 3)
            assert [only(first).error_code, only(third).error_code] == [NONE, NONE]
            assert await client.is_closed()
            assert len(cluster[0].requests(LIST_GROUPS)) == 1

    @in_loop
    async def test_refused_records_without_acks_close_the_client_behind_the_answers_before(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            cluster[0].holds(LIST_GROUPS)
            client = await forebay.client(0)
            client.send(echo(1, b"one"), produce(2, ("ponds", 0, batch(null_key("a"), crc=1)), acks=0))
            (await cluster[0].receives(LIST_GROUPS)).answer()
            await client.receives(1)
            assert await client.is_closed()

    @in_loop
    async def test_a_frame_too_large_is_refused_by_its_size_alone_with_a_line_in_the_log(self) -> None:
        async with (
            FakeCluster({"ponds": [0]}) as cluster,
            running(cluster.bootstrap, socket_request_max_bytes=10_000) as forebay,
        ):
            neighbour, client = await forebay.client(0), await forebay.client(0)
            with structlog.testing.capture_logs() as logs:
                neighbour.send(echo(1, b"x" * 9_000))
                client.send((10_001).to_bytes(4, "big"))
                assert await client.is_closed()
            assert [line["log_level"] for line in logs if "10001" in line.get("error", "")] == ["warning"]
            await neighbour.receives(1)
            assert forebay.count("forebay_frames_refused_total", "too_large") == 1

    @in_loop
    async def test_refused_records_without_acks_close_the_client_as_a_broker_does(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            client = await forebay.client(0)
            client.send(produce(1, ("ponds", 0, batch(null_key("a"), crc=1)), acks=0))
            assert await client.is_closed()

    @in_loop
    async def test_nothing_behind_the_request_that_closed_the_client_is_carried_out(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            client = await forebay.client(0)
            client.send(produce(1, ("ponds", 0, batch(null_key("first")))))
            await client.receives(1)
            client.send(
                produce(2, ("ponds", 0, batch(null_key("a"), crc=1)), acks=0),
                produce(3, ("ponds", 0, batch(null_key("b"))), acks=0),
                echo(4),
            )
            assert await client.is_closed()
            client.close()
            other = await forebay.client(0)
            other.send(produce(5, ("ponds", 0, batch(null_key("later")))), echo(6))
            await other.receives(5, 6)
            assert cluster.values("ponds", 0) == ["first", "later"]

    @in_loop
    async def test_a_broker_that_refuses_records_without_acks_closes_their_client(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            cluster[0].holds(PRODUCE)
            client = await forebay.client(0)
            client.send(produce(1, ("ponds", 0, batch(null_key("a"))), acks=0))
            asked = await cluster[0].receives(PRODUCE)
            assert asked.produce.acks == 1  # or the refusal would go unseen
            asked.answer(error_code=CORRUPT_MESSAGE)
            assert await client.is_closed()

    @in_loop
    async def test_connections_beyond_the_most_are_closed_at_once(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap, max_connections=2) as forebay:
            first, second = await forebay.client(0), await forebay.client()
            third = await forebay.client(0)
            assert await third.is_closed()
            for client in (first, second):
                client.send(echo(1))
                await client.receives(1)
            first.close()
            await until(lambda: forebay.count("forebay_open_connections", "node") == 0)
            fourth = await forebay.client(0)
            fourth.send(echo(1))
            await fourth.receives(1)


class TestUntouched:
    @in_loop
    @pytest.mark.parametrize(
        ("frame", "settings"),
        [
            (transactional(produce(1, ("ponds", 0, batch(null_key("a"))))), {}),
            (produce(1, ("ponds", 0, batch(null_key("a"), producer_id=7))), {}),
            (produce(1, ("ponds", 0, batch(null_key("a"))), client_id="app-1-StreamThread-2-producer"), {}),
            (produce(1, ("ponds", 0, batch(null_key("a")))), {"topics_exclude": ("p*",)}),
            (produce(1, ("__consumer_offsets", 0, batch(null_key("a")))), {}),
        ],
        ids=["transactional", "idempotent", "client excluded", "topic excluded", "internal topic"],
    )
    async def test_reaches_the_broker_byte_for_byte(self, frame: bytes, settings: dict[str, object]) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap, **settings) as forebay:
            client = await forebay.client(0)
            client.send(frame)
            asked = await cluster[0].receives(PRODUCE)
            assert asked.frame == frame[4:]
            await client.receives(1)

    @in_loop
    async def test_what_a_topic_that_the_brokers_call_internal_holds_is_forwarded(self) -> None:
        async with FakeCluster({"ponds": [0], "inner": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            cluster.internal.add("inner")
            client = await forebay.client(0)
            batches = ("ponds", 0, batch(keyed("a"))), ("inner", 0, batch(keyed("b")))
            client.send(produce(1, *batches), metadata(2))
            answers = produced((await client.receives(1, 2))[0])
            assert {where: answer.error_code for where, answer in answers.items()} == {
                ("ponds", 0): NONE,
                ("inner", 0): NONE,
            }
            untouched = [asked for asked in cluster[0].requests(PRODUCE) if asked.client_id == "old-producer"]
            assert [asked.partitions for asked in untouched] == [[("inner", 0)]]


class TestOldProduce:
    """Produce v0 to v2: the brokers see record batches, the client its own version."""

    RECORDS: ClassVar = [Record(b"key", b"a"), Record(None, None), Record(b"", b"")]

    @pytest.mark.parametrize("version", [0, 1, 2])
    @in_loop
    async def test_records_arrive_and_are_answered_in_the_clients_version(self, version: int) -> None:
        async with FakeCluster({"ponds": [0], "lakes": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            client = await forebay.client(0)
            magic = min(version, 1)
            sets = messages(self.RECORDS[:1], magic), wrapper(messages(self.RECORDS[:1] * 2, magic), GZIP, magic)
            client.send(old_produce(1, ("ponds", 0, sets[0]), ("lakes", 0, sets[1]), version=version))
            (response,) = await client.receives(1)
            told = produced(response, version)
            assert {place: (part.error_code, part.base_offset) for place, part in told.items()} == {
                ("ponds", 0): (NONE, 0),
                ("lakes", 0): (NONE, 0),
            }
            assert [record[:2] for record in cluster.log["ponds", 0]] == [(b"key", b"a")]
            assert [record[:2] for record in cluster.log["lakes", 0]] == [(b"key", b"a")] * 2
            assert forebay.count("forebay_records_converted_total") == 3
            assert forebay.count("forebay_records_stamped_total") == (3 if magic == 0 else 0)

    @in_loop
    async def test_records_of_many_clients_share_a_batch_with_newer_ones(self) -> None:
        async with (
            FakeCluster({"ponds": [0]}) as cluster,
            running(cluster.bootstrap, linger_ms=100) as forebay,
        ):
            clients = [await forebay.client(0) for _ in range(3)]
            for number, client in enumerate(clients[:2]):
                client.send(old_produce(1, ("ponds", 0, messages([Record(None, b"old %d" % number)]))))
            clients[2].send(produce(1, ("ponds", 0, batch(null_key("new")))))
            (asked,) = [await cluster[0].receives(PRODUCE)]
            for client in clients:
                await client.receives(1)
            assert sorted(asked.values) == ["new", "old 0", "old 1"]

    @in_loop
    async def test_what_may_not_be_touched_is_converted_and_goes_by_itself(self) -> None:
        async with (
            FakeCluster({"raw": [0], "ponds": [0]}) as cluster,
            running(cluster.bootstrap, topics_exclude=("raw",)) as forebay,
        ):
            client = await forebay.client(0)
            one = messages([Record(None, b"a")])
            client.send(old_produce(1, ("raw", 0, one), ("ponds", 0, one)), old_produce(2, ("raw", 0, one), acks=0))
            client.send(old_produce(3, ("raw", 0, one), version=2), echo(4))
            first, _, _ = await client.receives(1, 3, 4)
            assert {part.error_code for part in produced(first, 0).values()} == {NONE}
            assert len(cluster.log["raw", 0]) == 3
            assert len(cluster.log["ponds", 0]) == 1

    @in_loop
    async def test_what_is_wrong_is_refused_and_the_rest_is_not(self) -> None:
        async with FakeCluster({"ponds": [0, 0, 0]}) as cluster, running(cluster.bootstrap) as forebay:
            client = await forebay.client(0)
            good = messages([Record(b"k", b"a")])
            client.send(old_produce(1, ("ponds", 0, good[:-1]), ("ponds", 1, good), ("ponds", 2, b"")))
            (response,) = await client.receives(1)
            told = produced(response, 0)
            assert told["ponds", 0].error_code == CORRUPT_MESSAGE
            assert (told["ponds", 1].error_code, told["ponds", 1].base_offset) == (NONE, 0)
            assert (told["ponds", 2].error_code, told["ponds", 2].base_offset) == (NONE, -1)

    @pytest.mark.parametrize(("version", "code"), [(0, -1), (1, 21), (2, 21)])
    @in_loop
    async def test_acks_that_there_are_not(self, version: int, code: int) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            client = await forebay.client(0)
            client.send(old_produce(1, ("ponds", 0, messages([Record()])), acks=2, version=version))
            (response,) = await client.receives(1)
            assert only(response, version).error_code == code
            assert not cluster.log

    @pytest.mark.parametrize(("version", "code"), [(0, 6), (1, 6), (2, 6)])
    @in_loop
    async def test_errors_are_told_in_words_of_the_clients_time(self, version: int, code: int) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            cluster[0].holds(PRODUCE)
            client = await forebay.client(0)
            client.send(old_produce(1, ("ponds", 0, messages([Record(b"k")])), version=version))
            (await cluster[0].receives(PRODUCE)).answer(KAFKA_STORAGE_ERROR)
            (response,) = await client.receives(1)
            assert only(response, version).error_code == code

    @in_loop
    async def test_a_client_that_logs_in_goes_its_own_way(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            client = await forebay.client(0)
            client.send(request(SASL_HANDSHAKE, 1, 1, b"\0\5PLAIN"))
            await client.receives(1)
            client.send(old_produce(2, ("ponds", 0, messages([Record()]))))
            await client.receives(2)
            asked = await cluster[0].receives(PRODUCE)
            assert (asked.version, asked.client_id) == (3, CLIENT_ID)


class TestWhoItIs:
    @staticmethod
    def rows(forebay: Running) -> dict[str | None, dict[str, Any]]:
        return {row["client_id"]: row for row in clients_seen.rows(forebay.clients())}

    @in_loop
    async def test_clients_are_known_by_what_they_say(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            opaque, old, new = [await forebay.client(0) for _ in range(3)]
            opaque.send(echo(1))
            await opaque.receives(1)
            old.send(old_produce(1, ("ponds", 0, messages([Record(), Record()]))))
            await old.receives(1)
            asked = api_versions.request(1, "new", 3, "librdkafka", "2.3.0")
            new.send(
                len(asked).to_bytes(4, "big") + asked, produce(2, ("ponds", 0, batch(keyed("a"))), client_id="new")
            )
            await new.receives(1, 2)
            rows = self.rows(forebay)
            assert rows["new"]["software_name"] == "librdkafka"
            assert rows["new"]["requests"] == {"Produce": {"7": 1}, "ApiVersions": {"3": 1}}
            assert (rows["new"]["records"], rows["new"]["survives_kafka_4"]) == (1, True)
            known = rows[CLIENT_ID]
            assert known["requests"] == {"Produce": {"0": 1}, "ListGroups": {"0": 1}}
            assert (known["connections"], known["records"], known["survives_kafka_4"]) == (2, 2, False)
            old.close()
            await until(lambda: self.rows(forebay)[CLIENT_ID]["connections"] == 1)

    @in_loop
    async def test_a_client_that_begins_with_too_new_a_version_tells_its_software_when_it_asks_again(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            client = await forebay.client(0)
            for correlation_id, version in ((1, 99), (2, 4)):
                asked = api_versions.request(correlation_id, "newest", version, "apache-kafka-java", "4.4.0")
                client.send(len(asked).to_bytes(4, "big") + asked)
                await client.receives(correlation_id)
            (row,) = self.rows(forebay).values()
            assert (row["client_id"], row["software_name"]) == ("newest", "apache-kafka-java")

    @in_loop
    async def test_untouched_records_count_too(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            client = await forebay.client(0)
            both = [("ponds", 0, batch(keyed("a", "b"), producer_id=7)), ("ponds", 0, batch(keyed("c")))]
            client.send(produce(1, both[0]), produce(2, *both))
            await client.receives(1, 2)
            (row,) = self.rows(forebay).values()
            assert row["records"] == 5

    @in_loop
    async def test_the_admin_endpoint_is_told_to_forebays_own_command_only(self) -> None:
        async with (
            FakeCluster({"ponds": [0]}) as cluster,
            running(cluster.bootstrap, admin=HostPort(LOOPBACK, 9)) as forebay,
        ):
            for software, told in ((clients_seen.SOFTWARE, f"{LOOPBACK}:9"), ("other", None)):
                client = await forebay.client()
                asked = api_versions.request(1, "c", 3, software, "1")
                client.send(len(asked).to_bytes(4, "big") + asked)
                (response,) = await client.receives(1)
                assert api_versions.admin(response.whole) == told

    @in_loop
    async def test_one_line_names_a_client_that_is_too_old_for_the_brokers(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            cluster[0].holds(FETCH, LIST_GROUPS)
            with structlog.testing.capture_logs() as logs:
                # The fake brokers offer v0 to v2.
                for key, version in ((FETCH, 3), (FETCH, 3), (LIST_GROUPS, 2)):
                    client = await forebay.client(0)
                    client.send(request(key, version, 1, b"\0"))
                    (await cluster[0].receives(key)).close()
                    assert await client.is_closed()
            (line,) = [line for line in logs if "KIP-896" in line["event"]]
            assert (line["api"], line["version"], line["client_id"]) == ("Fetch", 3, CLIENT_ID)
            assert forebay.count("forebay_errors_total", "client", "too_old") == 2


class TestAdvertised:
    async def told(self, **advertised: Any) -> dict[int, tuple[str, int]]:
        """Broker → (host, port less the bootstrap port)."""
        async with (
            FakeCluster({"ponds": [0, 1]}, nodes=2) as cluster,
            running(cluster.bootstrap, **advertised) as forebay,
        ):
            client = await forebay.client()
            client.send(metadata(1, "ponds"))
            (response,) = await client.receives(1)
            brokers = metadata_of(response).brokers
            return {node: (broker.host, broker.port - forebay.port) for node, broker in brokers.items()}

    @in_loop
    async def test_by_default_it_is_what_the_client_reached(self) -> None:
        assert await self.told() == {0: (LOOPBACK, 1), 1: (LOOPBACK, 2)}

    @in_loop
    async def test_a_pattern_stands_for_the_address_of_each_broker(self) -> None:
        told = await self.told(advertised_address=BrokerAddress("b$(node).forebay", 0))
        assert {node: host for node, (host, _) in told.items()} == {0: "b0.forebay", 1: "b1.forebay"}
        assert len({port for _, port in told.values()}) == 1

    @in_loop
    async def test_a_translated_port_is_told_and_the_others_are_as_they_are(self) -> None:
        told = await self.told(advertised_host="forebay", advertised_node_ports={1: 1})
        assert told[0] == ("forebay", 1)
        assert (told[1][0], told[1][1] < 0) == ("forebay", True)

    @in_loop
    async def test_a_broker_that_is_to_have_no_port_is_told_to_nobody(self) -> None:
        assert (await self.told(node_ports={0: free_port()}, node_ports_only=True)).keys() == {0}


class TestTooOld:
    """connections.max.age.ms: it closes once nothing is owed, and not before."""

    def only(self, forebay: Running) -> ClientConnection:
        (connection,) = forebay.app._connections
        return connection

    @in_loop
    async def test_it_closes_at_once_where_nothing_is_owed(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            client = await forebay.client(0)
            client.send(echo(1))
            await client.receives(1)
            self.only(forebay).retire()
            assert await client.is_closed()

    @in_loop
    @pytest.mark.parametrize(
        ("api_key", "ask"),
        [(LIST_GROUPS, echo(1)), (PRODUCE, produce(1, ("ponds", 0, batch(null_key("a")))))],
        ids=["echo", "produce"],
    )
    async def test_what_was_asked_is_answered_before(self, api_key: int, ask: bytes) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            cluster[0].holds(api_key)
            client = await forebay.client(0)
            client.send(ask)
            asked = await cluster[0].receives(api_key)
            self.only(forebay).retire()
            client.send(metadata(2, "ponds"))  # still taken: it is read before anything is closed
            await until(lambda: self.only(forebay).awaiting == 2)
            asked.answer()
            await client.receives(1, 2)
            assert await client.is_closed()

    @in_loop
    async def test_records_without_acks_are_delivered_before(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            cluster[0].holds(PRODUCE)
            client = await forebay.client(0)
            client.send(produce(1, ("ponds", 0, batch(null_key("a"))), acks=0))
            asked = await cluster[0].receives(PRODUCE)
            connection = self.only(forebay)
            connection.retire()
            assert not connection.settled
            asked.answer()
            await until(lambda: connection.settled)
            connection.retire()
            assert await client.is_closed()

    @in_loop
    async def test_a_request_that_has_begun_to_arrive_is_waited_for(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            client = await forebay.client(0)
            whole = echo(1, b"one")
            client.send(whole[:-1])
            await until(lambda: self.only(forebay).received)
            self.only(forebay).retire()
            client.send(whole[-1:])
            await client.receives(1)
            assert await client.is_closed()


class TestAddedLatency:
    """Seconds between a request and its answer, less the broker's: by the way that the request went."""

    @staticmethod
    def seen(forebay: Running) -> dict[str, int]:
        return {path: forebay.observed("forebay_added_latency_seconds", path)[0] for path in PATHS}

    @in_loop
    async def test_each_answered_request_counts_for_its_way(self) -> None:
        async with (
            FakeCluster({"ponds": [0], "raw": [0]}) as cluster,
            running(cluster.bootstrap, topics_exclude=("raw",)) as forebay,
        ):
            client = await forebay.client(0)
            client.send(produce(1, ("ponds", 0, batch(null_key("a")))))
            await client.receives(1)
            assert self.seen(forebay) == {"merged": 1, "untouched": 0, "passed": 0}
            client.send(produce(2, ("raw", 0, batch(null_key("b")))), echo(3), echo(4))
            await client.receives(2, 3, 4)
            assert self.seen(forebay) == {"merged": 1, "untouched": 1, "passed": 2}

    @in_loop
    async def test_what_the_broker_takes_is_not_added(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            cluster[0].holds(PRODUCE, LIST_GROUPS)
            client = await forebay.client(0)
            began = monotonic()
            client.send(produce(1, ("ponds", 0, batch(null_key("a")))))
            asked = await cluster[0].receives(PRODUCE)
            before_written = monotonic() - began
            await until(lambda: monotonic() - began > before_written + 0.5)
            asked.answer()
            answered = monotonic()
            await client.receives(1)
            _, added = forebay.observed("forebay_added_latency_seconds", "merged")
            assert added <= before_written + monotonic() - answered

            began = monotonic()
            client.send(echo(2))
            asked = await cluster[0].receives(LIST_GROUPS)
            before_written = monotonic() - began
            await until(lambda: monotonic() - began > before_written + 0.5)
            asked.answer()
            answered = monotonic()
            await client.receives(2)
            _, added = forebay.observed("forebay_added_latency_seconds", "passed")
            assert added <= before_written + monotonic() - answered

    @in_loop
    async def test_what_was_sent_again_or_refused_is_left_out(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            client = await forebay.client(0)
            cluster[0].holds(PRODUCE)
            client.send(produce(1, ("ponds", 0, batch(keyed("a")))))
            (await cluster[0].receives(PRODUCE)).answer(NOT_LEADER_OR_FOLLOWER)
            (await cluster[0].receives(PRODUCE)).answer()
            (answer,) = await client.receives(1)
            assert only(answer).error_code == NONE
            client.send(produce(2, ("ponds", 7, batch(keyed("a")))))
            await client.receives(2)
            assert self.seen(forebay) == {"merged": 0, "untouched": 0, "passed": 0}

    @in_loop
    async def test_records_without_acks_have_no_answer_to_measure(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            client = await forebay.client(0)
            client.send(produce(1, ("ponds", 0, batch(null_key("a"))), acks=0))
            await until(lambda: cluster.values("ponds", 0) == ["a"])
            assert self.seen(forebay) == {"merged": 0, "untouched": 0, "passed": 0}


class TestWhatIsCounted:
    """By client and by topic, for those who look why something is not touched."""

    @in_loop
    async def test_batches_by_reason_and_errors_of_a_client_and_records_of_a_topic(self) -> None:
        async with (
            FakeCluster({"ponds": [0, 0], "raw": [0]}) as cluster,
            running(cluster.bootstrap, topics_exclude=("raw",)) as forebay,
        ):
            client = await forebay.client(0)
            client.send(produce(1, ("ponds", 1, batch(keyed("a", "b")))))
            client.send(produce(2, ("raw", 0, batch(null_key("c")))))
            client.send(produce(3, ("ponds", 7, batch(keyed("d")))))
            await client.receives(1, 2, 3)
            (seen,) = forebay.clients()
            assert seen.batches == {"keyed": 2, "topic_excluded": 1}
            assert seen.errors == 1
            topics = forebay.topics()
            assert (topics["ponds"].partition_records, topics["ponds"].leaders) == ([0, 2], [0, 0])
            assert (topics["raw"].records, topics["raw"].untouched_records) == (0, 1)
            assert topics["raw"].untouched_bytes == len(batch(null_key("c")))
