"""All listeners of a process: what they need to open, what is said where they cannot, and that they close together."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from forebay_proxy.app import App
from forebay_proxy.errors import StartError
from forebay_proxy.metrics.registry import MetricRegistry
from tests.kit.app import NODES, running, settings, two_listeners
from tests.kit.certificates import Authority
from tests.kit.event_loop import in_loop, until
from tests.kit.fake_broker import FakeCluster
from tests.kit.ports import LOOPBACK, accepts, free_run


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
