"""What docs/rolling-brokers.md says: each broker is avoided, drained, restarted and taken back, under a load; and one
that dies is told of, also where Forebay sends it nothing of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from time import monotonic

import pytest
from confluent_kafka.admin import AdminClient

from tests.chaos.load import Clients, patient
from tests.chaos.reconcile import reconcile
from tests.kit.forebay import ForebayProcess
from tests.kit.kafka import KafkaCluster
from tests.kit.topic_log import TopicLog
from tests.kit.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.whole]

PARTITIONS = 6
TOPIC = "rolled"
SOON = 120.0
SOME = 20
"""Acknowledgements of each client: it flows."""


def command(socket: Path, *words: str) -> str:
    """What `forebay …` prints. Raises where it does not exit with 0."""
    program = [sys.executable, "-m", "forebay_proxy.commands.cli", *words, "--socket", str(socket)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=SOON, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def in_sync(admin: AdminClient) -> bool:
    """`kafka-topics --bootstrap-server BROKER --describe --under-replicated-partitions` would print nothing."""
    partitions = admin.list_topics(TOPIC, timeout=SOON).topics[TOPIC].partitions.values()
    return all(len(partition.isrs) == len(partition.replicas) for partition in partitions)


def up(forebay: ForebayProcess, node: int) -> float | None:
    return forebay.metrics().get(f'forebay_broker_up{{node="{node}"}}')


def test_brokers_are_restarted_one_after_the_other(tmp_path: Path) -> None:
    """Nothing is lost, twice, or out of order; clients, with their default timeouts, are told of nothing."""
    socket = tmp_path / "s"
    with KafkaCluster("4.3.1") as cluster, Clients(patient) as clients, TopicLog(cluster.internal) as log:
        replicas = [[(first + turn) % 3 for turn in range(3)] for first in range(PARTITIONS)]
        cluster.create_topic(TOPIC, assignment=replicas, config={"min.insync.replicas": "2"})
        admin = AdminClient({"bootstrap.servers": cluster.internal, "log_level": 0})
        forebay = ForebayProcess(cluster.bootstrap, cluster.nodes, settings={"admin.socket": str(socket)})
        with forebay, clients.start(forebay.bootstrap, TOPIC) as load:
            wait_until(lambda: load.acked_since(load.begun) >= SOME, SOON, "it flows")
            for node in cluster.nodes:
                command(socket, "avoid", str(node), "--for", "30m", "--reason", "restart")
                cluster.shut_down(node)
                cluster.start_node(node)
                wait_until(lambda: in_sync(admin), SOON, "it has caught up")
                wait_until(lambda node=node: up(forebay, node) == 1, SOON, "the broker is up")  # type: ignore[misc]
                command(socket, "avoid", str(node), "--end")
            rolled = monotonic()
            wait_until(lambda: load.acked_since(rolled) >= SOME, SOON, "it flows on")
            tallies = load.stop()
            found = log.read(TOPIC, dict.fromkeys(range(PARTITIONS), 0))
            said = forebay.log.read_text()
    findings = reconcile(tallies, found)
    findings.check("rolled")
    assert findings.refused == findings.unknown == 0
    assert "Traceback" not in said


def test_a_broker_that_dies_is_told_of_where_only_clients_connect_to_it() -> None:
    """`moves=observe`: no record is Forebay's to send."""
    with KafkaCluster("4.3.1") as cluster, Clients(patient) as clients:
        replicas = [[(first + turn) % 3 for turn in range(3)] for first in range(PARTITIONS)]
        cluster.create_topic(TOPIC, assignment=replicas, config={"min.insync.replicas": "2"})
        forebay = ForebayProcess(cluster.bootstrap, cluster.nodes, settings={"moves": "observe"})
        with forebay, clients.start(forebay.bootstrap, TOPIC) as load:
            wait_until(lambda: load.acked_since(load.begun) >= SOME, SOON, "it flows")
            assert [up(forebay, node) for node in cluster.nodes] == [1, 1, 1]
            cluster.kill(2)
            wait_until(lambda: up(forebay, 2) == 0, SOON, "it is told of")
            assert [up(forebay, node) for node in (0, 1)] == [1, 1]
            cluster.start_node(2)
            wait_until(lambda: up(forebay, 2) == 1, SOON, "so is that it is back")
            load.stop()
