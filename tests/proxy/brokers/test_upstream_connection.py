"""A connection of our own whose session is renewed: who calls meanwhile waits, and is told how it ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from time import monotonic

import pytest
from structlog.testing import capture_logs

from forebay_codecs.api_keys import SASL_AUTHENTICATE
from forebay_codecs.sasl import authenticate_request
from forebay_proxy.brokers.connector import Connector
from forebay_proxy.brokers.session import Session
from forebay_proxy.brokers.upstream_connection import UpstreamConnection
from forebay_proxy.metrics.registry import MetricRegistry
from forebay_proxy.security.authenticator import AuthenticationFailed, Call
from tests.kit.app import settings
from tests.kit.event_loop import in_loop, turns, until
from tests.kit.fake_broker import FakeCluster
from tests.kit.ports import LOOPBACK
from tests.kit.wire import LIST_GROUPS

LIFETIME_S = 3_600.0


class Stage:
    """A connection with a session that is due as soon as the test says so; `refuses` the next login."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.broker = cluster[0]
        self.connector = Connector(settings(cluster.bootstrap, 1), MetricRegistry())
        self.session = Session(self._log_in, Random(1))
        self.refuses = False
        self.answers: list[tuple[int, bool]] = []
        self.why: list[str] = []
        self._calls: set[asyncio.Task[None]] = set()

    async def _log_in(self, call: Call) -> float:
        await call(lambda number: authenticate_request(number, "forebay", 0, b"login"))
        if self.refuses:
            raise AuthenticationFailed("no")
        return LIFETIME_S

    async def open(self) -> UpstreamConnection:
        connection = await self.connector.open(LOOPBACK, self.broker.port)
        await connection.log_in(self.session)
        self.broker.forget()
        return connection

    def make_due(self, connection: UpstreamConnection) -> None:
        connection._renew_at = monotonic() - 1.0

    def call(self, connection: UpstreamConnection, number: int) -> None:
        async def call() -> None:
            try:
                await connection.call(
                    lambda correlation_id: (
                        bytes([0, LIST_GROUPS, 0, 0]) + correlation_id.to_bytes(4, "big") + b"\xff\xff"
                    )
                )
                self.answers.append((number, True))
            except ConnectionError as error:
                self.answers.append((number, False))
                self.why.append(str(error))

        task = asyncio.get_running_loop().create_task(call())
        self._calls.add(task)

    def heard(self) -> list[int]:
        return [asked.api_key for asked in self.broker.seen]


@in_loop
async def test_who_calls_while_it_is_renewed_follows_in_order() -> None:
    async with FakeCluster({}) as cluster:
        stage = Stage(cluster)
        connection = await stage.open()
        stage.broker.holds(LIST_GROUPS, SASL_AUTHENTICATE)
        stage.call(connection, 0)
        first = await stage.broker.receives(LIST_GROUPS)
        stage.make_due(connection)
        for number in (1, 2):
            stage.call(connection, number)
        login = await stage.broker.receives(SASL_AUTHENTICATE)
        await turns()
        assert stage.heard() == [LIST_GROUPS, SASL_AUTHENTICATE]
        assert len(connection._pending) == 2
        first.answer()
        await until(lambda: stage.answers)
        stage.broker.releases(LIST_GROUPS)
        login.answer()
        await until(lambda: len(stage.answers) == 3)
        assert stage.answers == [(0, True), (1, True), (2, True)]
        assert stage.heard() == [LIST_GROUPS, SASL_AUTHENTICATE, LIST_GROUPS, LIST_GROUPS]
        stage.call(connection, 3)
        await until(lambda: len(stage.answers) == 4)
        assert stage.heard().count(SASL_AUTHENTICATE) == 1
        connection.close()


@in_loop
async def test_a_login_that_is_not_renewed_ends_the_connection_and_all_are_told_why() -> None:
    async with FakeCluster({}) as cluster:
        stage = Stage(cluster)
        connection = await stage.open()
        stage.refuses = True
        stage.make_due(connection)
        stage.call(connection, 0)
        stage.call(connection, 1)
        await until(lambda: len(stage.answers) == 2)
        assert connection.closed
        assert stage.answers == [(0, False), (1, False)]
        assert all(why.endswith(": no") for why in stage.why)
        assert stage.heard() == [SASL_AUTHENTICATE]


@in_loop
async def test_who_leaves_while_it_is_renewed_takes_nobody_elses_connection_along() -> None:
    async with FakeCluster({}) as cluster:
        stage = Stage(cluster)
        connection = await stage.open()
        stage.broker.holds(SASL_AUTHENTICATE)
        stage.make_due(connection)
        leaves = asyncio.get_running_loop().create_task(connection.renew())
        stage.call(connection, 0)
        login = await stage.broker.receives(SASL_AUTHENTICATE)
        leaves.cancel()
        await turns()
        login.answer()
        await until(lambda: stage.answers)
        assert stage.answers == [(0, True)]
        connection.close()


@in_loop
async def test_a_broker_that_leaves_meanwhile_is_told_to_who_waits() -> None:
    async with FakeCluster({}) as cluster:
        stage = Stage(cluster)
        connection = await stage.open()
        stage.broker.holds(SASL_AUTHENTICATE)
        stage.make_due(connection)
        stage.call(connection, 0)
        (await stage.broker.receives(SASL_AUTHENTICATE)).close()
        await until(lambda: stage.answers)
        assert stage.answers == [(0, False)]


@in_loop
async def test_the_farewell_of_a_broker_is_told_to_who_waits_though_it_leaves_the_connection_open() -> None:
    async with FakeCluster({}) as cluster:
        stage = Stage(cluster)
        connection = await stage.open()
        stage.broker.holds(LIST_GROUPS)
        stage.call(connection, 0)
        await stage.broker.receives(LIST_GROUPS)
        connection.eof_received()
        await until(lambda: stage.answers)
        assert stage.answers == [(0, False)]


@in_loop
async def test_a_broker_that_answers_in_tls_is_told_to_who_asked_and_not_to_the_log() -> None:
    async def alerts(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(5)
        writer.write(bytes((0x15, 3, 3, 0, 2, 2, 70)))

    async with await asyncio.start_server(alerts, LOOPBACK, 0) as server:
        port = server.sockets[0].getsockname()[1]
        connector = Connector(settings((), 1), MetricRegistry())
        with capture_logs() as logged, pytest.raises(ConnectionError) as told:
            await connector.open(LOOPBACK, port)
        assert str(told.value) == (
            f"the connection to {LOOPBACK}:{port} was lost: it answers in TLS: set security.protocol=SSL or SASL_SSL"
        )
        assert logged == []


@in_loop
async def test_a_connection_is_handed_over_with_nothing_of_ours_left_on_it() -> None:
    async with FakeCluster({}) as cluster:
        stage = Stage(cluster)
        connection = await stage.open()
        received: list[bytes] = []

        class Next(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                self.transport = transport

            def data_received(self, data: bytes) -> None:
                received.append(data)

        follower = Next()
        connection.hand_over(follower)
        assert connection.closed
        write: Callable[[bytes], None] = follower.transport.write  # type: ignore[attr-defined]
        request = bytes([0, LIST_GROUPS, 0, 0, 0, 0, 0, 9]) + b"\xff\xff"
        write(len(request).to_bytes(4, "big") + request)
        await until(lambda: received)
        assert received[0][4:8] == bytes([0, 0, 0, 9])
        follower.transport.close()
