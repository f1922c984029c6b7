"""All faults, and the drawing of pairs."""

from __future__ import annotations

from random import Random

from tests.chaos.broker_faults import BROKER_FAULTS
from tests.chaos.clients_faults import CLIENTS_FAULTS
from tests.chaos.fault import FOREBAY, TOPICS, Fault
from tests.chaos.forebay_faults import FOREBAY_FAULTS
from tests.chaos.network_faults import NETWORK_FAULTS
from tests.chaos.topic_faults import TOPIC_FAULTS

FAULTS: tuple[Fault, ...] = (
    *NETWORK_FAULTS,
    *BROKER_FAULTS,
    *TOPIC_FAULTS,
    *FOREBAY_FAULTS,
    *CLIENTS_FAULTS,
)
LIKE_ANOTHER = frozenset(
    {
        "latency, one broker 300 ms",  # like jitter
        "half-open, requests to one broker vanish",  # like its answers
        "half-open, all brokers' answers vanish",  # like one broker's
        "all brokers killed, and back",  # like one broker's kill
        "bandwidth, 8 KB/s to one broker",
        "slicer, brokers, 40 bytes",
        "slow_close by 2 s, one broker killed",  # like SIGKILL, as the next one
        "one broker refuses connections",
        "jitter, clients 50 ± 50 ms",
        "half-open, responses to clients vanish",  # like clients' connections reset
        "bandwidth, 8 KB/s from a client",
        "slicer, clients, 40 bytes",
        "SIGSTOP of a broker, then SIGCONT",  # like its answers vanishing
        "partitions 6 → 7 → 9 in mid-flow",  # like made again; they are seen in tests/integration/test_metadata.py
        "another topic deleted in mid-flow",  # tests/proxy/brokers/test_cluster.py has topics that go
        "another topic deleted and made again",
        "one of two workers killed",  # like Forebay killed; its successor: tests/proxy/process/test_supervisor.py
        "20 clients never read",
        "2,000 clients connect at once",  # so they do in tests/proxy/test_hostile.py
    }
)
"""The names of those that `make test` leaves to `make test-all` and `make chaos`."""
_FIRST, _LAST = 0, 2


def pair(rng: Random) -> list[Fault]:
    """Two faults of different places. What is done to topics is begun first: it needs brokers that answer."""
    while True:
        first, second = rng.sample(FAULTS, 2)
        if not first.touches & second.touches:
            return sorted((first, second), key=_turn)


def _turn(fault: Fault) -> int:
    """Forebay leaves, or dies, when the other fault is there."""
    if TOPICS in fault.touches:
        return _FIRST
    return _LAST if FOREBAY in fault.touches else 1
