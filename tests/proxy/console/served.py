"""The admin endpoint with a Console of what a test says is there, over HTTP."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from forebay_proxy.config.settings import HostPort
from forebay_proxy.console.api import Api, Told
from forebay_proxy.console.origin import OwnHosts
from forebay_proxy.metrics.admin import Admin
from forebay_proxy.metrics.clients_seen import SeenClient
from tests.kit.app import settings
from tests.kit.ports import LOOPBACK, free_port
from tests.proxy.console.seen import Seen

CONFIG: list[dict[str, Any]] = [
    {"name": "linger.ms", "value": 5, "origin": "--set"},
    {"name": "acks", "value": 1, "origin": "default"},
]


class Served:
    def __init__(self, seen: Seen, port: int) -> None:
        self.seen = seen
        self.url = f"http://{LOOPBACK}:{port}"
        self.unready: str | None = None

    async def get(self, path: str, **headers: str) -> tuple[int, Any]:
        async with aiohttp.ClientSession() as session, session.get(self.url + path, headers=headers) as response:
            body = await response.text()
            return response.status, json.loads(body) if body.startswith(("{", "[")) else body


async def _nobody() -> list[SeenClient]:
    return []


@asynccontextmanager
async def served(seen: Seen, **changed: Any) -> AsyncIterator[Served]:
    """`changed`: settings of the endpoint."""
    port = free_port()
    told = Served(seen, port)

    async def metrics() -> tuple[bytes, str]:
        return b"", "text/plain; charset=utf-8"

    api = Api(
        seen.collector,
        Told(CONFIG, lambda client_id, topic: {"text": f"{client_id} {topic}"}),
        OwnHosts(LOOPBACK, ("forebay.example.net",)),
        lambda: told.unready,
        2,
        seen.clock,
    )
    admin = Admin(metrics, _nobody, lambda: told.unready, more=api)
    await admin.start(settings((), 1, admin=HostPort(LOOPBACK, port), **changed))
    try:
        yield told
    finally:
        await admin.stop()
