"""A broker that leaves a real cluster, as each of two workers tells of it."""

from __future__ import annotations

from collections.abc import Iterator
from time import monotonic

import pytest

from tests.kit.forebay import ForebayProcess
from tests.kit.kafka import KafkaCluster
from tests.kit.metadata import ask_metadata
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.integration

LEAVER = 2
PATIENCE_S = 10
SPREAD = 12
"""Connections of which the kernel gives some to either worker."""
SOON = 120.0


@pytest.fixture
def brokers() -> Iterator[KafkaCluster]:
    with KafkaCluster("4.3.1") as cluster:
        yield cluster


@pytest.mark.whole
def test_both_workers_name_it_for_as_long_as_a_client_may_wait_in_the_other(brokers: KafkaCluster) -> None:
    """librdkafka (2.10 and newer) would send again what it has away there. Nobody produced: neither worker knows of
    any who waits."""
    settings = {"workers": "2", "request.timeout.ms": str(PATIENCE_S * 1000), "metadata.max.age.ms": "1000"}
    with ForebayProcess(brokers.bootstrap, brokers.nodes, settings=settings) as forebay:
        wait_until(lambda: _named(forebay) == SPREAD, SOON, "all are named")
        brokers.shut_down(LEAVER)
        wait_until(lambda: not _knows(brokers.ports[0]), SOON, "the others know that it has left")
        left = monotonic()
        while monotonic() < left + PATIENCE_S - 2:
            named = _named(forebay)
            after = monotonic() - left
            assert named == SPREAD or after > PATIENCE_S, f"{after:.1f} s after it had left"
        wait_until(lambda: _named(forebay) == 0, SOON, "it is named no more")


def _named(forebay: ForebayProcess) -> int:
    """How many of some connections are told of it."""
    return sum(_knows(forebay.port) for _ in range(SPREAD))


def _knows(port: int) -> bool:
    told = ask_metadata(port)
    assert told is not None
    return LEAVER in told.brokers
