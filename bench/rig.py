"""Real brokers with one topic, Forebay before them, and what Forebay did meanwhile.

    with brokers(partitions=6) as cluster, forebay(cluster) as proxy:
        with Watch(proxy) as did:
            … load to leader_ports(proxy, 6) …
        did.requests, did.records_a_batch …

Partition i is led by node i modulo the nodes, without replicas: what is measured is produce, not replication. The
brokers' JVMs are the kit's, with the first compiler only: soon warm, which is what a benchmark of minutes needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from statistics import median
from types import TracebackType
from typing import Final, Self, TypeVar

from tests.kit.forebay import ForebayProcess
from tests.kit.kafka import KafkaCluster
from tests.kit.ports import free_ports
from tests.kit.toxiproxy import ToxiproxyServer

KAFKA: Final = "4.3.1"
NODES: Final = 3
TOPIC: Final = "load"

T = TypeVar("T")


@contextmanager
def brokers(partitions: int, delay_ms: int = 0) -> Iterator[KafkaCluster]:
    """Three of them; what they answer comes `delay_ms` later."""
    with ExitStack() as stack:
        if delay_ms:
            toxiproxy = stack.enter_context(ToxiproxyServer())
            ports = dict(enumerate(free_ports(NODES)))
            advertised = {node: toxiproxy.proxy(f"broker-{node}", port) for node, port in ports.items()}
            for node in ports:
                toxiproxy.add_latency(f"broker-{node}", delay_ms)
            cluster = KafkaCluster(KAFKA, NODES, ports=ports, advertised=advertised)
        else:
            cluster = KafkaCluster(KAFKA, NODES)
        stack.enter_context(cluster)
        # The loads' records are of one fixed time: they must not be too old to keep.
        cluster.create_topic(TOPIC, partitions, config={"retention.ms": "-1"})
        yield cluster


def forebay(cluster: KafkaCluster, **settings: str) -> ForebayProcess:
    """`linger_ms="5"` is `--set linger.ms=5`. It runs the modules that this interpreter runs, compiled or not."""
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return ForebayProcess(cluster.bootstrap, cluster.nodes, settings=named)


def broker_pids(cluster: KafkaCluster) -> tuple[int, ...]:
    return tuple(cluster.pid(node) for node in cluster.nodes)


def leader_ports(before: KafkaCluster | ForebayProcess, partitions: int) -> tuple[int, ...]:
    """The port of each partition's leader: a broker's own, or Forebay's for it."""
    nodes = list(before.nodes)
    leaders = [nodes[partition % len(nodes)] for partition in range(partitions)]
    if isinstance(before, ForebayProcess):
        return tuple(before.node_port(node) for node in leaders)
    return tuple(before.advertised[node] for node in leaders)


def median_of(runs: Sequence[T], of: Callable[[T], float]) -> float:
    return median(map(of, runs))


def shown(value: float) -> str:
    """1,234 · 123 · 12.3 · 1.23 · 0.12"""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


class Watch:
    """What Forebay sent to the brokers while it was entered."""

    def __init__(self, proxy: ForebayProcess) -> None:
        self._proxy = proxy
        self._before: dict[str, float] = {}
        self._after: dict[str, float] = {}

    def __enter__(self) -> Self:
        self._before = self._proxy.metrics()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is None:
            self._after = self._proxy.metrics()

    def _grown(self, name: str) -> float:
        return self._after.get(name, 0) - self._before.get(name, 0)

    @property
    def requests(self) -> float:
        return self._grown('forebay_produce_requests_total{side="upstream"}')

    @property
    def batches(self) -> float:
        return self._grown("forebay_batch_records_count")

    @property
    def records_a_batch(self) -> float:
        return self._grown("forebay_batch_records_sum") / max(1, self.batches)

    @property
    def bytes_a_batch(self) -> float:
        return self._grown("forebay_batch_bytes_sum") / max(1, self.batches)
