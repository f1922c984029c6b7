"""The Helm chart's pod, run as the process that it is: real producers through it, to a real Kafka."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Producer

from tests.deploy.chart import Rendered
from tests.integration.route import Route
from tests.kit.ports import LOOPBACK, free_run
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.integration

RECORDS = 1000


def test_producers_reach_every_broker_through_the_ports_of_the_chart(route: Route, tmp_path: Path) -> None:
    nodes = sorted(route.cluster.nodes)
    first = free_run(3 + nodes[-1])
    chart = Rendered(
        {
            "bootstrapServers": route.cluster.bootstrap.split(","),
            "brokers": {"ids": nodes},
            "adminPort": first,
            "port": first + 1,
            "advertisedHost": LOOPBACK,
        }
    )
    config = tmp_path / "forebay.toml"
    mounted, run = (mount["mountPath"] for mount in chart.container["volumeMounts"])
    config.write_text(chart.settings.replace(run, str(tmp_path)))
    arguments = [word.replace(mounted, str(tmp_path)) for word in chart.container["args"]]
    environment = os.environ | {
        each["name"]: each["value"].replace(mounted, str(tmp_path)) for each in chart.container["env"]
    }
    probe = chart.container["readinessProbe"]["httpGet"]["path"]
    command = [sys.executable, "-m", "forebay_proxy.commands.cli", *arguments]
    with (tmp_path / "log").open("w") as log, subprocess.Popen(command, env=environment, stderr=log) as forebay:
        try:
            wait_until(lambda: answers(f"http://{LOOPBACK}:{first}{probe}"), 60, "the pod is ready")
            topic = route.new_topic(partitions=6)
            told: list[KafkaError | None] = []
            producer = Producer({"bootstrap.servers": f"{LOOPBACK}:{first + 1}"})
            for number in range(RECORDS):
                producer.produce(topic, str(number), on_delivery=lambda error, _: told.append(error))
            assert producer.flush(60) == 0
            brokers = producer.list_topics(topic, timeout=30).brokers
        finally:
            forebay.terminate()
    assert forebay.returncode == 0
    assert told == [None] * RECORDS
    ports = next(chart.ports())
    assert {broker.port for broker in brokers.values()} == {ports[f"broker-{node}"] for node in nodes}
    assert len(route.log.read(topic, dict.fromkeys(range(6), 0), at_least=RECORDS)) == RECORDS


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except (OSError, urllib.error.HTTPError):
        return False
