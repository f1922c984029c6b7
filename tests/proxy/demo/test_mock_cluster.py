"""The embedded cluster does to real clients what its methods say."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from forebay_codecs.api_keys import METADATA, PRODUCE
from forebay_codecs.error_codes import NOT_ENOUGH_REPLICAS
from forebay_proxy.demo.mock_cluster import MockCluster, MockClusterError, MockClusterUnavailable, find_librdkafka
from forebay_proxy.demo.wire import ProduceAnswers, ProduceTemplate
from tests.kit.faulty_cluster import FaultyCluster

TOPIC = "ponds"


@pytest.fixture
def cluster() -> Iterator[FaultyCluster]:
    with FaultyCluster(3) as cluster:
        yield cluster


def addresses(cluster: MockCluster) -> list[tuple[str, int]]:
    """Of broker 1, 2, 3."""
    pairs = [address.rpartition(":") for address in cluster.bootstrap.split(",")]
    return [(host, int(port)) for host, _, port in pairs]


def produce(address: tuple[str, int], count: int = 1) -> list[int]:
    """Error codes of `count` Produce requests for partition 0, one after the other."""
    template, answers = ProduceTemplate(TOPIC, 100), ProduceAnswers(TOPIC)
    errors = []
    with socket.create_connection(address, timeout=10) as connection:
        for number in range(count):
            connection.sendall(template.frame(number, 0, 1_700_000_000_000))
            answer = b""
            while len(answer) < answers.size:
                received = connection.recv(answers.size - len(answer))
                assert received
                answer += received
            correlation_id, error = answers.read(answer, 0)
            assert correlation_id == number
            errors.append(error)
    return errors


def test_a_real_client_produces_and_finds_its_records(cluster: MockCluster) -> None:
    cluster.create_topic(TOPIC, 3)
    delivered: list[tuple[int | None, int | None]] = []

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        assert error is None
        delivered.append((message.partition(), message.offset()))

    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for number in range(9):
        producer.produce(TOPIC, b"drop", partition=number % 3, on_delivery=on_delivery)
    assert producer.flush(10) == 0
    assert sorted(delivered) == [(partition, offset) for partition in range(3) for offset in range(3)]

    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "readers"})
    try:
        ends = [consumer.get_watermark_offsets(TopicPartition(TOPIC, p), timeout=10) for p in range(3)]
        assert ends == [(0, 3)] * 3
    finally:
        consumer.close()


def test_requests_are_counted_by_broker_and_api(cluster: FaultyCluster) -> None:
    cluster.create_topic(TOPIC, 1)
    cluster.set_partition_leader(TOPIC, 0, 2)
    produce(addresses(cluster)[1])
    assert cluster.requests() == []

    cluster.start_request_tracking()
    produce(addresses(cluster)[1], count=3)
    assert cluster.request_counts() == {(2, PRODUCE): 3}
    times = [request.timestamp for request in cluster.requests()]
    assert times == sorted(times)

    cluster.clear_requests()
    assert cluster.requests() == []
    produce(addresses(cluster)[1])
    assert cluster.request_counts() == {(2, PRODUCE): 1}
    cluster.stop_request_tracking()
    produce(addresses(cluster)[1])
    assert cluster.requests() == []


def test_the_leader_is_the_broker_that_was_set(cluster: MockCluster) -> None:
    cluster.create_topic(TOPIC, 3)
    leaders = {0: 3, 1: 1, 2: 3}
    for partition, broker in leaders.items():
        cluster.set_partition_leader(TOPIC, partition, broker)
    metadata = Producer({"bootstrap.servers": cluster.bootstrap}).list_topics(TOPIC, timeout=10)
    assert {p: metadata.topics[TOPIC].partitions[p].leader for p in leaders} == leaders
    listed = {node: (broker.host, broker.port) for node, broker in metadata.brokers.items()}
    assert listed == dict(enumerate(addresses(cluster), start=1))


def test_a_broker_with_a_round_trip_answers_no_sooner(cluster: MockCluster) -> None:
    cluster.create_topic(TOPIC, 1)
    cluster.set_partition_leader(TOPIC, 0, 1)
    cluster.set_broker_rtt(1, 60)
    start = time.perf_counter()
    produce(addresses(cluster)[0], count=2)
    assert time.perf_counter() - start >= 0.115


def test_a_broker_that_is_down_refuses_connections_until_it_is_up(cluster: FaultyCluster) -> None:
    cluster.create_topic(TOPIC, 1)
    cluster.set_partition_leader(TOPIC, 0, 3)
    cluster.broker_down(3)
    with pytest.raises(ConnectionRefusedError):
        produce(addresses(cluster)[2])
    cluster.broker_up(3)
    assert produce(addresses(cluster)[2]) == [0]


def test_pushed_errors_are_given_once_each_and_only_to_their_api(cluster: FaultyCluster) -> None:
    cluster.create_topic(TOPIC, 1)
    cluster.set_partition_leader(TOPIC, 0, 1)
    cluster.push_request_errors(METADATA, [NOT_ENOUGH_REPLICAS])
    cluster.push_request_errors(PRODUCE, [NOT_ENOUGH_REPLICAS, 0, NOT_ENOUGH_REPLICAS])
    errors = produce(addresses(cluster)[0], count=4)
    assert errors == [NOT_ENOUGH_REPLICAS, 0, NOT_ENOUGH_REPLICAS, 0]
    cluster.push_request_errors(PRODUCE, [NOT_ENOUGH_REPLICAS])
    cluster.clear_request_errors(PRODUCE)
    assert produce(addresses(cluster)[0]) == [0]


def test_what_librdkafka_refuses_is_raised_in_its_words(cluster: MockCluster) -> None:
    cluster.create_topic(TOPIC, 1)
    with pytest.raises(MockClusterError, match="already exists"):
        cluster.create_topic(TOPIC, 1)
    with pytest.raises(MockClusterError, match="not available"):
        cluster.set_broker_rtt(9, 1)


def test_closing_closes_the_ports_and_refuses_calls() -> None:
    cluster = MockCluster(1)
    address = addresses(cluster)[0]
    socket.create_connection(address).close()
    cluster.close()
    cluster.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)
    with pytest.raises(MockClusterError, match="closed"):
        cluster.create_topic(TOPIC, 1)


def installed_at(monkeypatch: pytest.MonkeyPatch, package: Path | None) -> None:
    """As if confluent_kafka stood in `package`, or nowhere."""
    spec = None
    if package is not None:
        spec = importlib.machinery.ModuleSpec(
            "confluent_kafka", None, origin=str(package / "__init__.py"), is_package=True
        )
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)


@pytest.mark.parametrize(
    "library",
    ["confluent_kafka.libs/librdkafka-0cb94173.so.1", "confluent_kafka/.dylibs/librdkafka.1.dylib"],
)
def test_the_library_is_found_where_wheels_have_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, library: str
) -> None:
    path = tmp_path / library
    path.parent.mkdir(parents=True)
    path.touch()
    installed_at(monkeypatch, tmp_path / "confluent_kafka")
    assert find_librdkafka() == str(path)


def test_without_the_wheel_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    installed_at(monkeypatch, None)
    with pytest.raises(MockClusterUnavailable, match=r"pip install '\.\[demo\]' in a clone of Forebay"):
        find_librdkafka()
