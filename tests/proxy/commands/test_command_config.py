"""A file of Kafka's clients, as commands take it; and a listener with TLS reached by what it says."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from forebay_proxy.commands.clients import ClientsError, discover
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


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("security.protocol=SASL_SSL", "security.protocol = SASL_SSL: this command speaks PLAINTEXT and SSL"),
        ("security.protocol=tls", "must be one of PLAINTEXT"),
        ("ssl.truststore.type=JKS", "must be PEM"),
        ("ssl.truststore.location=/none.pem", "/none.pem cannot be read"),
        ("admin.bearer.token=${env:NONE}", "NONE, which is not set"),
        ("admin.bearer.token=${file:/none.properties:x}", "cannot be read"),
        ("a=\\uXY", "is no .properties file"),
    ],
)
def test_what_is_wrong_is_one_line(tmp_path: Path, line: str, why: str) -> None:
    with pytest.raises(StartError, match=why.replace(".", r"\.")):
        read(written(tmp_path, line), {})


def test_a_secret_that_others_can_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StartError, match=r"chmod o-rwx") as error:
        read(written(tmp_path, "admin.bearer.token=canary-1", mode=0o644))
    assert "canary" not in str(error.value)
    with pytest.raises(StartError, match="cannot be read"):
        read(str(tmp_path / "none"))


@in_loop
async def test_forebay_is_found_by_a_listener_with_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    told = {"ssl_keystore_location": str(authority.issue("forebay", LOOPBACK))}
    admin = {
        "admin": HostPort("0.0.0.0", 9999),
        "admin_ssl_keystore_location": told["ssl_keystore_location"],
    }
    trusting = read(written(tmp_path, "security.protocol=SSL", f"ssl.truststore.location={authority.pem}"))
    async with FakeCluster({}) as cluster, running(cluster.bootstrap, tls=told, **admin) as forebay:
        server = HostPort(LOOPBACK, forebay.port + 1 + NODES)
        assert await asyncio.to_thread(discover, [server], trusting) == f"https://{LOOPBACK}:9999"
        strangers = read(written(tmp_path, "security.protocol=SSL"))
        with pytest.raises(ClientsError, match="the certificate is not accepted"):
            await asyncio.to_thread(discover, [server], strangers)
