"""The whole proxy: its listeners, its bounds when somebody does not read, and how it ends."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from forebay_codecs.api_keys import FETCH, METADATA, PRODUCE
from forebay_codecs.error_codes import NONE
from forebay_codecs.metadata import Broker
from forebay_policies import linger
from forebay_policies.hold_reason import HoldReason
from forebay_policies.inbound_memory import SMALL
from forebay_policies.journal_rows import GaugeRow
from forebay_policies.leave_turns import APART_S
from forebay_proxy import app as app_module
from forebay_proxy.app import App
from forebay_proxy.brokers.session import Session
from forebay_proxy.clients.client_connection import MAX_UNSENT
from forebay_proxy.clients.client_listeners import ClientListeners
from forebay_proxy.clients.opaque_connection import MAX_HELD
from forebay_proxy.errors import StartError
from forebay_proxy.inherited import Inherited
from forebay_proxy.metrics.registry import MetricRegistry
from forebay_proxy.produce import dispatcher, sender
from tests.kit.app import Running, running, settings
from tests.kit.certificates import Authority, server_context
from tests.kit.event_loop import in_loop, soon, turns, until
from tests.kit.fake_broker import FakeCluster
from tests.kit.journal import closed_files, of, rows_in
from tests.kit.ports import LOOPBACK, free_run
from tests.kit.wire import LIST_GROUPS, WireClient, batch, echo, keyed, metadata, null_key, only, produce, request

SOCKETS = 16 << 20
"""What the buffers of two sockets, and of the streams that the test reads with, can swallow at most."""


async def settle(forebay: Running, *counter: str) -> float:
    """The counter's value once it does not grow any more: two looks at it, with many turns of the loop between."""
    last = -1.0
    while (now := forebay.count(*counter)) != last:
        last = now
        await turns(500)
    return last


@in_loop
async def test_a_broker_that_clients_are_not_told_of_is_counted() -> None:
    with socket.socket() as squatter:
        squatter.bind((LOOPBACK, 0))
        squatter.listen()
        taken = squatter.getsockname()[1]
        async with (
            FakeCluster({"ponds": [0]}) as cluster,
            running(cluster.bootstrap, node_ports={0: taken}) as forebay,
        ):
            await until(lambda: forebay.count("forebay_brokers_without_port") == 1)


@in_loop
async def test_the_tasks_of_its_loop_are_counted() -> None:
    async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
        before = forebay.count("forebay_tasks")
        assert before == len(asyncio.all_tasks())
        more = asyncio.create_task(asyncio.Event().wait())
        assert forebay.count("forebay_tasks") == before + 1
        more.cancel()


class TestBackpressure:
    @in_loop
    async def test_a_client_that_does_not_read_holds_up_its_broker_and_nothing_more(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            client, neighbour = await forebay.client(0), await forebay.client(0)
            cluster[0].holds(LIST_GROUPS)
            client.send(echo(1))
            asked = await cluster[0].receives(LIST_GROUPS)
            size = 4 * SOCKETS
            asked.respond(bytes(size))
            passed = await settle(forebay, "forebay_response_bytes_total", "client")
            assert passed < SOCKETS
            assert asked.connection.unsent > size - 2 * SOCKETS
            cluster[0].releases(LIST_GROUPS)
            neighbour.send(echo(1))
            await neighbour.receives(1)
            assert len((await client.receive()).body) == size

    @in_loop
    async def test_large_answers_between_those_of_the_broker_are_all_given(self) -> None:
        """More of them than may wait: what they wait for is read all the same."""
        topics = {f"{number:03}" * 20: [0] * 50 for number in range(50)}
        async with FakeCluster(topics) as cluster, running(cluster.bootstrap) as forebay:
            client = await forebay.client(0)
            client.send(metadata(9_999, *topics))
            await client.receives(9_999)
            cluster[0].holds(LIST_GROUPS)
            client.send(echo(1), echo(2), *[metadata(number, *topics) for number in range(3, 40)])
            first, second = [await cluster[0].receives(LIST_GROUPS) for _ in range(2)]
            (connection,) = [c for c in forebay.app._connections if c.awaiting]
            await until(lambda: connection.orderer.held >= MAX_HELD)
            first.answer()
            await client.receives(1)
            second.answer()
            await client.receives(*range(2, 40))

    @in_loop
    async def test_small_questions_of_a_client_that_does_not_read_take_little_memory(self) -> None:
        topics = {f"{number:03}" * 20: [0] * 50 for number in range(50)}
        async with FakeCluster(topics) as cluster, running(cluster.bootstrap) as forebay:
            client, neighbour = await forebay.client(0), await forebay.client(0)
            client.send(metadata(9_999, *topics))
            (response,) = await client.receives(9_999)
            answered = forebay.count("forebay_response_bytes_total", "client")
            client.send(*[metadata(n, *topics) for n in range(4 * SOCKETS // len(response.whole))])
            passed = await settle(forebay, "forebay_response_bytes_total", "client") - answered
            assert passed < SOCKETS
            (connection,) = [c for c in forebay.app._connections if c.held]
            assert connection.orderer.held + connection._writer.unsent < 2 * MAX_UNSENT
            neighbour.send(echo(1))
            await neighbour.receives(1)

    @in_loop
    async def test_answers_that_wait_behind_a_slower_one_take_little_memory(self) -> None:
        topics = {f"{number:03}" * 20: [0] * 50 for number in range(20)}
        async with FakeCluster(topics) as cluster, running(cluster.bootstrap) as forebay:
            client = await forebay.client(0)
            client.send(metadata(9_999, *topics))
            (response,) = await client.receives(9_999)
            most = MAX_UNSENT + len(response.whole)
            cluster[0].holds(LIST_GROUPS)
            numbers = range(2, 2 + 2 * most // len(response.whole))
            client.send(echo(1), *[metadata(number, *topics) for number in numbers])
            slow = await cluster[0].receives(LIST_GROUPS)
            (connection,) = [c for c in forebay.app._connections if c.awaiting]
            await until(lambda: connection.orderer.held >= MAX_UNSENT)
            await turns(100)
            assert connection.orderer.held < most
            slow.answer()
            await client.receives(1, *numbers)

    @in_loop
    async def test_a_client_that_leaves_while_it_is_held_is_noticed(self) -> None:
        async with (
            FakeCluster({"ponds": [0]}) as cluster,
            running(cluster.bootstrap, client_max_in_flight_requests=1) as forebay,
        ):
            cluster[0].holds(LIST_GROUPS)
            client = await forebay.client(0)
            client.send(echo(1))
            asked = await cluster[0].receives(LIST_GROUPS)
            connections = forebay.app._connections
            connections.sweep(monotonic())
            assert len(connections) == 1
            client.close()
            (connection,) = connections
            await until(lambda: connection.hung_up)
            connections.sweep(monotonic())
            assert connection.done
            asked.answer()
            await until(lambda: not len(connections))

    @in_loop
    async def test_many_that_each_send_half_a_request_hold_little_more_than_the_limit(self) -> None:
        limit, crowd = 1 << 20, 60
        async with (
            FakeCluster({"ponds": [0]}) as cluster,
            running(cluster.bootstrap, queued_max_request_bytes=limit) as forebay,
        ):
            clients = [await forebay.client(0) for _ in range(crowd)]
            half = produce(1, ("ponds", 0, bytes(400_000)))[:300_000]
            for client in clients:
                client.send(half)
            highest = 0.0
            for _ in range(200):
                await turns(1)
                highest = max(highest, forebay.count("forebay_queued_request_bytes"))
            assert limit // 2 < highest <= limit + crowd * SMALL + len(half)  # one is read to its end

    @in_loop
    async def test_what_clients_that_are_held_have_sent_in_advance_is_within_the_limit_too(self) -> None:
        limit, crowd = 1 << 20, 60
        async with (
            FakeCluster({"ponds": [0]}) as cluster,
            running(cluster.bootstrap, queued_max_request_bytes=limit, client_max_in_flight_requests=1) as forebay,
        ):
            cluster[0].holds(LIST_GROUPS)
            clients = [await forebay.client(0) for _ in range(crowd)]
            for client in clients:
                client.send(*[echo(number, bytes(2000)) for number in range(150)])
            await until(lambda: len(cluster[0].requests(LIST_GROUPS)) == crowd)
            held = sum(connection._splitter.buffered for connection in forebay.app._connections)
            assert limit // 2 < held <= limit + crowd * SMALL
            cluster[0].releases(LIST_GROUPS)
            for asked in cluster[0].requests(LIST_GROUPS)[:crowd]:
                asked.answer()
            for client in clients:
                await client.receives(*range(150))

    @in_loop
    async def test_a_request_larger_than_the_limit_that_trickles_in_holds_up_nobody(self) -> None:
        limit = 1 << 20
        async with (
            FakeCluster({"ponds": [0, 1]}, nodes=2) as cluster,
            running(cluster.bootstrap, queued_max_request_bytes=limit) as forebay,
        ):
            bystander, giant = await forebay.client(1), await forebay.client(0)
            giant.send(produce(1, ("ponds", 0, bytes(50 * limit)))[: limit + limit // 2])
            await until(lambda: forebay.count("forebay_queued_request_bytes") > limit)

            async def trickle() -> None:
                while True:
                    giant.send(bytes(1000))
                    await asyncio.sleep(0.1)

            trickling = asyncio.create_task(trickle())
            for number in range(5):
                bystander.send(produce(number, ("ponds", 1, batch(keyed("b" * 16_000)))))
                async with asyncio.timeout(1):
                    await bystander.receives(number)
            trickling.cancel()
            assert len(forebay.app._connections) == 2

    @in_loop
    async def test_requests_that_wait_for_a_broker_that_hangs_hold_up_no_other_brokers_clients(self) -> None:
        limit, crowd, size = 4 << 20, 12, 900_000
        async with (
            FakeCluster({"ponds": [0, 1]}, nodes=2) as cluster,
            running(cluster.bootstrap, queued_max_request_bytes=limit, buffer_memory=limit) as forebay,
        ):
            bystander = await forebay.client(0)
            cluster[1].holds(PRODUCE)
            clients = [await forebay.client(1) for _ in range(crowd)]
            for client in clients:
                client.send(produce(1, ("ponds", 1, batch(keyed("c" * size)))))
            connections = forebay.app._connections
            await until(lambda: sum(c.held for c in connections) >= crowd - 2)  # it takes two
            for number in range(5):
                bystander.send(produce(number, ("ponds", 0, batch(keyed("b" * 16_000)))))
                async with asyncio.timeout(1):
                    await bystander.receives(number)
            whole = [c for c in connections if HoldReason.PENDING_REQUEST in c.holds]
            assert len(whole) * size < limit // 2
            assert all(c.waits for c in connections if c.held), "for their broker: they are not idle"
            assert forebay.count("forebay_queued_request_bytes") < limit + size
            cluster[1].releases(PRODUCE)
            for asked in cluster[1].requests(PRODUCE):
                asked.answer()
            for client in clients:
                await client.receives(1)
            assert forebay.count("forebay_queued_request_bytes") == 0

    @in_loop
    async def test_clients_that_leave_requests_behind_at_a_broker_that_hangs_take_no_more_than_is_set(self) -> None:
        limit, crowd, size = 65_536, 100, 3_000
        async with (
            FakeCluster({"ponds": [0, 1]}, nodes=2) as cluster,
            running(cluster.bootstrap, queued_max_request_bytes=limit, buffer_memory=131_072) as forebay,
        ):
            bystander = await forebay.client(0)
            cluster[1].holds(PRODUCE)
            highest = 0.0
            for number in range(crowd):
                client = await forebay.client(1)
                client.send(produce(1, ("ponds", 1, batch(keyed(f"{number}:" + "c" * size))), acks=0))
                await turns()
                client.close()
                highest = max(highest, forebay.count("forebay_queued_request_bytes"))
            assert limit < highest < limit + 2 * size
            bystander.send(produce(1, ("ponds", 0, batch(keyed("b" * 16_000)))))
            async with asyncio.timeout(1):
                await bystander.receives(1)
            cluster[1].releases(PRODUCE)
            for asked in cluster[1].requests(PRODUCE):
                asked.answer()
            await until(lambda: len(cluster.values("ponds", 1)) == crowd)
            await until(lambda: len(forebay.app._connections) == 1)
            assert forebay.count("forebay_queued_request_bytes") == 0

    @in_loop
    async def test_what_waits_behind_a_slow_answer_is_bounded(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            cluster[0].holds(PRODUCE)
            client = await forebay.client(0)
            client.send(produce(1, ("ponds", 0, batch(keyed("slow")))))
            slow = await cluster[0].receives(PRODUCE)
            cluster[0].holds(LIST_GROUPS)
            client.send(echo(2))
            asked = await cluster[0].receives(LIST_GROUPS)
            size = 4 * SOCKETS
            asked.respond(bytes(size))
            await turns(500)
            assert asked.connection.unsent > size - SOCKETS
            (connection,) = [c for c in forebay.app._connections if c.orderer.held]
            assert connection.orderer.held < 2 * MAX_HELD
            slow.answer()
            _, second = await client.receives(1, 2)
            assert len(second.body) == size
            assert connection.orderer.held == 0

    @in_loop
    async def test_a_broker_that_does_not_read_holds_up_its_clients(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            cluster[0].reads(False)
            await turns()
            client = await forebay.client(0)
            size = 4 * SOCKETS
            client.send(echo(1, bytes(size)), echo(2))
            taken = await settle(forebay, "forebay_request_bytes_total", "client")
            assert taken < SOCKETS
            assert client.unsent > size - 2 * SOCKETS
            cluster[0].reads(True)
            first, _ = await client.receives(1, 2)
            assert len(first.body) == size

    @in_loop
    async def test_a_client_that_does_not_read_answers_to_its_records_is_not_read(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            client = await forebay.client(0)
            client.send(metadata(0, *[f"{number}" * 200 for number in range(50)]))
            await client.receives(0)
            sent = 0
            while not client.unsent and sent < 20_000:
                for _ in range(100):
                    client.send(metadata(sent, *[f"{number}" * 100 for number in range(50)]))
                    sent += 1
                await turns()
            assert client.unsent
            await client.receives(*range(sent))


class TestBrokersThatClientsLose:
    @in_loop
    async def test_it_is_told_where_nothing_but_clients_connects_and_so_is_that_one_is_back(self) -> None:
        async with (
            FakeCluster({"ponds": [0, 1]}, nodes=2) as cluster,
            running(cluster.bootstrap, moves="observe") as forebay,
        ):
            sweep = partial(forebay.app._realm.dispatcher.sweep, monotonic())
            client = await forebay.client(1)
            client.send(produce(1, ("ponds", 1, batch(null_key("a")))))
            await client.receives(1)
            cluster[1].down()
            await turns()
            assert forebay.count("forebay_broker_up", "1") == 1, "nobody has had to connect to it since"
            client.send(produce(2, ("ponds", 1, batch(null_key("b")))))
            assert await client.is_closed()
            assert [forebay.count("forebay_broker_up", node) for node in "01"] == [1, 0]
            topic = forebay.app._realm.view.cluster.topics["ponds"]
            assert topic.queues.available == [0, 1], "moves no records"
            sweep()
            await turns()
            assert forebay.count("forebay_broker_up", "1") == 0
            await cluster[1].up()
            sweep()
            await until(lambda: forebay.count("forebay_broker_up", "1") == 1)

    @in_loop
    async def test_a_client_that_is_connected_has_it_up(self) -> None:
        async with FakeCluster({"ponds": [0]}, nodes=2) as cluster, running(cluster.bootstrap) as forebay:
            cluster[1].down()
            client = await forebay.client(1)
            client.send(echo(1))
            assert await client.is_closed()
            assert forebay.count("forebay_broker_up", "1") == 0
            await cluster[1].up()
            again = await forebay.client(1)
            again.send(echo(1))
            await again.receives(1)
            assert forebay.count("forebay_broker_up", "1") == 1

    @in_loop
    async def test_a_name_that_cannot_be_one_is_told(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            forebay.app._realm.view.cluster.learn(1, f"{'x' * 64}.example", 9092, monotonic())
            client = await forebay.client(1)
            client.send(echo(1))
            assert await client.is_closed()
            assert [forebay.count("forebay_broker_up", node) for node in "01"] == [1, 0]


class TestListeners:
    @in_loop
    async def test_a_bootstrap_port_that_is_taken_stops_the_start_with_its_address(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            with pytest.raises(StartError, match=rf"{LOOPBACK}:{forebay.port}"):
                await _start_on(cluster, forebay.port)

    @in_loop
    async def test_each_broker_is_behind_its_own_port(self) -> None:
        async with FakeCluster({"ponds": [0]}, nodes=3) as cluster, running(cluster.bootstrap) as forebay:
            for node, broker in cluster.brokers.items():
                client = await forebay.client(node)
                client.send(echo(node))
                await client.receives(node)
                assert len(broker.requests(LIST_GROUPS)) == 1

    @in_loop
    async def test_a_broker_that_moves_to_another_address_is_followed(self) -> None:
        async with FakeCluster({"ponds": [0, 1]}, nodes=2) as cluster, running(cluster.bootstrap) as forebay:
            client = await forebay.client(0)
            client.send(produce(1, ("ponds", 1, batch(keyed("a")))))
            await client.receives(1)
            cluster[1].down()
            moved = await cluster.join(1)
            client.send(metadata(2), produce(3, ("ponds", 1, batch(keyed("b")))))
            _, answer = await client.receives(2, 3)
            assert only(answer).error_code == NONE
            assert [asked.values for asked in moved.requests(PRODUCE)] == [["b"]]
            client = await forebay.client(1)
            client.send(echo(1))
            await client.receives(1)
            assert len(moved.requests(LIST_GROUPS)) == 1

    @in_loop
    async def test_no_broker_at_the_start_is_waited_for(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster:
            cluster[0].down()
            port = cluster[0].port
            starting = asyncio.create_task(_first_answer(cluster))
            await turns(100)
            assert cluster[0].port == port
            await cluster[0].up()
            assert await soon(starting)


async def _start_on(cluster: FakeCluster, port: int) -> None:
    await App(settings(cluster.bootstrap, port), MetricRegistry()).start()


async def _first_answer(cluster: FakeCluster) -> bool:
    async with running(cluster.bootstrap) as forebay:
        client = await forebay.client(0)
        client.send(echo(1))
        await client.receives(1)
        return True


@in_loop
async def test_whoever_waits_at_an_inherited_socket_is_served_once_it_is_ready() -> None:
    port = free_run(2)
    listening = socket.create_server((LOOPBACK, port))
    async with FakeCluster({"ponds": [0]}) as cluster:
        cluster[0].holds(METADATA)
        app = App(settings(cluster.bootstrap, port), MetricRegistry(), inherited=Inherited([listening]))
        await app.start()
        client = await WireClient.connect(port)
        client.send(metadata(1, "ponds"))
        asked = await cluster[0].receives(METADATA)
        await turns(100)
        assert (app.ready(), len(app._connections)) == ("no broker has told its metadata yet", 0)
        cluster[0].releases(METADATA)
        asked.answer()
        await client.receives(1)
        assert app.ready() is None
        assert sorted(each.getsockname()[1] for each in app.listening()) == [port, port + 1]
        await soon(app.drain())
        client.close()


@in_loop
async def test_one_that_cannot_accept_by_a_fault_of_ours_is_unhealthy(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(_: ClientListeners) -> None:
        raise RuntimeError("nobody foresaw this")

    monkeypatch.setattr(ClientListeners, "accept", fails)
    listening = socket.create_server((LOOPBACK, port := free_run(2)))
    async with FakeCluster({"ponds": [0]}) as cluster:
        app = App(settings(cluster.bootstrap, port), MetricRegistry(), inherited=Inherited([listening]))
        await app.start()
        await until(lambda: app.unhealthy() is not None)
        app.abort()


@in_loop
async def test_the_journals_bounds_are_each_what_is_set(tmp_path: Path) -> None:
    own = {"journal_queue_bytes": 5 << 20, "journal_segment_bytes": 3 << 20, "journal_retention_bytes": 7 << 20}
    async with FakeCluster({}) as cluster:
        for where, bounds in (({"journal_dir": str(tmp_path)}, list(own)), ({"journal_topic": "j"}, list(own)[:1])):
            sink = App(settings(cluster.bootstrap, free_run(2), **where, **own), MetricRegistry())._journal_sink()
            assert [vars(sink)[bound.removeprefix("journal")] for bound in bounds] == [own[bound] for bound in bounds]


PASSES = {"topics_exclude": ("ponds",)}


def _slow_to_connect(forebay: Running) -> asyncio.Event:
    """Clients' own connections to brokers are made once it is set."""
    connector, may_connect = forebay.app._realm.view.connector, asyncio.Event()
    connect = connector.connect

    async def slow(*args: Any, **how: Any) -> Session | None:
        await may_connect.wait()
        return await connect(*args, **how)

    connector.connect = slow  # type: ignore[method-assign]
    return may_connect


class StandingClock:
    """The clock of a drain, which goes on when it is told to; `looks`: how often it was looked at since."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._now = monotonic()
        self.looks = 0
        monkeypatch.setattr(app_module, "monotonic", self._look)

    def _look(self) -> float:
        self.looks += 1
        return self._now

    def goes_on(self, seconds: float) -> None:
        self._now += seconds
        self.looks = 0


class TestDrain:
    @in_loop
    async def test_flushes_what_lingers_answers_it_and_closes(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap, linger_ms=60_000) as forebay:
            client = await forebay.client(0)
            client.send(produce(1, ("ponds", 0, batch(null_key("a")))))
            await until(lambda: forebay.count("forebay_queued_bytes") > 0)
            assert cluster.log == {}
            draining = asyncio.create_task(forebay.app.drain())
            (response,) = await client.receives(1)
            assert only(response).error_code == NONE
            assert await client.is_closed()
            await soon(draining)
            assert cluster.values("ponds", 0) == ["a"]

    @in_loop
    async def test_clients_leave_one_broker_after_the_other_where_others_take_its_place(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        clock = StandingClock(monkeypatch)
        async with FakeCluster({"ponds": [0, 1]}, nodes=2) as cluster, running(cluster.bootstrap) as forebay:
            clients = [await forebay.client(node) for node in (None, 0, 1)]
            for number, client in enumerate(clients):
                client.send(echo(number))
                await client.receives(number)
            draining = asyncio.create_task(forebay.app.drain(succeeded=True))
            assert await clients[0].is_closed()
            for turn in (1, 2):
                for node in range(turn - 1, 2):
                    clients[1 + node].send(produce(turn, ("ponds", node, batch(keyed(f"{turn}")))))
                    (response,) = await clients[1 + node].receives(turn)
                    assert only(response).error_code == NONE
                with pytest.raises(ConnectionRefusedError):
                    await WireClient.connect(forebay.node_port(1))
                clock.goes_on(APART_S)
                assert await clients[turn].is_closed()
            await soon(draining)
            assert [cluster.values("ponds", node) for node in (0, 1)] == [["1"], ["1", "2"]]

    @in_loop
    async def test_whose_turn_has_come_is_read_until_nothing_of_it_is_under_way(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            cluster[0].holds(PRODUCE)
            client = await forebay.client(0)
            client.send(produce(1, ("ponds", 0, batch(null_key("a")))))
            away = await cluster[0].receives(PRODUCE)
            clock = StandingClock(monkeypatch)
            draining = asyncio.create_task(forebay.app.drain(succeeded=True))
            await turns()
            clock.goes_on(APART_S)
            await until(lambda: clock.looks > 6, 60)  # two of them at each look at whom to have leave
            client.send(echo(2))
            away.answer()
            await client.receives(1, 2)
            assert await client.is_closed()
            await soon(draining)

    @in_loop
    async def test_an_answer_on_its_way_arrives_though_the_client_sends_on(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The system would drop it, and reset the connection, if that were closed before."""
        monkeypatch.setattr(app_module, "OPAQUE_GRACE", 60.0)
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            loop = asyncio.get_running_loop()
            with socket.socket() as client:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
                client.setblocking(False)
                await loop.sock_connect(client, (LOOPBACK, forebay.node_port(0)))
                await loop.sock_sendall(client, echo(1, bytes(50_000)))
                arrived = len(await soon(loop.sock_recv(client, 1)))
                draining = asyncio.create_task(forebay.app.drain())
                await turns()
                await loop.sock_sendall(client, echo(2))
                with suppress(ConnectionResetError):  # since it sent on
                    while more := await soon(loop.sock_recv(client, 4_096)):
                        arrived += len(more)
                assert arrived > 50_000
                await soon(draining)

    @pytest.mark.parametrize(("timeout_ms", "last_s"), [(30_000, 1.5), (6_000, 1.0), (2_000, 0.0), (1_000, 0.0)])
    @in_loop
    async def test_turns_leave_most_of_the_time_to_what_is_under_way(self, timeout_ms: int, last_s: float) -> None:
        cluster = FakeCluster({"ponds": [0, 1]}, nodes=2)
        async with cluster, running(cluster.bootstrap, shutdown_timeout_ms=timeout_ms) as forebay:
            before = monotonic()
            turns = forebay.app._turns()
            assert 0 <= turns.last - before - last_s <= monotonic() - before

    @in_loop
    async def test_brokers_that_have_left_have_no_turn(self) -> None:
        async with FakeCluster({"ponds": [0, 1]}, nodes=2) as cluster, running(cluster.bootstrap) as forebay:
            departed, now = forebay.app._departed, monotonic()
            both = {node: Broker("pond", 9092 + node, None) for node in (0, 1)}
            departed.told_of(both, now)
            departed.told_of({0: both[0]}, now)
            turns = forebay.app._turns()
            assert [turns.has_come(node, monotonic()) for node in (0, 1)] == [False, True]

    @in_loop
    async def test_accepts_and_reads_nothing_more_but_waits_for_what_is_away(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            assert forebay.app.ready() is None
            cluster[0].holds(PRODUCE)
            client = await forebay.client(0)
            client.send(produce(1, ("ponds", 0, batch(null_key("a")))))
            away = await cluster[0].receives(PRODUCE)
            draining = asyncio.create_task(forebay.app.drain())
            await turns()
            assert forebay.app.ready() == "draining"
            client.send(echo(2))
            with pytest.raises(ConnectionRefusedError):
                await WireClient.connect(forebay.node_port(0))
            assert not draining.done()
            away.answer()
            await client.receives(1)
            assert await client.is_closed()
            await soon(draining)
            assert cluster[0].requests(LIST_GROUPS) == []

    @in_loop
    async def test_who_has_left_is_not_waited_for_though_its_answer_is_outstanding(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(app_module, "OPAQUE_GRACE", 0.0)
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            cluster[0].holds(LIST_GROUPS)
            client = await forebay.client(0)
            client.send(echo(1))
            await cluster[0].receives(LIST_GROUPS)
            client.close()
            (connection,) = forebay.app._connections
            await until(lambda: connection.done)
            await soon(forebay.app.drain())

    @in_loop
    async def test_who_came_just_before_is_answered_once(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            known, newcomer = await forebay.client(0), await forebay.client(0)
            known.send(echo(1))
            await known.receives(1)
            draining = asyncio.create_task(forebay.app.drain())
            assert await known.is_closed()
            assert not draining.done()
            newcomer.send(echo(1))
            await newcomer.receives(1)
            assert await newcomer.is_closed()
            await soon(draining)

    @in_loop
    async def test_who_came_and_asks_nothing_is_not_waited_for(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(app_module, "NEWCOMER_S", 0.05)
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            silent = await forebay.client(0)
            await soon(forebay.app.drain())
            assert await silent.is_closed()

    @in_loop
    async def test_records_without_acks_are_flushed_too(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap, linger_ms=60_000) as forebay:
            client = await forebay.client(0)
            client.send(produce(1, ("ponds", 0, batch(null_key("a"))), acks=0))
            await until(lambda: forebay.count("forebay_queued_bytes") > 0)
            client.close()
            await soon(forebay.app.drain())
            assert cluster.values("ponds", 0) == ["a"]

    @in_loop
    async def test_records_without_acks_that_pass_are_sent_though_their_broker_is_being_reached(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap, **PASSES) as forebay:
            may_connect = _slow_to_connect(forebay)
            there, gone = await forebay.client(0), await forebay.client(0)
            for client, value in ((there, "a"), (gone, "b")):
                client.send(produce(1, ("ponds", 0, batch(null_key(value))), acks=0))
            await until(lambda: forebay.count("forebay_upstream_connections") == 2)
            gone.close()
            connections = forebay.app._connections
            await until(lambda: any(connection.hung_up for connection in connections))
            connections.sweep(monotonic())
            await until(lambda: len(connections) == 1)
            draining = asyncio.create_task(forebay.app.drain())
            await turns(50)
            may_connect.set()
            await soon(draining)
            await until(lambda: sorted(cluster.values("ponds", 0)) == ["a", "b"])

    @pytest.mark.parametrize("leaves", [False, True])
    @in_loop
    async def test_records_without_acks_that_pass_are_waited_for_while_their_broker_does_not_read(
        self, leaves: bool
    ) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap, **PASSES) as forebay:
            client = await forebay.client(0)
            client.send(produce(0, ("ponds", 0, batch(null_key("first")))))
            await client.receives(0)
            cluster[0].reads(False)
            (connection,) = forebay.app._connections
            large = produce(1, ("ponds", 0, batch(null_key("x" * 2_000_000))), acks=0)
            client.send(*[large] * 16)
            await until(lambda: connection.holds)
            taken = await settle(forebay, "forebay_produce_requests_total", "client")
            if leaves:
                connection.abort()
                await until(lambda: len(forebay.app._connections) == 0)
            draining = asyncio.create_task(forebay.app.drain())
            await turns(50)
            assert not draining.done()
            cluster[0].reads(True)
            await soon(draining)
            await until(lambda: len(cluster.values("ponds", 0)) == taken)

    @pytest.mark.parametrize("leaves", [False, True])
    @in_loop
    async def test_the_journal_does_not_wait_for_a_broker_that_does_not_take_records_without_acks(
        self, leaves: bool, tmp_path: Path
    ) -> None:
        async with (
            FakeCluster({"ponds": [0]}) as cluster,
            running(cluster.bootstrap, journal_dir=str(tmp_path), **PASSES) as forebay,
        ):
            client = await forebay.client(0)
            client.send(produce(0, ("ponds", 0, batch(null_key("first")))))
            await client.receives(0)
            cluster[0].reads(False)
            (connection,) = forebay.app._connections
            client.send(*[produce(1, ("ponds", 0, batch(null_key("x" * 2_000_000))), acks=0)] * 16)
            await until(lambda: "broker slow" in connection.holds)
            if leaves:
                connection.abort()
            draining = asyncio.create_task(forebay.app.drain())
            await until(lambda: closed_files(tmp_path))
            assert not draining.done()
            draining.cancel()
            assert of(GaugeRow, rows_in(tmp_path))[-1].last

    @pytest.mark.parametrize("twice", [False, True])
    @in_loop
    async def test_a_drain_that_is_cut_off_leaves_a_closed_journal_and_answers_nobody(
        self, twice: bool, tmp_path: Path
    ) -> None:
        async with (
            FakeCluster({"ponds": [0]}) as cluster,
            running(cluster.bootstrap, journal_dir=str(tmp_path)) as forebay,
        ):
            cluster[0].holds(PRODUCE)
            client = await forebay.client(0)
            client.send(produce(1, ("ponds", 0, batch(null_key("a")))))
            asked = await cluster[0].receives(PRODUCE)
            draining = asyncio.create_task(forebay.app.drain())
            await turns(50)
            assert not draining.done()
            draining.cancel()
            if twice:
                half = asyncio.create_task(forebay.app.cut_off())
                await turns(1)
                half.cancel()
            await soon(forebay.app.cut_off())
            assert of(GaugeRow, rows_in(tmp_path))[-1].last
            asked.answer()
            assert await client.is_closed()

    @in_loop
    async def test_brokers_that_do_not_answer_tlss_farewell_keep_nobody_else_waiting_nor_whom_a_drain_answers(
        self, tmp_path: Path
    ) -> None:
        authority, cluster = Authority(tmp_path), FakeCluster({"ponds": [0, 1]}, nodes=2)
        cluster.tls = server_context(authority.issue("kafka", LOOPBACK))
        secured = {"security_protocol": "SSL", "ssl_truststore_location": str(authority.pem)}
        async with cluster, running(cluster.bootstrap, **secured, **PASSES) as forebay:
            leaving = [await forebay.client(0) for _ in range(20)]
            for client in leaving:
                client.send(echo(1))
                await client.receives(1)
            cluster[0].reads(False)
            for client in leaving:
                client.send(produce(2, ("ponds", 0, batch(null_key("late"))), acks=0))
                await client.leave()
            departing = forebay.app._realm.departing
            await until(lambda: len(departing) == len(leaving))
            other = await forebay.client(1)
            for number in range(100):
                other.send(echo(2 * number), produce(2 * number + 1, ("ponds", 1, batch(null_key("a")))))
                await other.receives(2 * number, 2 * number + 1)
            assert len(departing) == len(leaving), "none of them was waited for"
            cluster[1].forget()
            cluster[1].holds(PRODUCE)
            other.send(produce(200, ("ponds", 1, batch(null_key("last")))))
            asked = await cluster[1].receives(PRODUCE)
            draining = asyncio.create_task(forebay.app.drain())
            await turns(50)
            asked.answer()
            (response,) = await other.receives(200)
            assert only(response).error_code == NONE
            assert (len(departing), draining.done()) == (len(leaving), False)
            cluster[0].reads(True)
            await soon(draining)
            assert cluster.values("ponds", 0) == ["late"] * len(leaving)

    @in_loop
    async def test_who_stops_at_once_waits_for_no_records_without_acks(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap, **PASSES) as forebay:
            may_connect = _slow_to_connect(forebay)
            client = await forebay.client(0)
            client.send(produce(1, ("ponds", 0, batch(null_key("a"))), acks=0))
            await until(lambda: forebay.count("forebay_upstream_connections") == 1)
            client.close()
            for connection in forebay.app._connections:
                connection.abort()
            await until(lambda: forebay.app._realm.departing)
            forebay.app.abort()
            assert not forebay.app._realm.departing
            may_connect.set()
            await turns(50)
            assert cluster.log == {}

    @in_loop
    async def test_metadata_that_was_asked_for_still_names_the_listeners(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            client = await forebay.client(0)
            cluster[0].forget()
            cluster[0].holds(METADATA)
            client.send(metadata(1, "ponds"))
            asked = await cluster[0].receives(METADATA)
            draining = asyncio.create_task(forebay.app.drain())
            await turns()
            asked.answer()
            (response,) = await client.receives(1)
            assert forebay.node_port(0).to_bytes(4, "big") in response.whole
            await soon(draining)

    @in_loop
    async def test_untouched_records_are_waited_for_and_what_waits_by_its_nature_is_not(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(app_module, "OPAQUE_GRACE", 0.0)
        async with (
            FakeCluster({"raw": [0]}) as cluster,
            running(cluster.bootstrap, topics_exclude=("raw",)) as forebay,
        ):
            cluster[0].holds(PRODUCE, FETCH)
            consumer, producer = await forebay.client(0), await forebay.client(0)
            consumer.send(request(FETCH, 11, 1, b"long poll"))
            producer.send(produce(1, ("raw", 0, batch(keyed("a")))))
            await cluster[0].receives(FETCH)
            away = await cluster[0].receives(PRODUCE)
            draining = asyncio.create_task(forebay.app.drain())
            await turns(100)
            assert not draining.done()
            away.answer()
            (response,) = await producer.receives(1)
            assert only(response).error_code == NONE
            assert await consumer.is_closed()
            await soon(draining)

    @in_loop
    async def test_a_request_that_the_broker_has_begun_to_receive_arrives_whole(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            client = await forebay.client(0)
            client.send(echo(1))
            await client.receives(1)
            half = echo(2, b"x" * 1000)
            before = forebay.count("forebay_request_bytes_total", "client")
            client.send(half[:500])
            await until(lambda: forebay.count("forebay_request_bytes_total", "client") == before + 500)
            draining = asyncio.create_task(forebay.app.drain())
            await turns()
            client.send(half[500:], echo(3))
            (response,) = await client.receives(2)
            assert response.body == b"x" * 1000
            assert await client.is_closed()
            await soon(draining)
            assert len(cluster[0].requests(LIST_GROUPS)) == 2

    @in_loop
    async def test_an_idle_proxy_leaves_at_once_and_leaves_no_connection(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            client = await forebay.client(0)
            client.send(produce(1, ("ponds", 0, batch(keyed("a")))), echo(2))
            await client.receives(1, 2)
            await soon(forebay.app.drain(), 0.5)
            assert await client.is_closed()
            await until(lambda: not cluster[0].connections)

    @in_loop
    async def test_abort_leaves_at_once(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            cluster[0].holds(PRODUCE)
            client = await forebay.client(0)
            client.send(produce(1, ("ponds", 0, batch(keyed("a")))))
            await cluster[0].receives(PRODUCE)
            forebay.app.abort()
            assert await client.is_closed()
            await until(lambda: not cluster[0].connections)


@in_loop
@pytest.mark.parametrize(("busy_s", "at_once"), [(60.0, True), (-1.0, False)])
async def test_an_idle_loop_sends_with_the_flush_and_a_busy_one_a_turn_later(
    busy_s: float, at_once: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`linger.ms` −1."""
    flushing = False
    sent: list[bool] = []

    def flushes() -> float:
        nonlocal flushing
        flushing = True
        asyncio.get_running_loop().call_soon(flushed)  # in front of all that the flush itself calls later
        return monotonic()

    def flushed() -> None:
        nonlocal flushing
        flushing = False

    def sends() -> float:
        sent.append(flushing)
        return monotonic()

    monkeypatch.setattr(linger, "BUSY_S", busy_s)
    monkeypatch.setattr(dispatcher, "monotonic", flushes)
    monkeypatch.setattr(sender, "monotonic", sends)
    async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
        client = await forebay.client(0)
        for number in (1, 2):  # the first one waits for a connection to the broker
            client.send(produce(number, ("ponds", 0, batch(keyed("a")))))
            await client.receives(number)
            if number == 1:
                sent.clear()
        assert any(sent) is at_once
