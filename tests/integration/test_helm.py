"""The Helm chart's pod, run as the process that it is: real producers through it, to a real Kafka."""

from __future__ import annotations

import os
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Producer

from tests.deploy.chart import Rendered
from tests.integration.route import Route
from tests.kit.certificates import Authority
from tests.kit.ports import LOOPBACK, free_run
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.integration

RECORDS = 1000


@pytest.mark.parametrize("tls", [False, True])
def test_producers_reach_every_broker_through_the_ports_of_the_chart(route: Route, tls: bool, tmp_path: Path) -> None:
    """With TLS at all ports it is a pod with addresses of IPv6, too."""
    authority = Authority(tmp_path)
    keystore = str(authority.issue("forebay", LOOPBACK))
    secured = {
        "protocol": "SSL",
        "bindAddress": "::",
        "settings": {"listener.name.ssl.ssl.keystore.location": keystore, "admin.ssl.keystore.location": keystore},
    }
    nodes = sorted(route.cluster.nodes)
    first = free_run(3 + nodes[-1])
    chart = Rendered(
        {
            "bootstrapServers": route.cluster.bootstrap.split(","),
            "brokers": {"ids": nodes},
            "adminPort": first,
            "port": first + 1,
            "advertisedHost": LOOPBACK,
            **(secured if tls else {}),
        }
    )
    config = tmp_path / "forebay.toml"
    mounted, run = (mount["mountPath"] for mount in chart.container["volumeMounts"])
    config.write_text(chart.settings.replace(run, str(tmp_path)))
    arguments = [word.replace(mounted, str(tmp_path)) for word in chart.container["args"]]
    environment = os.environ | {
        each["name"]: each["value"].replace(mounted, str(tmp_path)) for each in chart.container["env"]
    }
    asked = chart.container["readinessProbe"]["httpGet"]
    probe = f"{asked.get('scheme', 'HTTP').lower()}://{LOOPBACK}:{first}{asked['path']}"
    props = {"security.protocol": "SSL", "ssl.ca.location": str(authority.pem)} if tls else {}
    command = [sys.executable, "-m", "forebay_proxy.commands.cli", *arguments]
    with (tmp_path / "log").open("w") as log, subprocess.Popen(command, env=environment, stderr=log) as forebay:
        try:
            wait_until(lambda: answers(probe), 60, "the pod is ready")
            topic = route.new_topic(partitions=6)
            told: list[KafkaError | None] = []
            producer = Producer({"bootstrap.servers": f"{LOOPBACK}:{first + 1}", **props})
            for number in range(RECORDS):
                producer.produce(topic, str(number), on_delivery=lambda error, _: told.append(error))
            assert producer.flush(60) == 0
            brokers = producer.list_topics(topic, timeout=30).brokers
            reload = [sys.executable, "-m", "forebay_proxy.commands.cli", "reload"]
            subprocess.run(reload, env=environment, check=True, capture_output=True)
        finally:
            forebay.terminate()
    assert forebay.returncode == 0
    assert told == [None] * RECORDS
    ports = next(chart.ports())
    assert {broker.port for broker in brokers.values()} == {ports[f"broker-{node}"] for node in nodes}
    assert len(route.log.read(topic, dict.fromkeys(range(6), 0), at_least=RECORDS)) == RECORDS


def answers(url: str) -> bool:
    """Whether it does, as a kubelet asks: of whom its certificate is does not matter."""
    context = ssl._create_unverified_context() if url.startswith("https") else None
    try:
        with urllib.request.urlopen(url, timeout=5, context=context):
            return True
    except (OSError, urllib.error.HTTPError):
        return False
