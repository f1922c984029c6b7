"""Workers are replaced under a load, by reloads of a setting of theirs: nothing is lost, twice, or out of order."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from time import monotonic

import pytest

from tests.chaos.bystander import THROUGH, Bystanders, Post
from tests.chaos.load import Clients, patient
from tests.chaos.reconcile import reconcile
from tests.kit.forebay import ForebayProcess
from tests.kit.kafka import KafkaCluster
from tests.kit.topic_log import TopicLog
from tests.kit.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.whole]  # test_succession.py has those who come again

PARTITIONS = 6
SOON = 120.0
UNNOTICED_S = 5.0
"""Nobody waits for as long, on a busy machine either; SOON bounds what else is waited for."""
SOME = 20
"""Acknowledgements of each client: it flows."""
GENERATION, RESTARTS = "forebay_config_generation", "forebay_worker_restarts_total"


@pytest.mark.parametrize("reloads", [2, pytest.param(15, marks=pytest.mark.timeout(900))])
def test_whoever_produces_comes_again_and_loses_nothing(cluster: KafkaCluster, tmp_path: Path, reloads: int) -> None:
    topic, beside = f"load-{reloads}", f"beside-{reloads}"
    cluster.create_topic(topic, PARTITIONS)
    cluster.create_topic(beside, assignment=[[0]])
    path = tmp_path / "forebay.toml"
    path.write_text('"batch.size" = 16384')
    options = ["--config", str(path), "--workers", "2"]
    forebay = ForebayProcess(cluster.bootstrap, cluster.nodes, options=options)
    with Clients(patient) as clients, TopicLog(cluster.internal) as log, forebay:
        posts = [Post(THROUGH, 0, forebay.node_port(0), beside)]
        with Bystanders(posts) as bystanders, clients.start(forebay.bootstrap, topic) as load:
            load.flows(SOME, SOON)
            begun = monotonic()
            for number in range(1, reloads + 1):
                path.write_text(f'"batch.size" = {16384 + 4096 * (number % 2)}')
                os.kill(forebay.pid, signal.SIGHUP)
                wait_until(lambda n=number: forebay.metrics()[GENERATION] > n, SOON, "replaced")  # type: ignore[misc]
                load.flows(SOME, SOON)
            waits = bystanders.stop().latency(THROUGH, {0}, begun, monotonic())
            tallies = load.stop()
        found = log.read(topic, dict.fromkeys(range(PARTITIONS), 0))
        counted, said = forebay.metrics(), forebay.log.read_text()
    findings = reconcile(tallies, found)
    print(f"a bystander waited {waits.p99:.3f} s (p99), {waits.worst:.3f} s at most, with {waits.errors} errors")
    print(f"{findings.acknowledged} acknowledged, {findings.refused} refused, {findings.duplicated} twice")
    findings.check("replaced")
    assert waits.worst < UNNOTICED_S
    assert (counted[GENERATION], counted[RESTARTS]) == (1 + reloads, 0)
    assert said.count("worker replaced, the old one drains") == 2 * reloads
    assert "did not exit in time" not in said
    assert "Traceback" not in said
