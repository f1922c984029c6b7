"""All of it together, as the process with the admin endpoint has it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp
import pytest
import structlog
from aiohttp import web

from forebay_proxy.config.settings import HostPort
from forebay_proxy.console.api import NOTHING_TOLD
from forebay_proxy.console.console import Console
from forebay_proxy.console.entry import PREFIX
from forebay_proxy.metrics.admin import Admin
from forebay_proxy.metrics.clients_seen import SeenClient
from forebay_proxy.metrics.registry import Snapshot
from tests.kit.app import settings
from tests.kit.event_loop import in_loop, until
from tests.proxy.console.seen import FakeSource
from tests.proxy.console.served import FakeControl


def console(source: FakeSource) -> Console:
    told = settings((), 1, admin=HostPort("127.0.0.1", 1))
    return Console(told, source, NOTHING_TOLD, lambda: None, FakeControl())


@in_loop
async def test_it_looks_while_it_runs() -> None:
    made = console(FakeSource())
    running = asyncio.create_task(made.run())
    await until(lambda: made.seen.second > 0)
    running.cancel()


def test_the_page_is_open_and_the_api_is_not() -> None:
    made = console(FakeSource())
    assert "/" in made.open_paths
    assert not any(path.startswith(PREFIX) for path in made.open_paths)
    app = web.Application()
    made.mount(app)
    served = {resource.canonical for resource in app.router.resources()}
    assert {"/", f"{PREFIX}overview", f"{PREFIX}stream", f"{PREFIX}reload"} <= served


@in_loop
async def test_a_fault_of_its_own_is_logged_and_harms_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    source = FakeSource()

    def broken() -> Snapshot:
        raise ZeroDivisionError

    monkeypatch.setattr(source, "now", broken)
    with structlog.testing.capture_logs() as lines:
        await console(source).run()
    assert [line["event"] for line in lines] == ["the page's numbers have stopped"]


@in_loop
async def test_with_a_socket_alone_it_is_there_as_well(tmp_path: Path) -> None:
    told = settings((), 1, admin_socket=str(tmp_path / "s"))
    made = Console(told, FakeSource(), NOTHING_TOLD, lambda: None, FakeControl())
    admin = Admin(metrics, clients, lambda: None, more=made)
    await admin.start(told)
    try:
        connector = aiohttp.UnixConnector(told.admin_socket)
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.get(f"http://localhost{PREFIX}overview") as response,
        ):
            assert response.status == 200
    finally:
        await admin.stop()


async def metrics() -> tuple[bytes, str]:
    return b"", "text/plain"


async def clients() -> list[SeenClient]:
    return []
