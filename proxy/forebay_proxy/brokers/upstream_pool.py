"""The connections to one broker, each with one request at a time.

Kafka answers one request of a connection before it reads the next, so a second one would wait for the first, and for
whatever that waits for. In: take and give back. Out: connections that carry nothing, or None while one is opened.
One party opens connections, one after the other, so a broker that is down is tried by one attempt at a time; it counts
as unreachable only while no connection to it is left.
"""

from __future__ import annotations

import asyncio
from random import Random
from time import monotonic
from typing import Final, Protocol

from forebay_codecs.errors import Malformed
from forebay_policies import retry
from forebay_proxy.brokers.cluster import Node
from forebay_proxy.brokers.connector import Connector
from forebay_proxy.brokers.upstream_connection import UpstreamConnection
from forebay_proxy.config.settings import Settings
from forebay_proxy.logs import get_logger
from forebay_proxy.metrics.registry import MetricRegistry
from forebay_proxy.security.authenticator import AuthenticationFailed

log = get_logger()

SPARE_IDLE_S: Final = 10.0
"""A connection beside the one that is warm is closed when it was not needed for so long."""


class PoolUser(Protocol):
    """Whoever sends on the connections."""

    def usable(self, connection: UpstreamConnection) -> bool:
        """Whether the broker speaks what is to be sent."""

    def reached(self, tries: int) -> None:
        """A connection stands, after so many that failed in a row."""

    def failed(self, node: Node, tries: int, error: str) -> None:
        """No connection is left, and another attempt failed, after so many before it in a row."""

    def wake(self) -> None:
        """A connection may be free."""


class UpstreamPool:
    """Nobody is given a connection that carries another's request, or one that is closed.

    The connection used last is given first: at low load one stays warm, and the others are left when idle.
    """

    def __init__(
        self,
        node: Node,
        user: PoolUser,
        connector: Connector,
        settings: Settings,
        stats: MetricRegistry,
        rng: Random,
    ) -> None:
        self._node = node
        self._user = user
        self._connector = connector
        self._settings = settings
        self._stats = stats
        self._rng = rng
        self._loop = asyncio.get_running_loop()
        self._connections: set[UpstreamConnection] = set()
        self._idle: list[tuple[UpstreamConnection, float]] = []
        """And since when, the one used last at the end."""
        self._opening: asyncio.Task[None] | None = None
        self._tries = 0
        self._closed = False

    @property
    def connected(self) -> int:
        """Connections that stand."""
        return len(self._connections)

    def take(self) -> UpstreamConnection | None:
        """A connection for one request; None: one is being opened, and the user is woken when it stands."""
        while self._idle:
            connection, _ = self._idle.pop()
            if not connection.closed:
                return connection
        self.open()
        return None

    def give_back(self, connection: UpstreamConnection, now: float) -> None:
        """Its request was answered, or was not sent."""
        if connection in self._connections and not connection.closed:
            self._idle.append((connection, now))

    def open(self) -> None:
        """See to it that there is one connection more, or at least an attempt."""
        if self._opening is None and not self._closed:
            self._opening = self._loop.create_task(self._open())

    async def _open(self) -> None:
        first, most = self._settings.reconnect_backoff_ms / 1000, self._settings.reconnect_backoff_max_ms / 1000
        try:
            while not self._closed:
                node = self._node
                try:
                    connection = await self._connector.open(node.host, node.port)
                    if not self._user.usable(connection):
                        connection.close()
                        raise ConnectionError("the broker offers no Produce that is spoken here")
                except (OSError, UnicodeError, Malformed) as error:
                    if not isinstance(error, AuthenticationFailed):  # the broker is there, and others may use it
                        self._failed(node, str(error))
                    self._tries += 1
                    await asyncio.sleep(retry.backoff(self._tries - 1, first, most, self._rng))
                    if self._connections:
                        return  # those that stand may do; whoever still needs another asks again
                    continue
                self._opened(connection)
                return
        finally:
            self._opening = None
            self._user.wake()

    def _failed(self, node: Node, error: str) -> None:
        self._stats.counter("forebay_errors_total", side="upstream", kind="connect").value += 1
        if not self._connections:
            self._user.failed(node, self._tries, error)
        elif self._tries == 0:
            log.warning("broker takes no further connection", node=node.id, open=len(self._connections), error=error)

    def _opened(self, connection: UpstreamConnection) -> None:
        if self._closed:
            connection.close()
            return
        tries, self._tries = self._tries, 0
        self._connections.add(connection)
        self._idle.append((connection, monotonic()))
        connection.on_closed = lambda: self._connection_closed(connection)
        self._user.reached(tries)

    def _connection_closed(self, connection: UpstreamConnection) -> None:
        """A broker closes idle connections: that is no failure. What is ready opens a new one."""
        self._connections.discard(connection)
        self._idle = [entry for entry in self._idle if entry[0] is not connection]
        self._user.wake()

    def leave_idle(self, now: float, max_idle: float) -> None:
        """Close idle connections before the broker does, so that no request meets a closing one.

        All but the one used last are closed sooner: trouble that is over leaves no crowd behind.
        """
        spare = len(self._idle) - 1
        for number, (connection, since) in enumerate(list(self._idle)):
            if now - since > (min(max_idle, SPARE_IDLE_S) if number < spare else max_idle):
                connection.close()

    def leave_all(self) -> None:
        """The broker has another address."""
        for connection in list(self._connections):
            connection.close()

    def close(self) -> None:
        """No connection is opened any more, and those that stand are left."""
        self._closed = True
        if self._opening is not None:
            self._opening.cancel()
        self.leave_all()
