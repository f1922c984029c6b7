"""All faults, and the drawing of pairs."""

from __future__ import annotations

from random import Random

from tests.chaos.broker_faults import BROKER_FAULTS
from tests.chaos.fault import TOPICS, Fault
from tests.chaos.network_faults import NETWORK_FAULTS
from tests.chaos.topic_faults import TOPIC_FAULTS

FAULTS: tuple[Fault, ...] = (*NETWORK_FAULTS, *BROKER_FAULTS, *TOPIC_FAULTS)


def pair(rng: Random) -> list[Fault]:
    """Two faults of different places. What is done to topics is begun first: it needs brokers that answer."""
    while True:
        first, second = rng.sample(FAULTS, 2)
        if not first.touches & second.touches:
            return sorted((first, second), key=lambda fault: TOPICS not in fault.touches)
