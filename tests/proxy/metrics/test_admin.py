"""The admin endpoint, asked over HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest

from forebay_proxy.config.settings import HostPort
from forebay_proxy.errors import StartError
from forebay_proxy.metrics.admin import Admin
from forebay_proxy.metrics.clients_seen import SeenClient
from tests.kit.ports import free_port


class Proxy:
    """What the endpoint is told."""

    def __init__(self) -> None:
        self.unready: str | None = None
        self.unhealthy: str | None = None

    async def metrics(self) -> tuple[bytes, str]:
        return b"forebay_up 1\n", "text/plain; version=1.0.0; charset=utf-8"

    async def clients(self) -> list[SeenClient]:
        return [SeenClient("till-7", "10.0.0.1", None, None, 1, requests={1: 3})]


@asynccontextmanager
async def serving(proxy: Proxy) -> AsyncIterator[str]:
    admin = Admin(proxy.metrics, proxy.clients, lambda: proxy.unready, lambda: proxy.unhealthy)
    address = HostPort("127.0.0.1", free_port())
    await admin.start(address)
    try:
        yield f"http://{address}"
    finally:
        await admin.stop()


async def get(url: str) -> tuple[int, str, str]:
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return response.status, response.headers["Content-Type"], await response.text()


def test_metrics_pass_the_content_type_through() -> None:
    async def scenario() -> None:
        proxy = Proxy()
        async with serving(proxy) as url:
            status, content_type, body = await get(f"{url}/metrics")
        assert (status, body) == (200, "forebay_up 1\n")
        assert content_type == "text/plain; version=1.0.0; charset=utf-8"

    asyncio.run(scenario())


def test_clients_are_json() -> None:
    async def scenario() -> None:
        async with serving(Proxy()) as url:
            status, content_type, body = await get(f"{url}/clients")
        assert (status, content_type) == (200, "application/json; charset=utf-8")
        (row,) = json.loads(body)["clients"]
        assert (row["client_id"], row["requests"]) == ("till-7", {"Produce": {"1": 3}})

    asyncio.run(scenario())


@pytest.mark.parametrize("page", ["readyz", "healthz"])
def test_a_probe_follows_what_the_proxy_says(page: str) -> None:
    async def scenario() -> None:
        proxy = Proxy()
        async with serving(proxy) as url:
            assert (await get(f"{url}/{page}"))[0] == 200
            proxy.unready = proxy.unhealthy = "because"
            status, content_type, body = await get(f"{url}/{page}")
            assert status == 503
            assert content_type.startswith("application/json")
            assert '"reason": "because"' in body
            proxy.unready = proxy.unhealthy = None
            assert (await get(f"{url}/{page}"))[0] == 200

    asyncio.run(scenario())


def test_the_probes_are_independent() -> None:
    async def scenario() -> None:
        proxy = Proxy()
        proxy.unready = "no metadata yet"
        async with serving(proxy) as url:
            assert (await get(f"{url}/healthz"))[0] == 200
            assert (await get(f"{url}/readyz"))[0] == 503
            assert (await get(f"{url}/other"))[0] == 404

    asyncio.run(scenario())


def test_a_port_in_use_is_named() -> None:
    async def scenario() -> None:
        proxy = Proxy()
        async with serving(proxy) as url:
            port = int(url.rpartition(":")[2])
            admin = Admin(proxy.metrics, proxy.clients, lambda: None)
            with pytest.raises(StartError, match=rf"^admin = 127\.0\.0\.1:{port}: "):
                await admin.start(HostPort("127.0.0.1", port))
            await admin.stop()

    asyncio.run(scenario())


def test_after_the_end_nobody_listens() -> None:
    async def scenario() -> None:
        async with serving(Proxy()) as url:
            pass
        with pytest.raises(aiohttp.ClientConnectorError):
            await get(f"{url}/healthz")

    asyncio.run(scenario())
