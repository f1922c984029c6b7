"""Which identities are there, and for how long anything is kept of one whose last client has left.

    active ──last client leaves──▶ draining ──nothing is left of it──▶ idle ──KEPT_S──▶ forgotten
       ▲                              │                                 │
       └──────── a client comes ──────┴─────────────────────────────────┘

Draining: records are still on their way, and connections may be opened for them; each has a deadline, so this ends.
Those without acks that pass untouched have one, too: what their broker does not read in time is given up.
Idle: there is no credential any more, only connections and what was learned. Forgotten: nothing.

In: clients that come and leave, the time, who has work left. Out: calls to `rest` and `forget`. An identity is known by
a key, which tells apart what brokers tell apart. Times are in seconds of the caller's clock.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Final

KEPT_S: Final = 60.0
"""A client that comes back within this time finds connections and metadata as they were."""


class Life(enum.Enum):
    """How far an identity is from being forgotten."""

    ACTIVE = "active"
    DRAINING = "draining"
    IDLE = "idle"


class Identity:
    """One identity. `clients`: connections that are it now. `since`: when its life became what it is."""

    __slots__ = ("clients", "key", "life", "since")

    def __init__(self, key: str, now: float) -> None:
        self.key = key
        self.life = Life.ACTIVE
        self.clients = 0
        self.since = now


class Identities:
    """Never more than `most`. An idle one makes room for another; one that is in use, or has records, never does.

    `rest` and `forget` are called with the key of one that has become idle, or is forgotten.
    """

    def __init__(self, most: int, rest: Callable[[str], None], forget: Callable[[str], None]) -> None:
        self._most = most
        self._rest = rest
        self._forget = forget
        self._all: dict[str, Identity] = {}

    def __len__(self) -> int:
        return len(self._all)

    def __contains__(self, key: str) -> bool:
        return key in self._all

    def enter(self, key: str, now: float) -> Identity | None:
        """A client is of this identity. None: there are too many."""
        found = self._all.get(key)
        if found is None:
            if len(self._all) >= self._most and not self._make_room():
                return None
            found = self._all[key] = Identity(key, now)
        elif found.life is not Life.ACTIVE:
            found.life, found.since = Life.ACTIVE, now
        found.clients += 1
        return found

    def leave(self, identity: Identity, now: float) -> None:
        """One of its clients is gone."""
        identity.clients -= 1
        if not identity.clients:
            identity.life, identity.since = Life.DRAINING, now

    def sweep(self, now: float, busy: Callable[[str], bool]) -> None:
        """To be called every second or so. `busy`: whether anything of the identity is on its way."""
        for identity in list(self._all.values()):
            if identity.life is Life.DRAINING and not busy(identity.key):
                identity.life, identity.since = Life.IDLE, now
                self._rest(identity.key)
            elif identity.life is Life.IDLE and now - identity.since >= KEPT_S:
                self._drop(identity)

    def _make_room(self) -> bool:
        """Forget the one that has been idle for longest."""
        idle = [identity for identity in self._all.values() if identity.life is Life.IDLE]
        if not idle:
            return False
        self._drop(min(idle, key=lambda identity: identity.since))
        return True

    def _drop(self, identity: Identity) -> None:
        del self._all[identity.key]
        self._forget(identity.key)
