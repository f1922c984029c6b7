"""The connections to one broker, each with one request at a time.

Kafka answers one request of a connection before it reads the next, so a second one would wait for the first, and for
whatever that waits for; and it reads no connection for as long as it throttles what came on it. So each connection
carries one request at a time, and requests of one client id only.
In: take and give back. Out: connections that carry nothing and whose session (SASL) need not be renewed, or None while
one is opened or renewed.
Connections for one client id are opened one after the other. An attempt is given up when its user's patience ends, the
next one after twice that time, and so on: a link that swallows what is written costs a client a part of its time, and a
broker that is merely slow is reached in the end, within `socket.connection.setup.timeout.ms`. A broker that is down is
tried by one attempt at a time; it counts as unreachable only while no connection to it is left.
"""

from __future__ import annotations

import asyncio
from random import Random
from time import monotonic
from typing import Final, Protocol

from forebay_codecs.errors import Malformed
from forebay_policies import retry
from forebay_policies.throttling import CLIENT_ID
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

OPENING: Final = 8
"""Connections opened at once, each for another client id, while one stands: a round trip each would add up."""

MAX_CONNECTIONS: Final = 500
"""Beyond these the one that has been idle for longest makes room. Clients without a proxy have one each at least."""


class PoolUser(Protocol):
    """Whoever sends on the connections."""

    def usable(self, connection: UpstreamConnection) -> bool:
        """Whether the broker speaks what is to be sent."""

    @property
    def patience(self) -> float:
        """Seconds that the first attempt to connect may take."""

    def reached(self, tries: int) -> None:
        """A connection stands, after so many that failed in a row."""

    def failed(self, node: Node, tries: int, error: str) -> None:
        """No connection is left, and another attempt failed, after so many before it in a row."""

    def wake(self) -> None:
        """A connection may be free."""


class UpstreamPool:
    """Nobody is given a connection that carries another's request, or that of another client id, or is closed.

    Of those for a client id, the connection used last is given first: at low load one stays warm, and the others are
    left when idle.
    """

    def __init__(
        self,
        node: Node,
        user: PoolUser,
        connector: Connector,
        settings: Settings,
        stats: MetricRegistry,
        rng: Random,
        max_connections: int = MAX_CONNECTIONS,
    ) -> None:
        self._node = node
        self._user = user
        self._connector = connector
        self._settings = settings
        self._stats = stats
        self._rng = rng
        self._loop = asyncio.get_running_loop()
        self._connections: dict[UpstreamConnection, str | None] = {}
        """And the client id that they carry."""
        self._idle: dict[UpstreamConnection, float] = {}
        """And since when, the one used last at the end."""
        self._free: dict[str | None, list[UpstreamConnection]] = {}
        """By client id, those that are idle, in the same order. Where there are none, nothing is kept of it."""
        self._opening: dict[str | None, asyncio.Task[None]] = {}
        self._renewing: set[asyncio.Task[None]] = set()
        self._tries = 0
        self._max_connections = max_connections
        self._closed = False

    @property
    def connected(self) -> int:
        """Connections that stand."""
        return len(self._connections)

    def take(self, client_id: str | None = CLIENT_ID) -> UpstreamConnection | None:
        """A connection for one request of `client_id`; None: the user is woken when there may be one."""
        free = self._free.get(client_id)
        while free:
            connection = free.pop()
            if not free:
                del self._free[client_id]
            del self._idle[connection]
            if connection.closed:
                continue
            if not connection.must_renew:
                return connection
            renewing = self._loop.create_task(self._renew(connection))
            self._renewing.add(renewing)
            renewing.add_done_callback(self._renewing.discard)
        self.open(client_id)
        return None

    async def _renew(self, connection: UpstreamConnection) -> None:
        """It carries nothing meanwhile: where the broker does not take the login, no request is lost with it."""
        await connection.renew()
        self.give_back(connection, monotonic())
        self._user.wake()

    def give_back(self, connection: UpstreamConnection, now: float) -> None:
        """Its request was answered, or was not sent."""
        if connection in self._connections and not connection.closed:
            self._idle[connection] = now
            self._free.setdefault(self._connections[connection], []).append(connection)

    def open(self, client_id: str | None = CLIENT_ID) -> None:
        """See to it that there is one connection more for `client_id`, or at least an attempt."""
        if client_id in self._opening or self._closed:
            return
        if len(self._opening) >= (OPENING if self._connections else 1):
            return  # whoever opens one wakes the user
        if len(self._connections) + len(self._opening) < self._max_connections or self._make_room(client_id):
            self._opening[client_id] = self._loop.create_task(self._open(client_id))

    async def _open(self, client_id: str | None) -> None:
        first, most = self._settings.reconnect_backoff_ms / 1000, self._settings.reconnect_backoff_max_ms / 1000
        try:
            while not self._closed:
                node = self._node
                patience = self._user.patience * (1 << min(self._tries, 16))
                try:
                    connection = await self._within(patience, node, client_id)
                    if not self._user.usable(connection):
                        connection.close()
                        raise ConnectionError("the broker offers no Produce that is spoken here")
                except Exception as error:  # of any kind: tried again at once, it would take the loop for itself
                    if not isinstance(error, (OSError, UnicodeError, Malformed)):
                        log.error("a connection could not be opened", node=node.id, exc_info=error)
                    if not isinstance(error, AuthenticationFailed):  # the broker is there, and others may use it
                        self._failed(node, str(error))
                    self._tries += 1
                    await asyncio.sleep(retry.backoff(self._tries - 1, first, most, self._rng))
                    if self._connections:
                        # Those that stand may do. Whoever still needs another asks again, and finds room for it where
                        # the broker takes no more.
                        self._make_room(client_id)
                        return
                    if len(self._opening) > 1:
                        return
                    continue
                self._opened(connection, client_id)
                return
        finally:
            if self._opening.get(client_id) is asyncio.current_task():  # else it was left
                del self._opening[client_id]
            self._user.wake()

    async def _within(self, seconds: float, node: Node, client_id: str | None) -> UpstreamConnection:
        """A connection that stands by then. Raises OSError or Malformed."""
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                return await self._connector.open(node.host, node.port, client_id)
        except TimeoutError:
            if limit.expired():
                raise TimeoutError(f"{node.host}:{node.port} did not answer within {seconds:g} s") from None
            raise

    def _make_room(self, client_id: str | None) -> bool:
        """Close the connection that has been idle for longest, if another client's is. False: there is none."""
        for connection in self._idle:
            if self._connections[connection] != client_id:
                self._forget(connection)
                connection.close()
                return True
        return False

    def _failed(self, node: Node, error: str) -> None:
        self._stats.counter("forebay_errors_total", side="upstream", kind="connect").value += 1
        if not self._connections:
            self._user.failed(node, self._tries, error)
        elif self._tries == 0:
            log.warning("broker takes no further connection", node=node.id, open=len(self._connections), error=error)

    def _opened(self, connection: UpstreamConnection, client_id: str | None) -> None:
        if self._closed:
            connection.close()
            return
        tries, self._tries = self._tries, 0
        self._connections[connection] = client_id
        self.give_back(connection, monotonic())
        connection.on_closed = lambda: self._connection_closed(connection)
        self._user.reached(tries)

    def _connection_closed(self, connection: UpstreamConnection) -> None:
        """A broker closes idle connections: that is no failure. What is ready opens a new one."""
        self._forget(connection)
        self._user.wake()

    def _forget(self, connection: UpstreamConnection) -> None:
        if self._idle.pop(connection, None) is not None:
            client_id = self._connections[connection]
            free = self._free[client_id]
            free.remove(connection)
            if not free:
                del self._free[client_id]
        self._connections.pop(connection, None)

    def leave_idle(self, now: float, max_idle: float) -> None:
        """Close idle connections before the broker does, so that no request meets a closing one.

        All but the one used last are closed sooner: trouble that is over leaves no crowd behind.
        """
        spare = len(self._idle) - 1
        for number, (connection, since) in enumerate(list(self._idle.items())):
            if now - since > (min(max_idle, SPARE_IDLE_S) if number < spare else max_idle):
                connection.close()

    def leave_all(self) -> None:
        """The broker has another address: what stands, or is being opened, leads to the old one."""
        left, self._opening, self._tries = self._opening, {}, 0
        for opening in left.values():
            opening.cancel()
        for connection in list(self._connections):
            connection.close()
        self._user.wake()  # those that had not begun wake nobody

    def close(self) -> None:
        """No connection is opened any more, and those that stand are left."""
        self._closed = True
        self.leave_all()
