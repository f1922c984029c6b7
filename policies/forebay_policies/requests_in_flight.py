"""How many Produce requests one broker may have at a time, each on a connection of its own.

In: requests as they are sent and answered, each of one group of partitions (dispatch_groups). Out: whether a group may
have another one.
"""

from __future__ import annotations

from typing import Final

from forebay_policies.dispatch_groups import DispatchGroup
from forebay_policies.throttling import CLIENT_ID

MAX_REQUESTS: Final = 16
"""To one broker at a time, beyond those that must not wait for others: see `RequestsInFlight.may_send`."""


class RequestsInFlight:
    """No bound is one that others could use up, so what one group waits for keeps no other from sending.

    `limit`: `max.in.flight.requests.per.connection`. `count`: requests that are not answered yet.
    """

    __slots__ = ("_by_group", "_limit", "count")

    def __init__(self, limit: int) -> None:
        self.count = 0
        self._limit = min(limit, MAX_REQUESTS)
        self._by_group: dict[DispatchGroup, int] = {}

    def may_send(self, group: DispatchGroup) -> bool:
        """Whether another request of the group may leave now.

        A connection each bounds them all: acks=1 has `limit` requests, each replica set one, and up to as many while
        the broker has fewer than MAX_REQUESTS; suspects of acks=1, and those of acks=all, share as many. Where each
        client id has requests of its own, acks=1 of each is bounded as a replica set is.
        """
        own = self._by_group.get(group, 0)
        if group.suspect:
            return not own and sum(g.suspect and g.acks_all == group.acks_all for g in self._by_group) < MAX_REQUESTS
        if not own or (group.client_id == CLIENT_ID and not group.acks_all):
            return own < self._limit
        return own < self._limit and self.count < MAX_REQUESTS

    def sent(self, group: DispatchGroup) -> None:
        """A request of the group is on its way."""
        self._by_group[group] = self._by_group.get(group, 0) + 1
        self.count += 1

    def done(self, group: DispatchGroup) -> None:
        """One of the group's requests was answered, or given up."""
        self.count -= 1
        left = self._by_group[group] - 1
        if left:
            self._by_group[group] = left
        else:
            del self._by_group[group]
