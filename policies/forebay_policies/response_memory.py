"""Bounds the memory of brokers' responses that are gathered whole to be rewritten, over all connections.

In: how much of such a response each connection holds, from its first byte until its client has taken it; every TICK_S
a tick. Out: whose broker is not read for now, whose is read again, and whose client does not take what it asked for.
What streams through, and what arrives in one read, never gets here.

Rules
1. Only bytes that are held count, not what a size prefix announces.
2. Beyond `limit`, a broker whose response is incomplete is not read on; they go on in turn. One is always being read:
   so there is no deadlock, and a response larger than the limit gets through alone.
3. One that does not go on (less than SLOWEST in a tick) gives its turn to the next, but keeps what it has: its broker
   may only pause. If it is its client that does not take what it asked for, and others wait, the client is closed.
   So it is, the oldest first, where whole responses that are not taken pile up: several of them, to twice `limit`.
4. A read takes no more than there is room for, or SMALL: the limit is exceeded by at most SMALL a connection, and by
   one response.

Example, limit 16 MiB: 100 clients each ask for the coordinators of 100,000 groups, 4 MB. Four or so are gathered at a
time, the others' brokers are not read meanwhile, and coordinators of a single group, a few bytes, wait for nobody.
"""

from __future__ import annotations

from collections import deque
from typing import Final, Protocol

from forebay_policies.inbound_memory import READ, SLOWEST

LIMIT: Final = 16 << 20
"""The rewritten responses of most clients fit one read; those for administrators of ten thousand groups take 1 MB."""

SMALL: Final = 16 * 1024
"""The most bytes of a read where there is no room. Coordinators and clusters mostly take less, and pass at once."""


class Holder(Protocol):
    """What is needed of a connection to a broker, with the client behind it."""

    @property
    def moved(self) -> int:
        """A number that changes by as many bytes as the broker sends or the client takes."""

    @property
    def client_slow(self) -> bool:
        """Whether the client does not take what there is for it."""

    def hold_reading(self, *, hold: bool) -> None:
        """Do not read the broker, or read it again; what has arrived meanwhile is handled later."""

    def not_taken(self) -> None:
        """Close the client's connection: it does not take what it asked for, and others wait for the memory.

        What is held for it may be given back now or soon.
        """


class _Held:
    """What one connection holds; it is `waiting` if its broker is not read because of it."""

    __slots__ = ("gathering", "mark", "size", "stuck", "waiting")

    def __init__(self) -> None:
        self.size = 0
        self.gathering = False
        self.waiting = False
        self.stuck = False
        """It has hardly moved between the last two ticks."""
        self.mark: int | None = None


class ResponseMemory:
    """Keeps what is gathered of responses, `total`, to about `limit`, without a deadlock."""

    def __init__(self, limit: int = LIMIT) -> None:
        self.total = 0
        self._limit = limit
        self._all: dict[Holder, _Held] = {}
        self._reading = 0
        """Holders that gather, do not wait and are not stuck."""
        self._turns: deque[Holder] = deque()
        """Who waits, in order; some may have left."""
        self._releasing = False

    def next_read(self) -> int:
        """The most bytes of the next read of a response that is gathered."""
        return min(READ, max(SMALL, self._limit - self.total))

    def set_held(self, holder: Holder, size: int, *, gathering: bool) -> None:
        """It holds `size` bytes now; `gathering`: they grow, unless it is held here. May hold or release holders."""
        held = self._all.get(holder)
        if held is None:
            if not size:
                return
            held = self._all[holder] = _Held()
        grown = size > held.size
        self.total += size - held.size
        held.size = size
        self._set(held, gathering=gathering and size > 0, waiting=held.waiting, stuck=held.stuck and not grown)
        if not size:
            del self._all[holder]
        if held.waiting and not held.gathering:
            self._let_go(holder, held)
        elif held.gathering and not held.waiting and self.total > self._limit and self._reading > 1:
            self._set(held, gathering=True, waiting=True, stuck=held.stuck)
            self._turns.append(holder)
            holder.hold_reading(hold=True)
        self._release()

    def tick(self) -> None:
        """See who does not go on. To be called every inbound_memory.TICK_S."""
        others_wait = any(held.waiting for held in self._all.values())
        left, holders = self.total, len(self._all)
        for holder, held in list(self._all.items()):
            moved = holder.moved
            stuck = not held.waiting and held.mark is not None and abs(moved - held.mark) < SLOWEST
            held.mark = None if held.waiting else moved
            self._set(held, gathering=held.gathering, waiting=held.waiting, stuck=stuck)
            wanted = (others_wait and left > self._limit) or (left > 2 * self._limit and holders > 1)
            if stuck and wanted and holder.client_slow:
                left -= held.size
                holders -= 1
                holder.not_taken()
        self._release()

    def _set(self, held: _Held, *, gathering: bool, waiting: bool, stuck: bool) -> None:
        before = held.gathering and not held.waiting and not held.stuck
        held.gathering, held.waiting, held.stuck = gathering, waiting, stuck
        self._reading += (gathering and not waiting and not stuck) - before

    def _let_go(self, holder: Holder, held: _Held) -> None:
        self._set(held, gathering=held.gathering, waiting=False, stuck=False)
        held.mark = None
        holder.hold_reading(hold=False)

    def _release(self) -> None:
        """Read on while there is room for one read of each, and at least one in any case."""
        if self._releasing:  # what a released one does may make room itself: the loop below sees it
            return
        self._releasing = True
        try:
            let_go = 0
            while self._turns:
                held = self._all.get(self._turns[0])
                if held is None or not held.waiting:  # it has left
                    self._turns.popleft()
                    continue
                if self._reading and self.total + let_go * READ > self._limit:
                    return
                let_go += 1
                self._let_go(self._turns.popleft(), held)
        finally:
            self._releasing = False
