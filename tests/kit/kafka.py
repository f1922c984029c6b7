"""A real Kafka cluster on loopback: KRaft, every node broker and controller, started in a few seconds.

    with KafkaCluster("4.3.1") as cluster:
        cluster.create_topic("orders", partitions=3)
        … cluster.bootstrap …

Each node has three listeners: CLIENT, which clients and the proxy are pointed at and whose advertised ports may be
told to be others (toxiproxy's, say); INTERNAL, over which brokers replicate and tests look at what is really there,
so that neither is touched by what stands before CLIENT; and CONTROLLER.

`prepare(version)` (called by setup.py) leaves in the cache a formatted data directory, which each start copies, and a
class-data archive, which halves the time to start and the memory.
"""

from __future__ import annotations

import base64
import inspect
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from forebay_codecs.error_codes import UNKNOWN_TOPIC_OR_PARTITION
from tests.kit.leadership import leads
from tests.kit.metadata import ask_metadata
from tests.kit.paths import KAFKA, NotSetUp, classpath
from tests.kit.ports import LOOPBACK, free_port
from tests.kit.server import Server, ServerFailed

# Serial collector and the first compiler only: three brokers share two cores with the proxy and the clients.
JVM_FLAGS = ["-Xmx400m", "-Xms64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"]
START_SECONDS = 180
CLUSTER_ID = "Zm9yZWJheS1raXQtMDAwMA"

_SETTINGS = {
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "INTERNAL",
    "listener.security.protocol.map": "CLIENT:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
    # Internal topics: few partitions, one replica, so that the first group or transaction need not wait for them.
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.dedupe.buffer.size": "4194304",  # the default takes 128 MiB of heap
    "num.io.threads": "4",
    "num.network.threads": "2",
}
_LOG4J_1 = """log4j.rootLogger=INFO, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=[%d] %p %m (%c)%n
"""
_LOG4J_2 = """rootLogger.level=info
rootLogger.appenderRef.out.ref=out
appender.out.type=Console
appender.out.name=out
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=[%d] %p %m (%c)%n
"""


class KafkaCluster:
    """`advertised` maps a node to the port that its CLIENT listener advertises instead of its own.

    `ports` gives nodes' CLIENT ports, for a toxiproxy that had to be told its upstreams first. `settings` are broker
    settings over the kit's own. Nodes' ids count from `first_node`. `loggers`: the level of each, in log4j2's words
    (Kafka 4); it is info otherwise.
    """

    def __init__(
        self,
        version: str,
        brokers: int = 3,
        *,
        ports: Mapping[int, int] | None = None,
        advertised: Mapping[int, int] | None = None,
        settings: Mapping[str, str] | None = None,
        first_node: int = 0,
        racks: Mapping[int, str] | None = None,
        loggers: Mapping[str, str] | None = None,
    ) -> None:
        self._loggers = dict(loggers or {})
        self.version = version
        self.nodes = range(first_node, first_node + brokers)
        given = ports or {}
        self.ports = {node: given.get(node) or free_port() for node in self.nodes}
        self.advertised = {**self.ports, **(advertised or {})}
        self.internal_ports = {node: free_port() for node in self.nodes}
        self._controller_ports = {node: free_port() for node in self.nodes}
        self._settings = dict(settings or {})
        self._racks = dict(racks or {})
        self._folder = Path(tempfile.mkdtemp(prefix=f"kafka-{version}-"))
        self._servers: dict[int, Server] = {}

    @property
    def bootstrap(self) -> str:
        """What clients, or the proxy, are pointed at."""
        return _addresses(self.advertised)

    @property
    def internal(self) -> str:
        """The way around whatever stands before the brokers, for tests to look at what is there."""
        return _addresses(self.internal_ports)

    def start(self) -> Self:
        template = KAFKA / self.version / "formatted"
        if not template.exists():
            raise NotSetUp(f"{template} is missing: run `python -m tests.kit.setup`")
        for node in self.nodes:
            shutil.copytree(template, self._data(node))
            _rewrite_identity(self._data(node) / "meta.properties", node)
            _write_properties(self._properties(node), self._node_settings(node))
        for node in self.nodes:
            self.start_node(node)
        for node in self.nodes:
            self._servers[node].wait_until(lambda node=node: self._knows_all(node), START_SECONDS)  # type: ignore[misc]
        return self

    def start_node(self, node: int) -> None:
        """Starts a node, or starts it again over its data after `kill`; does not wait."""
        archive = [
            "-Xshare:auto",
            "-Xlog:disable",
            f"-XX:SharedArchiveFile={KAFKA / self.version / 'classes.jsa'}",
        ]
        command = _kafka_command(self.version, self._folder, archive, self._properties(node), self._loggers)
        self._servers[node] = Server(f"Kafka {self.version} node {node}", command, self.log(node))

    def change(self, settings: Mapping[str, str]) -> None:
        """Settings over those given before, for nodes that start from now on."""
        self._settings |= settings
        for node in self.nodes:
            _write_properties(self._properties(node), self._node_settings(node))

    def kill(self, node: int) -> None:
        self._servers[node].kill()

    def shut_down(self, node: int) -> None:
        """SIGTERM: it hands the partitions that it leads over before it leaves."""
        self._servers[node].terminate(START_SECONDS)

    def stop(self) -> None:
        """At once: combined nodes asked politely wait for a quorum that their peers just left."""
        for server in self._servers.values():
            server.process.kill()
        for server in self._servers.values():
            server.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def pid(self, node: int) -> int:
        return self._servers[node].pid

    def log(self, node: int) -> Path:
        return self._folder / f"node-{node}.log"

    def create_topic(
        self,
        name: str,
        partitions: int = 3,
        *,
        assignment: Sequence[Sequence[int]] | None = None,
        config: Mapping[str, str] | None = None,
        over: str | None = None,
    ) -> None:
        """Creates and waits until it can be written; partition i is led by node i unless `assignment` says else.

        `over` are the bootstrap servers to ask for it, `internal` by default.
        """
        replicas = assignment or [[self.nodes[index % len(self.nodes)]] for index in range(partitions)]
        admin = AdminClient({"bootstrap.servers": over or self.internal})
        topic = NewTopic(
            name,
            num_partitions=len(replicas),
            replica_assignment=[list(ids) for ids in replicas],
            config=dict(config or {}),
        )
        admin.create_topics([topic], operation_timeout=30)[name].result(60)
        self.await_topic(name, len(replicas))

    def await_topic(self, name: str, partitions: int) -> None:
        """Waits until every node knows it as a topic of so many, and takes records for those that it leads."""
        for node in self.nodes:
            self._servers[node].wait_until(lambda node=node: self._is_ready(node, name, partitions), START_SECONDS)  # type: ignore[misc]

    def delete_topic(self, name: str) -> None:
        """Deletes and waits until every node has heard of it: until then its leaders take records for it."""
        admin = AdminClient({"bootstrap.servers": self.internal})
        admin.delete_topics([name], operation_timeout=30)[name].result(60)
        for node in self.nodes:
            self._servers[node].wait_until(lambda node=node: self._has_forgotten(node, name), START_SECONDS)  # type: ignore[misc]

    def _has_forgotten(self, node: int, topic: str) -> bool:
        known = ask_metadata(self.internal_ports[node], topic)
        return known is not None and known.topics[0].error_code == UNKNOWN_TOPIC_OR_PARTITION

    def _knows_all(self, node: int) -> bool:
        known = ask_metadata(self.internal_ports[node])
        return known is not None and len(known.brokers) == len(self.nodes)

    def _is_ready(self, node: int, topic: str, partitions: int) -> bool:
        """The node itself knows a leader of each partition, for a client may ask any node next, and leads its own."""
        port = self.internal_ports[node]
        known = ask_metadata(port, topic)
        if known is None or sum(it.leader_id >= 0 for it in known.topics[0].partitions) != partitions:
            return False
        return leads(port, topic, [it.partition_index for it in known.topics[0].partitions if it.leader_id == node])

    def _node_settings(self, node: int) -> dict[str, str]:
        voters = ",".join(f"{peer}@{LOOPBACK}:{port}" for peer, port in self._controller_ports.items())
        internal = f"INTERNAL://{LOOPBACK}:{self.internal_ports[node]}"
        controller = f"CONTROLLER://{LOOPBACK}:{self._controller_ports[node]}"
        return {
            **_SETTINGS,
            "node.id": str(node),
            "controller.quorum.voters": voters,
            "listeners": f"CLIENT://{LOOPBACK}:{self.ports[node]},{internal},{controller}",
            "advertised.listeners": f"CLIENT://{LOOPBACK}:{self.advertised[node]},{internal}",
            "log.dirs": str(self._data(node)),
            **({"broker.rack": self._racks[node]} if node in self._racks else {}),
            **self._settings,
        }

    def _data(self, node: int) -> Path:
        return self._folder / f"data-{node}"

    def _properties(self, node: int) -> Path:
        return self._folder / f"node-{node}.properties"

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()


def prepare(version: str) -> None:
    """Formats a data directory and runs one broker until it is ready, so that the JVM archives its classes."""
    home = KAFKA / version
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    cluster = KafkaCluster(version, brokers=1)
    properties = cluster._properties(0)
    _write_properties(properties, cluster._node_settings(0))
    jars = ":".join(map(str, classpath(f"broker-{version}")))
    storage = [
        "java",
        "-cp",
        jars,
        "kafka.tools.StorageTool",
        "format",
        "-t",
        CLUSTER_ID,
        "-c",
        str(properties),
    ]
    formatted = subprocess.run(storage, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if formatted.returncode != 0:
        raise ServerFailed(f"Kafka {version} could not be formatted:\n{formatted.stdout[-4_000:]}")
    shutil.copytree(cluster._data(0), home / "formatted")
    command = _kafka_command(version, cluster._folder, [f"-XX:ArchiveClassesAtExit={home / 'classes.jsa'}"], properties)
    server = Server(f"Kafka {version}, to archive its classes", command, cluster.log(0))
    cluster._servers[0] = server
    try:
        server.wait_until(lambda: cluster._knows_all(0), START_SECONDS)
        cluster.create_topic("warm", partitions=1)
        server.terminate(60)
    finally:
        cluster.stop()


def archive_inputs() -> str:
    """What a prepared broker depends on beside its jars."""
    return repr((JVM_FLAGS, _SETTINGS, inspect.getsource(prepare)))


def _kafka_command(
    version: str, folder: Path, flags: Sequence[str], properties: Path, loggers: Mapping[str, str] | None = None
) -> list[str]:
    if version.startswith("3."):
        logging, setting, text = folder / "log4j.properties", "log4j.configuration=file:", _LOG4J_1
    else:
        logging, setting, text = folder / "log4j2.properties", "log4j2.configurationFile=", _LOG4J_2
    for number, (name, level) in enumerate((loggers or {}).items()):
        text += f"logger.{number}.name={name}\nlogger.{number}.level={level}\n"
    logging.write_text(text)
    jars = ":".join(map(str, classpath(f"broker-{version}")))
    return ["java", *JVM_FLAGS, *flags, f"-D{setting}{logging}", "-cp", jars, "kafka.Kafka", str(properties)]


def _write_properties(path: Path, settings: Mapping[str, str]) -> None:
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))


def _rewrite_identity(meta: Path, node: int) -> None:
    """Makes a copied data directory node's own: no two directories of a cluster may share an id."""
    directory = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    own = {"node.id": str(node), "directory.id": directory}
    lines = [line.partition("=") for line in meta.read_text().splitlines() if not line.startswith("#")]
    _write_properties(meta, {name: own.get(name, value) for name, _, value in lines})


def _addresses(ports: Mapping[int, int]) -> str:
    return ",".join(f"{LOOPBACK}:{port}" for port in ports.values())


def main() -> None:
    """`python -m tests.kit.kafka [VERSION]`: a cluster to play with, until Enter is pressed."""
    with KafkaCluster(sys.argv[1] if len(sys.argv) > 1 else "4.3.1") as cluster:
        print(f"bootstrap {cluster.bootstrap}, logs in {cluster.log(0).parent}; Enter stops it", flush=True)
        sys.stdin.readline()


if __name__ == "__main__":
    main()
