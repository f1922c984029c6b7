"""Whose requests come too late: by the port of a partition's former leader, behind the same client's to the new one.

A client that hears of a new leader goes on there, on another connection. What it had sent to the former leader may
still be under way: in a slow network, or waiting here, if that connection is held. A broker refuses it then, with
NOT_LEADER_OR_FOLLOWER. Were it taken here, its records would stand behind later ones with their key.

In: who comes by which port. Out: whether it is too late. While a client has not come by the new leader's port, what it
sends by another one keeps its order, and is taken.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

LATE_S: Final = 60.0
"""Seconds after the leader's change in which requests may be too late: clients wait less for an answer, by default."""

MOST: Final = 100
"""Clients that are remembered. Where there are more, whoever comes by a former leader's port is refused, as there."""


class LeaderMove:
    """A partition's leader has changed, at `now`. Times are in seconds of one clock."""

    __slots__ = ("_followed", "_until")

    def __init__(self, now: float) -> None:
        self._until = now + LATE_S
        self._followed: set[Hashable] = set()
        """Who has come by the new leader's port."""

    def over(self, now: float) -> bool:
        """Whether nothing can be too late any more."""
        return now >= self._until

    def too_late(self, client: Hashable, *, by_leader: bool) -> bool:
        """Whether records of `client` that come now are behind later ones. `by_leader`: by the new leader's port."""
        if by_leader:
            if len(self._followed) < MOST:
                self._followed.add(client)
            return False
        return client in self._followed or len(self._followed) >= MOST
