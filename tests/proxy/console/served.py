"""The admin endpoint with a Console of what a test says is there, over HTTP."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from aiohttp import web

from forebay_proxy.config.settings import HostPort
from forebay_proxy.console.api import Api, Told
from forebay_proxy.console.changes import Changes
from forebay_proxy.console.entry import Entry
from forebay_proxy.errors import StartError
from forebay_proxy.metrics.admin import Admin
from forebay_proxy.metrics.clients_seen import SeenClient
from forebay_proxy.metrics.own_hosts import OwnHosts
from tests.kit.app import settings
from tests.kit.ports import LOOPBACK, free_port
from tests.proxy.console.seen import Seen

CONFIG: list[dict[str, Any]] = [
    {"name": "linger.ms", "value": 5, "origin": "--set"},
    {"name": "acks", "value": 1, "origin": "default"},
]


OVERRIDE: dict[str, Any] = {"name": "linger.ms", "value": "5", "reason": "a test", "expires_at": 1_000_000.0}


class FakeControl:
    """Does what it is told, and notes it; refuses while it `refuses`."""

    def __init__(self) -> None:
        self.refuses = ""
        self.done: list[Any] = []

    def _did(self, *what: Any) -> None:
        if self.refuses:
            raise StartError(self.refuses)
        self.done.append(what)

    async def reload(self) -> dict[str, Any]:
        self._did("reload")
        return {"generation": 2, "changes": {"topics.include": "* → a"}}

    def overrides(self) -> list[dict[str, Any]]:
        return [OVERRIDE]

    async def override(self, settings: Mapping[str, object], reason: str, for_s: float | None) -> list[dict[str, Any]]:
        if reason == "none":
            raise ValueError("a reason must be given")
        self._did("override", settings, reason, for_s)
        return [OVERRIDE]

    async def restore(self, name: str) -> list[dict[str, Any]]:
        if name != "linger.ms":
            raise LookupError(f"{name} is not overridden")
        self._did("restore", name)
        return []

    async def avoid(self, node_id: int, reason: str, for_s: float | None) -> list[dict[str, Any]]:
        if node_id != 3:
            raise LookupError(f"broker {node_id} is not known")
        self._did("avoid", node_id, reason, for_s)
        return [OVERRIDE]

    async def restart(self) -> dict[str, Any]:
        self._did("restart")
        return {"process": 4711}

    async def no_longer_avoid(self, node_id: int) -> list[dict[str, Any]]:
        if node_id != 3:
            raise LookupError(f"broker {node_id} is not avoided")
        self._did("no longer avoid", node_id)
        return []

    async def drained(self, node_id: int) -> dict[str, Any]:
        if node_id != 3:
            raise LookupError(f"broker {node_id} is not known")
        return {"queued_bytes": 5, "in_flight_requests": 1, "drained": False}

    async def dump(self) -> dict[str, Any]:
        return {"workers": []}


class All:
    """The Api and the Changes, as the console mounts them."""

    def __init__(self, api: Api, changes: Changes) -> None:
        self.open_paths = api.open_paths
        self._parts = api, changes

    def mount(self, app: web.Application) -> None:
        for part in self._parts:
            part.mount(app)


class Served:
    def __init__(self, seen: Seen, port: int) -> None:
        self.seen = seen
        self.url = f"http://{LOOPBACK}:{port}"
        self.unready: str | None = None
        self.control = FakeControl()
        self.socket = ""

    async def ask(
        self, method: str, path: str, body: bytes = b"{}", *, by_socket: bool = False, **headers: str
    ) -> tuple[int, Any]:
        """With JSON, unless a header says otherwise."""
        connector = aiohttp.UnixConnector(self.socket) if by_socket else aiohttp.TCPConnector()
        headers = {"Content-Type": "application/json", **{name.replace("_", "-"): v for name, v in headers.items()}}
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.request(method, self.url + path, data=body, headers=headers) as response,
        ):
            told = await response.text()
            return response.status, json.loads(told) if told.startswith("{") else told

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

    entry = Entry(OwnHosts(LOOPBACK, ("forebay.example.net",)))
    api = Api(
        seen.collector,
        Told(CONFIG, lambda client_id, topic: {"text": f"{client_id} {topic}"}),
        entry,
        lambda: told.unready,
        2,
        seen.clock,
    )
    told.socket = changed.get("admin_socket", "")
    admin = Admin(metrics, _nobody, lambda: told.unready, more=All(api, Changes(entry, told.control)))
    await admin.start(settings((), 1, admin=HostPort(LOOPBACK, port), **changed))
    try:
        yield told
    finally:
        await admin.stop()
