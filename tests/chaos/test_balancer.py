"""Forebays behind a balancer that come and go: every client goes on, nothing acknowledged is lost, and load evens out.

Old clients know only the addresses that they were told. These lead to the balancer, so a replica that is gone strands
nobody; and since connections are closed when they are old, one that was added soon has its share of them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from time import monotonic

import pytest
from confluent_kafka import Consumer

from tests.chaos.balanced import MAX_AGE_S, RECOVERY_SECONDS, Balanced, Trickle
from tests.chaos.load import Load, Loader, confluent, java, kafka_python
from tests.chaos.reconcile import reconcile
from tests.kit.java import AncientJavaClient, JavaClient
from tests.kit.paths import ANCIENT_CLIENT_VERSIONS, CLIENT_VERSIONS
from tests.kit.topic_log import TopicLog
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.integration

SOME = ("0.8.2.2", "1.1.1", "4.3.1")
ALL = (*ANCIENT_CLIENT_VERSIONS, *CLIENT_VERSIONS)
PARTITIONS = 6
EVEN = 0.2
NOTICED_S = 5.0
QUICK = {"reconnect.backoff.max.ms": "500", "max.block.ms": "10000", "request.timeout.ms": "5000"}
SENDS_ONCE = {**QUICK, "retries": "0"}
AGAIN = {**QUICK, "delivery.timeout.ms": "20000", "max.in.flight.requests.per.connection": "1"}
IDEMPOTENT = ("3.2.3", "4.3.1")


@pytest.fixture(scope="module")
def balanced() -> Iterator[Balanced]:
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    with Balanced() as balanced:
        yield balanced


def loader(version: str, stack: ExitStack) -> Loader:
    """Idempotent; or retrying, with one request in flight; or, the old ones, sending once."""
    kind = AncientJavaClient if version in ANCIENT_CLIENT_VERSIONS else JavaClient
    client = kind(version)
    stack.callback(client.close)
    if version in IDEMPOTENT:
        return java(client, {**QUICK, "delivery.timeout.ms": "20000"}, idempotence=True)
    return java(client, AGAIN if not version.startswith(("0.", "1.")) else SENDS_ONCE)


class Fleet:
    """Clients of many versions under way, half of them by ports and half by names."""

    def __init__(self, balanced: Balanced, versions: Sequence[str], topic: str, stack: ExitStack) -> None:
        loaders = [*(loader(version, stack) for version in versions), confluent(), kafka_python()]
        self.loads = [
            stack.enter_context(Load(bootstrap, topic, loaders[half::2]))
            for half, bootstrap in enumerate((balanced.ports, balanced.names))
        ]
        self.goes_on("the first replicas")

    def goes_on(self, after: str) -> None:
        """Returns once every client has had 20 more records acknowledged."""
        moment = monotonic()
        wait_until(lambda: min(load.acked_since(moment) for load in self.loads) >= 20, RECOVERY_SECONDS, after)


def evens_out(balanced: Balanced) -> None:
    what = f"less than {EVEN:.0%} off the mean, in two maximum ages, once the balancer has seen that it is there"
    wait_until(lambda: balanced.imbalance() < EVEN, 2 * MAX_AGE_S + NOTICED_S, what)


@pytest.mark.whole
@pytest.mark.parametrize(
    ("versions", "rounds"),
    [
        pytest.param(SOME, [("a", "b")], id="some"),
        pytest.param(ALL, [("a", "b"), ("b", "c"), ("c", "a")], id="all"),
    ],
)
@pytest.mark.timeout(900)
def test_replicas_come_and_go(balanced: Balanced, versions: Sequence[str], rounds: Sequence[tuple[str, str]]) -> None:
    """In each round one is killed and added again, and another rolled; a third was added before the first."""
    topic, trickles = f"load-{len(versions)}", f"trickle-{len(versions)}"
    for name in (topic, trickles):
        balanced.cluster.create_topic(name, PARTITIONS)
    for name in "ab":
        if name not in balanced.running:
            balanced.add(name)
    with ExitStack() as stack:
        log = stack.enter_context(TopicLog(balanced.cluster.internal))
        trickle = stack.enter_context(Trickle([balanced.ports, balanced.names], trickles, 10))
        fleet = Fleet(balanced, versions, topic, stack)
        reader = stack.enter_context(Reader(balanced.names, topic))
        if "c" not in balanced.running:
            balanced.add("c")
        for name, other in rounds:
            balanced.kill(name)
            fleet.goes_on(f"{name} was killed")
            balanced.add(name)
            balanced.roll(other)
            fleet.goes_on(f"{other} was rolled")
            evens_out(balanced)
        tallies = [tally for load in fleet.loads for tally in load.stop()]
        found = log.read(topic, dict.fromkeys(range(PARTITIONS), 0))
        reader.reads(len(found))
        trickle.stop()
        arrived = log.read(trickles, dict.fromkeys(range(PARTITIONS), 0))
    reconcile(tallies, found).check(topic)
    assert not trickle.failures
    assert len(trickle.acknowledged) == trickle.sent
    assert set(trickle.acknowledged) <= {record.value.decode() for record in arrived if record.value}


class Reader:
    """A member of a group, which reads by way of the balancer what it holds."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": topic,
                "auto.offset.reset": "earliest",
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )
        self._topic = topic
        self._found: set[tuple[int, int]] = set()

    def __enter__(self) -> Reader:
        self._consumer.subscribe([self._topic])
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def reads(self, count: int) -> None:
        """All of that many records, sooner or later."""

        def whole() -> bool:
            for message in self._consumer.consume(1000, 0.2):
                if message.error() is None:
                    self._found.add((message.partition() or 0, message.offset() or 0))
            return len(self._found) >= count

        wait_until(whole, RECOVERY_SECONDS, f"{count} records are read")
