"""Another Forebay takes the place of one that serves, again and again, while clients connect and produce."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from time import monotonic
from typing import Any, Self

import pytest
from confluent_kafka import Producer

from tests.chaos.bystander import THROUGH, Bystanders, Post
from tests.chaos.load import Clients, patient
from tests.chaos.reconcile import reconcile
from tests.kit.forebay import ForebayProcess
from tests.kit.java import JavaClient
from tests.kit.kafka import KafkaCluster
from tests.kit.ports import LOOPBACK
from tests.kit.topic_log import TopicLog
from tests.kit.waiting import wait_until
from tests.kit.wire import request

pytestmark = pytest.mark.integration

PARTITIONS = 6
SOON = 120.0
UNNOTICED_S = 5.0
"""Nobody waits for as long, on a busy machine either; SOON bounds what else is waited for."""
SUCCESSIONS = 3
SOME = 20
"""Acknowledgements of each client: it flows."""
API_VERSIONS = 18


class Knocking:
    """Connects, asks which versions are offered, waits for the answer, leaves; over and over, at several ports."""

    def __init__(self, ports: list[int]) -> None:
        self.outcomes: Counter[str] = Counter()
        self.longest = 0.0
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._knock, args=(port,), daemon=True) for port in ports]

    def _knock(self, port: int) -> None:
        while not self._over.is_set():
            begun = monotonic()
            try:
                with socket.create_connection((LOOPBACK, port), SOON) as connection:
                    connection.sendall(request(API_VERSIONS, 0, 1, b""))
                    outcome = "answered" if connection.recv(4) else "closed"
            except OSError as error:
                outcome = type(error).__name__
            self.outcomes[outcome] += 1
            self.longest = max(self.longest, monotonic() - begun)

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(SOON)


def gone(process: int) -> bool:
    """It has exited; whoever is to hear of that may not have listened yet."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


class Reign:
    """Of one Forebay after the other, which write into one log."""

    def __init__(self, forebay: ForebayProcess) -> None:
        self.process = forebay.pid
        self._log = forebay.log
        self._successions = 0

    def passes_on(self) -> None:
        before = self.process
        os.kill(before, signal.SIGUSR2)
        self._successions += 1
        wait_until(lambda: len(self._successors()) == self._successions, SOON, "there is a successor")
        self.process = self._successors()[-1]
        wait_until(lambda: gone(before), SOON, "the one before has drained")

    def _successors(self) -> list[int]:
        written = self._log.read_text().rpartition("\n")[0]  # without a line that is just being written
        lines = [json.loads(line) for line in written.splitlines() if line.startswith("{")]
        return [line["process"] for line in lines if line["event"] == "successor serves, leaving"]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.kill(self.process, signal.SIGTERM)
        wait_until(lambda: gone(self.process), SOON, "the last one has drained")


@pytest.mark.parametrize(
    ("workers", "times"),
    [
        (1, 2),
        pytest.param(2, 2, marks=pytest.mark.whole),
        *(pytest.param(count, 20, marks=[pytest.mark.whole, pytest.mark.timeout(1200)]) for count in (1, 2)),
    ],
)
def test_nobody_who_connects_is_refused_and_nothing_is_lost(
    cluster: KafkaCluster, jvms: Mapping[str, JavaClient], workers: int, times: int
) -> None:
    topic, beside = f"load-{workers}-{times}", f"beside-{workers}-{times}"
    cluster.create_topic(topic, PARTITIONS)
    cluster.create_topic(beside, assignment=[[0]])
    forebay = ForebayProcess(cluster.bootstrap, cluster.nodes, options=["--workers", str(workers)])
    with Clients(patient, jvms) as clients, TopicLog(cluster.internal) as log, forebay, Reign(forebay) as reign:
        ports = [forebay.port, forebay.node_port(0), forebay.node_port(1)]
        posts = [Post(THROUGH, 0, forebay.node_port(0), beside)]
        with Bystanders(posts) as bystanders, clients.start(forebay.bootstrap, topic) as load:
            load.flows(SOME, SOON)
            begun = monotonic()
            with Knocking(ports) as knocking:
                for _ in range(times):
                    reign.passes_on()
                    load.flows(SOME, SOON)
            waits = bystanders.stop().latency(THROUGH, {0}, begun, monotonic())
            tallies = load.stop()
        found = log.read(topic, dict.fromkeys(range(PARTITIONS), 0))
        said = forebay.log.read_text()
    findings = reconcile(tallies, found)
    print(f"connects: {dict(knocking.outcomes)}, the longest {knocking.longest:.3f} s")
    print(f"a bystander waited {waits.p99:.3f} s (p99), {waits.worst:.3f} s at most, with {waits.errors} errors")
    print(f"{findings.acknowledged} acknowledged, {findings.refused} refused, {findings.duplicated} twice")
    findings.check("succession")
    assert knocking.outcomes.keys() == {"answered"}
    assert max(knocking.longest, waits.worst) < UNNOTICED_S
    assert knocking.outcomes["answered"] > 10 * times
    assert said.count("took over from another Forebay") == times
    assert "Traceback" not in said


@pytest.mark.whole
@pytest.mark.parametrize("workers", [1, 2])
def test_no_client_loses_all_brokers_at_once(cluster: KafkaCluster, workers: int) -> None:
    """librdkafka tells its application so, and forgets the brokers: what it has away then, it sends again."""
    topic, told, delivered = f"one-by-one-{workers}", Counter[str](), Counter[str]()
    cluster.create_topic(topic, PARTITIONS)
    over = threading.Event()
    forebay = ForebayProcess(cluster.bootstrap, cluster.nodes, options=["--workers", str(workers)])
    with forebay, Reign(forebay) as reign:
        settings: dict[str, Any] = {"bootstrap.servers": forebay.bootstrap, "log_level": 0}
        producer = Producer({**settings, "error_cb": lambda error: told.update([error.name()])})

        def produce() -> None:
            while not over.wait(0.002):
                producer.produce(topic, b"v", on_delivery=lambda error, _: delivered.update([str(error)]))
                producer.poll(0)

        producing = threading.Thread(target=produce)
        producing.start()
        try:
            for _ in range(SUCCESSIONS):
                before = delivered.total()
                wait_until(lambda before=before: delivered.total() > before + SOME, SOON, "it flows")  # type: ignore[misc]
                reign.passes_on()
        finally:
            over.set()
            producing.join()
        assert producer.flush(SOON) == 0
    assert "_ALL_BROKERS_DOWN" not in told, told
    assert delivered.keys() == {"None"}
