"""Patterns change again and again under a load: nothing is lost, nothing is there twice, every key stays in order."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from random import Random
from time import monotonic

import pytest

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
"""No client lives longer, by how many reloads there are."""
GENERATION, SOUND = "forebay_config_generation", "forebay_config_last_reload_successful"
TOPIC = "live"
PATTERNS = {
    "topics.include": ("*", f"{TOPIC}*", "other", "l*,o*"),
    "topics.exclude": ("", "", "*", f"{TOPIC}*", "other"),
    "client.ids.exclude": ("", "", "", "rdkafka", "producer-*", "*"),
    "moves": ("on", "on", "observe"),
    "topics.move": ("", f"{TOPIC}*"),
    "topics.observe": ("", "", "other", f"{TOPIC}*"),
    "client.ids.observe": ("", "", "rdkafka"),
}


def written(path: Path, rng: Random) -> None:
    """Patterns that are drawn, in a file that is never seen half written."""
    lines = [f'"{name}" = "{rng.choice(values)}"' for name, values in PATTERNS.items()]
    other = path.with_suffix(".new")
    other.write_text("\n".join([f"# {rng.random()}", *lines]))
    other.rename(path)


def reads(forebay: ForebayProcess, times: int) -> bool:
    said = forebay.log.read_text()
    return said.count("settings reloaded") + said.count("nothing has changed") == times


@pytest.mark.parametrize(
    ("reloads", "workers"),
    [(12, 1), pytest.param(1000, 2, marks=[pytest.mark.whole, pytest.mark.timeout(2400)])],
)
def test_whoever_produces_notices_nothing(
    cluster: KafkaCluster, jvms: Mapping[str, JavaClient], tmp_path: Path, reloads: int, workers: int
) -> None:
    rng = Random(reloads)
    topic = f"{TOPIC}-{reloads}"
    cluster.create_topic(topic, PARTITIONS)
    path = tmp_path / "forebay.toml"
    written(path, rng)
    settings = {"workers": str(workers), "linger.ms": "5"}
    options = ["--config", str(path)]
    with Clients(jvms=jvms) as clients, TopicLog(cluster.internal) as log:
        tallies = [loader.tally(topic) for loader in clients.loaders]
        accounts = list(zip(clients.loaders, tallies, strict=True))
        forebay = ForebayProcess(cluster.bootstrap, cluster.nodes, settings=settings, options=options)
        with forebay, Carriers(forebay.bootstrap, accounts, CLIENTS_SECONDS[reloads]) as load:
            change(load, forebay, path, rng, reloads)
            load.end()
            found = log.read(topic, dict.fromkeys(range(PARTITIONS), 0))
            counted, said = forebay.metrics(), forebay.log.read_text()
    findings = reconcile(tallies, found)
    findings.check("patterns")
    assert findings.refused == findings.unknown == 0
    assert findings.acknowledged > SOME * len(tallies)
    assert counted[GENERATION] > reloads / 4
    assert counted[SOUND] == 1
    for fate in ("moved", "kept", "untouched"):
        assert counted[f'forebay_records_total{{fate="{fate}"}}'] > 0
    assert "Traceback" not in said


def change(load: Carriers, forebay: ForebayProcess, path: Path, rng: Random, reloads: int) -> None:
    """Other patterns, again and again, while every client is acknowledged. All but the last are for a moment only."""
    wait_until(lambda: load.acked_since(load.begun) >= SOME, SOON, "every client is acknowledged")
    for number in range(1, reloads + 1):
        written(path, rng)
        os.kill(forebay.pid, signal.SIGHUP)
        wait_until(lambda number=number: reads(forebay, number), SOON, f"reload {number}")  # type: ignore[misc]
        load.acked_since(load.begun)  # raises where a client has ended
    last = monotonic()
    wait_until(lambda: load.acked_since(last) >= SOME, SOON, "every client is acknowledged by the last patterns, too")
