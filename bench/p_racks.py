"""p. Racks: Kafka 4.4's own rack-aware producer beside an old one through Forebay; clients are spread unevenly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Final, NamedTuple

from bench.report import Section, Table
from bench.rig import KAFKA
from bench.wired import codecs
from tests.kit.java import JavaClient
from tests.kit.kafka import KafkaCluster
from tests.kit.racks import RACKS, RackedForebay, assignment, cluster_in_racks, led_in
from tests.kit.setup import copy_jars, step
from tests.kit.spec import ProduceSpec
from tests.kit.topic_log import TopicLog

OLD: Final = "1.1.1"
NEWEST: Final = "4.4.0"
"""The first that knows partitioner.rack.aware."""
JARS: Final = {
    f"clients-{NEWEST}": [f"org.apache.kafka:kafka-clients:{NEWEST}", "org.slf4j:slf4j-simple:1.7.36"],
}
PARTITIONS: Final = 6
SIZE: Final = 500
RATE: Final = 300
"""Records a second for each part of a weight."""
WEIGHTS: Final[tuple[Mapping[str, int], ...]] = (
    {"a": 2, "b": 2, "c": 2},
    {"a": 4, "b": 1, "c": 1},
    {"a": 4, "b": 4, "c": 1},
)
BATCH: Final = {"batch.size": "4096", "linger.ms": "5"}
AWARE: Final = {"partitioner.rack.aware": "true"}


class Way(NamedTuple):
    """A line of the table: which client, what it is told of a rack, and Forebay's settings, if it goes through."""

    name: str
    client: str
    props: Callable[[str], Mapping[str, str]]
    settings: Mapping[str, str] | None = None


def _nothing(rack: str) -> Mapping[str, str]:
    return BATCH


def _its_rack(rack: str) -> Mapping[str, str]:
    return {**BATCH, **AWARE, "client.rack": rack}


WAYS: Final = (
    Way(f"Java {OLD}, directly", OLD, _nothing),
    Way(f"Java {NEWEST}, rack-aware, directly", NEWEST, _its_rack),
    Way(f"Java {OLD}, through Forebay, rack-aware", OLD, _nothing, {**AWARE, "partitioner.sticky.batch.size": "4096"}),
)


class Spread(NamedTuple):
    """The part of the records that stayed in their client's rack; a partition's part ÷ a fair one."""

    local: float
    fullest: float
    emptiest: float


def run(short: bool) -> Section:
    step(f"clients-{NEWEST}", repr(JARS), lambda: copy_jars(JARS))
    seconds = 2 if short else 20
    rows: list[list[object]] = []
    with cluster_in_racks(KAFKA) as cluster, TopicLog(cluster.internal) as log:
        for weights in WEIGHTS:
            for number, way in enumerate(WAYS):
                topic = f"load-{len(rows)}-{number}"
                cluster.create_topic(topic, assignment=assignment(PARTITIONS))
                found = _spread(cluster, log, topic, way, weights, seconds)
                rows.append(
                    [
                        " : ".join(str(weights[rack]) for rack in RACKS),
                        way.name,
                        f"{100 * found.local:.0f} %",
                        f"{found.fullest:.2f}",
                        f"{found.emptiest:.2f}",
                    ]
                )
    what = (
        f"Clients in three racks, each a JVM, send records of {SIZE} bytes without a key for {seconds} s, as many as "
        f"stands there × {RATE}/s, to {PARTITIONS} partitions of three brokers of Kafka {KAFKA} with broker.rack; "
        f"partitioner.rack.max.skew is 0.2; codecs {codecs()}. Local is what went to a leader in its client's rack; "
        "the fullest and the emptiest partition by what they got ÷ a sixth of all."
    )
    head = ["clients in a : b : c", "", "local", "fullest", "emptiest"]
    return Section("p", "Racks (KIP-1123)", [what, Table(head, rows)])


def _spread(
    cluster: KafkaCluster, log: TopicLog, topic: str, way: Way, weights: Mapping[str, int], seconds: int
) -> Spread:
    with ExitStack() as stack:
        at = dict.fromkeys(RACKS, cluster.bootstrap)
        if way.settings is not None:
            forebay = stack.enter_context(RackedForebay(cluster, way.settings))
            at = {rack: forebay.at(rack) for rack in RACKS}
        pool = stack.enter_context(ThreadPoolExecutor(len(RACKS)))
        told = []
        for rack, weight in weights.items():
            client = JavaClient(way.client, way.props(rack))
            stack.callback(client.close)
            rate = weight * RATE
            spec = ProduceSpec(topic, rack, count=rate * seconds, size=SIZE, acks="1", rate=rate)
            told.append((spec, pool.submit(client.produce, at[rack], spec)))
        sent = 0
        for spec, result in told:
            sent += spec.count
            if (acked := len(result.result().acks)) != spec.count:
                raise RuntimeError(f"{way.name}: {acked} of {spec.count} records of rack {spec.name} were acknowledged")
        records = log.read(topic, dict.fromkeys(range(PARTITIONS), 0))
    count = Counter(record.partition for record in records)
    local = sum((record.value or b"?")[:1].decode() == led_in(record.partition) for record in records)
    shares = [count[partition] * PARTITIONS / sent for partition in range(PARTITIONS)]
    return Spread(local / sent, max(shares), min(shares))
