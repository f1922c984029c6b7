"""Both sides ask for a silent other side, long before balancers forget the connection."""

from __future__ import annotations

import asyncio
import socket

from forebay_proxy.brokers.dial import dial
from forebay_proxy.keepalive import FIRST_PROBE_S, keep_alive
from tests.kit.event_loop import in_loop, soon
from tests.kit.ports import LOOPBACK

BALANCERS_FORGET_AFTER_S = 350


def kept_alive(connection: socket.socket) -> bool:
    first_probe = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)
    return bool(connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)) and first_probe == FIRST_PROBE_S


class Connected(asyncio.Protocol):
    """Its transport is added to `transports`."""

    def __init__(self, transports: list[asyncio.BaseTransport]) -> None:
        self._transports = transports

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transports.append(transport)


def test_the_first_probe_comes_long_before_balancers_forget() -> None:
    assert 4 * FIRST_PROBE_S < BALANCERS_FORGET_AFTER_S


def test_a_socket_that_is_being_closed_is_left_as_it_is() -> None:
    gone = socket.socket()
    gone.close()
    keep_alive(gone)


@in_loop
async def test_connections_to_brokers() -> None:
    transports: list[asyncio.BaseTransport] = []
    async with await asyncio.start_server(lambda reader, writer: None, LOOPBACK, 0) as server:
        await soon(dial(LOOPBACK, server.sockets[0].getsockname()[1], 5.0, lambda: Connected(transports)))
        (transport,) = transports
        assert kept_alive(transport.get_extra_info("socket"))
        transport.close()
