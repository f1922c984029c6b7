"""What a thousand realms take that know the same topics, each by its own responses."""

from __future__ import annotations

import asyncio
import gc
import os
import pickle
from time import monotonic

import pytest

from forebay_codecs.metadata import Broker, Metadata, Partition, Topic
from forebay_proxy.realms.realm import Realm
from tests.kit.event_loop import in_loop
from tests.kit.memory import resident
from tests.proxy.realms.test_realms import Land

PARTITIONS = 6
REALMS = 1000
TOPICS = 100
MOST_BYTES = 150_000_000
"""Of a thousand realms with a hundred topics each."""


def described(topics: int) -> bytes:
    """A response, from which each realm has objects of its own."""
    brokers = {node: Broker(f"broker-{node}", 9092, None) for node in range(3)}
    found = tuple(
        Topic(0, f"topic-{number}", number.to_bytes(16, "big"), is_internal=False, partitions=tuple(partitions()))
        for number in range(1, topics + 1)
    )
    return pickle.dumps(Metadata(0, brokers, "cluster", 0, found, 0))


def partitions() -> list[Partition]:
    replicas = [tuple((index + place) % 3 for place in range(3)) for index in range(PARTITIONS)]
    return [Partition(0, index, those[0], 5, those, those) for index, those in enumerate(replicas)]


def told(realm: Realm, response: bytes) -> None:
    """It has heard of these topics for its records, and was asked for them."""
    metadata: Metadata = pickle.loads(response)  # our own
    now = monotonic()
    names = [topic.name for topic in metadata.topics if topic.name is not None]
    found = realm.view.cache.store(metadata, names, now)
    realm.view.cluster.apply(metadata, set(names), now, 300.0)
    realm.view.cache.serve(list(found.values()), 9, now, frozenset())


@in_loop
async def test_realms_share_what_they_know_of_topics_and_no_more() -> None:
    land = Land()
    land.listener.open_bootstrap(lambda node_id: asyncio.Protocol())
    response = described(3)
    for user in ("alice", "bob"):
        land.join(user)
    alice, bob = land.realms
    told(alice, response)
    told(bob, response)
    one, other = (realm.view.cluster.topics["topic-2"].queues for realm in (alice, bob))
    assert one.leaders is other.leaders
    assert one.available is other.available
    assert one.queue(0) is not other.queue(0)
    bob.view.cluster.set_leaders("topic-2", {0: 2}, monotonic())
    assert (one.leaders[0], other.leaders[0]) == (0, 2), "the news is its own"
    land.realms.close()
    land.listener.close()


@pytest.mark.whole
@in_loop
async def test_a_thousand_realms_of_a_hundred_topics() -> None:
    land = Land(REALMS)
    land.listener.open_bootstrap(lambda node_id: asyncio.Protocol())
    response = described(TOPICS)
    gc.collect()
    before = resident(os.getpid())
    for number in range(REALMS):
        land.join(f"user-{number}")
    for realm in land.realms:
        told(realm, response)
    gc.collect()
    took = resident(os.getpid()) - before
    print(f"{took / 1e6:.0f} MB, with a queue for each topic ", end="")
    for realm in land.realms:
        for topic in realm.view.cluster.topics.values():
            topic.queues.queue(0)
    print(f"{(resident(os.getpid()) - before) / 1e6:.0f} MB")  # pytest -rP shows it
    assert took < MOST_BYTES
    land.realms.close()
    land.listener.close()
