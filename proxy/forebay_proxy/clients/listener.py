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

from forebay_proxy.brokers.keepalive import keep_alive
from forebay_proxy.clients.listener_ports import ListenerPorts
from forebay_proxy.config.listeners import ClientListener
from forebay_proxy.errors import StartError
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
    infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, protocol, _, address = infos[0]
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


OnClient = Callable[[int | None], asyncio.BaseProtocol]
"""Node id, or None for bootstrap → the protocol of a connection that has come."""


class Listener:
    """Binds each port at most once, and accepts from `open_bootstrap` on. `shared`: with other workers."""

    def __init__(self, settings: ClientListener, ports: ListenerPorts, *, shared: bool) -> None:
        self.settings = settings
        self._ports = ports
        self._shared = shared
        self._on_client: OnClient | None = None
        self._loop = asyncio.get_running_loop()
        self._servers: dict[int | None, asyncio.Task[asyncio.Server]] = {}
        self._refused: set[int] = set()
        self._closed = False

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
            return False
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

    def port(self, node_id: int) -> int | None:
        """The port that stands for the broker here; None where there is none."""
        return self._ports.of(self.settings, node_id)

    def _listen(self, node_id: int | None, port: int) -> None:
        listening = listen(self.settings.host, port, shared=self._shared)
        assert self._on_client is not None, "brokers come after the bootstrap listener"
        make = partial(self._on_client, node_id)
        server = self._loop.create_server(make, sock=listening, backlog=BACKLOG)
        self._servers[node_id] = self._loop.create_task(server)

    async def ready(self) -> None:
        """All sockets bound so far accept connections."""
        await asyncio.gather(*self._servers.values())

    def close_node(self, node_id: int) -> None:
        """Accept no more connections for the broker; does nothing where there is no listener."""
        task = self._servers.pop(node_id, None)
        if task is not None:
            log.info("no longer listening for a broker", node=node_id, listener=self.settings.name)
            _close(task)

    def close(self) -> None:
        """Accept no more connections; those that stand are not touched, and are told the same addresses as before."""
        self._closed = True
        for task in self._servers.values():
            _close(task)


def _close(task: asyncio.Task[asyncio.Server]) -> None:
    def close(done: asyncio.Task[asyncio.Server]) -> None:
        if not done.cancelled() and done.exception() is None:
            done.result().close()

    task.add_done_callback(close)
