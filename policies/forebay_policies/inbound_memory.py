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
5. Complete requests that wait count up to half of the limit, so there is always room for those that arrive.
6. They are bounded by *party*, the broker to whose port clients came: one is *crowded* if more of it waits than is left
   of that half. Its clients' reads are SMALL, and whose request is not whole then is held until less of it waits. So a
   broker that hangs keeps a quarter of the limit, two a sixth each (as in memory_shares), and others' clients go on. A
   party of which a sixteenth of the limit waits, or less, is not crowded while all that waits is within the limit: as
   large requests may take a half at once, others would have nothing left.
7. What clients have left behind waits on, and counts, though their connections do not any more. So once more waits than
   the limit, who comes anew to a crowded party is not read at all: nothing of it is lost, and to come and go takes no
   more than to stay.

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


Party = int | None
"""The node id of a broker; None: the bootstrap port."""


class Client(Protocol):
    """What is needed of a client's connection."""

    @property
    def party(self) -> Party:
        """See rule 6."""

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

    __slots__ = ("barred", "gathered", "interrupted", "mark", "missing", "resting", "slow_since")

    def __init__(self) -> None:
        self.barred = False
        """Its client is held because its party is crowded."""
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
        self.resting = 0
        self._limit = limit
        self._half = limit // 2
        self._patience = patience
        self._arriving: dict[Client, _Request] = {}
        self._reader: Client | None = None
        """The client that goes on beyond the limit; None: none waits for its turn."""
        self._held: dict[Client, int] = {}
        self._turns: list[tuple[int, int, Client]] = []
        """A heap of (bytes to come, number, client). Entries whose number differs from that in `_held` are obsolete."""
        self._numbers = 0
        self._stalled: OrderedDict[Client, None] = OrderedDict()
        self._incomplete = 0
        """Bytes of incomplete requests."""
        self._waiting = 0
        """Bytes of complete ones."""
        self._taken = 0
        """Of both, what counts against the limit."""
        self._waits: dict[object, int] = {}
        self._waits_of: dict[Party, int] = {}
        self._barred: dict[Party, dict[Client, int]] = {}
        """Clients that are held because their party is crowded, and of how many bytes their requests are, if known."""
        self._releasing = False

    @property
    def held(self) -> int:
        """Clients held now."""
        return len(self._held) + sum(len(barred) for barred in self._barred.values())

    @property
    def total(self) -> int:
        """Bytes of incomplete and waiting requests."""
        return self._incomplete + self._waiting

    def next_read(self, party: Party) -> int:
        """The most bytes that the next read of any client of the party may return."""
        if self._limit < 0:
            return READ
        room = self._limit - self._taken - self.resting
        if room < SMALL or self._crowded(party):
            return SMALL
        return min(READ, room)

    def shut(self, party: Party) -> bool:
        """Whether clients who come to the party anew are not to be read for now."""
        return 0 <= self._limit < self._waiting and self._crowded(party)

    def bars(self, client: Client) -> bool:
        """Whether it is held since its party is crowded: it waits for its broker."""
        return client in self._barred.get(client.party, ())

    def came(self, client: Client) -> None:
        """Hold such a client, until its party is not crowded any more, or it has `arrived`; not if it was read."""
        if client not in self._arriving:
            self._barred.setdefault(client.party, {})[client] = SMALL
            client.hold(WHY)

    def arriving(self, client: Client, gathered: int, missing: int, resting: int = 0) -> None:
        """An incomplete request: `gathered` bytes are held (0: it is cut through), `missing` are to come.

        `resting` bytes wait beside it until the client is not held any more. May hold the client.
        """
        request = self._arriving.get(client)
        if request is None:
            request = self._arriving[client] = _Request()
        self._incomplete += gathered - request.gathered
        self._count()
        request.gathered = gathered
        self.resting += resting - request.resting
        request.resting = resting
        another, request.missing = missing > request.missing, missing
        if client is self._reader and (another or not gathered):
            self._reader = None
            self._release()
        if not gathered or client in self._held or request.barred:
            return
        if self._crowded(client.party):
            self._bar(client, request)
            return
        if not self._over():
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
            if self._barred and self._unbar(client):
                client.release(WHY)
            return
        self._incomplete -= request.gathered
        self._count()
        self.resting -= request.resting
        self._stalled.pop(client, None)
        if client is self._reader:
            self._reader = None
        if client in self._held:
            del self._held[client]
            client.release(WHY)
        elif request.barred:
            self._unbar(client)
            client.release(WHY)
        self._release()

    def set_waiting(self, whose: object, party: Party, size: int) -> None:
        """A complete request of `size` bytes, `whose` only one, waits to be handled; 0: it no longer does."""
        more = size - self._waits.pop(whose, 0)
        if size:
            self._waits[whose] = size
        self._waiting += more
        self._count()
        waits = self._waits_of.get(party, 0) + more
        if waits:
            self._waits_of[party] = waits
        else:
            self._waits_of.pop(party, None)
        if more < 0:
            self._release()

    def tick(self, now: float) -> None:
        """Find stalled requests and close their clients, as rule 3 says. To be called every TICK_S."""
        for client, request in list(self._arriving.items()):
            received = client.received
            held = client in self._held or request.barred or (request.interrupted and not client.held)
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

    def _count(self) -> None:
        self._taken = self._incomplete + min(self._waiting, self._half)

    def _over(self) -> bool:
        return 0 <= self._limit < self._taken

    def _crowded(self, party: Party, more: int = 0) -> bool:
        """Whether the party would be with `more` bytes waiting."""
        waiting = self._waiting + more
        if 2 * waiting <= self._half or self._limit < 0:  # as it is, mostly
            return False
        waits = self._waits_of.get(party, 0) + more
        left = max(self._half - waiting, self._limit // 16 if waiting <= self._limit else 0)
        return waits > left

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

    def _bar(self, client: Client, request: _Request) -> None:
        request.barred = request.interrupted = True
        self._barred.setdefault(client.party, {})[client] = request.gathered + request.missing
        client.hold(WHY)
        if client is self._reader:
            self._reader = None
            self._release()

    def _unbar(self, client: Client) -> bool:
        """True: it was."""
        barred = self._barred.get(client.party, {})
        if barred.pop(client, None) is None:
            return False
        if not barred:
            del self._barred[client.party]
        return True

    def _release(self) -> None:
        """Release clients while there is room for one read of each, and one if nobody goes on. Then those of parties
        that are not crowded any more, as many as would not crowd them again."""
        if self._releasing:  # handling what a released client had sent may make room itself: the loop below sees it
            return
        self._releasing = True
        try:
            let_go = 0
            while self._held and (self._reader is None or self._taken + let_go * READ <= self._limit):
                _, number, client = heappop(self._turns)
                if self._held.get(client) == number:
                    del self._held[client]
                    if self._reader is None:
                        self._reader = client
                    let_go += 1
                    client.release(WHY)
            for party in list(self._barred):
                promised = 0
                while (barred := self._barred.get(party)) and not self._crowded(party, promised):
                    client, size = next(iter(barred.items()))
                    self._unbar(client)
                    request = self._arriving.get(client)
                    if request is not None:
                        request.barred = False
                    promised += size
                    client.release(WHY)
        finally:
            self._releasing = False
