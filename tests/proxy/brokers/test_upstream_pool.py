"""Connections to one broker: one request each, used last first, opened by one party."""

from __future__ import annotations

import asyncio
from random import Random
from time import monotonic

import pytest
import structlog

from forebay_codecs.api_keys import API_VERSIONS
from forebay_policies.throttling import CLIENT_ID
from forebay_proxy.brokers.cluster import Node
from forebay_proxy.brokers.connector import Connector
from forebay_proxy.brokers.session import Session
from forebay_proxy.brokers.upstream_connection import UpstreamConnection
from forebay_proxy.brokers.upstream_pool import MAX_CONNECTIONS, OPENING, SPARE_IDLE_S, UpstreamPool
from forebay_proxy.metrics.registry import MetricRegistry
from forebay_proxy.security.authenticator import AuthenticationFailed, Call
from tests.kit.app import settings
from tests.kit.event_loop import in_loop, turns, until
from tests.kit.fake_broker import FakeCluster
from tests.kit.ports import LOOPBACK


class Stage:
    """A pool to one broker, and what its user was told."""

    def __init__(
        self, cluster: FakeCluster, max_connections: int = MAX_CONNECTIONS, backoff_ms: tuple[int, int] = (1, 1)
    ) -> None:
        self.node = Node(0, LOOPBACK, cluster[0].port, 0.0)
        self.told: list[tuple[str, int]] = []
        self.wakes = 0
        self.patience = 60.0
        self.errors: list[str] = []
        self.speaks = True
        first, most = backoff_ms
        quick = settings(cluster.bootstrap, 0, reconnect_backoff_ms=first, reconnect_backoff_max_ms=most)
        stats = MetricRegistry()
        self.pool = UpstreamPool(self.node, self, Connector(quick, stats), quick, stats, Random(1), max_connections)

    def usable(self, connection: UpstreamConnection) -> bool:
        return self.speaks

    def reached(self, tries: int) -> None:
        self.told.append(("reached", tries))

    def failed(self, node: Node, tries: int, error: str) -> None:
        self.told.append(("failed", tries))
        self.errors.append(error)

    def wake(self) -> None:
        self.wakes += 1

    async def takes(self, client_id: str | None = CLIENT_ID) -> UpstreamConnection:
        """One, opened if none is free."""
        taken: list[UpstreamConnection] = []

        def there() -> bool:
            connection = self.pool.take(client_id)
            if connection is not None:
                taken.append(connection)
            return connection is not None

        await until(there)
        return taken[0]


class TestLinksThatSwallowWhatIsWritten:
    @in_loop
    async def test_an_attempt_ends_with_its_users_patience_and_the_next_one_may_take_twice_as_long(self) -> None:
        async with FakeCluster({}) as cluster:
            stage = Stage(cluster)
            stage.patience = 0.02
            cluster[0].holds(API_VERSIONS)
            assert stage.pool.take() is None
            await until(lambda: len(stage.errors) == 3)
            assert [error.split()[-2:] for error in stage.errors] == [["0.02", "s"], ["0.04", "s"], ["0.08", "s"]]
            cluster[0].releases(API_VERSIONS)
            await stage.takes()
            stage.pool.close()


class TestTaking:
    @in_loop
    async def test_nobody_is_given_what_another_has_and_the_one_used_last_comes_first(self) -> None:
        async with FakeCluster({}) as cluster:
            stage = Stage(cluster)
            connections = [await stage.takes() for _ in range(3)]
            assert len(set(connections)) == stage.pool.connected == cluster[0].accepted == 3

            for now, connection in enumerate(connections):
                stage.pool.give_back(connection, now)

            assert [stage.pool.take() for _ in range(4)] == [*reversed(connections), None]
            stage.pool.close()

    @in_loop
    async def test_those_that_were_idle_too_long_are_left(self) -> None:
        async with FakeCluster({}) as cluster:
            stage = Stage(cluster)
            first, second, away = [await stage.takes() for _ in range(3)]
            stage.pool.give_back(first, 10.0)
            stage.pool.give_back(second, 20.0)

            stage.pool.leave_idle(26.0, 10.0)

            await until(lambda: stage.pool.connected == 2)
            assert first.closed
            assert not second.closed
            assert not away.closed
            stage.pool.close()

    @in_loop
    async def test_all_but_the_one_used_last_are_left_soon(self) -> None:
        async with FakeCluster({}) as cluster:
            stage = Stage(cluster)
            spare, warm = await stage.takes(), await stage.takes()
            stage.pool.give_back(spare, 0.0)
            stage.pool.give_back(warm, 0.0)

            stage.pool.leave_idle(SPARE_IDLE_S, 600.0)
            assert stage.pool.connected == 2
            stage.pool.leave_idle(SPARE_IDLE_S + 1, 600.0)

            await until(lambda: stage.pool.connected == 1)
            assert spare.closed
            assert not warm.closed
            stage.pool.close()

    @in_loop
    async def test_what_the_broker_closed_is_not_given(self) -> None:
        async with FakeCluster({}) as cluster:
            stage = Stage(cluster)
            idle, away = await stage.takes(), await stage.takes()
            stage.pool.give_back(idle, 0.0)
            cluster[0].close_connections()
            await until(lambda: stage.pool.connected == 0)
            stage.pool.give_back(away, 0.0)

            assert stage.pool.take() is None
            assert (await stage.takes()) not in (idle, away)
            stage.pool.close()


class TestSessions:
    """Those that are to be renewed: nothing is sent on them before, so that nothing is lost with one that is not."""

    def make_due(self, connection: UpstreamConnection) -> None:
        connection._renew_at = 0.0

    @in_loop
    async def test_one_is_given_once_it_is_renewed_and_another_meanwhile(self) -> None:
        async with FakeCluster({}) as cluster:
            stage, taken = Stage(cluster), asyncio.Event()
            taken.set()
            logins: list[Call] = []

            async def log_in(call: Call) -> float:
                logins.append(call)
                await taken.wait()
                return 3_600.0

            first = await stage.takes()
            await first.log_in(Session(log_in, Random(1)))
            self.make_due(first)
            taken.clear()
            stage.pool.give_back(first, 0.0)

            second = await stage.takes()
            assert second is not first
            assert len(logins) == 2
            before = stage.wakes
            taken.set()
            await until(lambda: stage.wakes > before)
            assert stage.pool.take() is first
            assert len(logins) == 2
            stage.pool.close()

    @in_loop
    async def test_one_that_is_not_renewed_is_left(self) -> None:
        async with FakeCluster({}) as cluster:
            stage = Stage(cluster)
            refuses = False

            async def log_in(call: Call) -> float:
                if refuses:
                    raise AuthenticationFailed("no")
                return 3_600.0

            first = await stage.takes()
            await first.log_in(Session(log_in, Random(1)))
            self.make_due(first)
            refuses = True
            stage.pool.give_back(first, 0.0)

            assert await stage.takes() is not first
            await until(lambda: first.closed and stage.pool.connected == 1)
            assert [asked.api_key for asked in cluster[0].seen] == [API_VERSIONS] * 2
            stage.pool.close()


class TestOpening:
    @in_loop
    async def test_one_is_opened_at_a_time(self) -> None:
        async with FakeCluster({}) as cluster:
            stage = Stage(cluster)
            cluster[0].holds(API_VERSIONS)
            for _ in range(5):
                assert stage.pool.take() is None
            asked = await cluster[0].receives(API_VERSIONS)
            await turns()
            assert cluster[0].accepted == 1
            cluster[0].releases(API_VERSIONS)
            before = stage.wakes
            asked.answer()
            await until(lambda: stage.wakes > before)
            assert stage.told == [("reached", 0)]
            stage.pool.close()

    @in_loop
    async def test_a_broker_that_is_down_is_tried_until_it_is_there(self) -> None:
        async with FakeCluster({}) as cluster:
            stage = Stage(cluster)
            cluster[0].down()
            assert stage.pool.take() is None
            await until(lambda: len(stage.told) >= 3)
            await cluster[0].up()
            await until(lambda: stage.pool.connected == 1)
            tries = len(stage.told) - 1
            assert stage.told == [*[("failed", number) for number in range(tries)], ("reached", tries)]
            stage.pool.close()

    @in_loop
    async def test_each_pause_before_another_attempt_is_twice_as_long_as_the_one_before(self) -> None:
        async with FakeCluster({}) as cluster:
            stage = Stage(cluster, backoff_ms=(10, 1000))
            cluster[0].down()
            began = monotonic()
            assert stage.pool.take() is None
            await until(lambda: len(stage.told) >= 6)
            assert monotonic() - began >= 0.8 * (0.01 + 0.02 + 0.04 + 0.08 + 0.16)
            stage.pool.close()

    @in_loop
    async def test_an_error_that_nobody_foresaw_is_told_and_followed_by_a_pause_as_well(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def fails(_connector: Connector, _host: str, _port: int, _client_id: str | None) -> UpstreamConnection:
            raise LookupError("nobody thought of it")

        async with FakeCluster({}) as cluster:
            stage = Stage(cluster)
            with monkeypatch.context() as patch, structlog.testing.capture_logs() as logs:
                patch.setattr(Connector, "open", fails)
                assert stage.pool.take() is None
                await until(lambda: len(stage.told) >= 3)
            assert stage.told[:3] == [("failed", number) for number in range(3)]
            errors = [line["exc_info"] for line in logs if line["log_level"] == "error"]
            assert [str(error) for error in errors[:3]] == ["nobody thought of it"] * 3
            await until(lambda: stage.pool.connected == 1)
            stage.pool.close()

    @in_loop
    async def test_while_one_stands_the_broker_is_reachable_whatever_becomes_of_others(self) -> None:
        async with FakeCluster({}) as cluster:
            stage = Stage(cluster)
            away = await stage.takes()
            stage.speaks = False
            before = stage.wakes
            assert stage.pool.take() is None

            await until(lambda: stage.wakes > before)

            assert stage.told == [("reached", 0)]
            stage.pool.give_back(away, 0.0)
            assert stage.pool.take() is away
            stage.pool.close()

    @in_loop
    async def test_a_closed_pool_opens_nothing(self) -> None:
        async with FakeCluster({}) as cluster:
            stage = Stage(cluster)
            cluster[0].holds(API_VERSIONS)
            assert stage.pool.take() is None
            await cluster[0].receives(API_VERSIONS)
            stage.pool.close()
            await until(lambda: not cluster[0].connections)
            assert stage.pool.take() is None
            await turns()
            assert (stage.pool.connected, cluster[0].accepted) == (0, 1)


class TestAnotherAddress:
    @in_loop
    async def test_attempts_at_the_old_address_end_and_the_new_one_is_tried_at_once(self) -> None:
        async with FakeCluster({}, nodes=2) as cluster:
            stage = Stage(cluster)
            cluster[0].holds(API_VERSIONS)
            assert stage.pool.take() is None
            await cluster[0].receives(API_VERSIONS)

            stage.node.port = cluster[1].port
            stage.pool.leave_all()

            assert not (await stage.takes()).closed
            await until(lambda: not cluster[0].connections)
            assert (cluster[0].accepted, cluster[1].accepted) == (1, 1)
            assert stage.told == [("reached", 0)]
            stage.pool.close()

    @in_loop
    async def test_an_attempt_that_has_not_begun_keeps_nobody_from_another(self) -> None:
        async with FakeCluster({}) as cluster:
            stage = Stage(cluster)
            assert stage.pool.take() is None

            stage.pool.leave_all()

            assert stage.wakes == 1
            await stage.takes()
            stage.pool.close()


class TestClientIds:
    @in_loop
    async def test_a_connection_carries_requests_of_one_client_id_from_its_first_byte_on(self) -> None:
        async with FakeCluster({}) as cluster:
            stage = Stage(cluster)
            first, second, nobodys = [await stage.takes(client_id) for client_id in ("a", "b", None)]
            for connection in (first, second, nobodys):
                stage.pool.give_back(connection, 0.0)

            assert await stage.takes("a") is first
            assert await stage.takes(None) is nobodys
            assert stage.pool.take("a") is None
            assert [asked.client_id for asked in cluster[0].requests(API_VERSIONS)[:3]] == ["a", "b", None]
            stage.pool.close()

    @in_loop
    async def test_those_for_several_client_ids_are_opened_at_once_where_one_stands(self) -> None:
        async with FakeCluster({}) as cluster:
            stage = Stage(cluster)
            cluster[0].holds(API_VERSIONS)
            assert [stage.pool.take(f"{number}") for number in range(3)] == [None] * 3
            asked = await cluster[0].receives(API_VERSIONS)
            await turns()
            assert cluster[0].accepted == 1, "nobody knows yet whether the broker is there"
            asked.answer()
            await until(lambda: stage.pool.connected == 1)

            for number in range(2 * OPENING):
                stage.pool.take(f"{number}")
            await until(lambda: cluster[0].accepted == 1 + OPENING)
            await turns()
            assert cluster[0].accepted == 1 + OPENING
            stage.pool.close()

    @in_loop
    async def test_beyond_the_most_the_one_idle_for_longest_makes_room(self) -> None:
        async with FakeCluster({}) as cluster:
            stage = Stage(cluster, max_connections=3)
            busy, idlest, idle = [await stage.takes(client_id) for client_id in ("a", "b", "c")]
            stage.pool.give_back(idlest, 0.0)
            stage.pool.give_back(idle, 1.0)

            fourth = await stage.takes("d")

            assert idlest.closed
            assert [it.closed for it in (busy, idle, fourth)] == [False] * 3
            assert stage.pool.connected == 3
            assert await stage.takes("e")
            assert idle.closed
            assert stage.pool.take("f") is None
            await turns()
            assert stage.pool.connected == 3, "all are busy: who asks waits"
            stage.pool.close()

    @in_loop
    async def test_where_the_broker_takes_no_more_an_idle_one_makes_room(self) -> None:
        async with FakeCluster({}) as cluster:
            stage = Stage(cluster)
            idle = await stage.takes("a")
            stage.pool.give_back(idle, 0.0)
            stage.speaks = False

            assert stage.pool.take("b") is None
            await until(lambda: idle.closed)
            stage.speaks = True
            await stage.takes("b")

            assert stage.told == [("reached", 0), ("reached", 1)]
            stage.pool.close()

    @in_loop
    async def test_a_broker_that_is_down_is_tried_by_one_whoever_asks(self) -> None:
        async with FakeCluster({}) as cluster:
            stage = Stage(cluster)
            for client_id in ("a", "b", "c"):
                await stage.takes(client_id)
            cluster[0].holds(API_VERSIONS)
            for client_id in ("d", "e", "f"):
                stage.pool.take(client_id)
            await until(lambda: cluster[0].accepted == 6)
            cluster[0].down()
            await until(lambda: len(stage.pool._opening) == 1 and not stage.pool.connected)
            cluster[0].releases(API_VERSIONS)
            assert stage.pool.take("g") is None
            assert len(stage.pool._opening) == 1
            await cluster[0].up()
            await until(lambda: stage.pool.connected)
            stage.pool.close()

    @in_loop
    async def test_those_of_all_client_ids_but_the_one_used_last_are_left_soon(self) -> None:
        async with FakeCluster({}) as cluster:
            stage = Stage(cluster)
            connections = [await stage.takes(client_id) for client_id in ("a", "b", "c")]
            for connection in connections:
                stage.pool.give_back(connection, 0.0)

            stage.pool.leave_idle(SPARE_IDLE_S + 1, 600.0)

            await until(lambda: stage.pool.connected == 1)
            assert [connection.closed for connection in connections] == [True, True, False]
            assert stage.pool._free.keys() == {"c"}
            stage.pool.close()

    @in_loop
    async def test_nothing_is_kept_of_client_ids_whose_connections_are_gone_or_carry_something(self) -> None:
        """Whether idle ones are ever left or not (connections.max.idle.ms=-1)."""
        async with FakeCluster({}) as cluster:
            stage = Stage(cluster)
            connections = [await stage.takes(client_id) for client_id in ("a", "b", "c")]
            assert not stage.pool._free
            for connection in connections[:2]:
                stage.pool.give_back(connection, 0.0)
            assert stage.pool._free.keys() == {"a", "b"}

            for connection in connections:
                connection.close()

            await until(lambda: stage.pool.connected == 0)
            assert not stage.pool._free
            stage.pool.close()
