"""One listener's ports: one to bootstrap, one for each broker, as listener_ports has them.

In: brokers as they become known or are gone. Out: listening sockets, and the address of each broker's listener.
A socket is bound at once when its broker is first named, before the response that names it goes on to a client. A
broker whose port cannot be had is not named to clients at all: never is its own address let through.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from functools import partial
from typing import Any

from forebay_proxy.clients.listener_ports import ListenerPorts
from forebay_proxy.config.listeners import ClientListener
from forebay_proxy.errors import StartError
from forebay_proxy.inherited import Inherited
from forebay_proxy.keepalive import keep_alive
from forebay_proxy.logs import get_logger

log = get_logger()

BACKLOG = 1024
"""Connections that may wait to be accepted: a fleet that reconnects at once. The system's own limit may be lower."""

_V4_MAPPED = "::ffff:"


def plain_address(host: str) -> str:
    """An IPv4 client's address as IPv4 has it, where it came to an IPv6 socket: ::ffff:10.1.2.3 → 10.1.2.3."""
    return host.removeprefix(_V4_MAPPED) if host.startswith(_V4_MAPPED) and "." in host else host


def listen(host: str, port: int, *, shared: bool) -> socket.socket:
    """A socket that listens there, with other workers if `shared`. Raises OSError."""
    family, kind, protocol, address = _resolved(host, port)
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        keep_alive(listening)
        if shared:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listening.bind(address)
        listening.listen(BACKLOG)
        listening.settimeout(0)
    except OSError:
        listening.close()
        raise
    return listening


def _resolved(host: str, port: int) -> tuple[int, int, int, Any]:
    """Family, type and protocol of a socket, and what it is to be bound to. Raises OSError."""
    infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, protocol, _, address = infos[0]
    return family, kind, protocol, address


OnClient = Callable[[int | None], asyncio.BaseProtocol]
"""Node id, or None for bootstrap → the protocol of a connection that has come."""


class Listener:
    """Binds each port at most once, and accepts from `open_bootstrap` on. `shared`: with other workers.

    What was `inherited` is used, and not bound again; then it accepts from `accept` on: so long somebody else does.
    """

    def __init__(
        self, settings: ClientListener, ports: ListenerPorts, *, shared: bool, inherited: Inherited | None = None
    ) -> None:
        self.settings = settings
        self._ports = ports
        self._shared = shared
        self._inherited = inherited or Inherited()
        self._sockets: dict[int | None, list[socket.socket]] = {}
        self._accepts = not self._inherited
        self._on_client: OnClient | None = None
        self._loop = asyncio.get_running_loop()
        self._servers: dict[int | None, list[asyncio.Task[asyncio.Server]]] = {}
        self._refused: set[int] = set()
        self._closed = False
        self._succeeded = False

    def open_bootstrap(self, on_client: OnClient) -> None:
        """`on_client(node id, or None for bootstrap)` makes the protocol of each connection accepted from now on.

        Raises StartError, in words for a person.
        """
        self._on_client = on_client
        host, port = self.settings.host, self.settings.port
        try:
            self._listen(None, port)
        except OSError as error:
            raise StartError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
        log.info("listening for clients", host=host, port=port, protocol=self.settings.protocol)

    def open_node(self, node_id: int) -> bool:
        """Listen for the broker, unless it is done already. False, and a line in the log, where that cannot be."""
        if node_id in self._servers:
            return True
        port = self.port(node_id)
        if self._closed:
            return self._succeeded and port is not None and node_id not in self._refused  # others listen there
        name = self.settings.name
        if port is None:
            if node_id not in self._refused:
                self._refused.add(node_id)
                log.error("no port for a broker: give it one with node.ports", node=node_id, listener=name)
            return False
        try:
            self._listen(node_id, port)
        except OSError as error:
            if node_id not in self._refused:
                self._refused.add(node_id)
                why = error.strerror or str(error)
                log.error("cannot listen for a broker", node=node_id, listener=name, port=port, error=why)
            return False
        self._refused.discard(node_id)
        log.info("listening for a broker", node=node_id, listener=name, port=port)
        return True

    @property
    def without_port(self) -> frozenset[int]:
        """Brokers that it cannot listen for, and whose partitions its clients therefore cannot write to."""
        return frozenset(self._refused)

    def port(self, node_id: int) -> int | None:
        """The port that stands for the broker here; None where there is none."""
        return self._ports.of(self.settings, node_id)

    def _listen(self, node_id: int | None, port: int) -> None:
        host = self.settings.host
        family, _, _, address = _resolved(host, port)
        found = self._inherited.take(family, address)
        for each in found:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, int(self._shared))  # it may have been otherwise
        found = found or [listen(host, port, shared=self._shared)]
        assert self._on_client is not None, "brokers come after the bootstrap listener"
        make = partial(self._on_client, node_id)
        serve = partial(self._loop.create_server, make, backlog=BACKLOG, start_serving=self._accepts)
        self._sockets[node_id] = found
        self._servers[node_id] = [self._loop.create_task(serve(sock=each)) for each in found]

    @property
    def sockets(self) -> list[socket.socket]:
        """All that listen."""
        return [each for found in self._sockets.values() for each in found if each.fileno() >= 0]

    async def accept(self) -> None:
        """Accept from what was inherited, too."""
        self._accepts = True
        for servers in list(self._servers.values()):
            for server in servers:
                await (await server).start_serving()

    async def ready(self) -> None:
        """All sockets bound so far accept connections."""
        await asyncio.gather(*(server for servers in self._servers.values() for server in servers))

    def close_node(self, node_id: int) -> None:
        """Accept no more connections for the broker, which is not missed; does nothing where there is no listener."""
        self._refused.discard(node_id)
        servers = self._servers.pop(node_id, None)
        if servers is not None:
            log.info("no longer listening for a broker", node=node_id, listener=self.settings.name)
            del self._sockets[node_id]
            _close(servers)

    def close(self, *, succeeded: bool = False) -> None:
        """Accept no more connections; those that stand are not touched, and are told the same addresses as before.

        Where it is `succeeded` by others who listen on its ports, also those of brokers that are new.
        """
        self._closed = True
        self._succeeded = succeeded
        for servers in self._servers.values():
            _close(servers)


def _close(servers: list[asyncio.Task[asyncio.Server]]) -> None:
    def close(done: asyncio.Task[asyncio.Server]) -> None:
        if not done.cancelled() and done.exception() is None:
            done.result().close()

    for task in servers:
        if task.done():
            close(task)  # before another connection is accepted
        else:
            task.add_done_callback(close)
