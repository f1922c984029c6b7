"""Metadata from the cache, before real brokers: what they say, in their clients' versions, and seen when it changes."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from statistics import median
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]

from forebay_codecs.api_keys import METADATA
from forebay_codecs.error_codes import NONE, UNKNOWN_TOPIC_OR_PARTITION
from forebay_codecs.metadata import Metadata, Topic, parse_metadata_response
from forebay_codecs.metadata_request import encode_metadata_request
from tests.codecs.kio_oracle import encode_request, example, message
from tests.kit.forebay import ForebayProcess
from tests.kit.go_clients import GoClient
from tests.kit.kafka import KafkaCluster
from tests.kit.metadata import ask_metadata
from tests.kit.ports import LOOPBACK, free_ports
from tests.kit.slow_broker import SlowBroker
from tests.kit.spec import ProduceSpec
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.integration

SOFT_AGE = 0.5
SEEN_WITHIN = 60.0
"""Seconds; brokers tell each other first, and a broker that was killed is missed after its session."""
STARTED_WITHIN = 180.0
LATE = 5.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    # Short, but not so short that one is missed where the machine stands still for a moment.
    settings = {"broker.heartbeat.interval.ms": "500", "broker.session.timeout.ms": "6000"}
    with KafkaCluster("4.3.1", settings=settings) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def forebay(cluster: KafkaCluster) -> Iterator[ForebayProcess]:
    ages = {"metadata.soft.age.ms": str(round(1000 * SOFT_AGE))}
    with ForebayProcess(cluster.bootstrap, cluster.nodes, settings=ages) as forebay:
        yield forebay


@pytest.fixture
def admin(cluster: KafkaCluster) -> AdminClient:
    """Past Forebay, which is not told of anything."""
    return AdminClient({"bootstrap.servers": cluster.internal, "log_level": 0})


def exchange(port: int, request: bytes) -> bytes:
    with socket.create_connection((LOOPBACK, port), 30) as connection, connection.makefile("rb") as answers:
        connection.sendall(len(request).to_bytes(4, "big") + request)
        return answers.read(int.from_bytes(answers.read(4), "big"))


def asked(port: int, version: int, topics: list[str] | None, by_id: UUID | None = None) -> Metadata:
    """As kio writes the question: of all topics where none are named."""
    cls, topic_cls = (
        message("metadata", version, "MetadataRequest"),
        message("metadata", version, "MetadataRequestTopic"),
    )
    named = tuple(replace(example(topic_cls), name=name) for name in topics or ())
    if version >= 10:
        named = tuple(replace(topic, topic_id=None) for topic in named)
    if by_id is not None:
        named = (replace(example(topic_cls), name=None, topic_id=by_id),)
    whole: Any = named if named or topics is not None or version == 0 else None
    off = ("include_cluster_authorized_operations", "include_topic_authorized_operations", "allow_auto_topic_creation")
    known = {name: False for name in off if hasattr(example(cls), name)}
    request = replace(example(cls), **{**known, "topics": whole})
    return parse_metadata_response(exchange(port, encode_request(request)), version)


def topic_of(forebay: ForebayProcess, name: str) -> Topic:
    """As a client that asks for the first time is told."""
    found = ask_metadata(forebay.port, name, version=12)
    assert found is not None
    return found.topics[0]


def sees(forebay: ForebayProcess, name: str, condition: Callable[[Topic], bool], what: str) -> None:
    wait_until(lambda: condition(topic_of(forebay, name)), SEEN_WITHIN, what)


@pytest.mark.parametrize(
    "version",
    [0, 1, 5, 9, 13, *(pytest.param(each, marks=pytest.mark.whole) for each in (2, 3, 4, 6, 7, 8, 10, 11, 12))],
)
def test_a_broker_says_the_same(cluster: KafkaCluster, forebay: ForebayProcess, version: int) -> None:
    name = f"same-{version}"
    cluster.create_topic(name, assignment=[[0, 1], [1, 2], [2, 0]])
    theirs = asked(cluster.ports[0], version, [name])
    for _ in range(2):  # asked for, and from the cache
        ours = asked(forebay.port, version, [name])
        assert ours.topics == theirs.topics
        assert (ours.cluster_id, ours.error_code, ours.throttle_time_ms) == (theirs.cluster_id, NONE, 0)
        assert {node: broker.rack for node, broker in ours.brokers.items()} == {
            node: broker.rack for node, broker in theirs.brokers.items()
        }
        assert {f"{broker.host}:{broker.port}" for broker in ours.brokers.values()} == forebay.addresses
    everything = {topic.name for topic in asked(forebay.port, version, None).topics}
    assert {name for name in everything if name} >= {name}


def test_a_topic_by_its_id(cluster: KafkaCluster, forebay: ForebayProcess) -> None:
    cluster.create_topic("by-id")
    topic_id = topic_of(forebay, "by-id").topic_id
    found = asked(forebay.port, 12, None, UUID(bytes=topic_id))
    assert [(topic.name, topic.topic_id) for topic in found.topics] == [("by-id", topic_id)]


def test_brokers_do_not_look_at_names_beside_an_id(cluster: KafkaCluster, forebay: ForebayProcess) -> None:
    """Which is why metadata_requests asks for ids by themselves."""
    for name in ("beside", "an-id"):
        cluster.create_topic(name)
    topic_id = topic_of(forebay, "an-id").topic_id
    both = encode_metadata_request(1, "test", 12, ["beside"], [topic_id], allow_auto_topic_creation=False)
    answer = parse_metadata_response(exchange(cluster.ports[0], both), 12)
    assert [topic.name for topic in answer.topics] == ["an-id"]


def test_partitions_that_are_added_are_seen(cluster: KafkaCluster, forebay: ForebayProcess, admin: AdminClient) -> None:
    cluster.create_topic("grows", 3)
    assert len(topic_of(forebay, "grows").partitions) == 3
    admin.create_partitions([NewPartitions("grows", 5)])["grows"].result(30)
    sees(forebay, "grows", lambda topic: len(topic.partitions) == 5, "the new partitions are seen")


def test_a_topic_that_is_deleted_and_made_anew_is_seen(cluster: KafkaCluster, forebay: ForebayProcess) -> None:
    cluster.create_topic("anew", 3)
    before = topic_of(forebay, "anew")
    cluster.delete_topic("anew")
    sees(forebay, "anew", lambda topic: topic.error_code == UNKNOWN_TOPIC_OR_PARTITION, "the deletion is seen")
    cluster.create_topic("anew", 2)
    sees(forebay, "anew", lambda topic: topic.error_code == NONE, "the new topic is seen")
    after = topic_of(forebay, "anew")
    assert after.topic_id != before.topic_id
    assert len(after.partitions) == 2


def test_a_broker_that_leaves_and_joins_is_seen(cluster: KafkaCluster, forebay: ForebayProcess) -> None:
    cluster.create_topic("left", assignment=[[2, 1]])

    def brokers() -> set[int]:
        found = ask_metadata(forebay.port, version=12)
        assert found is not None
        return set(found.brokers)

    assert brokers() == {0, 1, 2}
    sees(forebay, "left", lambda topic: topic.partitions[0].leader_id == 2, "broker 2 leads")
    cluster.kill(2)
    wait_until(lambda: brokers() == {0, 1}, SEEN_WITHIN, "the broker is missed")
    sees(forebay, "left", lambda topic: topic.partitions[0].leader_id == 1, "its successor is seen")
    cluster.start_node(2)
    wait_until(lambda: brokers() == {0, 1, 2}, STARTED_WITHIN, "the broker is back")
    wait_until(lambda: ask_metadata(forebay.node_port(2)) is not None, SEEN_WITHIN, "its listener stands")


def test_one_that_is_away_and_leads_nothing_costs_nobody_a_record(
    cluster: KafkaCluster, forebay: ForebayProcess
) -> None:
    """franz-go asks any broker for its producer id, and takes an orderly end before the first answer for a verdict."""
    cluster.create_topic("led-by-others", assignment=[[0, 1], [1, 0]])
    sees(forebay, "led-by-others", lambda topic: len(topic.partitions) == 2, "it is known")
    cluster.kill(2)
    try:
        for number in range(8):
            spec = ProduceSpec("led-by-others", f"producer-{number}", count=10, idempotence=True)
            assert GoClient("franz-go").produce(forebay.bootstrap, spec).failures == {}
    finally:
        cluster.start_node(2)
    wait_until(lambda: ask_metadata(forebay.node_port(2)) is not None, STARTED_WITHIN, "it is back")


def test_the_metrics_say_what_the_cache_does(cluster: KafkaCluster) -> None:
    """A cache of its own, so that what is counted is what is asked here."""
    names = [f"counted-{number}" for number in range(3)]
    for name in names:
        cluster.create_topic(name)
    with ForebayProcess(cluster.bootstrap, cluster.nodes) as forebay:
        before = forebay.metrics()
        for _ in range(4):  # each on a connection of its own
            asked(forebay.port, 9, names)
        after = forebay.metrics()

    def more(name: str) -> float:
        return after[name] - before[name]

    assert more('forebay_metadata_topics_total{found="miss"}') == 3
    assert more('forebay_metadata_topics_total{found="hit"}') == 9
    assert more('forebay_metadata_requests_total{answered="after_asking"}') == 1
    assert more('forebay_metadata_requests_total{answered="from_cache"}') == 3
    assert more("forebay_metadata_upstream_requests_total") == 1
    assert more('forebay_metadata_upstream_bytes_total{direction="response"}') > 100
    assert after["forebay_metadata_cached_topics"] == 3
    assert 0 <= after["forebay_metadata_age_seconds_p50"] <= after["forebay_metadata_age_seconds_p99"] < 10


@pytest.mark.whole  # latency of all brokers at once is among the faults of tests/chaos, too
def test_late_metadata_is_not_noticed_by_who_produces() -> None:
    """Every broker's Metadata answers come five seconds late; whoever knows its topic goes on."""
    with ExitStack() as stack:
        own, relayed = dict(enumerate(free_ports(3))), dict(enumerate(free_ports(3)))
        relays = [stack.enter_context(SlowBroker(relayed[node], own[node], 0, METADATA)) for node in range(3)]
        cluster = stack.enter_context(KafkaCluster("4.3.1", ports=own, advertised=relayed))
        cluster.create_topic("known")
        cluster.create_topic("unknown")
        settings = {"metadata.soft.age.ms": "1000"}
        forebay = stack.enter_context(ForebayProcess(cluster.bootstrap, cluster.nodes, settings=settings))
        producer = Producer({"bootstrap.servers": forebay.bootstrap, "linger.ms": 0, "log_level": 0})

        def acknowledged(topic: str, number: int) -> float:
            """Seconds until a record is."""
            failed: list[object] = []
            begun = time.monotonic()
            producer.produce(topic, str(number), on_delivery=lambda error, _: failed.append(error))
            producer.flush(30)
            assert failed == [None]
            return time.monotonic() - begun

        acknowledged("known", 0)
        usual = [acknowledged("known", number) for number in range(300)]
        for relay in relays:
            relay.hold(1000 * LATE)
        late_at = time.monotonic()
        waits: list[float] = []
        while time.monotonic() < late_at + LATE + 2:  # past several refreshes that are due, and one that is answered
            waits.append(acknowledged("known", len(waits)))
        assert max(waits) < 1 + 2 * max(usual)
        assert median(waits) < 0.05 + 2 * median(usual)
        # The measure of it: who asks for a topic that nobody knows does wait.
        assert acknowledged("unknown", 0) > 1
