"""confluent-kafka's Consumer: groups of both protocols, subscriptions by pattern, and everything about offsets."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import Any

import pytest
from confluent_kafka import Consumer, IsolationLevel, TopicPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

from tests.integration.parity.librdkafka import (
    SECONDS,
    admin,
    consumer,
    content,
    fill,
    places,
    producer,
    read,
    send,
    until,
)
from tests.integration.parity.way import Way, both_ways

pytestmark = pytest.mark.integration

PROTOCOLS = ("classic", "consumer")
"""Of groups: the one of always, and KIP-848's."""
OUT_OF_RANGE = 1_000_000


def partitions_of(topic: str, offset: int = -1001) -> list[TopicPartition]:
    return [TopicPartition(topic, partition, offset) for partition in range(3)]


@pytest.mark.parametrize("protocol", PROTOCOLS)
@both_ways
def test_a_group_reads_and_goes_on_where_it_was(way: Way, protocol: str) -> Any:
    topic = way.topic()
    outcome: list[Any] = []
    callbacks: list[list[Any]] = []
    fill(way, topic)

    def assigned(client: Consumer, partitions: list[TopicPartition]) -> None:
        callbacks.append(["assigned", *sorted(each.partition for each in partitions)])

    def revoked(client: Consumer, partitions: list[TopicPartition]) -> None:
        callbacks.append(["revoked", *sorted(each.partition for each in partitions)])

    for _ in range(2):
        with consumer(way, group_protocol=protocol, enable_auto_commit=False) as client:
            client.subscribe([topic], on_assign=assigned, on_revoke=revoked)
            messages = read(client, 30)
            outcome.append(sorted(map(content, messages)))
            outcome.append(places(client.position(client.assignment())))
            outcome.append(places(client.commit(asynchronous=False) or []))
            outcome.append(places(client.committed(partitions_of(topic), timeout=SECONDS)))
            client.unsubscribe()
            until(client, lambda: callbacks[-1][0] == "revoked")
        fill(way, topic)
    return outcome, callbacks


@pytest.mark.parametrize("protocol", PROTOCOLS)
@both_ways
def test_a_pattern(way: Way, protocol: str) -> Any:
    """Two of three topics match, and one that is made after that, which with KIP-848 brokers see in their own time."""
    topics = [way.topic(what) for what in ("wanted-1", "wanted-2", "other")]
    for topic in topics:
        fill(way, topic)
    with consumer(way, group_protocol=protocol, topic_metadata_refresh_interval_ms=500) as client:
        client.subscribe([f"^{way.name('wanted')}-.*"])
        messages = read(client, 60)
        assignment = places(client.assignment())
        if protocol == "classic":
            fill(way, way.topic("wanted-3"))
            messages += read(client, 30)
    return assignment, sorted([message.topic(), *content(message)] for message in messages)


# A member of KIP-848's groups reads above; here two wait for each other's heartbeats.
@pytest.mark.parametrize("protocol", ["classic", pytest.param("consumer", marks=pytest.mark.whole)])
@both_ways
def test_two_members_share(way: Way, protocol: str) -> Any:
    topic = way.topic(partitions=4)
    with ExitStack() as stack:
        members = [stack.enter_context(consumer(way, group_protocol=protocol)) for _ in range(2)]
        for member in members:
            member.subscribe([topic])
        deadline = time.monotonic() + SECONDS
        while sorted(len(member.assignment()) for member in members) != [2, 2]:
            assert time.monotonic() < deadline
            for member in members:
                member.poll(0.1)
        fill(way, topic, 40, partitions=4)
        found = [content(message) for member in members for message in read(member, 20)]
    return sorted(found)


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
@both_ways
def test_a_static_member(way: Way, strategy: str) -> Any:
    topic = way.topic()
    outcome: list[Any] = []
    fill(way, topic)
    for _ in range(2):
        settings = {"group_instance_id": "static", "partition_assignment_strategy": strategy}
        with consumer(way, **settings) as client:
            client.subscribe([topic])
            until(client, lambda client=client: len(client.assignment()) == 3)  # type: ignore[misc]
            outcome.append(places(client.assignment()))
    return outcome


@both_ways
def test_offsets(way: Way) -> Any:
    topic = way.topic()
    outcome: list[Any] = []
    fill(way, topic)
    with consumer(way, enable_auto_commit=False) as client:
        client.assign(partitions_of(topic, 3))
        for partition in range(3):
            outcome.append(client.get_watermark_offsets(TopicPartition(topic, partition), timeout=SECONDS))
        outcome.append(places(client.offsets_for_times(partitions_of(topic, 1_010), timeout=SECONDS)))
        outcome.append(places(client.offsets_for_times(partitions_of(topic, 2_000), timeout=SECONDS)))
        read(client, 21)
        outcome.append(places(client.position(partitions_of(topic))))
        client.seek(TopicPartition(topic, 1, 8))
        outcome.append(sorted(map(content, read(client, 2))))
        outcome.append(places(client.committed(partitions_of(topic), timeout=SECONDS)))
        client.commit(offsets=partitions_of(topic, 4), asynchronous=False)
        outcome.append(places(client.committed(partitions_of(topic), timeout=SECONDS)))
        outcome.append(client.get_watermark_offsets(TopicPartition(topic, 0), cached=True))
    return outcome


@both_ways
def test_pause_and_resume(way: Way) -> Any:
    topic = way.topic()
    fill(way, topic)
    with consumer(way) as client:
        client.assign(partitions_of(topic, 0))
        client.pause([TopicPartition(topic, 1)])
        before = sorted(map(content, read(client, 20)))
        quiet = client.poll(0.5) is None
        client.resume([TopicPartition(topic, 1)])
        return before, quiet, sorted(map(content, read(client, 10)))


@both_ways
def test_incremental_assignment(way: Way) -> Any:
    topic = way.topic()
    fill(way, topic)
    with consumer(way) as client:
        client.incremental_assign([TopicPartition(topic, 0, 0)])
        first = sorted(map(content, read(client, 10)))
        client.incremental_assign([TopicPartition(topic, 1, 5)])
        client.incremental_unassign([TopicPartition(topic, 0)])
        return first, sorted(map(content, read(client, 5))), places(client.assignment())


@both_ways
def test_an_offset_out_of_range(way: Way) -> Any:
    topic = way.topic()
    outcome: list[Any] = []
    fill(way, topic)
    for reset in ("earliest", "latest", "error"):
        with consumer(way, auto_offset_reset=reset) as client:
            client.assign([TopicPartition(topic, 0, OUT_OF_RANGE)])
            message = client.poll(SECONDS if reset != "latest" else 1)
            error = message and message.error()
            outcome.append([error.name() if error else message and content(message)])
    return outcome


@both_ways
def test_a_topic_that_is_not_there(way: Way) -> Any:
    with consumer(way) as client:
        client.subscribe([way.name("nowhere")])
        message = client.poll(SECONDS)
        error = message and message.error()
        return error and error.name()


@both_ways
def test_end_of_partition(way: Way) -> Any:
    topic = way.topic()
    fill(way, topic)
    with consumer(way, enable_partition_eof=True) as client:
        client.assign([TopicPartition(topic, 2, 9)])
        return [
            (error.name() if (error := message.error()) else content(message), message.offset())
            for message in client.consume(2, timeout=SECONDS)
        ]


@both_ways
def test_stored_offsets_are_committed_by_themselves(way: Way) -> Any:
    topic = way.topic()
    fill(way, topic)
    with consumer(way, enable_auto_offset_store=False) as client:
        client.subscribe([topic])
        read(client, 30)
        client.store_offsets(offsets=partitions_of(topic, 7))
    with consumer(way) as client:
        return places(client.committed(partitions_of(topic), timeout=SECONDS))


@both_ways
def test_list_topics(way: Way) -> Any:
    topic = way.topic()
    with consumer(way) as client:
        found = client.list_topics(timeout=SECONDS)
        one = client.list_topics(topic, timeout=SECONDS).topics[topic]
    leaders = [[number, part.leader, part.replicas, part.isrs] for number, part in one.partitions.items()]
    return way.own(found.topics), set(map(str, found.brokers.values())), found.cluster_id, sorted(leaders)


@both_ways
def test_the_offsets_of_an_open_transaction(way: Way) -> Any:
    """The last stable offset, which only an isolation level tells."""
    topic = way.topic()
    client = producer(way, transactional_id=way.name("transaction"))
    client.init_transactions()
    client.begin_transaction()
    send(client, topic, [{"partition": 0, "value": "open"}] * 5)
    specs: Any = OffsetSpec
    question = {TopicPartition(topic, 0): specs.latest()}
    asking = admin(way)
    levels = (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)
    outcome = [
        found.result().offset
        for level in levels
        for found in asking.list_offsets(question, isolation_level=level).values()
    ]
    client.abort_transaction()
    return outcome
