"""Every client that the integration tests run, behind one small interface.

    result = client.produce(bootstrap, ProduceSpec(topic="orders", name="run", count=100))
    records = client.consume(bootstrap, "orders", group="readers", count=100)

All of them are real clients that others wrote; each is an oracle for what Forebay does on the wire.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from tests.kit.java import JavaClient
from tests.kit.kcat import KcatClient
from tests.kit.paths import CLIENT_VERSIONS
from tests.kit.python_clients import AioKafkaClient, ConfluentClient, KafkaPythonClient
from tests.kit.spec import ConsumedRecord, ProduceResult, ProduceSpec

JAVA_NAMES = tuple(f"java-{version}" for version in CLIENT_VERSIONS)
OTHER_NAMES = ("confluent", "aiokafka", "kafka-python", "kcat")
CLIENT_NAMES = JAVA_NAMES + OTHER_NAMES
SPREADING: Mapping[str, Mapping[str, str]] = {
    "confluent": {"sticky.partitioning.linger.ms": "0"},
    "java-2.8.2": {"batch.size": "2048"},
    "java-4.3.1": {"batch.size": "2048"},
}
"""Client → settings by which a few records without a key are in several partitions, as those of all other clients are.
In one they could all be in the one that Forebay chooses: whether any of them moves were chance."""


class Client(Protocol):
    @property
    def name(self) -> str: ...

    def can(self, spec: ProduceSpec) -> bool:
        """Whether this client is able to do what the spec asks for (a codec, headers, …)."""

    def produce(self, bootstrap: str, spec: ProduceSpec) -> ProduceResult:
        """Sends all records of the spec and waits for what becomes of each."""

    def consume(
        self, bootstrap: str, topic: str, group: str, count: int, read_committed: bool = False
    ) -> list[ConsumedRecord]:
        """At least `count` records of the topic from its start, as a member of the group, then commits."""

    def brokers(self, bootstrap: str, topic: str) -> set[str]:
        """host:port of every broker that the client believes to exist (Java: that has a replica of the topic)."""

    def close(self) -> None:
        """Ends whatever the client keeps running between calls."""


def make_client(name: str) -> Client:
    if name.startswith("java-"):
        return JavaClient(name.removeprefix("java-"))
    others: dict[str, type[ConfluentClient | AioKafkaClient | KafkaPythonClient | KcatClient]] = {
        "confluent": ConfluentClient,
        "aiokafka": AioKafkaClient,
        "kafka-python": KafkaPythonClient,
        "kcat": KcatClient,
    }
    return others[name]()
