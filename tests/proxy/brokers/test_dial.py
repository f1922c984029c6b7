"""Each address of a name gets its own chance."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final, cast

import pytest
import uvloop

from forebay_proxy.brokers.dial import dial
from forebay_proxy.brokers.tried_addresses import TriedAddresses
from tests.kit.certificates import Authority, server_context
from tests.kit.event_loop import in_loop, soon, until
from tests.kit.ports import LOOPBACK, free_port

MANY: Final = 20_000_000
"""Bytes, beyond what the system keeps of a connection."""


def named(*addresses: str) -> Any:
    """A resolver that knows one name."""

    async def getaddrinfo(host: str, port: int, **how: Any) -> list[tuple[Any, ...]]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

    return getaddrinfo


class Resolving:
    """The running loop, with names of the test's own; `silent` addresses swallow what is sent to them."""

    def __init__(self, addresses: tuple[str, ...], silent: tuple[str, ...]) -> None:
        self._loop = asyncio.get_running_loop()
        self._silent = silent
        self.getaddrinfo = named(*addresses)
        self.tried: list[str] = []

    async def create_connection(self, make: Any, host: str, port: int) -> Any:
        self.tried.append(host)
        if host in self._silent:
            await self._loop.create_future()
        return await self._loop.create_connection(make, host, port)


@in_loop
async def test_an_address_that_is_silent_costs_its_own_time_only(monkeypatch: pytest.MonkeyPatch) -> None:
    async with await asyncio.start_server(lambda reader, writer: None, LOOPBACK, 0) as server:
        port = server.sockets[0].getsockname()[1]
        loop = Resolving(("192.0.2.1", "192.0.2.1", "192.0.2.2", LOOPBACK), ("192.0.2.1", "192.0.2.2"))
        monkeypatch.setattr(asyncio, "get_running_loop", lambda: loop)
        made: list[asyncio.Protocol] = []

        def make() -> asyncio.Protocol:
            made.append(asyncio.Protocol())
            return made[-1]

        await dial("kafka.example", port, 0.05, make)
        monkeypatch.undo()
        assert loop.tried == ["192.0.2.1", "192.0.2.2", LOOPBACK]
        assert len(made) == 1


@in_loop
async def test_a_protocol_may_close_it_as_soon_as_it_stands() -> None:
    class Leaves(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            transport.close()

    async with await asyncio.start_server(lambda reader, writer: None, LOOPBACK, 0) as server:
        await dial(LOOPBACK, server.sockets[0].getsockname()[1], 5.0, Leaves)


@in_loop
async def test_what_was_written_before_the_end_reaches_one_who_reads_it_late_with_tls_too(tmp_path: Path) -> None:
    transports: list[asyncio.Transport] = []
    arrived = bytearray()

    class Server(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            transports.append(cast(asyncio.Transport, transport))
            transports[0].pause_reading()

        def data_received(self, data: bytes) -> None:
            arrived.extend(data)

    class Leaves(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            cast(asyncio.Transport, transport).write(bytes(MANY))
            transport.close()

    authority = Authority(tmp_path)
    theirs = server_context(authority.issue("kafka", LOOPBACK))
    server = await asyncio.get_running_loop().create_server(Server, LOOPBACK, 0, ssl=theirs)
    async with server:
        await dial(LOOPBACK, server.sockets[0].getsockname()[1], 5.0, Leaves, authority.client_context())
        await asyncio.sleep(1.1)  # an end to this patience came after a second
        transports[0].resume_reading()
        await until(lambda: len(arrived) == MANY)


@in_loop
async def test_where_none_answers_the_last_error_is_told_with_the_address() -> None:
    port = free_port()
    with pytest.raises(ConnectionRefusedError, match=rf"127\.0\.0\.1:{port} \(127\.0\.0\.1\): .*refused"):
        await soon(dial(LOOPBACK, port, 5.0, asyncio.Protocol))


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_the_error_is_in_the_system_s_words_whatever_the_loop(run: Callable[[Coroutine[Any, Any, str]], str]) -> None:
    """asyncio, by which commands ask brokers, has words of its own."""
    port = free_port()
    with pytest.raises(ConnectionRefusedError) as error:
        run(dial(LOOPBACK, port, 5.0, asyncio.Protocol))
    assert str(error.value) == f"{LOOPBACK}:{port} ({LOOPBACK}): Connection refused"


@in_loop
async def test_a_name_that_nobody_knows_is_told_with_its_port(monkeypatch: pytest.MonkeyPatch) -> None:
    async def getaddrinfo(host: str, port: int, **how: Any) -> list[tuple[Any, ...]]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    loop = Resolving((), ())
    loop.getaddrinfo = getaddrinfo
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: loop)
    with pytest.raises(socket.gaierror, match=r"kafka\.example:9092: Name or service not known"):
        await dial("kafka.example", 9092, 5.0, asyncio.Protocol)


@in_loop
async def test_a_name_server_that_is_silent_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Resolving((), ())

    async def silent(host: str, port: int, **how: Any) -> list[tuple[Any, ...]]:
        return await asyncio.Future()

    loop.getaddrinfo = silent
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: loop)
    dialling = asyncio.ensure_future(dial("kafka.example", 9092, 0.05, asyncio.Protocol))
    await until(dialling.done)
    assert isinstance(dialling.exception(), TimeoutError)


@in_loop
async def test_silence_is_told_as_a_timeout_with_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Resolving(("192.0.2.1",), ("192.0.2.1",))
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: loop)
    with pytest.raises(TimeoutError, match=r"kafka\.example:9092 \(192\.0\.2\.1\) did not answer within 0\.01 s"):
        await dial("kafka.example", 9092, 0.01, asyncio.Protocol)


@in_loop
async def test_an_address_that_was_silent_is_tried_last_from_then_on(monkeypatch: pytest.MonkeyPatch) -> None:
    async with await asyncio.start_server(lambda reader, writer: None, LOOPBACK, 0) as server:
        port = server.sockets[0].getsockname()[1]
        loop, tried = Resolving(("192.0.2.1", LOOPBACK), ("192.0.2.1",)), TriedAddresses()
        monkeypatch.setattr(asyncio, "get_running_loop", lambda: loop)
        for _ in range(2):
            assert await dial("kafka.example", port, 0.05, asyncio.Protocol, tried=tried) == LOOPBACK
        monkeypatch.undo()
        assert loop.tried == ["192.0.2.1", LOOPBACK, LOOPBACK]
