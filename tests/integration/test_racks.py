"""Clients of three racks behind one Forebay, brokers with broker.rack: records stay local, partitions within bounds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.integration.checks import each_exactly_once, every_record_acknowledged, of_spec
from tests.kit.java import JavaClient
from tests.kit.kafka import KafkaCluster
from tests.kit.racks import RACKS, RackedForebay, assignment, cluster_in_racks, led_in
from tests.kit.spec import ProduceSpec
from tests.kit.topic_log import TopicLog

pytestmark = [pytest.mark.integration, pytest.mark.whole]  # tests/policies has the shares

PARTITIONS = 6
SIZE = 500
BATCH = {"batch.size": "2048"}
"""Bytes: an old client's own, so that there are many of them."""
TRIES = 3
"""Clients that are to send at once do not where the machine is busy: then it is done once more."""


@pytest.fixture(scope="module", params=["4.3.1", "3.9.2"])
def cluster(request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    with cluster_in_racks(request.param) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def clients() -> Iterator[Mapping[str, JavaClient]]:
    clients = {rack: JavaClient("1.1.1", BATCH) for rack in RACKS}
    yield clients
    for client in clients.values():
        client.close()


def test_records_stay_in_their_rack_as_far_as_every_partition_keeps_its_share(
    cluster: KafkaCluster, clients: Mapping[str, JavaClient]
) -> None:
    settings = {"partitioner": "round_robin", "partitioner.sticky.batch.size": "2048"}
    with RackedForebay(cluster, settings) as forebay, TopicLog(cluster.internal) as log:
        cluster.create_topic("warm", assignment=assignment(PARTITIONS))
        produced(forebay, clients, log, "warm", dict.fromkeys(RACKS, 500))  # JVMs that start do not begin at once
        for name, counts, local in (
            ("alike", {"a": 3_000, "b": 3_000, "c": 3_000}, (0.8, 1.0)),
            ("one-rack", {"b": 9_000}, (0.35, 0.45)),
        ):
            for number in range(TRIES):
                topic = f"{name}-{number}"
                cluster.create_topic(topic, assignment=assignment(PARTITIONS))
                stayed, received = produced(forebay, clients, log, topic, counts)
                if local[0] <= stayed / sum(counts.values()) <= local[1]:
                    break
            assert local[0] <= stayed / sum(counts.values()) <= local[1], name
            fair = sum(counts.values()) / PARTITIONS
            assert max(received.values()) < 1.3 * fair
            assert min(received.values()) > 0.7 * fair
        samples = forebay.metrics()
        same, other = (samples[f'forebay_rack_bytes_total{{rack="{rack}"}}'] for rack in ("same", "other"))
        assert samples['forebay_rack_bytes_total{rack="unknown"}'] == 0
        assert 0.5 < same / (same + other) < 0.8


def produced(
    forebay: RackedForebay, clients: Mapping[str, JavaClient], log: TopicLog, topic: str, counts: Mapping[str, int]
) -> tuple[int, Counter[int]]:
    """How many of the records of clients in each rack, which all send at once, stayed there, and by partition."""
    specs = {
        rack: ProduceSpec(topic, rack, count=count, size=SIZE, acks="1", rate=2_000) for rack, count in counts.items()
    }
    with ThreadPoolExecutor() as pool:
        told = {rack: pool.submit(clients[rack].produce, forebay.at(rack), spec) for rack, spec in specs.items()}
    for rack, spec in specs.items():
        every_record_acknowledged(spec, told[rack].result())
    records = log.read(topic, dict.fromkeys(range(PARTITIONS), 0))
    for spec in specs.values():
        each_exactly_once(spec, of_spec(spec, records))
    stayed = sum((record.value or b"?")[:1].decode() == led_in(record.partition) for record in records)
    return stayed, Counter(record.partition for record in records)
