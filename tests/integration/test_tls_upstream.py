"""Clients that know nothing of TLS, Forebay, and a Kafka that speaks nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from time import monotonic

import pytest
from confluent_kafka import Consumer, Producer

from tests.chaos.bystander import DIRECT, THROUGH, Bystanders, Post, Way
from tests.chaos.fault import worst
from tests.kit.certificates import Authority
from tests.kit.connections import standing
from tests.kit.forebay import ForebayProcess
from tests.kit.kafka import KafkaCluster
from tests.kit.ports import LOOPBACK
from tests.kit.topic_log import TopicLog
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.integration

COUNT = 200


class Stage:
    def __init__(self, folder: Path, version: str) -> None:
        self.authority = Authority(folder)
        broker = self.authority.issue("broker", LOOPBACK)
        settings = self.authority.broker_settings(broker, client_auth="required")
        self.cluster = KafkaCluster(version, brokers=2, settings=settings)
        self.own = self.authority.issue("forebay", "forebay.example", subject="forebay")

    @property
    def settings(self) -> dict[str, str]:
        return {
            "security.protocol": "SSL",
            "ssl.truststore.location": str(self.authority.pem),
            "ssl.keystore.location": str(self.own),
        }


@pytest.fixture(scope="module", params=[pytest.param("3.9.2", marks=pytest.mark.whole), "4.3.1"])
def stage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    stage = Stage(tmp_path_factory.mktemp("tls"), request.param)
    with stage.cluster:
        yield stage


def test_a_broker_that_nobody_vouches_for_is_told_in_plain_lines(stage: Stage, tmp_path: Path) -> None:
    """Another authority's certificates, on both sides."""
    stranger = Authority(tmp_path)
    own = str(stranger.issue("forebay", "forebay.example"))
    for changed, why in (
        ({"ssl.truststore.location": str(stranger.pem)}, "TLS: the certificate is not accepted: "),
        ({"ssl.keystore.location": own}, "TLS: the other side refuses: certificate unknown"),
    ):
        settings = {**stage.settings, **changed}
        forebay = ForebayProcess(stage.cluster.bootstrap, stage.cluster.nodes, settings=settings)
        log = forebay.fails_to_start()
        assert why in log
        assert "Traceback" not in log
        assert log.count("metadata refresh failed") < 8


def produce(bootstrap: str, topic: str, key: bytes | None, **settings: str) -> None:
    errors: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, "message.timeout.ms": 60_000, **settings})
    for number in range(COUNT):
        producer.produce(topic, f"{number}", key, on_delivery=lambda error, _: errors.append(error) if error else None)
    assert producer.flush(90) == 0
    assert errors == []


def test_every_kind_of_connection_is_secured(stage: Stage, tmp_path: Path) -> None:
    """Records that are moved, those that pass untouched, groups, metadata, versions and the journal's topic."""
    stage.cluster.create_topic("moved", 2)
    stage.cluster.create_topic("journal", 1)
    settings = {**stage.settings, "journal.topic": "journal", "journal.ledger": "true"}
    with (
        ForebayProcess(stage.cluster.bootstrap, stage.cluster.nodes, settings=settings) as forebay,
        TopicLog(stage.cluster.internal) as log,
    ):
        # A partition for each record: were all of them in one, it could be the one that Forebay chooses.
        produce(forebay.bootstrap, "moved", None, **{"sticky.partitioning.linger.ms": "0"})
        produce(forebay.bootstrap, "moved", b"k", **{"enable.idempotence": "true"})
        reader = Consumer(
            {"bootstrap.servers": forebay.bootstrap, "group.id": "readers", "auto.offset.reset": "earliest"}
        )
        try:
            reader.subscribe(["moved"])
            read: list[bytes] = []
            while len(read) < 2 * COUNT:
                message = reader.poll(60)
                assert message is not None, f"{len(read)} records after a minute"
                assert message.error() is None
                read.append(message.value() or b"")
            reader.commit(asynchronous=False)
        finally:
            reader.close()
        assert sorted(read) == sorted([f"{number}".encode() for number in range(COUNT)] * 2)
        metrics = forebay.metrics()
        assert metrics['forebay_records_total{fate="moved"}'] > 0
        assert metrics["forebay_journal_rows_dropped_total"] == 0
        assert "Traceback" not in forebay.log.read_text()
        assert sum(log.ends("journal").values()) > 0


def test_clients_that_leave_behind_records_without_acks_leave_no_connections_and_cost_others_no_time(
    stage: Stage,
) -> None:
    """A broker that reads the last request and TLS's farewell at once does not answer the farewell."""
    cluster = stage.cluster
    for topic in ("left", "beside"):
        cluster.create_topic(topic, 1)
    node, clients, tries = cluster.nodes[0], 20, 3
    settings = {**stage.settings, "moves": "observe"}
    with (
        ForebayProcess(cluster.bootstrap, cluster.nodes, settings=settings) as forebay,
        TopicLog(cluster.internal) as log,
    ):
        ports: dict[Way, int] = {DIRECT: cluster.internal_ports[node], THROUGH: forebay.node_port(node)}
        for sent in range(clients, (tries + 1) * clients, clients):
            with Bystanders([Post(way, node, port, "beside") for way, port in ports.items()]) as bystanders:
                before = standing(cluster.ports.values())
                begun = monotonic()
                for _ in range(clients):
                    producer = Producer({"bootstrap.servers": forebay.bootstrap, "acks": "0"})
                    producer.produce("left", b"the last one")
                    assert producer.flush(30) == 0
                    producer.close()
                wait_until(partial(_no_more_stand, cluster, before), 20, "their connections are gone")
                ended = monotonic()
                waits = bystanders.stop()
            wait_until(partial(_all_there, log, sent), 20, "every record is there")
            direct, through = (waits.latency(way, {node}, begun, ended) for way in (DIRECT, THROUGH))
            if worst(direct, through) and not through.errors:
                return
    raise AssertionError((direct, through))


def _no_more_stand(cluster: KafkaCluster, before: int) -> bool:
    return standing(cluster.ports.values()) <= before


def _all_there(log: TopicLog, sent: int) -> bool:
    return sum(log.ends("left").values()) == sent
