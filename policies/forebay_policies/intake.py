"""How many bytes of requests may be held that are not handed on yet: `queued.max.request.bytes`.

In: what each client has begun to send and what of it is gathered, whole requests that wait for metadata or memory, the
clock. Out: who is not read for now, who is read again, and whose request comes too slowly to be waited for. A request
that arrives in one piece is never seen here, and so never waits here.

Rules
1. Only bytes that have arrived count, not what a size prefix announces: it costs nothing to announce 100 MB.
2. Beyond the limit a client whose request has not wholly arrived is held. Who has least to come goes on first: memory
   comes back soonest, and nobody waits behind those who announce more than they ever send. One is always read, unless
   whole requests wait, which need no reading: so there is no deadlock, and a request larger than the limit gets
   through alone. Held is a client only after what it sent was read, so the limit is exceeded by at most one read
   (256 KiB) of each connection.
3. A request that comes slower than SLOWEST is *stalled*. Stalled for `patience` its client is closed, and at once where
   memory is short: the longest stalled first until nobody need be held, and all while somebody is held. Time for which
   its client is held does not count, but a client held here is to have sent more meanwhile, which waits in the system's
   buffer: else it would only have to be held to stay.

Example, limit 64 MiB: 2,000 clients send 64 KiB each of requests that never go on. Half of them are held. A second
later all are stalled and closed. Where it were 1,000, nobody would be held and they would stay; the next honest
client's first half of a request closes as many as it takes, and goes on without having been held.
"""

from __future__ import annotations

from collections import OrderedDict
from heapq import heapify, heappop, heappush
from typing import Final, Protocol

from forebay_policies.hold_reason import HoldReason

TICK_S: Final = 0.5
"""Seconds between two calls of `tick`."""

SLOWEST: Final = 2048
"""Bytes a tick: a sensor on a bad line sends a request of 1 MiB in four minutes."""

WHY: Final = HoldReason.INBOUND_MEMORY
"""The reason with which clients are held."""

_SPARE: Final = 100

READ: Final = 256 * 1024
"""The most that one read brings."""


class Client(Protocol):
    """What is asked of a client's connection."""

    @property
    def received(self) -> int:
        """Bytes so far."""

    @property
    def held(self) -> bool:
        """Not read, for whatever reason."""

    def hold(self, why: HoldReason) -> None: ...

    def release(self, why: HoldReason) -> None:
        """Read it again; what it had sent already may be worked on at once."""

    def pending(self) -> int:
        """Bytes that it has sent and that were not read, as far as the system tells."""

    def stalled(self) -> None:
        """Close it."""


class _Request:
    """One that has begun to arrive."""

    __slots__ = ("gathered", "mark", "slow_since")

    def __init__(self) -> None:
        self.gathered = 0
        self.mark: int | None = None
        """Bytes its client had sent at the last tick; None: it is not measured from there."""
        self.slow_since: float | None = None


class Intake:
    """At most `limit` bytes and a read of each connection are held, and nobody waits for ever.

    `limit` −1: none. `patience` in seconds.
    """

    def __init__(self, limit: int, patience: float) -> None:
        self.total = 0
        self._limit = limit
        self._patience = patience
        self._arriving: dict[Client, _Request] = {}
        self._gathering = 0
        self._held: dict[Client, int] = {}
        self._turns: list[tuple[int, int, Client]] = []
        """(Bytes to come, number, client), a heap. Those whose number is not that of `_held` are overlooked."""
        self._numbers = 0
        self._stalled: OrderedDict[Client, None] = OrderedDict()
        self._waiting: dict[Client, int] = {}
        self._releasing = False

    @property
    def held(self) -> int:
        return len(self._held)

    def arriving(self, client: Client, gathered: int, missing: int) -> None:
        """A request has begun and is not whole: bytes that are here, bytes to come. 0: they are passed on at once."""
        request = self._arriving.get(client)
        if request is None:
            request = self._arriving[client] = _Request()
        self._gathering += (gathered > 0) - (request.gathered > 0)
        self.total += gathered - request.gathered
        request.gathered = gathered
        if not gathered or not self._over() or client in self._held:
            return
        self._close_stalled(client)
        if self._over() and (self._gathering - len(self._held) > 1 or self._waiting):
            self._hold(client, missing)

    def arrived(self, client: Client) -> None:
        """The request is whole, or its client is gone."""
        request = self._arriving.pop(client, None)
        if request is None:
            return
        self.total -= request.gathered
        self._gathering -= request.gathered > 0
        self._stalled.pop(client, None)
        if client in self._held:
            del self._held[client]
            client.release(WHY)
        self._release()

    def waits(self, client: Client, size: int) -> None:
        """A whole request of `size` bytes is kept until it can be worked on; 0: it is not kept any more."""
        self.total += size - self._waiting.pop(client, 0)
        if size:
            self._waiting[client] = size
        else:
            self._release()

    def tick(self, now: float) -> None:
        """See who stalls."""
        for client, request in list(self._arriving.items()):
            received = client.received
            if client.pending() if client in self._held else client.held:
                request.mark = request.slow_since = None
                self._stalled.pop(client, None)
                continue
            if request.mark is not None:
                if received - request.mark >= SLOWEST:
                    request.slow_since = None
                    self._stalled.pop(client, None)
                elif request.slow_since is None:
                    request.slow_since = now
                    self._stalled[client] = None
                elif now - request.slow_since >= self._patience:
                    self._close(client)
                    continue
            request.mark = received
        if self._held:
            for client in [client for client in self._stalled if self._arriving[client].gathered]:
                self._close(client)
            self._release()

    def _over(self) -> bool:
        return 0 <= self._limit < self.total

    def _close_stalled(self, but: Client) -> None:
        for client in list(self._stalled):
            if not self._over():
                return
            if client is not but and self._arriving[client].gathered:
                self._close(client)

    def _close(self, client: Client) -> None:
        client.stalled()
        self.arrived(client)

    def _hold(self, client: Client, missing: int) -> None:
        self._numbers += 1
        self._held[client] = self._numbers
        heappush(self._turns, (missing, self._numbers, client))
        if len(self._turns) > 2 * len(self._held) + _SPARE:
            self._turns = [turn for turn in self._turns if self._held.get(turn[2]) == turn[1]]
            heapify(self._turns)
        client.hold(WHY)

    def _release(self) -> None:
        """Let go on whom there is room for, as much as each may send at once."""
        if self._releasing:  # what a released client had sent already may make room itself: the loop below sees it
            return
        self._releasing = True
        try:
            let_go = 0
            while self._held:
                alone = self._gathering == len(self._held) and not self._waiting
                if not alone and 0 <= self._limit < self.total + let_go * READ:
                    return
                _, number, client = heappop(self._turns)
                if self._held.get(client) == number:
                    del self._held[client]
                    let_go += 1
                    client.release(WHY)
        finally:
            self._releasing = False
