"""A broker as the simulation has it: any number of requests at once, each on a connection of its own.

In: its times (service_times), requests as they are sent and answered. Out: how long each takes, and whether another may
be sent (forebay_policies.requests_in_flight).
"""

from __future__ import annotations

from random import Random

from forebay_pipeline.replay.service_times import BrokerTimes
from forebay_policies.dispatch_groups import DispatchGroup
from forebay_policies.requests_in_flight import RequestsInFlight


class Broker:
    """No request waits for another's answer: each takes its own time, drawn when it is sent."""

    __slots__ = ("_rng", "_times", "_under_way", "in_flight", "leader", "scheduled")

    def __init__(self, leader: int, times: BrokerTimes, max_in_flight: int, rng: Random) -> None:
        self.leader = leader
        self.in_flight = RequestsInFlight(max_in_flight)
        self.scheduled = False
        """Its sender was woken and runs in the next turn."""
        self._times = times
        self._rng = rng
        self._under_way = [0, 0]
        """Requests that wait for the leader alone, and for followers (acks=all)."""

    def send(self, group: DispatchGroup, size: int) -> float:
        """Send a request of `group` with `size` bytes; how long it takes, in seconds."""
        busy = self._under_way[group.acks_all] > 0
        self._under_way[group.acks_all] += 1
        self.in_flight.sent(group)
        return self._times.draw(size, self._rng, waits=group.acks_all, busy=busy)

    def answered(self, group: DispatchGroup) -> None:
        """One of the group's requests was answered."""
        self._under_way[group.acks_all] -= 1
        self.in_flight.done(group)
