"""`python -m bench.others_check [NAME …]`: shows that each other proxy works here, and about what it costs.

Before a real cluster of three brokers, for each proxy: 1,000 records of a real client (confluent-kafka), every one
acknowledged and consumed again through the proxy, where the client may know no broker but at the proxy's ports;
then a few seconds of Produce requests as bench f offers them, before a real broker and before a sink. The machine is
not quiet and the time is short: bench f is what measures. Exit code 1 where one of them does not work.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from bench.others import WARM_UP, OtherProxy, envoy, installed
from bench.others_setup import VERSIONS
from bench.report import Table
from bench.wire_frames import PARTITIONS, TOPIC
from bench.wire_load import Load, offer
from bench.wired import sink
from tests.kit.kafka import KafkaCluster
from tests.kit.ports import LOOPBACK, free_ports
from tests.kit.python_clients import ConfluentClient
from tests.kit.spec import ProduceSpec

_KAFKA = "4.3.1"
_RECORDS = 1_000
_NODES = 3
_SIZE = 16_384
_HEAD = [
    "",
    "version",
    "acknowledged",
    "consumed",
    "CPU ms/MB, real broker",
    "requests/s",
    "CPU ms/MB, sink",
    "requests/s",
]


@contextmanager
def before_kafka(name: str, nodes: int) -> Iterator[tuple[KafkaCluster, OtherProxy]]:
    """Envoy passes addresses on as they are, so brokers advertise it; the others rewrite them."""
    ports = dict(enumerate(free_ports(nodes)))
    with KafkaCluster(_KAFKA, nodes, advertised=ports if name == "envoy" else None) as cluster:
        start = envoy(cluster.ports, ports) if name == "envoy" else installed()[name](cluster.ports)
        with start as proxy:
            yield cluster, proxy


def client(name: str) -> tuple[int, int]:
    """Records acknowledged to a real client, and consumed by one."""
    with before_kafka(name, _NODES) as (cluster, proxy):
        cluster.create_topic("check", partitions=_NODES)
        bootstrap = f"{LOOPBACK}:{proxy.bootstrap}"
        through = ConfluentClient()
        known = through.brokers(bootstrap, "check")
        strangers = known - {f"{LOOPBACK}:{port}" for port in proxy.node_ports.values()}
        if strangers:
            raise RuntimeError(f"{name} lets clients know {strangers}")
        acks = through.produce(bootstrap, ProduceSpec("check", "check", _RECORDS)).acks
        records = through.consume(bootstrap, "check", "check", _RECORDS)
        return len(acks), len({record.value for record in records})


def cost(name: str, proxy: OtherProxy) -> tuple[float, int]:
    """CPU in ms a MB, and requests a second."""
    load = Load(proxy.node_ports[0], "produce", _SIZE, 10, 5, 5.0, warm_up=WARM_UP[name], pids=(proxy.pid,))
    outcome = offer(load)
    return round(1000 * outcome.cpu / (outcome.requests * _SIZE / 1e6), 2), round(outcome.rate)


def check(name: str) -> list[object]:
    acknowledged, consumed = client(name)
    with before_kafka(name, 1) as (cluster, proxy):
        cluster.create_topic(TOPIC, PARTITIONS)
        real = cost(name, proxy)
    with sink() as port, installed()[name]({0: port}) as proxy:
        return [name, VERSIONS[name.partition(",")[0]], acknowledged, consumed, *real, *cost(name, proxy)]


def main() -> int:
    names = sys.argv[1:] or list(installed())
    rows = []
    for name in names:
        print(f"{name} …", file=sys.stderr, flush=True)
        rows.append(check(name))
    print(Table(_HEAD, rows).markdown())
    return int(any(row[2:4] != [_RECORDS, _RECORDS] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
