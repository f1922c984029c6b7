"""One port for all brokers, for producers only: every producer works through it, consumers are told what is wrong."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from kafka import KafkaAdminClient  # type: ignore[import-untyped]
from kafka import TopicPartition as KafkaPythonPartition
from kafka.errors import KafkaError  # type: ignore[import-untyped]

from tests.integration.checks import (
    check_all,
    content_unchanged,
    each_exactly_once,
    every_record_acknowledged,
    kept_in_order,
    of_spec,
)
from tests.integration.route import Route
from tests.kit.ancient import PROGRAMS, AncientProgram
from tests.kit.clients import CLIENT_NAMES, Client
from tests.kit.crowd import Crowd
from tests.kit.forebay import ForebayProcess
from tests.kit.go_clients import GoClient
from tests.kit.java import AncientJavaClient, JavaClient
from tests.kit.kafka import KafkaCluster
from tests.kit.metadata import ask_metadata
from tests.kit.paths import ANCIENT_CLIENT_VERSIONS
from tests.kit.spec import ClientFailed, ProduceResult, ProduceSpec
from tests.kit.topic_log import TopicLog
from tests.kit.waiting import wait_until
from tests.kit.wire import batch, null_key, produce

pytestmark = pytest.mark.integration

SHORT = ("java-1.1.1", "java-4.3.1", "confluent")
"""Of the others `make test` leaves each to `make test-all`."""
REFUSED_S = 20.0
"""Far below the minute that clients wait for an answer: they are told."""
MESSAGE = "this port takes producers only"
SECONDS = 60
MANY = 10_000
MOVES = 8
PAUSE_S = 0.3
"""Between two moves. Where leaders move without a pause, Java's old producers give up records before Kafka itself."""
PREFERRED = 0


def some(names: tuple[str, ...]) -> list[object]:
    return [name if name in SHORT else pytest.param(name, marks=pytest.mark.whole) for name in names]


@pytest.fixture(scope="module")
def port(open_route: Callable[[str], Route]) -> Iterator[Route]:
    """The route to Kafka 4.3.1 through one port."""
    through = open_route("4.3.1")
    with ForebayProcess(through.cluster.bootstrap, through.cluster.nodes, producers_only=True) as forebay:
        yield dataclasses.replace(through, forebay=forebay)  # names of topics go on where others of this cluster ended


def sent(port: Route, client: Client | GoClient, spec: ProduceSpec) -> None:
    since = port.log.ends(spec.topic)
    result = client.produce(port.bootstrap, spec)
    check_all(spec, client, result, port.log.read(spec.topic, since, at_least=spec.count))


@pytest.mark.parametrize("name", some(CLIENT_NAMES))
def test_producers(port: Route, get_client: Callable[[str], Client], name: str) -> None:
    client, topic = get_client(name), port.new_topic()
    sent(port, client, ProduceSpec(topic, "plain", keys="mixed", compression="lz4", acks="1"))
    sent(port, client, ProduceSpec(topic, "idempotent", keys="mixed", idempotence=True, size=200, linger_ms=0))
    sent(port, client, ProduceSpec(topic, "unheard", keys="mixed", acks="0"))


@pytest.mark.parametrize("name", ["franz-go", pytest.param("sarama", marks=pytest.mark.whole)])
def test_producers_in_go(port: Route, name: str) -> None:
    topic = port.new_topic()
    sent(port, GoClient(name), ProduceSpec(topic, "plain", keys="mixed", compression="zstd"))
    sent(port, GoClient(name), ProduceSpec(topic, "idempotent", keys="mixed", idempotence=True))


def ancient(port: Route, client: AncientProgram | AncientJavaClient) -> None:
    spec = ProduceSpec(port.new_topic(), "old", count=500, keys="keyed", key_count=500, compression="gzip")
    result = client.produce(port.bootstrap, spec)
    assert not result.failures
    found = port.log.read(spec.topic, dict.fromkeys(range(3), 0), at_least=spec.count)
    assert Counter(record.value for record in found) == Counter(spec.value(seq) for seq in range(spec.count))


@pytest.mark.parametrize(
    "version",
    [
        *ANCIENT_CLIENT_VERSIONS[:1],
        pytest.param("0.9.0.1", marks=pytest.mark.whole),
        pytest.param("0.10.2.2", marks=pytest.mark.whole),
    ],
)
def test_producers_in_java_before_kafka_0_11(port: Route, version: str) -> None:
    client = AncientJavaClient(version)
    try:
        ancient(port, client)
    finally:
        client.close()


@pytest.mark.whole
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_other_producers_before_kafka_0_11(port: Route, program: AncientProgram) -> None:
    ancient(port, program)


@pytest.mark.parametrize("name", some(("java-1.1.1", "java-4.3.1", "confluent", "aiokafka", "kafka-python")))
def test_clients_know_of_one_broker(port: Route, get_client: Callable[[str], Client], name: str) -> None:
    assert port.forebay is not None
    assert get_client(name).brokers(port.bootstrap, port.topic_for("known")) == {port.forebay.bootstrap}


def test_topics_are_made_and_widened_and_described(port: Route, newest_java: JavaClient) -> None:
    name = port.new_name("made")
    newest_java.admin(port.bootstrap, "create_topic", name, partitions=2)
    newest_java.admin(port.bootstrap, "create_partitions", name, partitions=4)
    port.cluster.await_topic(name, 4)
    configs = newest_java.admin(port.bootstrap, "describe_configs", name)
    assert configs
    sent(port, newest_java, ProduceSpec(name, "run", keys="keyed", idempotence=True))


# Whoever does not only produce


def within(seconds: float, began: float) -> None:
    assert time.monotonic() - began < seconds


def test_a_java_consumer_is_told(port: Route, newest_java: JavaClient) -> None:
    topic = port.topic_for("known")
    newest_java.brokers(port.bootstrap, topic)  # the JVM stands
    began = time.monotonic()
    with pytest.raises(ClientFailed, match="Not authorized to access group"):
        newest_java.consume(port.bootstrap, topic, "readers", 1)
    within(REFUSED_S, began)


def test_a_java_transaction_is_told(port: Route, newest_java: JavaClient) -> None:
    topic = port.topic_for("known")
    newest_java.brokers(port.bootstrap, topic)
    began = time.monotonic()
    with pytest.raises(ClientFailed, match="TransactionalId"):
        newest_java.produce(port.bootstrap, ProduceSpec(topic, "run", count=1, transactional_id="t"))
    within(REFUSED_S, began)


def test_a_consumer_of_librdkafka_is_told(port: Route) -> None:
    told: list[str] = []
    settings = {"bootstrap.servers": port.bootstrap, "group.id": "readers", "error_cb": lambda it: told.append(str(it))}
    consumer = Consumer(settings)
    began = time.monotonic()
    consumer.subscribe([port.topic_for("known")])
    try:
        while not any(MESSAGE in it or "GROUP_AUTHORIZATION_FAILED" in it for it in told):
            within(REFUSED_S, began)
            message = consumer.poll(0.1)
            error = message.error() if message is not None else None
            if error is not None:
                told.append(f"{error.name()} {error.str()}")
    finally:
        consumer.close()


def test_partitions_assigned_by_hand_are_not_read_either(port: Route) -> None:
    topic = port.topic_for("known")
    consumer = Consumer({"bootstrap.servers": port.bootstrap, "group.id": "none", "enable.auto.commit": False})
    try:
        with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
            consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=REFUSED_S, cached=False)
        consumer.assign([TopicPartition(topic, 0, 0)])
        told: set[str] = set()
        began = time.monotonic()
        while "TOPIC_AUTHORIZATION_FAILED" not in told:
            within(REFUSED_S, began)
            message = consumer.poll(0.1)
            error = message.error() if message is not None else None
            if error is not None:
                told.add(error.name())
    finally:
        consumer.close()


def test_a_transaction_of_librdkafka_is_told(port: Route) -> None:
    producer = Producer({"bootstrap.servers": port.bootstrap, "transactional.id": "t"})
    began = time.monotonic()
    with pytest.raises(KafkaException, match="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
        producer.init_transactions(SECONDS)
    within(REFUSED_S, began)


# Leaders that move


class Moves:
    """A topic whose leaders go round the three brokers."""

    def __init__(self, cluster: KafkaCluster, topic: str) -> None:
        self._admin = KafkaAdminClient(bootstrap_servers=cluster.internal)
        self._port = cluster.internal_ports[0]
        self._topic = topic
        self.moves = 0

    def move(self) -> None:
        self.moves += 1
        replicas = {
            KafkaPythonPartition(self._topic, index): [(self.moves + index + step) % 3 for step in range(3)]
            for index in range(3)
        }
        wanted = [(self.moves + index) % 3 for index in range(3)]

        def told() -> bool:
            """Not where another has just become the controller, as on a machine that stands still for two seconds."""
            try:
                self._admin.alter_partition_reassignments(replicas, timeout_ms=10_000)
            except KafkaError:
                return False
            return True

        def moved() -> bool:
            with suppress(KafkaError):
                self._admin.elect_leaders(PREFERRED, {self._topic: [0, 1, 2]}, timeout_ms=10_000, raise_errors=False)
            known = ask_metadata(self._port, self._topic)
            return known is not None and [it.leader_id for it in known.topics[0].partitions] == wanted

        wait_until(told, SECONDS, "the controller is told")
        wait_until(moved, SECONDS, f"leaders are {wanted}")

    def go_round(self, until: threading.Event) -> None:
        try:
            while not until.wait(PAUSE_S):
                self.move()
        finally:
            self._admin.close()


@pytest.mark.parametrize("name", some(("java-4.3.1", "java-2.8.2", "confluent", "aiokafka", "kafka-python")))
def test_leaders_that_move_lose_and_duplicate_nothing(
    port: Route, get_client: Callable[[str], Client], name: str
) -> None:
    """Producer after producer, so that brokers often know nothing of one when the leader moves."""
    client, topic = get_client(name), port.new_name("moved")
    port.cluster.create_topic(topic, assignment=[[index, (index + 1) % 3, (index + 2) % 3] for index in range(3)])
    refused = refusals(port)
    moves = Moves(port.cluster, topic)
    results: list[tuple[ProduceSpec, ProduceResult]] = []
    over = threading.Event()
    ends = time.monotonic() + SECONDS
    with ThreadPoolExecutor(1) as pool:
        moving = pool.submit(moves.go_round, over)
        while (moves.moves < MOVES or refusals(port) == refused) and not moving.done() and time.monotonic() < ends:
            spec = ProduceSpec(
                topic, f"run{len(results)}", count=1_500, keys="keyed", idempotence=True, linger_ms=0, rate=3_000
            )
            results.append((spec, client.produce(port.bootstrap, spec)))
        over.set()
        moving.result()
    assert refusals(port) > refused, "no leader moved under a client"
    everything = port.log.read(topic, dict.fromkeys(range(3), 0), at_least=sum(spec.count for spec, _ in results))
    for spec, result in results:
        found = of_spec(spec, everything)
        every_record_acknowledged(spec, result)
        each_exactly_once(spec, found)
        content_unchanged(spec, found)
        kept_in_order(spec, found)


def refusals(port: Route) -> float:
    """After which a leader was asked for, or was named by the broker that refused."""
    assert port.forebay is not None
    metrics = port.forebay.metrics()
    return metrics['forebay_metadata_refreshes_total{cause="error"}'] + metrics["forebay_metadata_leaders_named_total"]


# Many


@pytest.mark.whole
def test_ten_thousand_producers_stay_connected() -> None:
    with KafkaCluster("4.3.1") as cluster, TopicLog(cluster.internal) as log:
        cluster.create_topic("many", 3)
        settings = {"workers": "2", "max.connections": str(MANY)}
        with ForebayProcess(cluster.bootstrap, cluster.nodes, producers_only=True, settings=settings) as forebay:
            first = produce(1, *[("many", partition, batch(null_key("once"))) for partition in range(3)])
            with Crowd(forebay.port, MANY, first) as crowd:
                crowd.start()
                assert crowd.count == MANY
                wait_until(lambda: sum(log.ends("many").values()) == 3 * MANY, SECONDS, "all records are there")
                metrics = forebay.metrics()
                assert sum(now for name, now in metrics.items() if name.startswith("forebay_open_connections{")) == MANY
                assert forebay.ready()
