"""The door of the admin endpoint, with real connections: who makes room for whom, and who has asked too late."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from forebay_proxy.logs import RateLimited, get_logger
from forebay_proxy.metrics import admin_door
from forebay_proxy.metrics.admin_door import AdminDoor
from forebay_proxy.security.tls import TlsSettings, server_context
from tests.kit.certificates import Authority
from tests.kit.event_loop import in_loop, soon, until
from tests.kit.ports import LOOPBACK

ASK = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Scene:
    """A server behind a door. Requests are answered at once, or, for /held, once `held` is set."""

    def __init__(self, ask_within_s: float, tls: TlsSettings | None) -> None:
        self.held = asyncio.Event()
        self.listening = socket.create_server((LOOPBACK, 0))
        context = None if tls is None else server_context(tls, "none")
        log = RateLimited(get_logger())
        self.door = AdminDoor([self.listening], web.Server(self.serve), context, log, ask_within_s)
        self.writers: list[asyncio.StreamWriter] = []

    async def serve(self, request: web.BaseRequest) -> web.Response:
        with self.door.asking(request.transport):
            if request.path == "/held":
                await self.held.wait()
            return web.Response()

    async def connect(self, source: str = LOOPBACK) -> Streams:
        streams = await asyncio.open_connection(*self.listening.getsockname(), local_addr=(source, 0))
        self.writers.append(streams[1])
        return streams


@asynccontextmanager
async def door(ask_within_s: float = 3600.0, tls: TlsSettings | None = None) -> AsyncIterator[Scene]:
    scene = Scene(ask_within_s, tls)
    try:
        yield scene
    finally:
        await scene.door.close()
        scene.door.clear()
        for writer in scene.writers:
            writer.close()


async def asked(streams: Streams, path: bytes = b"/") -> bytes:
    streams[1].write(ASK.replace(b"/", path, 1))
    return (await soon(streams[0].readuntil(b"\r\n\r\n")))[:12]


async def closed(streams: Streams) -> bool:
    """Returns once it is."""
    try:
        return await soon(streams[0].read()) == b""
    except ConnectionResetError:
        return True


@in_loop
async def test_who_asks_nothing_in_time_is_closed_and_who_has_asked_stays() -> None:
    async with door(ask_within_s=0.2) as scene:
        with capture_logs() as logs:
            talker = await scene.connect()
            assert await asked(talker) == b"HTTP/1.1 200"
            silent, slow = await scene.connect(), await scene.connect()
            slow[1].write(ASK[:-2])
            assert await closed(silent)
            assert await closed(slow)
            assert await asked(talker) == b"HTTP/1.1 200"
        assert {line["event"] for line in logs} == {"admin endpoint closes a connection that asks nothing"}


@in_loop
async def test_of_a_probe_that_only_connects_nothing_is_said() -> None:
    async with door(ask_within_s=0.1) as scene:
        with capture_logs() as logs:
            prober, silent = await scene.connect(), await scene.connect()
            prober[1].close()
            assert await closed(silent)
        assert len(logs) == 1


@in_loop
async def test_a_handshake_that_does_not_come_is_waited_for_as_long(tmp_path: Path) -> None:
    keystore = str(Authority(tmp_path).issue("admin", LOOPBACK))
    async with door(ask_within_s=0.2, tls=TlsSettings(("TLSv1.3",), keystore_location=keystore)) as scene:
        assert await closed(await scene.connect())


@in_loop
async def test_silent_connections_of_one_address_keep_nobody_else_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin_door, "MOST", 4)
    async with door() as scene:
        with capture_logs() as logs:
            scrape = await scene.connect("127.0.0.2")
            assert await asked(scrape) == b"HTTP/1.1 200"
            crowd = [await scene.connect() for _ in range(6)]
            assert await closed(crowd[0])
            probe = await scene.connect("127.0.0.3")
            assert await asked(probe) == b"HTTP/1.1 200"
            assert await asked(scrape) == b"HTTP/1.1 200"
            assert len(scene.door._guests) == 4
        assert "admin endpoint is full: an idle connection is closed" in {line["event"] for line in logs}


@in_loop
async def test_one_that_is_being_answered_makes_room_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin_door, "MOST", 2)
    async with door() as scene:
        first, second = await scene.connect(), await scene.connect()
        for each in (first, second):
            each[1].write(ASK.replace(b"/", b"/held", 1))
        await until(lambda: [guest.requests for guest in scene.door._guests.values()] == [1, 1])
        with capture_logs() as logs:
            assert await closed(await scene.connect())
        assert [line["event"] for line in logs] == ["admin endpoint is full: a connection is refused"]
        scene.held.set()
        assert await soon(first[0].readuntil(b"\r\n\r\n"))
        first[1].close()
        await until(lambda: any(guest.gone for guest in scene.door._guests.values()))
        assert await asked(await scene.connect()) == b"HTTP/1.1 200"


def test_clients_are_left_the_descriptors_that_the_door_does_not_take() -> None:
    from forebay_proxy.clients.descriptors import RESERVED

    assert admin_door.MOST < RESERVED
