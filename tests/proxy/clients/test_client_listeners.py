"""All listeners of a process: what they need to open, what is said where they cannot, and that they close together."""

from __future__ import annotations

import math
import ssl
from pathlib import Path
from typing import Any

import pytest

from forebay_proxy.app import App
from forebay_proxy.config.secret import Secret
from forebay_proxy.errors import StartError
from forebay_proxy.metrics.registry import MetricRegistry
from forebay_proxy.security import pem
from tests.kit.app import NODES, running, settings, two_listeners
from tests.kit.certificates import Authority
from tests.kit.event_loop import in_loop, until
from tests.kit.fake_broker import FakeCluster
from tests.kit.ports import LOOPBACK, accepts, free_run
from tests.kit.wire import echo


def told(folder: Path, **changed: Any) -> dict[str, Any]:
    return {"ssl_keystore_location": str(Authority(folder).issue("forebay", LOOPBACK)), **changed}


@in_loop
async def test_brokers_have_a_port_on_every_listener_and_all_of_them_close(tmp_path: Path) -> None:
    async with FakeCluster({"ponds": [0, 1]}, nodes=2) as cluster, running(cluster.bootstrap, tls=told(tmp_path)) as it:
        first, second = it.port, it.port + 1 + NODES
        ports = [first, first + 1, first + 2, second, second + 1, second + 2]
        assert [accepts(port) for port in ports] == [True] * 6
        await it.app.drain()
        await until(lambda: not any(map(accepts, ports)))


@in_loop
async def test_stores_may_be_text_and_suites_are_chosen(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    own = authority.issue("forebay", LOOPBACK).read_text()
    texts: dict[str, Any] = {
        "ssl_keystore_certificate_chain": pem.certificates("", own),
        "ssl_keystore_key": Secret(pem.private_key("", own)),
        "ssl_truststore_certificates": authority.pem.read_text(),
        "ssl_client_auth": "required",
        "ssl_cipher_suites": ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",),
    }
    async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap, tls=texts) as forebay:
        known = await forebay.client(tls=authority.client_context(authority.issue("client", subject="till")))
        known.send(echo(1))
        assert (await known.receive()).correlation_id == 1
        context = authority.client_context()
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers("ECDHE-ECDSA-AES128-GCM-SHA256")
        with pytest.raises(ssl.SSLError):
            await forebay.client(tls=context)


@pytest.mark.parametrize(
    ("file", "why"),
    [
        (None, "cannot be read"),
        (b"\xfe\xed\xfe\xed", "keytool -importkeystore"),
        (b"0\x82\x09\x01", "openssl pkcs12"),
        (b"nothing of the kind", "no certificate"),
    ],
)
@in_loop
async def test_a_keystore_that_is_none_is_said_in_words_with_the_settings_name(
    tmp_path: Path, file: bytes | None, why: str
) -> None:
    path = tmp_path / "keystore"
    if file is not None:
        path.write_bytes(file)
        path.chmod(0o600)
    port = free_run(2 * (1 + NODES))
    listeners = two_listeners(port, ssl_keystore_location=str(path))
    app = App(settings(((LOOPBACK, 1),), port, **listeners), MetricRegistry())  # type: ignore[arg-type]
    with pytest.raises(StartError, match=f"listener.name.ssl.ssl.keystore.location: .*{why}"):
        await app.start()
    assert not accepts(port)  # nothing was opened
    app.abort()


@in_loop
async def test_a_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    keystore = Authority(tmp_path).issue("forebay", LOOPBACK, private=False)
    port = free_run(2 * (1 + NODES))
    listeners = two_listeners(port, ssl_keystore_location=str(keystore))
    stats = MetricRegistry()
    app = App(settings(((LOOPBACK, 1),), port, **listeners), stats)  # type: ignore[arg-type]
    with pytest.raises(StartError, match="chmod o-rwx"):
        await app.start()
    assert stats.value("forebay_certificate_expiry_timestamp_seconds", side="client") == math.inf  # and can be told
    app.abort()
