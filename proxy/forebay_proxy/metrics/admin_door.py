"""The door of the admin endpoint's port: how many may be inside, and how long without asking anything.

In: listening sockets, and what makes a protocol for each connection. Out: connections, at most MOST at once, since
descriptors are shared with Kafka's clients. Where there is no more room, one that asks nothing makes it: of whoever has
most connections, the oldest. So silent connections keep nobody out, probes least of all. Whoever has asked nothing for
ASK_WITHIN_S, TLS's handshake included, is closed.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from forebay_proxy.logs import RateLimited

MOST: Final = 128
"""Fewer than clients.descriptors.RESERVED."""
ASK_WITHIN_S: Final = 10.0
PAUSE_S: Final = 1.0
"""After a connection that could not be accepted: no descriptor is free, and none is at once."""


class _Guest:
    """One connection, from when it was accepted."""

    __slots__ = ("address", "asked", "connection", "hosting", "requests", "transport")

    def __init__(self, connection: socket.socket, address: str) -> None:
        self.connection = connection
        self.address = address
        self.asked = asyncio.Event()
        self.requests = 0
        """That are being answered."""
        self.transport: asyncio.Transport | None = None
        self.hosting: asyncio.Task[None] | None = None

    @property
    def gone(self) -> bool:
        return self.connection.fileno() < 0

    def dismiss(self) -> None:
        if self.hosting is not None:
            self.hosting.cancel()
        if self.transport is not None:
            self.transport.abort()


class AdminDoor:
    """Lets in from the beginning to `close`; those who are inside then stay, until `clear`."""

    def __init__(
        self,
        listening: Sequence[socket.socket],
        protocol: Callable[[], asyncio.BaseProtocol],
        context: ssl.SSLContext | None,
        log: RateLimited,
        ask_within_s: float = ASK_WITHIN_S,
    ) -> None:
        self._listening = listening
        self._protocol = protocol
        self._context = context
        self._log = log
        self._ask_within_s = ask_within_s
        self._guests: dict[int, _Guest] = {}
        """By descriptor, the oldest first."""
        self._accepting = [asyncio.create_task(self._accept(each)) for each in listening]

    async def close(self) -> None:
        """Close the listening sockets."""
        for task in self._accepting:
            task.cancel()
        if self._accepting:
            await asyncio.wait(self._accepting)
        self._accepting = []
        for each in self._listening:
            each.close()

    def clear(self) -> None:
        """Close all connections."""
        for guest in self._guests.values():
            guest.dismiss()
        self._guests = {}

    @contextmanager
    def asking(self, transport: asyncio.BaseTransport | None) -> Iterator[None]:
        """While a request of that connection is answered, it makes room for nobody."""
        connection = None if transport is None else transport.get_extra_info("socket")
        guest = None if connection is None else self._guests.get(connection.fileno())
        if guest is None:  # it has left, or did not come by this door
            yield
            return
        guest.asked.set()
        guest.requests += 1
        try:
            yield
        finally:
            guest.requests -= 1

    async def _accept(self, listening: socket.socket) -> None:
        listening.setblocking(False)  # noqa: FBT003 - it has no keyword
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, address = await loop.sock_accept(listening)
            except OSError as error:
                self._log.warning("admin endpoint cannot accept a connection", error=str(error))
                await asyncio.sleep(PAUSE_S)
                continue
            if self._has_room():
                guest = self._guests[connection.fileno()] = _Guest(connection, address[0])
                guest.hosting = loop.create_task(self._host(guest))
            else:
                connection.close()

    def _has_room(self) -> bool:
        """Make it, if need be and possible."""
        for number, guest in list(self._guests.items()):
            if guest.gone:
                guest.dismiss()
                del self._guests[number]
        if len(self._guests) < MOST:
            return True
        having = Counter(guest.address for guest in self._guests.values())
        idle = [number for number, guest in self._guests.items() if not guest.requests]
        if not idle:
            self._log.warning("admin endpoint is full: a connection is refused", most=MOST)
            return False
        number = max(idle, key=lambda number: having[self._guests[number].address])
        guest = self._guests.pop(number)
        self._log.warning("admin endpoint is full: an idle connection is closed", client=guest.address, most=MOST)
        guest.dismiss()
        return True

    async def _host(self, guest: _Guest) -> None:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._ask_within_s):
                guest.transport, _ = await loop.connect_accepted_socket(
                    self._protocol, guest.connection, ssl=self._context
                )
                await guest.asked.wait()
        except TimeoutError:
            if not guest.gone:
                self._log.info("admin endpoint closes a connection that asks nothing", client=guest.address)
        except OSError:
            pass  # no handshake came of it
        else:
            return
        if guest.transport is not None:
            guest.transport.abort()
