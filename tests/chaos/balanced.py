"""Where replicas come and go: brokers, Forebays beside each other, and HAProxy before them.

    clients ─┬ ports: 127.0.0.1:P, broker n on 127.0.0.1:Pn (advertised.node.ports) ┐
             └ names: 127.0.0.1:Q, broker n on 127.0.0.1n:Q (advertised.address)    ┴ HAProxy → Forebays → brokers

Each Forebay has a listener for either way, and closes connections that are MAX_AGE_S old.
"""

from __future__ import annotations

from contextlib import ExitStack
from threading import Event, Thread
from types import TracebackType
from typing import Final, Self

from confluent_kafka import Producer

from tests.kit.forebay import ForebayProcess
from tests.kit.haproxy import Haproxy, Target
from tests.kit.kafka import KafkaCluster
from tests.kit.ports import LOOPBACK, free_port
from tests.kit.toxiproxy import ToxiproxyServer
from tests.kit.waiting import wait_until

MAX_AGE_S: Final = 5.0
REPLICAS: Final = "abc"
RECOVERY_SECONDS: Final = 60
NODES: Final = range(3)
_PROTOCOLS = "PORTS:PLAINTEXT,NAMES:PLAINTEXT"


class Balanced:
    """Nothing of Forebay runs until it is added."""

    def __init__(self, jitter_ms: int = 0) -> None:
        """What brokers answer comes up to twice `jitter_ms` later."""
        self._jitter_ms = jitter_ms
        self._stack = ExitStack()
        self._ports = {node: free_port() for node in (None, *NODES)}
        self._name_port = free_port()
        self.running: dict[str, ForebayProcess] = {}

    @property
    def ports(self) -> str:
        """The bootstrap server of clients that are told a port for each broker."""
        return f"{LOOPBACK}:{self._ports[None]}"

    @property
    def names(self) -> str:
        """That of clients that are told an address for each broker."""
        return f"{LOOPBACK}:{self._name_port}"

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.cluster = stack.enter_context(self._brokers(stack))
            translated = ",".join(f"{node}:{self._ports[node]}" for node in NODES)
            self._replicas = {
                name: ForebayProcess(
                    self.cluster.bootstrap,
                    NODES,
                    protocols=("PORTS", "NAMES"),
                    settings={
                        "listener.security.protocol.map": _PROTOCOLS,
                        "advertised.host": LOOPBACK,
                        "listener.name.ports.advertised.node.ports": translated,
                        "connections.max.age.ms": str(int(1000 * MAX_AGE_S)),
                    },
                    tls={"advertised.address": f"{LOOPBACK}$(node):{self._name_port}"},
                )
                for name in REPLICAS
            }
            stack.push(self._end_all)
            self.balancer = stack.enter_context(Haproxy(self._ways()))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stack.__exit__(kind, error, at)

    def _brokers(self, stack: ExitStack) -> KafkaCluster:
        if not self._jitter_ms:
            return KafkaCluster("4.3.1")
        toxiproxy = stack.enter_context(ToxiproxyServer())
        ports = {node: free_port() for node in NODES}
        advertised = {node: toxiproxy.proxy(f"broker-{node}", port) for node, port in ports.items()}
        for node in NODES:
            toxiproxy.add(f"broker-{node}", "latency", "downstream", latency=self._jitter_ms, jitter=self._jitter_ms)
        return KafkaCluster("4.3.1", ports=ports, advertised=advertised)

    def _ways(self) -> dict[str, list[Target]]:
        ways: dict[str, list[Target]] = {}
        for name, forebay in self._replicas.items():
            for node, port in self._ports.items():
                behind = 0 if node is None else 1 + node
                own = f"{LOOPBACK}{'' if node is None else node}:{self._name_port}"
                ways.setdefault(f"{LOOPBACK}:{port}", []).append(
                    Target(name, forebay.port + behind, forebay.admin_port)
                )
                ways.setdefault(own, []).append(Target(name, forebay.tls_port + behind, forebay.admin_port))
        return ways

    def add(self, name: str) -> None:
        """Start it; the balancer sees by itself that it is there."""
        self.running[name] = self._replicas[name].start()

    def kill(self, name: str) -> None:
        self.running.pop(name).kill()

    def roll(self, name: str) -> None:
        """Stop it as a deployment does, and start it again."""
        self.running.pop(name).stop()
        self.add(name)

    def _end_all(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with ExitStack() as stack:
            for forebay in self.running.values():
                stack.callback(forebay.__exit__, kind, error, at)

    def imbalance(self) -> float:
        """By how much of the mean the replica with the most, or the fewest, connections is off it."""
        counts = [self._connections(forebay) for forebay in self.running.values()]
        mean = sum(counts) / len(counts)
        return max(max(counts) - mean, mean - min(counts)) / mean

    def _connections(self, forebay: ForebayProcess) -> float:
        metrics = forebay.metrics()
        return sum(metrics[f'forebay_open_connections{{listener="{listener}"}}'] for listener in ("bootstrap", "node"))


class Trickle:
    """Producers that each send a little, half of them idempotent, while it is entered; every record must arrive."""

    def __init__(self, bootstraps: list[str], topic: str, each: int) -> None:
        self._topic = topic
        self._producers = [
            Producer(
                {
                    "bootstrap.servers": bootstrap,
                    "enable.idempotence": bool(number % 2),
                    "linger.ms": 0,
                    "reconnect.backoff.max.ms": 500,
                    "log_level": 0,
                }
            )
            for bootstrap in bootstraps
            for number in range(each)
        ]
        self.sent = 0
        self.acknowledged: list[str] = []
        self.failures: list[str] = []
        self._stop = Event()
        self._thread = Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        wait_until(lambda: len(self.acknowledged) >= len(self._producers), RECOVERY_SECONDS, "all of them send")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        """Returns once all that was sent is acknowledged, or refused."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(0.2):
            for producer in self._producers:
                self._send(producer)
        for producer in self._producers:
            producer.flush(RECOVERY_SECONDS)

    def _send(self, producer: Producer) -> None:
        value = f"trickle-{self.sent}"
        self.sent += 1

        def told(error: object, _: object) -> None:
            if error is None:
                self.acknowledged.append(value)
            else:
                self.failures.append(f"{value}: {error}")

        producer.produce(self._topic, value, on_delivery=told)
        producer.poll(0)
