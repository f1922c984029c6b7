"""Every connection to a broker is secured as the settings say, and what fails is told in one line."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import structlog

from forebay_codecs.api_keys import API_VERSIONS, PRODUCE, SASL_AUTHENTICATE, SASL_HANDSHAKE
from forebay_codecs.primitives import Writer
from forebay_codecs.sasl import plain
from forebay_proxy.brokers import connector as connectors
from forebay_proxy.brokers import dial, tried_addresses
from forebay_proxy.brokers.cluster import Node
from forebay_proxy.brokers.connector import Connector
from forebay_proxy.brokers.upstream_connection import UpstreamConnection
from forebay_proxy.brokers.upstream_pool import UpstreamPool
from forebay_proxy.config.secret import Secret
from forebay_proxy.errors import StartError
from forebay_proxy.metrics.registry import MetricRegistry
from forebay_proxy.security.authenticator import AuthenticationFailed
from forebay_proxy.security.logins import DelegatedLogin, PasswordLogin, Token
from forebay_proxy.security.principals import Principals
from forebay_proxy.security.tls import TlsSettings, server_context
from tests.kit.app import settings
from tests.kit.certificates import Authority
from tests.kit.event_loop import in_loop, soon, turns, until
from tests.kit.fake_broker import FakeCluster
from tests.kit.ports import LOOPBACK
from tests.kit.sasl import PASSWORD, USER, login_line

BOTH = ("TLSv1.2", "TLSv1.3")


class OwnProtocol(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport


def tls_cluster(authority: Authority, *hosts: str, client_auth: str = "none", expired: bool = False) -> FakeCluster:
    cluster = FakeCluster({})
    keystore = authority.issue("broker", *hosts, expired=expired)
    stores = TlsSettings(BOTH, truststore_location=str(authority.pem), keystore_location=str(keystore))
    cluster.tls = server_context(stores, client_auth)
    return cluster


def connector(cluster: FakeCluster, authority: Authority, **changed: Any) -> Connector:
    given = {"security_protocol": "SSL", "ssl_truststore_location": str(authority.pem), **changed}
    return Connector(settings(cluster.bootstrap, 1, **given), MetricRegistry())


@in_loop
async def test_a_brokers_versions_are_asked_for_through_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    async with tls_cluster(authority, LOOPBACK) as cluster:
        connection = await soon(connector(cluster, authority).open(LOOPBACK, cluster[0].port))
        assert connection.versions[PRODUCE] == cluster.produce_versions
        connection.close()


@in_loop
async def test_a_clients_own_protocol_is_connected_through_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)

    async with tls_cluster(authority, LOOPBACK) as cluster:
        protocol = OwnProtocol()
        await soon(connector(cluster, authority).connect(LOOPBACK, cluster[0].port, protocol))
        assert protocol.transport.get_extra_info("sslcontext") is not None
        protocol.transport.close()


@in_loop
async def test_a_certificate_that_does_not_hold_is_named_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    authority, other = Authority(tmp_path), Authority(tmp_path / "other")
    for hosts, expired, trusted, why in (
        ((LOOPBACK,), False, other, "self-signed certificate in certificate chain"),
        (("kafka.example",), False, authority, "IP address mismatch"),
        ((LOOPBACK,), True, authority, "certificate has expired"),
    ):
        async with tls_cluster(authority, *hosts, expired=expired) as cluster:
            with pytest.raises(ConnectionError, match=why) as error:
                await soon(connector(cluster, trusted).open(LOOPBACK, cluster[0].port))
            assert str(error.value).startswith(
                f"{LOOPBACK}:{cluster[0].port} ({LOOPBACK}): TLS: the certificate is not"
            )
            assert "\n" not in str(error.value)


@in_loop
async def test_the_name_counts_only_if_it_is_asked_for(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    async with tls_cluster(authority, "kafka.example") as cluster:
        lax = connector(cluster, authority, ssl_endpoint_identification_algorithm="")
        (await soon(lax.open(LOOPBACK, cluster[0].port))).close()


@in_loop
async def test_a_broker_that_asks_for_a_certificate_gets_it_or_says_so(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    own = str(authority.issue("forebay", "forebay.example"))
    async with tls_cluster(authority, LOOPBACK, client_auth="required") as cluster:
        with pytest.raises(ConnectionError, match=r"(?i)certificate.required|was lost|reset"):
            await soon(connector(cluster, authority).open(LOOPBACK, cluster[0].port))
        known = connector(cluster, authority, ssl_keystore_location=own)
        (await soon(known.open(LOOPBACK, cluster[0].port))).close()


@in_loop
async def test_a_port_that_speaks_no_tls_is_told_apart(tmp_path: Path) -> None:
    authority = Authority(tmp_path)

    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(5)
        writer.write(b"\0\0\0\x08not TLS!")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(plain, LOOPBACK, 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(ConnectionError, match="does that port speak TLS"):
            await soon(connector(FakeCluster({}), authority).open(LOOPBACK, port))


@in_loop
async def test_a_handshake_that_is_broken_off_is_told_in_words(tmp_path: Path) -> None:
    authority = Authority(tmp_path)

    async def leaves(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(5)
        writer.write(b"\x16\x03\x03")
        writer.close()

    async with await asyncio.start_server(leaves, LOOPBACK, 0) as server:
        port = server.sockets[0].getsockname()[1]
        why = rf"^{LOOPBACK}:{port} \({LOOPBACK}\): TLS: the other side has left in the middle of the handshake"
        with pytest.raises(ConnectionError, match=why):
            await soon(connector(FakeCluster({}), authority).open(LOOPBACK, port))


@in_loop
async def test_stores_that_cannot_be_used_keep_it_from_starting(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    with pytest.raises(StartError, match=r"ssl\.truststore\.location: .*/none\.pem cannot be read: No such file"):
        connector(FakeCluster({}), authority, ssl_truststore_location=str(tmp_path / "none.pem"))


class Guarded:
    """A broker that takes PLAIN with one password, and a connector that presents `password`."""

    def __init__(self, cluster: FakeCluster, password: str = PASSWORD, **changed: Any) -> None:
        self.broker = cluster[0]
        self.logins = 0
        self.broker.holds(SASL_HANDSHAKE, SASL_AUTHENTICATE)
        told = {
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "PLAIN",
            "sasl_jaas_config": Secret(login_line("PLAIN", password)),
            "reconnect_backoff_ms": 60_000,
            "reconnect_backoff_max_ms": 60_000,
            **changed,
        }
        self.stats = MetricRegistry()
        self.settings = settings(cluster.bootstrap, 1, **told)
        self.connector = Connector(self.settings, self.stats, Random(1))
        self._guarding = asyncio.get_running_loop().create_task(self._guard())

    async def _guard(self) -> None:
        while True:
            (await self.broker.receives(SASL_HANDSHAKE)).respond(b"\0\0" + b"\0\0\0\1" + b"\0\5PLAIN")
            asked = await self.broker.receives(SASL_AUTHENTICATE)
            assert asked.version == 2
            self.logins += 1
            writer = Writer()
            writer.tags()
            known = asked.body[2:].rstrip(b"\0") == plain(USER, PASSWORD)  # behind tags and length
            writer.i16(0 if known else 58)
            writer.nullable_string(None if known else "Authentication failed: Invalid username or password", True)
            writer.uvarint(1)
            writer.i64(0)
            writer.tags()
            asked.respond(writer.getvalue())

    async def open(self) -> None:
        (await soon(self.connector.open(LOOPBACK, self.broker.port))).close()

    def stop(self) -> None:
        self._guarding.cancel()


@in_loop
async def test_it_logs_in_before_anything_else_is_said() -> None:
    async with FakeCluster({}) as cluster:
        guarded = Guarded(cluster)
        await guarded.open()
        assert [asked.api_key for asked in cluster[0].seen] == [API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE]
        own = OwnProtocol()
        assert await soon(guarded.connector.connect(LOOPBACK, cluster[0].port, own)) is not None
        assert guarded.logins == 2
        own.transport.close()
        guarded.stop()


@in_loop
async def test_it_logs_in_for_nobody_who_does_so_himself() -> None:
    async with FakeCluster({}) as cluster:
        guarded = Guarded(cluster)
        protocol = OwnProtocol()
        connecting = guarded.connector.connect(LOOPBACK, guarded.broker.port, protocol, logs_in=False)
        assert await soon(connecting) is None
        await turns()
        assert guarded.broker.seen == []
        protocol.transport.close()
        guarded.stop()


@in_loop
async def test_a_refused_login_is_told_once_and_the_broker_left_alone_for_a_while() -> None:
    async with FakeCluster({}) as cluster:
        guarded = Guarded(cluster, "canary-wrong")
        with structlog.testing.capture_logs() as logs:
            for _ in range(5):
                with pytest.raises(AuthenticationFailed, match="Invalid username or password"):
                    await guarded.open()
                with pytest.raises(AuthenticationFailed, match="Invalid username or password"):
                    await soon(guarded.connector.connect(LOOPBACK, cluster[0].port, OwnProtocol()))
        assert guarded.logins == 1
        assert [line["event"] for line in logs] == ["broker refuses Forebay's login"]
        assert "canary" not in str(logs)
        assert guarded.stats.take().counters["forebay_errors_total", ("upstream", "authentication")] == 1
        await until(lambda: not cluster[0].connections)
        guarded.stop()


@in_loop
async def test_a_login_that_hangs_is_given_up_and_refused_by_nobody() -> None:
    async with FakeCluster({}) as cluster:
        guarded = Guarded(cluster, socket_connection_setup_timeout_ms=50)
        guarded.stop()
        for _ in range(2):
            with pytest.raises(TimeoutError, match=r"did not answer within 0\.05 s"):
                await guarded.connector.open(LOOPBACK, cluster[0].port)
        assert [asked.api_key for asked in cluster[0].seen] == [API_VERSIONS, SASL_HANDSHAKE] * 2
        assert guarded.stats.take().counters["forebay_errors_total", ("upstream", "authentication")] == 0
        await until(lambda: not cluster[0].connections)


@in_loop
async def test_a_renewal_that_hangs_is_given_up_and_says_so() -> None:
    async with FakeCluster({}) as cluster:
        guarded = Guarded(cluster, request_timeout_ms=500)
        own = OwnProtocol()
        session = await soon(guarded.connector.connect(LOOPBACK, cluster[0].port, own))
        assert session is not None

        async def call(make: Callable[[int], bytes]) -> bytes:
            return await asyncio.Future[bytes]()

        with pytest.raises(TimeoutError, match=rf"^{LOOPBACK}:{cluster[0].port} did not answer a login within 0\.5 s"):
            await session.renew(call)
        own.transport.close()
        guarded.stop()


@in_loop
async def test_an_address_that_takes_connections_and_says_nothing_gives_way_to_the_names_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with FakeCluster({}) as cluster:
        port = cluster[0].port

        class Resolving:
            create_connection = asyncio.get_running_loop().create_connection

            async def getaddrinfo(self, *_: Any, **how: Any) -> list[tuple[Any, ...]]:
                return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port)) for host in ("127.0.0.2", LOOPBACK)]

        monkeypatch.setattr(dial, "asyncio", SimpleNamespace(get_running_loop=Resolving, timeout=asyncio.timeout))
        monkeypatch.setattr(tried_addresses, "GIVEN_UP_S", 0.0)
        silent = await asyncio.get_running_loop().create_server(asyncio.Protocol, "127.0.0.2", port)
        it = Connector(settings(cluster.bootstrap, 1, socket_connection_setup_timeout_ms=50), MetricRegistry())
        with pytest.raises(TimeoutError):
            await it.open("kafka.example", port)
        (await it.open("kafka.example", port)).close()
        await it.ask_versions("kafka.example", port, 3)
        silent.close()


@in_loop
async def test_a_refused_login_takes_no_broker_down() -> None:
    """It is there, and whoever has another identity may use it."""
    async with FakeCluster({}) as cluster:
        guarded = Guarded(cluster, "wrong")
        told: list[str] = []

        class User:
            patience = 60.0

            def usable(self, connection: UpstreamConnection) -> bool:
                return True

            def reached(self, tries: int) -> None:
                told.append("reached")

            def failed(self, node: Node, tries: int, error: str) -> None:
                told.append("failed")

            def wake(self) -> None: ...

        node = Node(0, LOOPBACK, cluster[0].port, 0.0)
        pool = UpstreamPool(node, User(), guarded.connector, guarded.settings, guarded.stats, Random(1))
        assert pool.take() is None
        await until(lambda: guarded.logins)
        await turns()
        assert told == []
        pool.close()
        guarded.stop()


@in_loop
async def test_a_password_that_changes_is_used_at_once_and_for_sessions_that_stand() -> None:
    async with FakeCluster({}) as cluster:
        guarded = Guarded(cluster, "wrong")
        with pytest.raises(AuthenticationFailed):
            await guarded.open()
        renewable = guarded.connector.renewable
        right = msgspec.structs.replace(guarded.settings, sasl_jaas_config=Secret(login_line("PLAIN")))
        renewable.prepare(right)()
        own = OwnProtocol()
        session = await soon(guarded.connector.connect(LOOPBACK, cluster[0].port, own))  # no pause, although refused
        assert guarded.logins == 2
        assert session is not None
        renewable.prepare(guarded.settings)()
        said: list[bytes] = []

        async def call(make: Callable[[int], bytes]) -> bytes:
            said.append(make(1))
            if len(said) > 1:
                raise ConnectionError
            return b"\0\0\0\1" + b"\0\0" + b"\0\0\0\1" + b"\0\5PLAIN"

        with pytest.raises(ConnectionError):
            await session.renew(call)
        assert plain(USER, "wrong") in said[1]
        renewable.prepare(msgspec.structs.replace(right, sasl_jaas_config=Secret(login_line("PLAIN", user="other"))))()
        said.clear()
        with pytest.raises(ConnectionError):
            await session.renew(call)
        assert plain(USER, PASSWORD) in said[1], "a broker takes no other user's login there"
        own.transport.close()
        guarded.stop()


@in_loop
async def test_certificates_are_exchanged_for_connections_to_come(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    authority, other = Authority(tmp_path), Authority(tmp_path / "other")
    async with tls_cluster(authority, LOOPBACK) as cluster:
        it = connector(cluster, other)
        with pytest.raises(ConnectionError, match="self-signed"):
            await soon(it.open(LOOPBACK, cluster[0].port))
        trusting = settings(cluster.bootstrap, 1, security_protocol="SSL", ssl_truststore_location=str(authority.pem))
        commit = it.renewable.prepare(trusting)
        with pytest.raises(ConnectionError, match="self-signed"):  # not before it is put in place
            await soon(it.open(LOOPBACK, cluster[0].port))
        commit()
        (await soon(it.open(LOOPBACK, cluster[0].port))).close()


def test_without_a_login_it_is_whom_its_certificate_is_for(tmp_path: Path) -> None:
    """A token that it asks for names its user as the renewer, and must not name a former one (delegation_tokens)."""
    authority = Authority(tmp_path)
    one, other = (str(authority.issue(name, "a.example", subject=name)) for name in ("one", "other"))
    told = settings((), 1, security_protocol="SSL", ssl_truststore_location=str(authority.pem))
    it = Connector(told, MetricRegistry())
    seen = [it.identity]
    for store in (one, one, other):
        it.renewable.prepare(msgspec.structs.replace(told, ssl_keystore_location=store))()
        seen.append(it.identity)
    assert seen[0] == ()
    assert seen[1] == seen[2] != seen[3]
    assert bytes.fromhex(seen[3][0]).endswith(b"other")


@in_loop
async def test_one_for_a_client_logs_in_as_that_client_while_there_is_one() -> None:
    async with FakeCluster({}) as cluster:
        cluster.exchange, cluster.users = [], {"alice": "hers"}
        base = Connector(settings(cluster.bootstrap, 1, security_protocol="SASL_PLAINTEXT"), MetricRegistry())
        principals = Principals()
        connector = base.of_clients(principals)

        async def open_one() -> str:
            connection = await soon(connector.open(LOOPBACK, cluster[0].port))
            connection.close()
            return connection.principal

        async def refused() -> str:
            with pytest.raises(AuthenticationFailed) as error:
                await open_one()
            with pytest.raises(AuthenticationFailed):
                await soon(connector.connect(LOOPBACK, cluster[0].port, OwnProtocol()))
            return str(error.value)

        assert "no client is there" in await refused()
        assert cluster[0].accepted == 0, "nobody's connection is not even made"
        hers = PasswordLogin("PLAIN", "alice", Secret("hers"))
        connector.present(hers)
        assert await open_one() == principals.of(hers)
        assert not connector.is_refused
        connector.withdraw()
        assert "no client is there" in await refused()
        with structlog.testing.capture_logs() as logs:
            connector.present(PasswordLogin("PLAIN", "alice", Secret("canary")))
            assert "Invalid" in await refused()
        assert connector.is_refused
        assert [(line["event"], line["user"]) for line in logs] == [
            ("broker refuses a client's login on another connection", "alice")
        ]
        assert "canary" not in str(logs)
        assert not base.is_refused


@in_loop
async def test_where_that_client_leaves_meanwhile_nothing_is_sent_without_a_login() -> None:
    async with FakeCluster({}) as cluster:
        base = Connector(settings(cluster.bootstrap, 1, security_protocol="SASL_PLAINTEXT"), MetricRegistry())
        connector = base.of_clients(Principals())
        connector.present(PasswordLogin("PLAIN", "alice", Secret("hers")))
        cluster[0].holds(API_VERSIONS)
        opening = asyncio.get_running_loop().create_task(connector.open(LOOPBACK, cluster[0].port))
        asked = await cluster[0].receives(API_VERSIONS)
        connector.withdraw()
        asked.answer()
        with pytest.raises(AuthenticationFailed, match="no client is there"):
            await soon(opening)


@in_loop
async def test_clients_that_are_refused_fill_no_log() -> None:
    async with FakeCluster({}) as cluster:
        cluster.exchange, cluster.users = [], {"alice": "hers"}
        stats = MetricRegistry()
        base = Connector(settings(cluster.bootstrap, 1, security_protocol="SASL_PLAINTEXT"), stats)
        with structlog.testing.capture_logs() as logs:
            for number in range(20):
                connector = base.of_clients(Principals())
                connector.present(PasswordLogin("PLAIN", "alice", Secret(f"canary-{number}")))
                with pytest.raises(AuthenticationFailed):
                    await soon(connector.open(LOOPBACK, cluster[0].port))
        assert stats.value("forebay_errors_total", side="upstream", kind="client_authentication") == 20
        assert 0 < len(logs) < 20


class NewToken:
    """Brokers may not have heard of it, `times` more."""

    def __init__(self, times: int) -> None:
        self.times = times

    async def of(self, owner: str) -> Token:
        return Token("its-id", Secret("canary"))

    def refused(self, owner: str) -> bool:
        self.times -= 1
        return self.times >= 0

    def end(self, owner: str) -> None:
        """Nothing is kept."""


@in_loop
async def test_a_token_that_a_broker_may_not_know_yet_is_presented_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connectors, "NOT_KNOWN_S", 0.001)
    async with FakeCluster({}) as cluster:
        guarded = Guarded(cluster)
        connector = guarded.connector.of_clients(Principals())
        connector.present(DelegatedLogin("SCRAM-SHA-512", "alice", NewToken(2)))
        with structlog.testing.capture_logs() as logs, pytest.raises(AuthenticationFailed):
            await soon(connector.open(LOOPBACK, cluster[0].port))
        guarded.stop()
        assert guarded.logins == 3
        assert connector.is_refused
        assert [(line["event"], line["user"]) for line in logs] == [
            ("broker refuses a client's login on another connection", "alice")
        ]
        assert "canary" not in str(logs)
