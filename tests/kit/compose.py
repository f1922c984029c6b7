"""The brokers of deploy/compose as processes, for want of a container engine: with the same ids and settings, and
toxiproxy before the first of them.

    with compose_cluster() as (cluster, toxiproxy):
        toxiproxy.add_latency("kafka-1", 20)
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import yaml

from tests.kit.kafka import KafkaCluster
from tests.kit.paths import ROOT
from tests.kit.ports import free_port
from tests.kit.toxiproxy import ToxiproxyServer

FOLDER = ROOT / "deploy" / "compose"
# Who is where, which the kit says by itself.
_WHERE = ("NODE_ID", "PROCESS_", "CONTROLLER_", "LISTENER", "ADVERTISED_", "INTER_")
_OF_THE_JVM = ("HEAP_OPTS",)


def _brokers() -> dict[str, dict[str, str]]:
    """Service → its broker's variables."""
    services = yaml.safe_load((FOLDER / "compose.yaml").read_text())["services"]
    told = {name: service.get("environment", {}) for name, service in services.items()}
    return {name: variables for name, variables in told.items() if "KAFKA_NODE_ID" in variables}


@contextmanager
def compose_cluster() -> Iterator[tuple[KafkaCluster, ToxiproxyServer]]:
    brokers = _brokers()
    nodes = {name: int(variables["KAFKA_NODE_ID"]) for name, variables in brokers.items()}
    (proxy,) = json.loads((FOLDER / "toxiproxy.json").read_text())
    variables = next(iter(brokers.values())).items()
    told = {name.removeprefix("KAFKA_"): value for name, value in variables if name.startswith("KAFKA_")}
    settings = {
        name.replace("_", ".").lower(): value
        for name, value in told.items()
        if not name.startswith((*_WHERE, *_OF_THE_JVM))
    }
    with ExitStack() as stack:
        toxiproxy = stack.enter_context(ToxiproxyServer())
        own = free_port()
        slow = nodes[proxy["upstream"].partition(":")[0]]
        advertised = {slow: toxiproxy.proxy(proxy["name"], own)}
        cluster = KafkaCluster(
            "4.3.1",
            len(nodes),
            first_node=min(nodes.values()),
            ports={slow: own},
            advertised=advertised,
            settings=settings,
        )
        yield stack.enter_context(cluster), toxiproxy
