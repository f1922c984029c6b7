"""All listeners for clients of one process: what each needs to serve whoever comes by it.

    accepted ┬ without TLS ────────────────────────▶ registry → ClientConnection, with the gateway of its listener
             └ with TLS → TlsConnection → handshake ─┘

In: what all client connections share. Out: ports that accept, until `close`.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from functools import partial

from forebay_proxy.clients.client_connection import ClientConnection
from forebay_proxy.clients.connection_context import ConnectionContext
from forebay_proxy.clients.connections import ConnectionRegistry
from forebay_proxy.clients.handshakes import Handshakes
from forebay_proxy.clients.listener import Listener, OnClient
from forebay_proxy.clients.listener_ports import ListenerPorts
from forebay_proxy.clients.tls_connection import TlsConnection, TlsDoor
from forebay_proxy.config import rereading
from forebay_proxy.config.listeners import ClientListener
from forebay_proxy.config.settings import Settings
from forebay_proxy.inherited import Inherited
from forebay_proxy.logs import RateLimited
from forebay_proxy.security.renewals import Renewable, Renewals
from forebay_proxy.security.tls import TlsContext, TlsSettings, server_context


class ClientListeners:
    """Whoever comes by a listener is told its addresses only. `context_of` makes what connections to one share.

    A handshake is made with what `renewals` last put in place; connections that stand are not touched.
    """

    def __init__(
        self,
        settings: Settings,
        connections: ConnectionRegistry,
        handshakes: Handshakes,
        log: RateLimited,
        renewals: Renewals,
        context_of: Callable[[Listener], ConnectionContext],
        inherited: Inherited,
    ) -> None:
        self._settings = settings
        self._connections = connections
        self._handshakes = handshakes
        self._log = log
        self._renewals = renewals
        found = settings.client_listeners
        ports = ListenerPorts(found)
        shared = settings.workers > 1
        self._listeners = [Listener(each, ports, shared=shared, inherited=inherited) for each in found]
        self._contexts = [context_of(listener) for listener in self._listeners]

    async def open(self) -> None:
        """Open every bootstrap port; returns once they accept. Raises StartError, for certificates too."""
        doors = [self._on_client(*each) for each in zip(self._listeners, self._contexts, strict=True)]
        for listener, on_client in zip(self._listeners, doors, strict=True):
            listener.open_bootstrap(on_client)
            if self._settings.only_passes_logins:  # else brokers tell of themselves before a client comes
                for node_id in listener.settings.node_ports:
                    listener.open_node(node_id)
        for listener in self._listeners:
            await listener.ready()

    def _on_client(self, listener: Listener, context: ConnectionContext) -> OnClient:
        admit = partial(self._connections.accepted, partial(ClientConnection, context))
        if not listener.settings.uses_tls:
            return admit
        name, prefixes = listener.settings.name, tuple(map(listener.settings.setting, rereading.TLS))
        nothing_yet = TlsContext(ssl.PROTOCOL_TLS_SERVER)
        door = TlsDoor(name, nothing_yet, self._handshakes, self._log)

        def prepare(settings: Settings) -> Callable[[], None]:
            context = tls_context(next(each for each in settings.client_listeners if each.name == name))

            def commit() -> None:
                door.context = context

            return commit

        renewable = Renewable("client", f"listener {name}", prefixes, prepare, lambda: door.context.expires_at)
        self._renewals.add(renewable)
        prepare(self._settings)()
        return partial(_with_tls, door, admit)

    async def accept(self) -> None:
        """Accept from what was inherited, too."""
        for listener in self._listeners:
            await listener.accept()

    @property
    def sockets(self) -> list[socket.socket]:
        """All that listen."""
        return [each for listener in self._listeners for each in listener.sockets]

    @property
    def without_port(self) -> set[int]:
        """Brokers that some of the clients are not told of."""
        return {node_id for listener in self._listeners for node_id in listener.without_port}

    def close(self, *, succeeded: bool = False) -> None:
        """Accept no more connections; those that stand are not touched, and are told the same addresses as before.

        Where it is `succeeded` by others who listen on its ports, also those of brokers that are new.
        """
        for listener in self._listeners:
            listener.close(succeeded=succeeded)


def _with_tls(
    door: TlsDoor, admit: Callable[[int | None], asyncio.BaseProtocol], node_id: int | None
) -> asyncio.BufferedProtocol:
    return TlsConnection(door, partial(admit, node_id))


def tls_context(listener: ClientListener) -> TlsContext:
    """What its settings make. Raises StartError."""
    return server_context(tls_settings(listener), listener.told.ssl_client_auth)


def tls_settings(listener: ClientListener) -> TlsSettings:
    """What it was told of its certificate and of clients'."""
    told = listener.told
    return TlsSettings(
        enabled_protocols=told.ssl_enabled_protocols,
        truststore_location=told.ssl_truststore_location,
        truststore_certificates=told.ssl_truststore_certificates,
        keystore_location=told.ssl_keystore_location,
        keystore_certificate_chain=told.ssl_keystore_certificate_chain,
        keystore_key=told.ssl_keystore_key,
        key_password=told.ssl_key_password,
        cipher_suites=told.ssl_cipher_suites,
        prefix=listener.setting(""),
    )
