"""Whose TLS handshake goes on when: many at once must stop neither the traffic nor each other.

In: connections that have come, that have sent something, that have ended. Out: `step` of those whose turn it is, a few
in each turn of the loop; `give_up` of those that take too long or stand in others' way.

    silent ──first bytes──▶ waiting ──turn──▶ under way, at most MAX_UNDER_WAY ──▶ ended
       └───────────────┴─── 10 s ──────────────────┘

A connection costs CPU time only once it has said something, so whoever opens connections and is silent takes nobody's
turn. One that has begun and does not go on makes room for those that wait after GIVES_WAY_S. Where all places are taken
a silent one of that age gives way to one that comes, and nobody who waits for a turn does: else of many that come at
once those whose turn is next would lose it, come again, and take it from the next.
"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Final, Protocol

from forebay_proxy.metrics.traffic import HandshakeMetrics

MAX_UNDER_WAY: Final = 64
MAX_PENDING: Final = 1024
"""Connections whose handshake has not ended, the silent ones too. They are in no other count, so they are bounded here:
by this, and by a quarter of max.connections, but not below MAX_UNDER_WAY.
"""
TIMEOUT_S: Final = 10.0
GIVES_WAY_S: Final = 2.0
STEPS_A_TURN: Final = 2
"""One takes 1.2 to 4 ms, of which others' requests wait for so many at most."""


class Handshake(Protocol):
    """A connection until its handshake has ended."""

    def step(self) -> None:
        """Go on with what has arrived. Calls `ended` if that is all of it; may be told to step again."""

    def give_up(self, why: str) -> None:
        """End it without success; `why` is one of catalog.HANDSHAKE_RESULTS. Calls `ended`."""


class Handshakes:
    """Every connection that `came` has ended after TIMEOUT_S, and is known here until then, and no longer."""

    def __init__(self, metrics: HandshakeMetrics, max_connections: int) -> None:
        self.allow(max_connections)
        self._metrics = metrics
        self._loop = asyncio.get_running_loop()
        self._pending: dict[Handshake, float] = {}
        """All, with when they came; the oldest first, as in the others."""
        self._silent: dict[Handshake, float] = {}
        """Those of them that have said nothing, with the same."""
        self._waiting: dict[Handshake, None] = {}
        """Those that have said something first, and have not begun."""
        self._going_on: dict[Handshake, None] = {}
        """Those under way that have something to step on."""
        self._under_way: dict[Handshake, float] = {}
        self._turn: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def allow(self, max_connections: int) -> None:
        """So many connections there may be from now on: a quarter of them may be handshakes."""
        self._max_pending = min(MAX_PENDING, max(MAX_UNDER_WAY, max_connections // 4))

    def __len__(self) -> int:
        return len(self._pending)

    def came(self, handshake: Handshake) -> bool:
        """One more. False: there are too many, and none that is silent and old enough, or this is closed."""
        now = monotonic()
        if self._closed:
            return False
        if len(self._pending) >= self._max_pending:
            oldest, since = next(iter(self._silent.items()), (None, now))
            if oldest is None or now - since < GIVES_WAY_S:
                self._metrics.ended("refused")
                return False
            oldest.give_up("refused")
        self._pending[handshake] = self._silent[handshake] = now
        self._set_timer(now)
        return True

    def arrived(self, handshake: Handshake) -> None:
        """It has something to step on."""
        self._silent.pop(handshake, None)
        if handshake in self._under_way:
            self._going_on[handshake] = None
        else:
            self._waiting[handshake] = None
        self._wake()

    def ended(self, handshake: Handshake, result: str) -> None:
        """It takes no more steps; `result` is one of catalog.HANDSHAKE_RESULTS. Does nothing the second time."""
        if self._pending.pop(handshake, None) is None:
            return
        for each in (self._silent, self._waiting, self._going_on, self._under_way):
            each.pop(handshake, None)
        self._metrics.ended(result)
        if self._waiting:
            self._wake()

    def close(self) -> None:
        """Give up all of them, and take no more."""
        self._closed = True
        for handshake in list(self._pending):
            handshake.give_up("client_left")
        for handle in (self._turn, self._timer):
            if handle is not None:
                handle.cancel()

    # Turns

    def _wake(self) -> None:
        if self._turn is None:
            self._turn = self._loop.call_soon(self._take_turn)

    def _take_turn(self) -> None:
        self._turn = None
        now = monotonic()
        for _ in range(STEPS_A_TURN):
            if self._going_on:
                handshake = next(iter(self._going_on))
                del self._going_on[handshake]
            elif self._waiting and self._has_room(now):
                handshake = next(iter(self._waiting))
                del self._waiting[handshake]
                self._under_way[handshake] = now
            else:
                break
            handshake.step()
        if self._going_on or (self._waiting and self._has_room(now)):
            self._wake()

    def _has_room(self, now: float) -> bool:
        if len(self._under_way) >= MAX_UNDER_WAY:
            oldest, since = next(iter(self._under_way.items()))
            if now - since < GIVES_WAY_S:
                return False
            oldest.give_up("timed_out")
        return True

    # Time

    def _set_timer(self, now: float) -> None:
        if self._timer is None and self._pending:
            oldest = next(iter(self._pending.values()))
            wait = min(oldest + TIMEOUT_S - now, GIVES_WAY_S)
            self._timer = self._loop.call_later(max(0.0, wait), self._look)

    def _look(self) -> None:
        """Every GIVES_WAY_S at most, while there are any."""
        self._timer = None
        now = monotonic()
        while self._pending:
            oldest, since = next(iter(self._pending.items()))
            if now - since < TIMEOUT_S:
                break
            oldest.give_up("timed_out")
        if self._waiting:
            self._wake()
        self._set_timer(now)
