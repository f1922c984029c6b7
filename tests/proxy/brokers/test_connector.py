"""Every connection to a broker is secured as the settings say, and what fails is told in one line."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from forebay_codecs.apis import PRODUCE
from forebay_proxy.brokers.connector import Connector
from forebay_proxy.errors import StartError
from forebay_proxy.metrics.registry import MetricRegistry
from forebay_proxy.security.tls import TlsSettings, server_context
from tests.kit.app import settings
from tests.kit.certificates import Authority
from tests.kit.event_loop import in_loop, soon
from tests.kit.fake_broker import FakeCluster
from tests.kit.ports import LOOPBACK

BOTH = ("TLSv1.2", "TLSv1.3")


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

    class Made(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport = transport

    async with tls_cluster(authority, LOOPBACK) as cluster:
        protocol = Made()
        await soon(connector(cluster, authority).connect(LOOPBACK, cluster[0].port, protocol))
        assert protocol.transport.get_extra_info("sslcontext") is not None
        protocol.transport.close()


@in_loop
async def test_a_certificate_that_does_not_hold_is_named_in_one_line(tmp_path: Path) -> None:
    authority, other = (Authority(folder) for folder in (tmp_path / "own", tmp_path / "other") if not folder.mkdir())
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
async def test_stores_that_cannot_be_used_keep_it_from_starting(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    with pytest.raises(StartError, match=r"ssl\.truststore\.location: .*/none\.pem cannot be read: No such file"):
        connector(FakeCluster({}), authority, ssl_truststore_location=str(tmp_path / "none.pem"))
