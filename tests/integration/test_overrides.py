"""Settings are overridden and brokers avoided under a load: nothing is lost, nothing is there twice, order is kept."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from random import Random

import pytest

from forebay_proxy.commands.admin_client import AdminClient
from forebay_proxy.commands.admin_endpoint import AdminError
from tests.chaos.load import Carriers, Clients
from tests.chaos.reconcile import reconcile
from tests.kit.forebay import ForebayProcess
from tests.kit.java import JavaClient
from tests.kit.kafka import KafkaCluster
from tests.kit.topic_log import TopicLog
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.integration

PARTITIONS = 6
SOON = 60.0
SOME = 20
"""Acknowledgements of each client: it flows."""
CLIENTS_SECONDS = {12: 280.0, 1000: 2000.0}
"""No client lives longer, by how many changes there are."""
LONGEST_MS = 1_000
TOPIC = "overridden"
CHANGES: tuple[tuple[str, object], ...] = (
    ("topics.exclude", [f"{TOPIC}*"]),
    ("client.ids.exclude", ["rdkafka", "producer-*"]),
    ("linger.ms", 0),
    ("linger.ms", 20),
    ("linger.ms", -1),
    ("partitioner.sticky.batch.size", 512),
    ("partitioner.adaptive.partitioning.enable", False),
    ("metadata.max.age.ms", 0),
)


@pytest.mark.parametrize(
    ("changes", "workers"),
    [(12, 2), pytest.param(1000, 2, marks=[pytest.mark.whole, pytest.mark.timeout(2400)])],
)
def test_whoever_produces_notices_nothing(
    cluster: KafkaCluster, jvms: Mapping[str, JavaClient], tmp_path: Path, changes: int, workers: int
) -> None:
    rng = Random(changes)
    topic = f"{TOPIC}-{changes}"
    cluster.create_topic(topic, PARTITIONS)
    socket = str(tmp_path / "s")
    settings = {"workers": str(workers), "linger.ms": "5", "admin.socket": socket}
    with Clients(jvms=jvms) as clients, TopicLog(cluster.internal) as log:
        tallies = [loader.tally(topic) for loader in clients.loaders]
        accounts = list(zip(clients.loaders, tallies, strict=True))
        forebay = ForebayProcess(cluster.bootstrap, cluster.nodes, settings=settings)
        with forebay, Carriers(forebay.bootstrap, accounts, CLIENTS_SECONDS[changes]) as load:
            steer = AdminClient(socket)
            change(load, steer, rng, changes, sorted(cluster.nodes))
            wait_until(lambda: not steer.ask("GET", "overrides")["rows"], SOON, "all have ended")
            load.end()
            found = log.read(topic, dict.fromkeys(range(PARTITIONS), 0))
            said = forebay.log.read_text()
    findings = reconcile(tallies, found)
    findings.check("overrides")
    assert findings.refused == findings.unknown == 0
    assert findings.acknowledged > SOME * len(tallies)
    assert said.count("setting overridden") > changes / 2
    assert "override expired" in said
    assert "Traceback" not in said


def change(load: Carriers, steer: AdminClient, rng: Random, changes: int, nodes: list[int]) -> None:
    """One thing after the other, each for a short while, while every client is acknowledged."""
    wait_until(lambda: load.acked_since(load.begun) >= SOME, SOON, "every client is acknowledged")
    for _ in range(changes):
        began = time.monotonic()
        asked = {"reason": "a test", "for_ms": rng.randint(1, LONGEST_MS)}
        if rng.random() < 0.3:
            try:
                steer.ask("POST", f"brokers/{rng.choice(nodes)}/avoid", asked)
            except AdminError as error:
                if "no other would be left" not in str(error):
                    raise
        else:
            name, value = rng.choice(CHANGES)
            steer.ask("POST", "overrides", {"settings": {name: value}, **asked})
        wait_until(lambda began=began: load.acked_since(began) >= 1, SOON, "it flows")  # type: ignore[misc]
