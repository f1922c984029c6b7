"""The client connections of one process: who is let in, and who must leave.

In: connections as they are accepted, the clock. Out: the ones beyond `max.connections` or `max.connections.per.ip` are
closed at once; idle ones after `connections.max.idle.ms`, and before where others want their place; those whose
requests do not go on, or who do not take their responses, when their memory says so; those older than
`connections.max.age.ms`, give or take JITTER, in the first pause of theirs, or GRACE of it later at the first moment at
which nothing is owed to them: a client without retries whose request is on its way just then sees it fail.

Where all places are taken, the connection that has been idle for longest makes room, if it was idle for GIVES_WAY_S:
its client opens a new one when it has something to say, as it would anyway. So whoever opens connections and leaves
them standing keeps nobody out.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from time import monotonic
from typing import Final

from forebay_policies.inbound_memory import TICK_S, InboundMemory
from forebay_policies.response_memory import ResponseMemory
from forebay_policies.untaken_answers import UntakenAnswers
from forebay_proxy.clients.client_connection import ClientConnection
from forebay_proxy.config.settings import Settings
from forebay_proxy.logs import RateLimited
from forebay_proxy.metrics.traffic import TrafficMetrics

SWEEP_EVERY: Final = 10
"""Ticks between two sweeps for idle connections."""
GIVES_WAY_S: Final = 10.0
JITTER: Final = 0.1
GRACE: Final = 0.1
PAUSE_S: Final = 0.5
"""A client that has sent nothing for so long, and is owed nothing, hardly has a request on its way."""


class ConnectionRegistry:
    """Never more than `most` connections, nor more than `max.connections.per.ip` from one address."""

    def __init__(
        self,
        settings: Settings,
        most: int,
        inbound_memory: InboundMemory,
        response_memory: ResponseMemory,
        answers: UntakenAnswers,
        metrics: TrafficMetrics,
        log: RateLimited,
        rng: Random,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._empty = asyncio.Event()
        self._rng = rng
        self._request_timeout = settings.request_timeout_ms / 1000
        self._inbound_memory = inbound_memory
        self._response_memory = response_memory
        self._answers = answers
        self._metrics = metrics
        self._log = log
        self._clock = clock
        self._all: set[ClientConnection] = set()
        self._of_ip: Counter[str] = Counter()
        self._idlest: deque[ClientConnection] = deque()
        self._sorted_at = float("-inf")
        self._closed = False
        self._age = -1.0
        self.change(settings, most)

    def change(self, settings: Settings, most: int) -> None:
        """These limits count from now on. A connection that is there stays, though it may be one too many; a new age
        begins now for it."""
        self.most = most
        self._per_ip = settings.max_connections_per_ip
        self._idle = settings.connections_max_idle_ms / 1000
        self._upstream_idle = settings.upstream_max_idle_ms / 1000
        age = settings.connections_max_age_ms / 1000
        if age != self._age:
            self._age = age
            for connection in self._all:
                self._begin_age(connection)

    def _begin_age(self, connection: ClientConnection) -> None:
        if self._age >= 0:
            connection.retires_at = self._clock() + self._age * self._rng.uniform(1 - JITTER, 1 + JITTER)

    def __iter__(self) -> Iterator[ClientConnection]:
        return iter(list(self._all))

    def __len__(self) -> int:
        return len(self._all)

    def accepted(self, make: Make, node_id: int | None) -> asyncio.BaseProtocol:
        """What serves a new connection to a broker's port (None: bootstrap), or closes it if there is no room."""
        if self._closed or (len(self._all) >= self.most and not self._make_room(self._clock())):
            self._refuse("max_connections", "too many connections, closing a new one", most=self.most)
            return _Closing()
        connection = make(self, node_id)
        self._all.add(connection)
        self._begin_age(connection)
        return connection

    def admits(self, connection: ClientConnection) -> bool:
        """Whether one more of its address may stay."""
        self._of_ip[connection.host] += 1
        if self._of_ip[connection.host] <= self._per_ip:
            return True
        self._refuse(
            "max_connections_per_ip",
            "too many connections from one address, closing a new one",
            most=self._per_ip,
            client=connection.peer,
        )
        return False

    def gone(self, connection: ClientConnection) -> None:
        self._all.discard(connection)
        self._of_ip[connection.host] -= 1
        if not self._of_ip[connection.host]:
            del self._of_ip[connection.host]
        if not self._all:
            self._empty.set()

    async def all_gone(self) -> None:
        """Returns once there is no connection left."""
        while self._all:
            self._empty.clear()
            await self._empty.wait()

    def close(self) -> None:
        """Let nobody in any more."""
        self._closed = True

    async def run(self) -> None:
        """The task: see who stalls, who is idle and who does not leave."""
        ticks = 0
        while True:
            await asyncio.sleep(TICK_S)
            ticks += 1
            now = self._clock()
            self._look(partial(self._inbound_memory.tick, now))
            self._look(self._response_memory.tick)
            self._look(self._answers.tick)
            self.retire(now)
            if ticks % SWEEP_EVERY == 0:
                self._log.flush()
                self.sweep(now)

    def _look(self, at: Callable[[], None]) -> None:
        """A fault of ours towards one client ends the watch over nobody else."""
        try:
            at()
        except Exception as error:
            self._log.error("a look at connections failed", exc_info=error)

    def sweep(self, now: float) -> None:
        """Close those that have been idle, or leaving, for too long, or whose client left while it was held."""
        for connection in self:
            self._look(partial(self._look_after, connection, now))

    def _look_after(self, connection: ClientConnection, now: float) -> None:
        idle = now - connection.last_active
        if connection.leaving_for(now) > self._request_timeout:
            connection.abort()  # its broker does not answer, or it does not read its last answers
        elif connection.hung_up:
            connection.hang_up()  # while it is held nothing else tells
        elif connection.waits or self._idle < 0:
            return
        elif idle > self._idle:
            connection.close()
        elif idle > self._upstream_idle:
            connection.leave_idle_broker()

    def retire(self, now: float) -> None:
        """Close those that have been there for long enough."""
        if self._age < 0:
            return
        for connection in self:
            if now >= connection.retires_at:
                self._look(partial(self._retire, connection, now))

    def _retire(self, connection: ClientConnection, now: float) -> None:
        pause = now - connection.last_active >= PAUSE_S and connection.settled
        if pause or now >= connection.retires_at + self._age * GRACE:
            connection.retire()

    def _make_room(self, now: float) -> bool:
        """Close the connection that has been idle for longest. All are sorted at most once a second."""
        if not self._idlest and now - self._sorted_at >= TICK_S:
            self._sorted_at = now
            self._idlest.extend(sorted(self._all, key=lambda connection: (not connection.done, connection.last_active)))
        while self._idlest:
            connection = self._idlest.popleft()
            if connection.done and connection in self._all:  # it has left, almost certainly
                connection.abort()
                self._log.info("closing a client that sends no more, all connections are taken", client=connection.peer)
                return True
            if connection.waits or connection.leaving_for(now) or connection not in self._all:
                continue
            if now - connection.last_active >= GIVES_WAY_S:
                connection.close()
                self._log.info("closing an idle client, all connections are taken", client=connection.peer)
                return True
        return False

    def _refuse(self, reason: str, event: str, **keys: object) -> None:
        self._metrics.refused(reason)
        self._log.warning(event, **keys)


Make = Callable[[ConnectionRegistry, int | None], ClientConnection]
"""(registry, node id or None) → the protocol of a connection that is let in."""


class _Closing(asyncio.Protocol):
    """A connection that is not wanted."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()
