"""Clients that speak TLS, over real sockets, and those who begin to and do not go on."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog

from forebay_codecs.api_keys import PRODUCE
from forebay_codecs.metadata import parse_metadata_response
from forebay_proxy.clients import handshakes as handshakes_module
from forebay_proxy.clients.tls_connection import TlsConnection
from tests.kit.app import NODES, Running, running
from tests.kit.certificates import Authority
from tests.kit.event_loop import in_loop, soon, until
from tests.kit.fake_broker import FakeCluster
from tests.kit.ports import LOOPBACK
from tests.kit.wire import LIST_GROUPS, METADATA_VERSION, WireClient, batch, echo, metadata, null_key, produce

HANDSHAKES = "forebay_tls_handshakes_total"


class Secured:
    """A cluster without TLS, and Forebay before it with a listener of each kind."""

    def __init__(self, cluster: FakeCluster, forebay: Running, authority: Authority) -> None:
        self.cluster = cluster
        self.forebay = forebay
        self.authority = authority
        self._context = authority.client_context()

    @property
    def port(self) -> int:
        return self.forebay.port + 1 + NODES

    async def client(self, node: int | None = 0, **how: Any) -> WireClient:
        return await self.forebay.client(node, self.context(**how))

    def context(self, **how: Any) -> ssl.SSLContext:
        return self.authority.client_context(**how) if how else self._context

    async def raw(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await soon(asyncio.open_connection(LOOPBACK, self.port))

    async def blocking_client(self, version: ssl.TLSVersion) -> ssl.SSLSocket:
        """One whose end is in the test's hands: asyncio's would wait for the other side's farewell."""
        context = self.authority.client_context(version=version)

        def connect() -> ssl.SSLSocket:
            beneath = socket.create_connection((LOOPBACK, self.port + 1), timeout=30)
            return context.wrap_socket(beneath, server_hostname=LOOPBACK)

        return await asyncio.to_thread(connect)

    def ended(self, result: str) -> float:
        return self.forebay.count(HANDSHAKES, result)


@asynccontextmanager
async def secured(folder: Path, client_auth: str = "none", **changed: Any) -> AsyncIterator[Secured]:
    authority = Authority(folder)
    tls = {
        "ssl_keystore_location": str(authority.issue("forebay", LOOPBACK)),
        "ssl_truststore_location": str(authority.pem),
        "ssl_client_auth": client_auth,
    }
    async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap, tls=tls, **changed) as forebay:
        yield Secured(cluster, forebay, authority)


class TestServed:
    @pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
    @in_loop
    async def test_a_client_is_served_as_without_tls(self, tmp_path: Path, version: ssl.TLSVersion) -> None:
        async with secured(tmp_path) as it:
            client = await it.client(version=version)
            client.send(echo(1), metadata(2, "ponds"), produce(3, ("ponds", 0, batch(null_key("a")))))
            await client.receives(1, 2)
            (await it.cluster[0].receives(PRODUCE)).answer()
            await client.receives(3)
            assert it.ended("established") == 1

    @in_loop
    async def test_each_client_is_told_the_ports_of_the_listener_that_it_came_by(self, tmp_path: Path) -> None:
        async with secured(tmp_path) as it:
            found = []
            for client in (await it.client(None), await it.forebay.client(None)):
                client.send(metadata(1, "ponds"))
                (response,) = await client.receives(1)
                found.append(parse_metadata_response(response.whole, METADATA_VERSION).brokers[0].port)
            assert found == [it.port + 1, it.forebay.port + 1]

    @in_loop
    async def test_large_requests_and_answers_are_whole_and_a_slow_reader_holds_nobody_up(self, tmp_path: Path) -> None:
        async with secured(tmp_path) as it:
            client, neighbour = await it.client(), await it.client()
            large = bytes(range(256)) * 4096
            client.send(*[echo(number, large) for number in range(1, 9)])
            neighbour.send(echo(1))
            await neighbour.receives(1)
            for response in await client.receives(*range(1, 9)):
                assert response.body == large

    @in_loop
    async def test_a_farewell_of_the_client_ends_its_connection_and_its_records_arrive(self, tmp_path: Path) -> None:
        async with secured(tmp_path) as it:
            client = await it.client()
            client.send(produce(1, ("ponds", 0, batch(null_key("a"))), acks=0))
            await client.leave()
            await it.cluster[0].receives(PRODUCE)
            await until(lambda: not len(it.forebay.app._connections))

    @pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
    @in_loop
    async def test_who_says_farewell_is_answered_what_it_has_asked(
        self, tmp_path: Path, version: ssl.TLSVersion
    ) -> None:
        async with secured(tmp_path) as it:
            it.cluster[0].holds(LIST_GROUPS)
            client = await it.blocking_client(version)
            client.sendall(echo(1))
            asked = await it.cluster[0].receives(LIST_GROUPS)
            _say_farewell(client)
            (connection,) = it.forebay.app._connections
            await until(lambda: connection.done)
            asked.answer()
            answer = await asyncio.to_thread(client.recv, 8)
            assert int.from_bytes(answer[4:], "big") == 1
            client.close()
            await until(lambda: not len(it.forebay.app._connections))

    @in_loop
    async def test_the_proxys_farewell_comes_before_the_end(self, tmp_path: Path) -> None:
        async with secured(tmp_path) as it:
            client = await it.client()
            client.send(echo(1))
            await client.receives(1)
            (connection,) = it.forebay.app._connections
            connection.close()
            assert await client.is_closed()  # without a farewell it would be an error: its end could be an attacker's


class TestHeld:
    """What a client sends last of all, TLS's farewell, does not count as something to be read."""

    @pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
    @in_loop
    async def test_a_client_that_leaves_while_it_is_held_is_found_out(
        self, tmp_path: Path, version: ssl.TLSVersion
    ) -> None:
        async with secured(tmp_path, client_max_in_flight_requests=1) as it:
            it.cluster[0].holds(LIST_GROUPS)
            client = await it.blocking_client(version)
            client.sendall(echo(1))
            await it.cluster[0].receives(LIST_GROUPS)
            (connection,) = it.forebay.app._connections
            assert connection.held
            assert not connection.hung_up
            _leave(client)
            await until(lambda: connection.hung_up)

    @pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
    @in_loop
    async def test_what_one_asked_before_it_left_reaches_the_broker(
        self, tmp_path: Path, version: ssl.TLSVersion
    ) -> None:
        async with secured(tmp_path, client_max_in_flight_requests=1) as it:
            it.cluster[0].holds(LIST_GROUPS)
            client = await it.blocking_client(version)
            client.sendall(echo(1))
            first = await it.cluster[0].receives(LIST_GROUPS)
            (connection,) = it.forebay.app._connections
            client.sendall(echo(2))
            await until(lambda: connection.pending() > 0)
            asked = connection.pending()
            _leave(client)
            await until(lambda: connection.pending() > asked)
            assert not connection.hung_up
            first.answer()
            await it.cluster[0].receives(LIST_GROUPS)

    @pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
    @pytest.mark.parametrize("excluded", [(), ("ponds",)])
    @in_loop
    async def test_all_that_one_sent_just_before_its_farewell_reaches_the_broker(
        self, tmp_path: Path, excluded: tuple[str, ...], version: ssl.TLSVersion
    ) -> None:
        frames = [produce(number, ("ponds", 0, batch(null_key(f"{number}"))), acks=0) for number in range(300)]
        async with secured(tmp_path, topics_exclude=excluded) as it:
            client = await it.blocking_client(version)
            client.sendall(b"".join(frames))
            _leave(client)
            await until(lambda: sum(map(len, it.cluster.log.values())) == 300)
            await until(lambda: not len(it.forebay.app._connections))


class TestRefused:
    @pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
    @pytest.mark.parametrize(
        ("client_auth", "shows", "let_in"),
        [
            ("none", "nothing", True),
            ("requested", "nothing", True),
            ("requested", "valid", True),
            ("requested", "expired", False),
            ("requested", "stranger", False),
            ("required", "nothing", False),
            ("required", "valid", True),
            ("required", "stranger", False),
        ],
    )
    @in_loop
    async def test_client_certificates(
        self, tmp_path: Path, client_auth: str, shows: str, let_in: bool, version: ssl.TLSVersion
    ) -> None:
        (tmp_path / "other").mkdir()
        async with secured(tmp_path, client_auth) as it:
            keystore = None
            if shows != "nothing":
                signer = Authority(tmp_path / "other") if shows == "stranger" else it.authority
                keystore = signer.issue("client", subject="till", expired=shows == "expired")
            with structlog.testing.capture_logs() as logs:
                served = await _is_served(it, keystore=keystore, version=version)
                assert served == let_in
                await until(lambda: it.ended("established" if let_in else "failed") == 1)
            said = [line for line in logs if line["event"] == "TLS handshake failed"]
            assert bool(said) != let_in
            assert all("certificate" in line["error"] and line["listener"] == "SSL" for line in said)
            assert let_in or not len(it.forebay.app._connections)

    @pytest.mark.parametrize(
        ("said", "spoke"), [(echo(1), "Kafka without TLS"), (b"GET /metrics HTTP/1.1\r\n\r\n", "HTTP")]
    )
    @in_loop
    async def test_who_does_not_speak_tls_is_named_in_the_log(self, tmp_path: Path, said: bytes, spoke: str) -> None:
        async with secured(tmp_path) as it:
            with structlog.testing.capture_logs() as logs:
                reader, writer = await it.raw()
                writer.write(said)
                assert await soon(reader.read()) == b""
            assert [line["spoke"].startswith(spoke) for line in logs if "spoke" in line] == [True]
            assert it.ended("not_tls") == 1
            writer.close()

    @pytest.mark.parametrize(
        ("said", "spoke"), [(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "TLS"), (b"GET / HTTP/1.1\r\n", "HTTP")]
    )
    @in_loop
    async def test_who_speaks_tls_or_http_on_a_port_without_is_named_too(
        self, tmp_path: Path, said: bytes, spoke: str
    ) -> None:
        async with secured(tmp_path) as it:
            with structlog.testing.capture_logs() as logs:
                client = await it.forebay.client(None)
                client.send(said)
                assert await client.is_closed()
            assert [line["spoke"].startswith(spoke) for line in logs if "spoke" in line] == [True]

    @in_loop
    async def test_nobody_has_a_place_before_the_handshake_is_done(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(handshakes_module, "TIMEOUT_S", 0.2)
        async with secured(tmp_path, max_connections=2) as it:
            silent = [await it.raw() for _ in range(5)]
            begun = [await it.raw() for _ in range(5)]
            for _, writer in begun:
                writer.write(b"\x16\x03\x01")
            assert len(it.forebay.app._connections) == 0
            assert await _is_served(it)
            for reader, writer in (*silent, *begun):
                await _is_cut(reader)
                writer.close()
            assert it.ended("timed_out") == 10
            assert it.forebay.count("forebay_tls_handshakes") == 0

    @in_loop
    async def test_where_all_places_are_taken_the_next_is_closed_after_its_handshake(self, tmp_path: Path) -> None:
        async with secured(tmp_path, max_connections=1) as it:
            client = await it.client()
            client.send(echo(1))
            await client.receives(1)
            assert not await _is_served(it)
            assert it.forebay.count("forebay_frames_refused_total", "max_connections") == 1
            client.send(echo(2))
            await client.receives(2)

    @in_loop
    async def test_of_2000_that_fail_or_are_silent_nothing_is_left(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(handshakes_module, "TIMEOUT_S", 0.5)
        async with secured(tmp_path, client_auth="required") as it:
            await _wave(it, 100)
            gc.collect()
            before = _footprint()
            grown = []
            for _ in range(2):  # what is left behind would grow both times, the allocator's reserves do once
                memory = _footprint()["kilobytes"]
                for _ in range(10):
                    await _wave(it, 100)
                gc.collect()
                grown.append(_footprint()["kilobytes"] - memory)
            after = _footprint()
            assert sum(map(it.ended, ("failed", "not_tls", "timed_out", "client_left"))) == 2100
            assert it.forebay.count("forebay_tls_handshakes") == 0
            assert len(it.forebay.app._connections) == 0
            assert after["connections"] == before["connections"] == 0
            assert after["descriptors"] <= before["descriptors"] + 5
            assert min(grown) <= 1_000


async def _is_served(it: Secured, **how: Any) -> bool:
    """Whether a request is answered; where client certificates count, TLS 1.3's client hears late that it is out."""
    client = None
    try:
        client = await WireClient.connect(it.port, it.context(**how))
        client.send(echo(1))
        await client.receives(1)
    except (ssl.SSLError, ConnectionError, asyncio.IncompleteReadError):
        return False
    finally:
        if client is not None:
            client.close()
    return True


def _say_farewell(client: ssl.SSLSocket) -> None:
    """Without waiting for an answer."""
    client.settimeout(0)
    with pytest.raises(ssl.SSLWantReadError):
        client.unwrap()
    client.settimeout(30)


def _leave(client: ssl.SSLSocket) -> None:
    _say_farewell(client)
    client.close()


async def _is_cut(reader: asyncio.StreamReader) -> None:
    try:
        await soon(reader.read())
    except ConnectionError:
        pass


async def _wave(it: Secured, count: int) -> None:
    """Clients that do not get through: without a certificate, without TLS, silent, gone at once, gone half-way."""
    done = sum(map(it.ended, ("failed", "not_tls", "timed_out", "client_left")))
    silent = []
    for number in range(count):
        if number % 5 == 0:
            assert not await _is_served(it)
            continue
        reader, writer = await it.raw()
        if number % 5 == 1:
            writer.write(echo(1))
        elif number % 5 == 3:
            writer.write(b"\x16\x03\x01\x02\x00\x01")
        if number % 5 in (1, 2):
            silent.append((reader, writer))
        else:
            writer.close()
    for reader, writer in silent:
        await _is_cut(reader)
        writer.close()
    await until(lambda: sum(map(it.ended, ("failed", "not_tls", "timed_out", "client_left"))) == done + count)


def _footprint() -> dict[str, int]:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    kept = sum(isinstance(each, TlsConnection) for each in gc.get_objects())
    return {"kilobytes": pages * 4, "connections": kept, "descriptors": len(os.listdir("/proc/self/fd"))}
