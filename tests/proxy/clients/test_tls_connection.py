"""Clients that speak TLS, over real sockets, and those who begin to and do not go on."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from forebay_codecs.apis import PRODUCE
from tests.kit.app import running
from tests.kit.certificates import Authority
from tests.kit.event_loop import in_loop
from tests.kit.fake_broker import FakeCluster
from tests.kit.ports import LOOPBACK
from tests.kit.wire import batch, echo, metadata, null_key, produce


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@in_loop
async def test_a_client_is_served_through_tls_as_without(tmp_path: Path, version: ssl.TLSVersion) -> None:
    authority = Authority(tmp_path)
    tls = {"ssl_keystore_location": str(authority.issue("forebay", LOOPBACK))}
    async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap, tls=tls) as forebay:
        client = await forebay.client(0, authority.client_context(version=version))
        client.send(echo(1), metadata(2, "ponds"), produce(3, ("ponds", 0, batch(null_key("a")))))
        await client.receives(1, 2)
        (await cluster[0].receives(PRODUCE)).answer()
        await client.receives(3)
