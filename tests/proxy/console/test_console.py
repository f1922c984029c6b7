"""All of it together, as the process with the admin endpoint has it."""

from __future__ import annotations

import asyncio

import pytest
import structlog
from aiohttp import web

from forebay_proxy.config.settings import HostPort
from forebay_proxy.console.api import NOTHING_TOLD, PREFIX
from forebay_proxy.console.console import Console
from forebay_proxy.metrics.registry import Snapshot
from tests.kit.app import settings
from tests.kit.event_loop import in_loop, until
from tests.proxy.console.seen import FakeSource


def console(source: FakeSource) -> Console:
    return Console(settings((), 1, admin=HostPort("127.0.0.1", 1)), source, NOTHING_TOLD, lambda: None)


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
    assert {"/", f"{PREFIX}overview", f"{PREFIX}stream"} <= served


@in_loop
async def test_a_fault_of_its_own_is_logged_and_harms_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    source = FakeSource()

    def broken() -> Snapshot:
        raise ZeroDivisionError

    monkeypatch.setattr(source, "now", broken)
    with structlog.testing.capture_logs() as lines:
        await console(source).run()
    assert [line["event"] for line in lines] == ["the page's numbers have stopped"]
