"""Whoever sends no proper HTTP to the admin endpoint neither floods the log nor gets secrets into it."""

from __future__ import annotations

import asyncio
import io
import json
from typing import Any

import pytest

from forebay_proxy.config.settings import HostPort
from forebay_proxy.logs import RateLimited, configure, get_logger
from forebay_proxy.metrics.admin import Admin
from forebay_proxy.metrics.admin_log import admin_log
from tests.kit.app import settings
from tests.kit.event_loop import in_loop, soon
from tests.kit.own_logs import own_logs
from tests.kit.ports import LOOPBACK, free_port

TOKEN = "canary-token-1"


def lines(out: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.getvalue().splitlines()]


@pytest.mark.parametrize(
    "sent",
    [
        f"GET /metrics HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\x01\r\n\r\n",
        f"GET /metrics HTTP/1.1\r\nHost: x\r\nAuthorization : Bearer {TOKEN}\r\n\r\n",
        f"GET /metrics HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer\r {TOKEN}\r\n\r\n",
        f"GET /metrics HTTP/1.1\nHost: x\nAuthorization: Bearer {TOKEN}\n\n",
        f"GET /{TOKEN} NOTHTTP\r\n\r\n",
        f"GET /healthz HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n{TOKEN}\r\n",
    ],
)
@in_loop
async def test_what_is_no_http_is_told_a_few_times_and_never_quoted(sent: str) -> None:
    out = io.StringIO()

    async def metrics() -> tuple[bytes, str]:
        return b"", "text/plain"

    async def ask(port: int) -> None:
        reader, writer = await asyncio.open_connection(LOOPBACK, port)
        writer.write(sent.encode())
        writer.write_eof()
        await soon(reader.read())
        writer.close()

    async def clients() -> list[Any]:
        return []

    with own_logs():
        configure("warning", "json", out)
        admin = Admin(metrics, clients, lambda: None)
        address = HostPort(LOOPBACK, free_port())
        await admin.start(settings((), 1, admin=address))
        for _ in range(20):
            await ask(address.port)
        await admin.stop()
    assert TOKEN not in out.getvalue()
    assert 1 <= len(lines(out)) <= 5
    for line in lines(out):
        assert (line["event"], line["client"]) == ("admin endpoint cannot read a request", LOOPBACK)


def test_a_fault_of_ours_is_told_whole_but_seldom() -> None:
    out = io.StringIO()
    with own_logs():
        configure("warning", "json", out)
        logger = admin_log(RateLimited(get_logger(), max_events=2))
        for _ in range(9):
            try:
                raise ValueError("broken")
            except ValueError:
                logger.exception("Error handling request from %s", LOOPBACK)
    first, _ = lines(out)
    assert first["event"] == "admin endpoint fails at a request"
    assert first["message"] == f"Error handling request from {LOOPBACK}"
    assert "ValueError: broken" in first["exception"]
