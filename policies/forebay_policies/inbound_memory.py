"""Bounds the memory of requests that are incomplete or wait to be handled: `queued.max.request.bytes`.

In: how much of each client's current request has arrived, complete requests that wait for metadata or memory, the
clock. Out: whose connection is not read for now, whose is read again, and whose request arrives too slowly to wait for.
A request that arrives in one piece never gets here, and so never waits here.

Rules
1. Only bytes that have arrived count, not what a size prefix announces: it costs nothing to announce 100 MB.
2. Beyond the limit one client goes on, `_reader`: the one with the fewest bytes to come. Others whose requests are
   incomplete are held, and released in that order: memory is free soonest, and nobody waits behind clients that
   announce more than they ever send, or send it slowly. There is such a one whenever anybody is held: so there is no
   deadlock, and a request larger than the limit gets through, alone. It waits for as long as smaller ones come without
   a pause: if it took turns with them, each that took one would add to what is held. A client is held only after its
   bytes were read, so a read takes no more than there is room for, or SMALL: the limit is exceeded by at most SMALL per
   connection and, as whoever takes another's place has less to come, by one request.
3. A request that arrives more slowly than SLOWEST is *stalled*. Its client is closed after `patience`, or at once if
   memory is short: those stalled longest first, until nobody has to be held; all of them while anybody is held. Time
   spent on hold does not count, provided that the held client has sent more, which waits in the system's buffer:
   otherwise being held would be a way to stay.
4. What a client has sent in advance, while it is held for answers, *rests*. It makes reads smaller, as all bytes do,
   but holds nobody: else clients that do not read their answers would keep others out.

Example, limit 64 MiB: 2,000 clients each send 64 KiB of a request and then nothing. Half of them are held; a second
later all are stalled and closed. With 1,000 such clients nobody would be held and they could stay, until an honest
client's first half of a request closes as many of them as it needs, and proceeds without having been held.
"""

from __future__ import annotations

from collections import OrderedDict
from heapq import heapify, heappop, heappush
from typing import Final, Protocol

from forebay_policies.hold_reason import HoldReason

TICK_S: Final = 0.5
"""Seconds between two calls of `tick`."""

SLOWEST: Final = 2048
"""Bytes per tick: a sensor on a bad line sends a request of 1 MiB in four minutes."""

WHY: Final = HoldReason.INBOUND_MEMORY
"""The reason with which clients are held."""

_SPARE: Final = 100

READ: Final = 256 * 1024
"""The most bytes that one read returns."""

SMALL: Final = 4096
"""The most where there is no room. 10,000 connections that read so much at once take 40 MB."""


class Client(Protocol):
    """What is needed of a client's connection."""

    @property
    def received(self) -> int:
        """Bytes received so far."""

    @property
    def held(self) -> bool:
        """Whether it is not being read, for whatever reason."""

    def hold(self, why: HoldReason) -> None:
        """Stop reading, until `release` with the same reason."""

    def release(self, why: HoldReason) -> None:
        """Read again; what has arrived meanwhile may be handled within this call."""

    def pending(self) -> int:
        """Bytes sent by the client and not read yet, as far as the system tells."""

    def stalled(self) -> None:
        """Close the connection: its request arrives too slowly."""


class _Request:
    """A request that has begun to arrive; `gathered` bytes of it are held, and `resting` bytes beside it."""

    __slots__ = ("gathered", "interrupted", "mark", "missing", "resting", "slow_since")

    def __init__(self) -> None:
        self.gathered = 0
        self.missing = 0
        self.resting = 0
        self.interrupted = False
        """Its client was held since the last tick."""
        self.mark: int | None = None
        """What the client had sent at the last tick; None: that tick does not count."""
        self.slow_since: float | None = None


class InboundMemory:
    """Keeps the bytes of incomplete and waiting requests, `total`, to about `limit` (−1: none), without a deadlock.

    `patience`: seconds that a stalled request is waited for.
    """

    def __init__(self, limit: int, patience: float) -> None:
        self.total = 0
        self.resting = 0
        self._limit = limit
        self._patience = patience
        self._arriving: dict[Client, _Request] = {}
        self._reader: Client | None = None
        """Who goes on beyond the limit; None: nobody is held."""
        self._held: dict[Client, int] = {}
        self._turns: list[tuple[int, int, Client]] = []
        """A heap of (bytes to come, number, client). Entries whose number differs from that in `_held` are obsolete."""
        self._numbers = 0
        self._stalled: OrderedDict[Client, None] = OrderedDict()
        self._waiting: dict[Client, int] = {}
        self._releasing = False

    @property
    def held(self) -> int:
        """Clients held now."""
        return len(self._held)

    def next_read(self) -> int:
        """The most bytes that any client's next read may return."""
        return READ if self._limit < 0 else min(READ, max(SMALL, self._limit - self.total - self.resting))

    def arriving(self, client: Client, gathered: int, missing: int, resting: int = 0) -> None:
        """An incomplete request: `gathered` bytes are held (0: it is cut through), `missing` are to come.

        `resting` bytes wait beside it until the client is not held any more. May hold the client.
        """
        request = self._arriving.get(client)
        if request is None:
            request = self._arriving[client] = _Request()
        self.total += gathered - request.gathered
        request.gathered = gathered
        self.resting += resting - request.resting
        request.resting = resting
        another, request.missing = missing > request.missing, missing
        if client is self._reader and (another or not gathered):
            self._reader = None
            self._release()
        if not gathered or not self._over() or client in self._held:
            return
        self._close_stalled(client)
        if not self._over():
            return
        reader = self._reader
        if reader is None:
            self._reader = client
        elif reader is not client:
            if self._arriving[reader].missing > missing:
                self._reader = client
                self._hold(reader)
            else:
                self._hold(client)

    def arrived(self, client: Client) -> None:
        """The request is complete, or its client is gone. May release clients."""
        request = self._arriving.pop(client, None)
        if request is None:
            return
        self.total -= request.gathered
        self.resting -= request.resting
        self._stalled.pop(client, None)
        if client is self._reader:
            self._reader = None
        if client in self._held:
            del self._held[client]
            client.release(WHY)
        self._release()

    def waits(self, client: Client, size: int) -> None:
        """A complete request of `size` bytes waits to be handled; 0: it no longer does."""
        self.total += size - self._waiting.pop(client, 0)
        if size:
            self._waiting[client] = size
        else:
            self._release()

    def tick(self, now: float) -> None:
        """Find stalled requests and close their clients, as rule 3 says. To be called every TICK_S."""
        for client, request in list(self._arriving.items()):
            received = client.received
            held = client in self._held or (request.interrupted and not client.held)
            request.interrupted = False
            if client.pending() if held else client.held:
                request.mark = request.slow_since = None
                self._stalled.pop(client, None)
                if client is self._reader and client.held:  # it cannot go on: the next one does
                    self._reader = None
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

    def _hold(self, client: Client) -> None:
        request = self._arriving[client]
        request.interrupted = True
        self._numbers += 1
        self._held[client] = self._numbers
        heappush(self._turns, (request.missing, self._numbers, client))
        if len(self._turns) > 2 * len(self._held) + _SPARE:
            self._turns = [turn for turn in self._turns if self._held.get(turn[2]) == turn[1]]
            heapify(self._turns)
        client.hold(WHY)

    def _release(self) -> None:
        """Release clients while there is room for one read of each, and one if nobody goes on."""
        if self._releasing:  # handling what a released client had sent may make room itself: the loop below sees it
            return
        self._releasing = True
        try:
            let_go = 0
            while self._held:
                if self._reader is not None and 0 <= self._limit < self.total + let_go * READ:
                    return
                _, number, client = heappop(self._turns)
                if self._held.get(client) == number:
                    del self._held[client]
                    if self._reader is None:
                        self._reader = client
                    let_go += 1
                    client.release(WHY)
        finally:
            self._releasing = False
