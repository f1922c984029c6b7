"""Clients that send everything once, behind Forebay, whose brokers' answers get lost: no record is lost, none is there
twice, and none is refused.

    client → Forebay → relay that drops every nth Produce response → Kafka

`make exactly-once` does it with 1,000,000 records a client and keeps the table in docs/reliability.md.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Final

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from kafka import KafkaProducer  # type: ignore[import-untyped]

from bench.report import Table, machine
from tests.kit.forebay import ForebayProcess
from tests.kit.frame_relay import ForgetfulBroker
from tests.kit.java import JavaClient
from tests.kit.kafka import KafkaCluster
from tests.kit.ports import free_ports
from tests.kit.spec import ProduceSpec
from tests.kit.waiting import wait_until

DOCUMENT: Final = Path(__file__).resolve().parents[2] / "docs" / "reliability.md"
BEGIN, END = "<!-- exactly-once -->", "<!-- /exactly-once -->"

VERSIONS: Final = ("4.3.1", "3.9.2")
EVERY: Final = 3
SILENT: Final = 500
"""Each of these costs a third of a client's timeout, after which Forebay gives the connection up."""
TIMEOUT_MS: Final = 30_000
"""Of a client for its request, as by default."""
BATCH: Final = 1024
"""Bytes, so that a million records take thousands of requests."""
WINDOW: Final = 2500
"""Records of a Python client that are not told of: it sends as fast as that lets it, so none expires in its queue."""
BUFFER: Final = 262_144
"""Bytes of a Java client, for the same."""
PARTITIONS: Final = 6
SIZE: Final = 40
MAX_SECONDS: Final = 1800
BROKERS: Final = 3

ENOUGH: Final = 1_000_000
"""Records of a client for the table to be kept."""

HEAD: Final = (
    "Kafka",
    "client",
    "keys",
    "acks",
    "records",
    "acknowledged",
    "refused",
    "lost",
    "duplicated",
    "responses dropped",
    "sent again",
    "seconds",
)


class Account:
    """What a client was told of each of its records, and how often each is in the topic: two bytes a record."""

    def __init__(self, count: int) -> None:
        self.told = bytearray(count)
        """0: nothing, 1: acknowledged, 2: refused."""
        self.there = bytearray(count)
        self.errors: set[str] = set()

    def acknowledged(self, seq: int) -> None:
        self.told[seq] = 1

    def refused(self, seq: int, error: str) -> None:
        self.told[seq] = 2
        self.errors.add(error)

    @property
    def lost(self) -> int:
        return sum(told == 1 and not there for told, there in zip(self.told, self.there, strict=True))

    @property
    def duplicated(self) -> int:
        return sum(there > 1 for there in self.there)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one client's run before one cluster."""

    version: str
    client: str
    spec: ProduceSpec
    account: Account
    dropped: int
    again: int
    seconds: float

    @property
    def row(self) -> tuple[object, ...]:
        told = self.account.told
        return (
            self.version,
            self.client,
            self.spec.keys,
            self.spec.acks,
            f"{self.spec.count:,}",
            f"{told.count(1):,}",
            told.count(2),
            self.account.lost,
            self.account.duplicated,
            f"{self.dropped:,}",
            f"{self.again:,}",
            round(self.seconds, 1),
        )


Produce = Callable[[str, ProduceSpec, Account], None]


def _java(version: str) -> Produce:
    def produce(bootstrap: str, spec: ProduceSpec, account: Account) -> None:
        once = {"retries": "0", "request.timeout.ms": str(TIMEOUT_MS), "batch.size": str(BATCH)}
        client = JavaClient(version, {**once, "buffer.memory": str(BUFFER), "max.block.ms": str(MAX_SECONDS * 1000)})
        never = Path(os.devnull, "never")
        try:
            for line in client.produce_live(bootstrap, spec, never, MAX_SECONDS):
                if "error" in line:
                    account.refused(line["seq"], line["error"])
                elif "seq" in line:
                    account.acknowledged(line["seq"])
        finally:
            client.close()

    return produce


def _librdkafka(bootstrap: str, spec: ProduceSpec, account: Account) -> None:
    settings: dict[str, str | int | float | bool] = {
        "bootstrap.servers": bootstrap,
        "acks": spec.acks,
        "enable.idempotence": False,
        "message.send.max.retries": 0,
        "request.timeout.ms": TIMEOUT_MS,
        "batch.size": BATCH,
        "linger.ms": spec.linger_ms,
        "queue.buffering.max.messages": WINDOW,
    }
    producer = Producer(settings)

    def send(seq: int) -> None:
        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                account.acknowledged(seq)
            else:
                account.refused(seq, str(error))

        while True:
            try:
                producer.produce(spec.topic, spec.value(seq), spec.key(seq), on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)

    for seq in range(spec.count):
        send(seq)
    producer.flush(MAX_SECONDS)


def _kafka_python(bootstrap: str, spec: ProduceSpec, account: Account) -> None:
    producer = KafkaProducer(
        bootstrap_servers=bootstrap,
        acks=spec.acks if spec.acks == "all" else int(spec.acks),
        retries=0,
        enable_idempotence=False,
        request_timeout_ms=TIMEOUT_MS,
        batch_size=BATCH,
        linger_ms=spec.linger_ms,
        max_block_ms=60_000,
    )
    places = threading.Semaphore(WINDOW)

    def send(seq: int) -> None:
        def acknowledged(told: object) -> None:
            account.acknowledged(seq)
            places.release()

        def refused(error: Exception) -> None:
            account.refused(seq, repr(error))
            places.release()

        places.acquire()
        producer.send(spec.topic, spec.value(seq), spec.key(seq)).add_callback(acknowledged).add_errback(refused)

    try:
        for seq in range(spec.count):
            send(seq)
        producer.flush(MAX_SECONDS)
    finally:
        producer.close(60)


CLIENTS: Final[dict[str, tuple[Produce, dict[str, str]]]] = {
    "Java 1.1.1": (_java("1.1.1"), {"keys": "null", "acks": "1"}),
    "Java 2.8.2": (_java("2.8.2"), {"keys": "mixed", "acks": "all"}),
    "librdkafka": (_librdkafka, {"keys": "null", "acks": "all"}),
    "kafka-python": (_kafka_python, {"keys": "keyed", "acks": "1"}),
}


class Scene:
    """A cluster behind forgetful brokers, and Forebay in front of them."""

    def __init__(self, version: str, cluster: KafkaCluster, relays: list[ForgetfulBroker], forebay: ForebayProcess):
        self.version = version
        self._cluster = cluster
        self._relays = relays
        self._forebay = forebay

    def run(self, name: str, count: int) -> Outcome:
        produce, how = CLIENTS[name]
        topic = re.sub(r"\W", "-", name.lower())
        replicas = [[node, (node + 1) % BROKERS] for node in range(BROKERS)] * (PARTITIONS // BROKERS)
        self._cluster.create_topic(topic, assignment=replicas)
        spec = ProduceSpec(topic, "r", count=count, linger_ms=1, size=SIZE, key_count=1000, **how)  # type: ignore[arg-type]
        account = Account(count)
        dropped, again = self._dropped(), self._again()
        begun = monotonic()
        produce(self._forebay.bootstrap, spec, account)
        seconds = monotonic() - begun
        _read(self._cluster.internal, topic, account)
        return Outcome(self.version, name, spec, account, self._dropped() - dropped, self._again() - again, seconds)

    def _dropped(self) -> int:
        return sum(relay.dropped for relay in self._relays)

    def _again(self) -> int:
        return int(self._forebay.metrics()['forebay_retries_total{reason="outcome_unknown"}'])


@contextmanager
def scene(version: str) -> Iterator[Scene]:
    """Three brokers, each of which forgets every third answer, and Forebay once it has its producer ids."""
    ports = free_ports(2 * BROKERS)
    own, relayed = dict(enumerate(ports[:BROKERS])), dict(enumerate(ports[BROKERS:]))
    with ExitStack() as stack:
        relays = [
            stack.enter_context(ForgetfulBroker(relayed[node], own[node], EVERY, SILENT)) for node in range(BROKERS)
        ]
        cluster = stack.enter_context(KafkaCluster(version, BROKERS, ports=own, advertised=relayed))
        forebay = stack.enter_context(
            ForebayProcess(cluster.bootstrap, cluster.nodes, settings={"enable.idempotence": "true"})
        )
        wait_until(lambda: forebay.metrics()["forebay_producer_ids"] >= 2, 30, "producer ids")
        yield Scene(version, cluster, relays, forebay)


def _read(bootstrap: str, topic: str, account: Account) -> None:
    """Count what is there, past the relays, from the start of each partition to its end."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "the-test-itself",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
        }
    )
    unread = set(range(PARTITIONS))
    consumer.assign([TopicPartition(topic, partition, 0) for partition in unread])
    until = monotonic() + MAX_SECONDS
    try:
        while unread and monotonic() < until:
            for message in consumer.consume(10_000, timeout=1.0):
                error = message.error()
                if error is None:
                    account.there[int((message.value() or b"").split(b"-")[1].rstrip(b"."))] += 1
                elif error.code() == KafkaError._PARTITION_EOF:
                    unread.discard(message.partition() or 0)
                else:
                    raise AssertionError(f"reading {topic}: {error}")
    finally:
        consumer.close()
    assert not unread, f"partitions {unread} of {topic} were not read to their end"


def assert_exactly_once(outcome: Outcome) -> None:
    account = outcome.account
    assert account.told.count(0) == 0, f"{outcome.client}: some records were never told of"
    assert account.told.count(2) == 0, f"{outcome.client}: refused, {sorted(account.errors)[:3]}"
    assert (account.lost, account.duplicated) == (0, 0), f"{outcome.client}: lost, duplicated"


def keep(outcomes: list[Outcome], document: Path = DOCUMENT) -> None:
    """Between the document's marks."""
    table = Table(HEAD, [outcome.row for outcome in outcomes]).markdown()
    block = f"{BEGIN}\n{table}\n\n_{machine()}_\n{END}"
    text = document.read_text()
    document.write_text(re.sub(re.escape(BEGIN) + ".*?" + re.escape(END), lambda _: block, text, flags=re.DOTALL))


def main() -> None:
    """`python -m tests.chaos.exactly_once [RECORDS]`: all clients before all clusters."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    outcomes = []
    for version in VERSIONS:
        with scene(version) as here:
            for name in CLIENTS:
                outcome = here.run(name, count)
                print(*outcome.row, sep="\t", flush=True)
                if outcome.account.errors:
                    print(sorted(outcome.account.errors)[:5], flush=True)
                outcomes.append(outcome)
    for outcome in outcomes:
        assert_exactly_once(outcome)
    if count >= ENOUGH:
        keep(outcomes)


if __name__ == "__main__":
    main()
