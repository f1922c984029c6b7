"""kafka-clients: the scenarios of tests/kit/java/parity, in a JVM for each way.

FOREBAY_TEST_ALL=1: with the last client of Kafka 3, too.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import pytest

from tests.integration.parity.way import ALONE, Way, Ways, both_ways
from tests.kit.java import JavaClient

pytestmark = pytest.mark.integration

Java = Callable[[str, str], JavaClient]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PROTOCOLS = ("classic", "consumer")
SCENARIOS = {
    "ParityProducer": [
        *(f"{kind}-{codec}" for codec in CODECS for kind in ("idempotent", "plain")),
        *("acks-0", "without-keys", "partitions", "transactions", "offsets-in-a-transaction", "fenced", "refused"),
    ],
    "ParityConsumer": [
        *(f"{what}-{protocol}" for protocol in PROTOCOLS for what in ("group", "pattern", "offsets")),
        *("cooperative", "static-member", "out-of-range", "list-topics"),
    ],
    "ParityAdmin": [
        *("topics", "cluster", "configs", "groups", "group-offsets", "member-removed", "offsets", "delete-records"),
        *("producers-and-transactions", "log-dirs", "features", "quorum", "reassignments", "elections"),
        *("acls", "quotas", "scram", "delegation-tokens"),
    ],
    "ParityNewest": ["pattern-by-brokers", "share-group", "list-groups", "config-resources", "streams-groups"],
}
"""By the class that has them."""
LIKE_ANOTHER = {
    *(f"{kind}-{codec}" for codec in ("gzip", "snappy", "lz4") for kind in ("idempotent", "plain")),  # like zstd
    "share-group",  # in test_consume.py, too
}
"""Scenarios that `make test` leaves to `make test-all`."""
VERSIONS = ("4.3.1", "3.9.2") if os.environ.get("FOREBAY_TEST_ALL") == "1" else ("4.3.1",)
CASES = [
    pytest.param(version, of, scenario, marks=[pytest.mark.whole] if scenario in LIKE_ANOTHER else [])
    for version in VERSIONS
    for of, scenarios in SCENARIOS.items()
    for scenario in scenarios
    if version == "4.3.1" or of != "ParityNewest"
]


@pytest.fixture(scope="session")
def java() -> Iterator[Java]:
    """Version and the way's bootstrap servers → client."""
    clients: dict[tuple[str, str], JavaClient] = {}

    def get(version: str, bootstrap: str) -> JavaClient:
        return clients.setdefault((version, bootstrap), JavaClient(version))

    yield get
    for client in clients.values():
        client.close()


@pytest.mark.parametrize(("version", "of", "scenario"), CASES)
@both_ways
def test_java(way: Way, java: Java, version: str, of: str, scenario: str) -> Any:
    topic = way.topic()
    client = java(version, way.bootstrap)
    with ALONE if scenario == "scram" else nullcontext():
        return client.parity(way.bootstrap, of, scenario=scenario, topic=topic, prefix=way.name(""))


@pytest.mark.parametrize("of", SCENARIOS)
def test_no_scenario_is_left_out(ways: Ways, java: Java, of: str) -> None:
    assert java("4.3.1", ways.direct.bootstrap).parity("", of) == SCENARIOS[of]
