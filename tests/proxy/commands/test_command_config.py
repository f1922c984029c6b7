"""A file of Kafka's clients, as commands take it; and a listener with TLS reached by what it says."""

from __future__ import annotations

import asyncio
import socket
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from forebay_proxy.commands import admin_endpoint
from forebay_proxy.commands.admin_endpoint import AdminError, by_url, discover
from forebay_proxy.commands.command_config import read
from forebay_proxy.config.settings import HostPort
from forebay_proxy.errors import StartError
from tests.kit.app import NODES, running
from tests.kit.certificates import Authority
from tests.kit.event_loop import in_loop
from tests.kit.fake_broker import FakeCluster
from tests.kit.ports import LOOPBACK


def written(folder: Path, *lines: str, mode: int = 0o600) -> str:
    path = folder / "client.properties"
    path.write_text("\n".join(lines))
    path.chmod(mode)
    return str(path)


def test_without_a_file_connections_are_plain() -> None:
    config = read(None)
    assert config.context is None
    assert not config.token


def test_a_clients_file_with_settings_that_are_not_for_this(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    lines = ("security.protocol=SSL", f"ssl.truststore.location={authority.pem}", "ssl.truststore.type=PEM", "acks=all")
    config = read(written(tmp_path, *lines, "admin.bearer.token=${env:T}"), {"T": "canary-1"})
    assert config.context is not None
    assert config.token.reveal() == "canary-1"
    assert "canary" not in repr(config)


def test_a_file_with_a_login_does_without_it(tmp_path: Path) -> None:
    """Listeners that say where the endpoint is ask for none."""
    login = ("sasl.mechanism=GSSAPI", "sasl.jaas.config=${file:/none.properties:x}")
    assert read(written(tmp_path, "security.protocol=SASL_SSL", *login)).context is not None
    assert read(written(tmp_path, "security.protocol=SASL_PLAINTEXT", *login)).context is None


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("ssl.truststore.location=/none.pem", "/none.pem cannot be read"),
        ("ssl.trustore.location=/none.pem", "did you mean ssl.truststore.location"),
        ("admin.bearer.token=${env:NONE}", "NONE, which is not set"),
    ],
)
def test_what_is_wrong_is_one_line(tmp_path: Path, line: str, why: str) -> None:
    with pytest.raises(StartError, match=why.replace(".", r"\.")):
        read(written(tmp_path, line), {})


@in_loop
async def test_forebay_is_found_by_a_listener_with_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    told = {"ssl_keystore_location": str(authority.issue("forebay", LOOPBACK))}
    admin = {
        "admin": HostPort("0.0.0.0", 9999),
        "admin_ssl_keystore_location": told["ssl_keystore_location"],
    }
    trusting = read(written(tmp_path, "security.protocol=SASL_SSL", f"ssl.truststore.location={authority.pem}"))
    async with FakeCluster({}) as cluster, running(cluster.bootstrap, tls=told, **admin) as forebay:
        server = HostPort(LOOPBACK, forebay.port + 1 + NODES)
        assert await asyncio.to_thread(discover, [server], trusting) == f"https://{LOOPBACK}:9999"
        strangers = read(written(tmp_path, "security.protocol=SSL"))
        with pytest.raises(AdminError, match="the certificate is not accepted"):
            await asyncio.to_thread(discover, [server], strangers)


@in_loop
async def test_without_tls_it_is_named_by_its_address_which_it_takes_for_its_own() -> None:
    admin = {"admin": HostPort("0.0.0.0", 9999), "admin_unprotected": True}
    async with FakeCluster({}) as cluster, running(cluster.bootstrap, **admin) as forebay:
        server = HostPort("localhost", forebay.port)
        assert await asyncio.to_thread(discover, [server], read(None)) == f"http://{LOOPBACK}:9999"


@in_loop
async def test_a_token_goes_to_no_host_that_was_not_asked_where_anybody_may_have_named_it(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    own = str(authority.issue("forebay", LOOPBACK))
    admin = {"admin": HostPort("forebay.test", 9999), "admin_ssl_keystore_location": own, "admin_unprotected": True}
    secret, trusts = "admin.bearer.token=canary", f"ssl.truststore.location={authority.pem}"
    async with (
        FakeCluster({}) as cluster,
        running(cluster.bootstrap, **admin) as plain,
        running(cluster.bootstrap, tls={"ssl_keystore_location": own}, **admin) as secured,
    ):
        server = HostPort(LOOPBACK, plain.port)
        assert await asyncio.to_thread(discover, [server], read(None)) == "https://forebay.test:9999"
        with pytest.raises(AdminError, match=r"says without TLS: .* give --url https://forebay\.test:9999$"):
            await asyncio.to_thread(discover, [server], read(written(tmp_path, secret)))
        server = HostPort(LOOPBACK, secured.port + 1 + NODES)
        proved = read(written(tmp_path, "security.protocol=SSL", trusts, secret))
        assert await asyncio.to_thread(discover, [server], proved) == "https://forebay.test:9999"


def test_whom_a_port_hides_is_a_host_that_was_not_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin_endpoint, "_ask", lambda *_: ("https://localhost:9999@forebay.test", LOOPBACK, True))
    with pytest.raises(AdminError, match="says without TLS"):
        discover([HostPort("localhost", 1)], read(written(tmp_path, "admin.bearer.token=canary")))


@pytest.mark.parametrize(
    ("asked", "named", "url"),
    [
        ("2001:db8::1", "https://0.0.0.0:9999", "https://[2001:db8::1]:9999"),
        ("Forebay.test.", "https://forebay.test:9999", "https://forebay.test:9999"),
    ],
)
def test_the_host_that_was_asked_is_known_however_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: str, named: str, url: str
) -> None:
    monkeypatch.setattr(admin_endpoint, "_ask", lambda *_: (named, "2001:db8::1", False))
    assert discover([HostPort(asked, 1)], read(written(tmp_path, "admin.bearer.token=canary"))) == url


@pytest.mark.parametrize(
    ("url", "sent"),
    [
        ("http://forebay.test:9999", False),
        ("forebay.test:9999", False),
        ("http://localhost:9999@forebay.test", False),
        ("https://forebay.test:9999", True),
        (f"http://{LOOPBACK}:9999", True),
        ("[::1]:9999", True),
    ],
)
def test_a_token_is_sent_where_it_stays_unseen(tmp_path: Path, url: str, sent: bool) -> None:
    config = read(written(tmp_path, "admin.bearer.token=canary"))
    assert by_url(url, config)._headers == ({"Authorization": "Bearer canary"} if sent else {})


@pytest.mark.parametrize("admin", ["0.0.0.0", LOOPBACK])
@in_loop
async def test_a_token_goes_to_the_host_that_was_asked_and_to_this_one(tmp_path: Path, admin: str) -> None:
    own = str(Authority(tmp_path).issue("forebay", LOOPBACK))
    told = {"admin": HostPort(admin, 9999), "admin_ssl_keystore_location": own, "admin_unprotected": True}
    async with FakeCluster({}) as cluster, running(cluster.bootstrap, **told) as forebay:
        config = read(written(tmp_path, "admin.bearer.token=canary"))
        found = await asyncio.to_thread(discover, [HostPort("localhost", forebay.port)], config)
        assert found == f"https://{'localhost' if admin == '0.0.0.0' else admin}:9999"


class Told(socket.socket):
    """A connection that looks like one from `own` to 192.0.2.1."""

    own: str

    def getpeername(self) -> tuple[str, int]:
        return "192.0.2.1", 19092

    def getsockname(self) -> tuple[str, int]:
        return self.own, 40000


@pytest.mark.parametrize("admin", [LOOPBACK, "::1", "localhost"])
@in_loop
async def test_one_for_another_host_alone_is_not_looked_for_on_this_one(
    monkeypatch: pytest.MonkeyPatch, admin: str
) -> None:
    plain = admin_endpoint._connect

    def connect(*how: Any) -> Told:
        connection = Told(fileno=plain(*how).detach())
        connection.settimeout(10)
        return connection

    async with FakeCluster({}) as cluster, running(cluster.bootstrap, admin=HostPort(admin, 9999)) as forebay:
        asking = partial(asyncio.to_thread, discover, [HostPort(LOOPBACK, forebay.port)], read(None))
        assert await asking() == f"http://{HostPort(admin, 9999)}"
        monkeypatch.setattr(admin_endpoint, "_connect", connect)
        Told.own = "192.0.2.1"  # by an address of this host that others reach, too
        assert await asking() == f"http://{HostPort(admin, 9999)}"
        Told.own = "192.0.2.2"
        with pytest.raises(
            AdminError, match=r":9999, where only its own host reaches it: run this there, or give --url$"
        ):
            await asking()


@in_loop
async def test_whoever_answers_in_tls_where_it_was_not_asked_for_is_told_apart() -> None:
    async def alerts(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(bytes((0x15, 3, 3, 0, 2, 2, 70)))

    async with await asyncio.start_server(alerts, LOOPBACK, 0) as server:
        asked = HostPort(LOOPBACK, server.sockets[0].getsockname()[1])
        with pytest.raises(AdminError, match=f"{asked}: it answers in TLS: set security.protocol=SSL or SASL_SSL in"):
            await asyncio.to_thread(discover, [asked], read(None))
