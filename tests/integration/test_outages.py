"""With idempotence toward the brokers an outage shorter than half of a client's timeout costs no client anything, and
what a log loses by itself is all that is lost: nothing is there twice, and nothing stands still.

    client → Forebay → relay of frames → toxiproxy → Kafka

Clients send each record once.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import replace
from time import monotonic

import kafka  # type: ignore[import-untyped]
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from tests.chaos.load import Load, confluent, java
from tests.chaos.reconcile import Findings, reconcile
from tests.chaos.tally import Tally
from tests.kit.ancient import old_librdkafka
from tests.kit.forebay import ForebayProcess
from tests.kit.frame_relay import BlackHole
from tests.kit.java import JavaClient
from tests.kit.json_records import text_of
from tests.kit.kafka import KafkaCluster
from tests.kit.ports import free_ports
from tests.kit.spec import ConsumedRecord
from tests.kit.topic_log import TopicLog
from tests.kit.toxiproxy import Stream, ToxiproxyServer
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.integration

NODES = range(3)
REPLICAS = [[0, 1, 2], [1, 2, 0], [2, 0, 1]] * 2
SHORT, DEFAULT = 6.0, 30.0
"""A client's timeout, in seconds."""
SOON = 60.0
SOME = 20
"""Acknowledgements of each client: it flows."""
BOTH: tuple[Stream, ...] = ("upstream", "downstream")


class Scene:
    def __init__(
        self,
        cluster: KafkaCluster,
        holes: list[BlackHole],
        toxiproxy: ToxiproxyServer,
        forebay: ForebayProcess,
        log: TopicLog,
    ) -> None:
        self.cluster = cluster
        self.holes = holes
        self.toxiproxy = toxiproxy
        self.forebay = forebay
        self.log = log
        self.admin = AdminClient({"bootstrap.servers": cluster.internal})
        self.jvm = JavaClient("1.1.1")

    def topic(self, name: str, **config: str) -> str:
        self.cluster.create_topic(name, assignment=REPLICAS, config={"min.insync.replicas": "1", **config})
        return name

    def knows_producers(self, topic: str) -> bool:
        """A leader does."""
        partitions = [kafka.TopicPartition(topic, partition) for partition in range(len(REPLICAS))]
        with closing(kafka.KafkaAdminClient(bootstrap_servers=self.cluster.internal)) as admin:
            return any(state.active_producers for state in admin.describe_producers(partitions).values())

    def load(self, topic: str, timeout: float, **props: str) -> Load:
        """A client of Java and one of librdkafka, both in order and each record once."""
        ms = str(int(timeout * 1000))
        once = {"retries": "0", "request.timeout.ms": ms, "max.in.flight.requests.per.connection": "1", **props}
        other = confluent(3 * int(ms))
        other = replace(other, props={**other.props, **props})
        return Load(self.forebay.bootstrap, topic, [java(self.jvm, once), other]).under_way(SOME, SOON)

    def account(self, load: Load, since: float | None = None) -> tuple[list[Tally], Findings]:
        tallies = load.stop()
        there = self.log.read(load.topic, dict.fromkeys(range(len(REPLICAS)), 0))
        return tallies, reconcile(tallies, there, since=since)


def flows(load: Load, since: float) -> None:
    wait_until(lambda: load.acked_since(since) >= SOME, SOON, "every client is acknowledged")


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    own = dict(zip(NODES, free_ports(len(NODES)), strict=True))
    with ExitStack() as stack:
        toxiproxy = stack.enter_context(ToxiproxyServer())
        relayed = dict(zip(NODES, free_ports(len(NODES)), strict=True))
        holes = [stack.enter_context(BlackHole(relayed[node], toxiproxy.proxy(f"{node}", own[node]))) for node in NODES]
        settings = {
            "producer.id.expiration.check.interval.ms": "100",
            "auto.leader.rebalance.enable": "false",  # with acks=1 a leader that moves by itself may take records along
            "auto.create.topics.enable": "false",  # or a client under load makes again a topic that was just deleted
        }
        cluster = stack.enter_context(
            KafkaCluster("4.3.1", len(NODES), ports=own, advertised=relayed, settings=settings)
        )
        forebay = stack.enter_context(
            ForebayProcess(cluster.bootstrap, cluster.nodes, settings={"enable.idempotence": "true"})
        )
        log = stack.enter_context(TopicLog(cluster.internal))
        wait_until(lambda: forebay.metrics()["forebay_producer_ids"] >= 2, SOON, "producer ids")
        here = Scene(cluster, holes, toxiproxy, forebay, log)
        stack.callback(here.jvm.close)
        yield here


def _hole(scene: Scene) -> Callable[[], None]:
    """What is written is lost, and the connections that it was written on stand, and are dead, for ever."""

    def swallow(*, swallows: bool) -> None:
        for hole in scene.holes:
            hole.swallows = swallows

    swallow(swallows=True)
    return lambda: swallow(swallows=False)


def _cut(scene: Scene) -> Callable[[], None]:
    """Connections end, and none is taken."""
    for node in NODES:
        scene.toxiproxy.cut(f"{node}")

    def mend() -> None:
        for node in NODES:
            scene.toxiproxy.mend(f"{node}")

    return mend


def _toxic(scene: Scene, kind: str, streams: tuple[Stream, ...], **attributes: int) -> Callable[[], None]:
    places = [(f"{node}", stream) for node in NODES for stream in streams]
    for name, stream in places:
        scene.toxiproxy.add(name, kind, stream, **attributes)

    def remove() -> None:
        for name, stream in places:
            scene.toxiproxy.remove(name, kind, stream)

    return remove


def _silence(scene: Scene) -> Callable[[], None]:
    """What is written is lost, and its connections end with the outage."""
    return _toxic(scene, "timeout", BOTH, timeout=0)


def _silent_answers(scene: Scene) -> Callable[[], None]:
    return _toxic(scene, "timeout", ("downstream",), timeout=0)


def _resets(scene: Scene) -> Callable[[], None]:
    """Instead of an answer."""
    return _toxic(scene, "reset_peer", ("downstream",), timeout=100)


def _stopped(scene: Scene) -> Callable[[], None]:
    pid = scene.cluster.pid(0)
    os.kill(pid, signal.SIGSTOP)
    return lambda: os.kill(pid, signal.SIGCONT)


FAULTS: Mapping[str, Callable[[Scene], Callable[[], None]]] = {
    "stopped": _stopped,
    "hole": _hole,
    "silence": _silence,
    "silent-answers": _silent_answers,
    "cut": _cut,
    "resets": _resets,
}
LASTS = {"third": 0.35, "half": 0.48}
"""Of the clients' timeout."""
CASES = [
    pytest.param(
        fault,
        timeout,
        lasts,
        id=f"{fault}-{timeout:g}s-{lasts}",
        marks=() if (fault, timeout, lasts) == ("hole", SHORT, "third") else (whole,),
    )
    for whole in [pytest.mark.whole]
    for fault in FAULTS
    for timeout in (SHORT, DEFAULT)
    for lasts in LASTS
]


@pytest.mark.parametrize(("fault", "timeout", "lasts"), CASES)
def test_an_outage_shorter_than_half_of_the_timeout_costs_nothing(
    scene: Scene, fault: str, timeout: float, lasts: str
) -> None:
    topic = scene.topic(f"{fault}-{timeout:g}-{lasts}")
    with scene.load(topic, timeout) as load:
        end = FAULTS[fault](scene)
        try:
            time.sleep(LASTS[lasts] * timeout)  # how long it lasts is what this is about
        finally:
            end()
        flows(load, monotonic())
        tallies, findings = scene.account(load)
    findings.check(topic)
    assert findings.duplicated == 0
    assert [list(tally.failures.items())[:3] for tally in tallies] == [[], []]
    assert findings.unknown == 0


@pytest.mark.whole
def test_deleted_records_are_deleted_and_no_more(scene: Scene) -> None:
    topic = scene.topic("deleted")
    with scene.load(topic, DEFAULT) as load:
        there: list[ConsumedRecord] = []
        read = dict.fromkeys(range(len(REPLICAS)), 0)
        for _ in range(3):
            there += scene.log.read(topic, read)
            read |= {record.partition: record.offset + 1 for record in there}
            seen = [TopicPartition(topic, partition, offset) for partition, offset in read.items()]
            for done in scene.admin.delete_records(seen).values():
                done.result(30)
            flows(load, monotonic())
        tallies = load.stop()
    there += scene.log.read(topic, read)
    assert [tally.failures for tally in tallies] == [{}, {}]
    reconcile(tallies, there).check(topic)


def test_a_topic_that_is_made_again_under_load_holds_what_was_acknowledged_since_once(scene: Scene) -> None:
    topic = scene.topic("again")
    with scene.load(topic, DEFAULT) as load:
        scene.cluster.delete_topic(topic)
        scene.topic(topic)
        since = monotonic()
        flows(load, since)
        _, findings = scene.account(load, since)
    assert (findings.lost, findings.duplicated) == (0, 0)  # not their order: librdkafka sends again itself


def test_brokers_that_forget_producers_at_once_are_no_trouble(scene: Scene) -> None:
    def expire(after_ms: str) -> None:
        entry = ConfigEntry("producer.id.expiration.ms", after_ms, incremental_operation=AlterConfigOpType.SET)
        for node in NODES:
            broker = ConfigResource(ResourceType.BROKER, f"{node}", incremental_configs=[entry])
            scene.admin.incremental_alter_configs([broker])[broker].result(30)

    topic = scene.topic("forgotten")
    expire("1000")
    try:
        for _ in range(3):
            before = scene.log.ends(topic)
            with scene.load(topic, DEFAULT) as load:
                assert scene.knows_producers(topic)
                tallies = load.stop()
            assert [tally.failures for tally in tallies] == [{}, {}]
            reconcile(tallies, scene.log.read(topic, before)).check(topic)
            wait_until(lambda: not scene.knows_producers(topic), SOON, "brokers have forgotten the producers")
    finally:
        expire("86400000")


@pytest.mark.whole
def test_a_leader_that_dies_takes_along_only_what_no_one_else_had(scene: Scene) -> None:
    """acks=1: what the others lack is lost, as it is directly."""
    topic = scene.topic("killed")
    with scene.load(topic, DEFAULT, acks="1") as load:
        scene.cluster.kill(0)
        killed = monotonic()
        flows(load, killed + 15)
        scene.cluster.start_node(0)
        flows(load, killed + 30)
        tallies, findings = scene.account(load, killed + 15)
    findings.check(topic)
    assert findings.duplicated == 0
    assert Counter(error for tally in tallies for error in tally.failures.values()) == {}


@pytest.mark.whole
def test_an_unclean_election_costs_what_the_new_leader_lacks_and_no_more(scene: Scene) -> None:
    topic = "unclean"
    config = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
    scene.cluster.create_topic(topic, assignment=[[0, 1]] * len(REPLICAS), config=config)

    def in_sync() -> set[int]:
        return {
            node for led in scene.admin.list_topics(topic, 10).topics[topic].partitions.values() for node in led.isrs
        }

    with scene.load(topic, DEFAULT, acks="1") as load:
        flows(load, monotonic())  # so that the new leader will know the producer, by a sequence of before
        scene.cluster.kill(1)
        wait_until(lambda: in_sync() == {0}, SOON, "the follower is out")
        flows(load, monotonic())
        scene.cluster.kill(0)
        scene.cluster.start_node(1)
        wait_until(lambda: in_sync() == {1}, SOON, "an unclean leader")
        elected = monotonic()
        flows(load, elected)
        scene.cluster.start_node(0)
        wait_until(lambda: in_sync() == {0, 1}, SOON, "the old leader follows")
        flows(load, monotonic())
        _, findings = scene.account(load, elected)
    findings.check(topic)
    assert findings.duplicated == 0
    assert scene.forebay.metrics()["forebay_producer_epoch_bumps_total"] > 0


def test_who_comes_while_its_broker_is_away_does_not_take_it_for_an_old_one(scene: Scene) -> None:
    """librdkafka before 1.0 asks what there is, and where it is left without an answer it takes the broker for one of
    0.9, for twenty minutes: then its records have neither headers nor times."""
    topic = scene.topic("outage-old-client")
    name, header, at = "old-that-comes", b"traced", 1_000_000_000_000
    record = {"key": text_of(b"key"), "partition": 0, "timestamp": at, "headers": [("trace", text_of(header))]}
    order = {
        "bootstrap": scene.forebay.bootstrap,
        "topic": topic,
        "version": "",
        "acks": -1,
        "codec": 0,
        "linger_ms": 0,
        "props": {"client.id": name, "socket.keepalive.enable": "true"},
        "records": [{**record, "value": text_of(b"%d" % seq)} for seq in range(10)],
    }
    scene.toxiproxy.cut("0")
    try:
        with subprocess.Popen(old_librdkafka(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as client:
            assert client.stdin is not None
            assert client.stdout is not None
            client.stdin.write(json.dumps(order) + "\n")
            client.stdin.flush()
            wait_until(lambda: _has_produced(scene, name), SOON, "it sends")
            scene.toxiproxy.mend("0")
            said = [json.loads(line) for line in client.stdout]
    finally:
        scene.toxiproxy.mend("0")
    assert [line.get("error") for line in said] == [None] * 10
    there = scene.log.read(topic, {0: 0}, at_least=10)
    assert {(it.timestamp, it.headers) for it in there} == {(at, (("trace", header),))}


def _has_produced(scene: Scene, client_id: str) -> bool:
    rows = scene.forebay.clients("--url", scene.forebay.admin_url)
    return any(row["client_id"] == client_id and "Produce" in row["requests"] for row in rows)
