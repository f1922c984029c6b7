"""Where faults happen: three brokers, Forebay, clients, and toxiproxy on both sides of Forebay.

    clients → 127.0.0.2:P… (hops `clients`, `clients-0` …) → Forebay → (hops `broker-0` …) → brokers' CLIENT listeners
                                                                        the tests themselves → INTERNAL listeners

Forebay is told to advertise 127.0.0.2, so that clients stay on toxiproxy's side of it. Topics have three replicas and
min.insync.replicas 2. Bystanders go to Forebay's own ports and, directly, to the same hops of toxiproxy as Forebay.

Timeouts are SHORT, a few seconds, so that a fault of a few seconds outlives them: a broker that is silent is given up
by Forebay after 3 s and by its peers too. Or they are the DEFAULTS of brokers, Forebay and clients.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from time import monotonic
from types import TracebackType
from typing import Self

from confluent_kafka import Message, Producer
from confluent_kafka.admin import AdminClient

from forebay_proxy.commands import admin_client
from tests.chaos.bystander import DIRECT as DIRECTLY
from tests.chaos.bystander import THROUGH, Bystanders, Post, Way
from tests.chaos.footprint import Footprint, footprint
from tests.chaos.load import Clients, Load, Loader, impatient, patient
from tests.chaos.reconcile import PROBE
from tests.kit.forebay import ForebayProcess
from tests.kit.java import JavaClient
from tests.kit.kafka import KafkaCluster
from tests.kit.metadata import ask_metadata
from tests.kit.ports import free_port
from tests.kit.spec import ConsumedRecord
from tests.kit.topic_log import TopicLog
from tests.kit.toxiproxy import ToxiproxyServer
from tests.kit.waiting import wait_until

CLIENTS_SIDE = "127.0.0.2"
PARTITIONS = 6
DIRECT = os.environ.get("FOREBAY_TEST_DIRECT") == "1"
"""Clients go to the brokers' side, past Forebay: shows what Kafka and the clients do by themselves."""
HURRIES = not os.environ.get("WHOLE")
"""Connections to brokers that a fault left behind need not be idle for ten seconds before Forebay closes them."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Settings of brokers and Forebay, and the clients that carry the load. `name` stands in the table."""

    name: str
    brokers: Mapping[str, str]
    forebay: Mapping[str, str]
    loaders: Callable[[Mapping[str, JavaClient]], Sequence[Loader]]


_BROKERS = {"auto.create.topics.enable": "false"}
_FOREBAY = {"advertised.host": CLIENTS_SIDE}
SHORT = Timeouts(
    "short",
    {**_BROKERS, "broker.heartbeat.interval.ms": "500", "broker.session.timeout.ms": "3000"},
    {
        **_FOREBAY,
        "request.timeout.ms": "3000",
        "socket.connection.setup.timeout.ms": "2000",
        "metadata.soft.age.ms": "1000",
    },
    impatient,
)
DEFAULTS = Timeouts("default", _BROKERS, _FOREBAY, patient)
RECOVERY_SECONDS = 60
SOON = 1.0
"""By then those who look at Forebay are not seen themselves any more."""
_BYSTANDERS_ACKS = (1, -1)


class Stage:
    """Everything is started by `with`, and once a run: a fault leaves the stage as it was, or its test has failed."""

    def __init__(self, timeouts: Timeouts = SHORT) -> None:
        self.timeouts = timeouts
        self._stack = ExitStack()
        self._topics = 0

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.toxiproxy = stack.enter_context(ToxiproxyServer())
            ports = {node: free_port() for node in range(3)}
            self.broker_hops = {node: f"broker-{node}" for node in ports}
            advertised = {node: self.toxiproxy.proxy(self.broker_hops[node], port) for node, port in ports.items()}
            self.cluster = stack.enter_context(
                KafkaCluster("4.3.1", ports=ports, advertised=advertised, settings=self.timeouts.brokers)
            )
            self.nodes = list(self.cluster.nodes)
            self._admin_socket = f"{stack.enter_context(TemporaryDirectory(prefix='stage-'))}/s"
            self.forebay_settings = {**self.timeouts.forebay, "admin.socket": self._admin_socket}
            self.forebay = ForebayProcess(self.cluster.bootstrap, self.nodes, settings=self.forebay_settings)
            stack.enter_context(self.forebay)
            self.client_hops = ["clients", *(f"clients-{node}" for node in self.nodes)]
            for hop, port in zip(self.client_hops, self._forebay_ports(), strict=True):
                self.toxiproxy.proxy(hop, port, listen=f"{CLIENTS_SIDE}:{port}")
            self.log = stack.enter_context(TopicLog(self.cluster.internal))
            self.admin = AdminClient({"bootstrap.servers": self.cluster.internal, "log_level": 0})
            self.clients = stack.enter_context(Clients(self.timeouts.loaders))
            for node in self.nodes:
                self.cluster.create_topic(_bystanders_topic(node), assignment=[[node]] * len(_BYSTANDERS_ACKS))
            self._stack = stack.pop_all()
        try:
            self.settled = self._settle()
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stack.__exit__(kind, error, at)

    def _forebay_ports(self) -> list[int]:
        return [self.forebay.port, *map(self.forebay.node_port, self.nodes)]

    @property
    def bootstrap(self) -> str:
        """Where clients begin: on toxiproxy's side of Forebay, or of the brokers."""
        return self.cluster.bootstrap if DIRECT else f"{CLIENTS_SIDE}:{self.forebay.port}"

    def new_topic(self, name: str = "load") -> str:
        """A topic of three replicas, its leaders spread over the brokers; the name is made unique."""
        self._topics += 1
        topic = f"{name}-{self._topics}"
        self.create_topic(topic)
        return topic

    def create_topic(self, topic: str) -> None:
        assignment = [[(index + turn) % 3 for turn in range(3)] for index in range(PARTITIONS)]
        self.cluster.create_topic(topic, assignment=assignment, config={"min.insync.replicas": "2"})

    def bystanders(self, more: Sequence[Post] = ()) -> Bystanders:
        """For each broker, both ways: one with acks=1, one with acks=all; their partitions have no followers."""
        posts = [
            Post(way, node, self.port(way, node), _bystanders_topic(node), partition, acks)
            for way in (DIRECTLY, THROUGH)
            for node in self.nodes
            for partition, acks in enumerate(_BYSTANDERS_ACKS)
        ]
        return Bystanders([*posts, *more])

    def port(self, way: Way, node: int) -> int:
        """Of the broker, or of Forebay for it, without toxiproxy between client and Forebay."""
        return self.cluster.advertised[node] if way == DIRECTLY else self.forebay.node_port(node)

    def delete_topic(self, topic: str) -> None:
        self.admin.delete_topics([topic], operation_timeout=30)[topic].result(60)

    def topic_ids(self, topic: str) -> set[bytes | None]:
        """By which the brokers know it: None for one that does not answer."""
        known = [ask_metadata(port, topic, version=10) for port in self.cluster.internal_ports.values()]
        return {answer.topics[0].topic_id if answer is not None else None for answer in known}

    def partitions(self, topic: str) -> set[int]:
        return set(self.admin.list_topics(topic, timeout=RECOVERY_SECONDS).topics[topic].partitions)

    def read(self, topic: str) -> list[ConsumedRecord]:
        """Everything that is there, from the brokers themselves."""
        return self.log.read(topic, dict.fromkeys(self.partitions(topic), 0))

    def whole(self) -> bool:
        """Every broker knows all brokers."""
        known = [ask_metadata(port) for port in self.cluster.internal_ports.values()]
        return all(metadata is not None and len(metadata.brokers) == len(self.nodes) for metadata in known)

    def in_sync(self, topic: str) -> bool:
        """Every replica of the topic has all that its leader has."""
        partitions = self.admin.list_topics(topic, timeout=RECOVERY_SECONDS).topics[topic].partitions.values()
        return all(len(partition.isrs) == len(partition.replicas) for partition in partitions)

    def probe(self, topic: str) -> float:
        """Seconds until a fresh client has a record acknowledged by each partition of the topic, through Forebay."""
        begun = monotonic()
        partitions = self.partitions(topic)
        producer = Producer({"bootstrap.servers": self.bootstrap, "reconnect.backoff.max.ms": 500, "log_level": 0})
        written: set[int] = set()

        def delivered(partition: int, error: object, message: Message) -> None:
            if error is None:
                written.add(partition)

        for partition in partitions:  # with keys, so that each goes where it is told
            producer.produce(
                topic,
                f"{PROBE}-{partition}",
                key="probe",
                partition=partition,
                on_delivery=lambda error, message, partition=partition: delivered(partition, error, message),  # type: ignore[misc]
            )
        producer.flush(RECOVERY_SECONDS)
        assert written == partitions, f"partitions {partitions - written} could not be written to"
        return monotonic() - begun

    def footprint(self) -> Footprint:
        return footprint(self.forebay)

    def wait_until_settled(self) -> None:
        """What Forebay holds is no more than it was, and nothing that belongs to a client."""
        most = self.settled

        def settled() -> bool:
            now = self.footprint()
            return now.at_rest and not now.beyond(most)

        try:
            wait_until(lambda: self.footprint().at_rest, RECOVERY_SECONDS, "nothing belongs to a client")
            with ExitStack() as stack:
                if HURRIES:
                    with suppress(AssertionError):
                        wait_until(settled, SOON, "Forebay holds no more than at rest")
                        return
                    stack.enter_context(self._idle_connections_closed())
                    most = most.without_connections
                wait_until(settled, RECOVERY_SECONDS, "Forebay holds no more than at rest")
        except AssertionError as error:
            now = self.footprint()
            raise AssertionError(f"Forebay holds more than at rest: {now.beyond(most)}; {now}") from error

    @contextmanager
    def _idle_connections_closed(self) -> Iterator[None]:
        """As if nobody had used them for minutes."""
        steer = admin_client.AdminClient(self._admin_socket)
        setting = "connections.max.idle.ms"
        for_ms = 2 * RECOVERY_SECONDS * 1000
        steer.ask("POST", "overrides", {"settings": {setting: 1}, "reason": "a test", "for_ms": for_ms})
        try:
            yield
        finally:
            steer.ask("DELETE", f"overrides/{setting}")

    def forebay_errors(self) -> list[str]:
        """Lines of Forebay's log that tell of a fault of its own: not that a worker was killed."""
        lines = self.forebay.log.read_text(errors="replace").splitlines()
        own = [line for line in lines if '"event": "worker died"' not in line or '"exit_code": -9' not in line]
        return [line for line in own if '"level": "error"' in line or "Traceback" in line]

    def _settle(self) -> Footprint:
        """What Forebay holds at rest, once it has a connection to every broker."""
        topic = self.new_topic("warm")
        load = self.clients.start(self.bootstrap, topic)
        with self.bystanders() as bystanders:
            load.under_way(10, RECOVERY_SECONDS)
            bystanders.stop()
        load.stop()
        self.probe(topic)
        wait_until(lambda: self.footprint().at_rest, RECOVERY_SECONDS, "Forebay is at rest")
        self.delete_topic(topic)
        return self.footprint()


def _bystanders_topic(node: int) -> str:
    return f"bystanders-{node}"


def start_load(stage: Stage, topic: str) -> Load:
    """A load of all clients, under way."""
    return stage.clients.start(stage.bootstrap, topic).under_way(20, RECOVERY_SECONDS)
