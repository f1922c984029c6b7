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
