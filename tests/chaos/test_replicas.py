"""Two Forebays behind a balancer, and connections that hop from one to the other every second, over slow brokers.

Clients send records with keys, one request at a time. What a replica still holds of a connection that has ended may
not come between what its client sends by the other: first occurrences are in order, and once the client itself has
ended nothing is appended any more.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack, closing
from threading import Event, Thread
from time import monotonic

import pytest

from tests.chaos.balanced import RECOVERY_SECONDS, Balanced
from tests.chaos.load import Load, java
from tests.chaos.reconcile import reconcile
from tests.kit.java import JavaClient
from tests.kit.topic_log import TopicLog
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.integration

PARTITIONS = 6
JITTER_MS = 150
HOPS = 6
EVERY_S = 1.0
LATE_S = 5.0
"""Far longer than anything takes here: what was sent before a client's end is appended by then."""
QUICK = {"reconnect.backoff.max.ms": "200", "max.block.ms": "20000", "request.timeout.ms": "10000"}
ONE_AT_A_TIME = {**QUICK, "max.in.flight.requests.per.connection": "1"}


@pytest.fixture(scope="module")
def balanced() -> Iterator[Balanced]:
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    with Balanced(JITTER_MS) as balanced:
        for name in "ab":
            balanced.add(name)
        yield balanced


class Hopping:
    """While it is entered, all connections end every second, and go to the other replica."""

    def __init__(self, balanced: Balanced) -> None:
        self._balanced = balanced
        self._stop = Event()
        self._thread = Thread(target=self._run)
        self.hops = 0

    def _run(self) -> None:
        while not self._stop.wait(EVERY_S):
            self.hops += 1
            self._balanced.balancer.hop("ab"[self.hops % 2])

    def __enter__(self) -> Hopping:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


@pytest.mark.whole
def test_what_hops_between_replicas_stays_in_order_and_ends_with_its_client(balanced: Balanced) -> None:
    topic = "hopping"
    balanced.cluster.create_topic(topic, PARTITIONS)
    with ExitStack() as stack:
        log = stack.enter_context(TopicLog(balanced.cluster.internal))
        once, again = (JavaClient(version) for version in ("1.1.1", "2.8.2"))
        for client in (once, again):
            stack.callback(client.close)
        loaders = (java(once, {**ONE_AT_A_TIME, "retries": "0"}), java(again, {**ONE_AT_A_TIME, "retries": "1000"}))
        load = stack.enter_context(Load(balanced.ports, topic, loaders))
        wait_until(lambda: load.acked_since(load.begun) >= 20, RECOVERY_SECONDS, "both clients are acknowledged")
        with Hopping(balanced) as hopping:
            wait_until(lambda: hopping.hops >= HOPS, 120, "connections have hopped")
        moment = monotonic()
        wait_until(lambda: load.acked_since(moment) >= 20, RECOVERY_SECONDS, "both clients go on")
        tallies = load.stop()
        findings = reconcile(tallies, log.read(topic, dict.fromkeys(range(PARTITIONS), 0)))
    findings.check(topic)
    assert findings.acknowledged > 200


@pytest.mark.whole
def test_nothing_is_appended_once_a_client_has_ended(balanced: Balanced) -> None:
    topic = "ended"
    balanced.cluster.create_topic(topic, PARTITIONS)
    client = JavaClient("2.8.2")
    with TopicLog(balanced.cluster.internal) as log, closing(client):
        load = Load(balanced.ports, topic, (java(client, ONE_AT_A_TIME),))
        with load, Hopping(balanced) as hopping:
            wait_until(lambda: load.acked_since(load.begun) >= 20 and hopping.hops >= 3, RECOVERY_SECONDS, "it sends")
            client.close()  # it is killed, with a request under way
        ended = monotonic()
        wait_until(lambda: monotonic() > ended + LATE_S, 2 * LATE_S, "what was sent has arrived")
        ends = log.ends(topic)
        assert sum(ends.values()) >= 20
        wait_until(lambda: monotonic() > ended + 2 * LATE_S, 2 * LATE_S, "time passes")
        assert log.ends(topic) == ends
    for forebay in balanced.running.values():
        samples = forebay.metrics()
        assert samples["forebay_queued_batches"] == samples["forebay_in_flight_requests"] == 0
