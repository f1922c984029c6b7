"""An idempotent Java producer whose first batch for a partition is overtaken: through Forebay it ends as directly.

The batch is on its way to a broker that hands its leadership over meanwhile. The producer learns of the new leader and
sends the next batch there, though the first is unanswered. A broker that knows nothing of a producer takes any first
sequence number, so the first batch is OUT_OF_ORDER_SEQUENCE_NUMBER from then on, and the producer, which believes that
one before it is still to come, tries again until `delivery.timeout.ms` (KAFKA-14359, KAFKA-15591).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from time import monotonic

import pytest
from kafka import KafkaAdminClient, TopicPartition  # type: ignore[import-untyped]

from tests.integration.checks import seq_of
from tests.kit.forebay import ForebayProcess
from tests.kit.frame_relay import HeldBroker
from tests.kit.java import JavaClient
from tests.kit.kafka import KafkaCluster
from tests.kit.metadata import ask_metadata
from tests.kit.ports import free_ports
from tests.kit.spec import ProduceSpec
from tests.kit.topic_log import TopicLog

pytestmark = [pytest.mark.integration, pytest.mark.whole]

SECONDS = 60
PROPS = {
    "metadata.max.age.ms": "200",  # it hears of the new leader although the old one has not answered
    "request.timeout.ms": "29000",
    "delivery.timeout.ms": "30000",  # of a busy machine an election takes many
}
PREFERRED = 0


@pytest.fixture(scope="module")
def held() -> Iterator[tuple[KafkaCluster, HeldBroker]]:
    """A cluster, and what stands before its broker 0."""
    *own, relayed = free_ports(4)
    ports = dict(enumerate(own))
    with (
        HeldBroker(relayed, ports[0]) as broker,
        KafkaCluster("4.3.1", ports=ports, advertised={**ports, 0: relayed}) as cluster,
    ):
        yield cluster, broker


@pytest.fixture(scope="module")
def admin(held: tuple[KafkaCluster, HeldBroker]) -> Iterator[KafkaAdminClient]:
    admin = KafkaAdminClient(bootstrap_servers=held[0].internal)
    yield admin
    admin.close()


def _hand_over(admin: KafkaAdminClient, cluster: KafkaCluster, broker: HeldBroker, topic: str) -> None:
    """Once broker 0 is sent records. Broker 1, whom the topic's only partition prefers, leads it then, and knows it."""
    assert broker.held.wait(SECONDS)
    until = monotonic() + SECONDS
    while _leader(cluster, topic) != 1:
        assert monotonic() < until, "the leader does not move"
        admin.elect_leaders(PREFERRED, {topic: [0]}, timeout_ms=10_000, raise_errors=False)


def _leader(cluster: KafkaCluster, topic: str) -> int:
    known = ask_metadata(cluster.internal_ports[1], topic)
    return known.topics[0].partitions[0].leader_id if known is not None else -1


@pytest.mark.parametrize("way", ["directly", "through Forebay"])
def test_its_first_batch_is_refused_when_its_time_is_up(
    way: str, held: tuple[KafkaCluster, HeldBroker], admin: KafkaAdminClient, newest_java: JavaClient, tmp_path: Path
) -> None:
    cluster, broker = held
    topic = "overtaken-" + way.split()[0]
    cluster.create_topic(topic, assignment=[[0, 1, 2]])
    admin.alter_partition_reassignments({TopicPartition(topic, 0): [1, 2, 0]}, timeout_ms=10_000)
    spec = ProduceSpec(topic, "run", count=10_000, keys="keyed", idempotence=True, rate=50, props=PROPS)
    acked: list[int] = []
    refused: dict[int, str] = {}
    sent = 0
    with ExitStack() as stack:
        bootstrap = cluster.bootstrap
        if way == "through Forebay":
            bootstrap = stack.enter_context(ForebayProcess(cluster.bootstrap, cluster.nodes)).bootstrap
        broker.hold()
        stack.callback(broker.let_go)
        handed_over = stack.enter_context(ThreadPoolExecutor(1)).submit(_hand_over, admin, cluster, broker, topic)
        stop = tmp_path / "stop"
        for line in newest_java.produce_live(bootstrap, spec, stop, 2 * SECONDS):
            if "error" in line:
                refused[line["seq"]] = line["error"]
                stop.touch()
            elif "seq" in line:
                acked.append(line["seq"])
                broker.let_go()
            sent = line.get("sent", sent)
        handed_over.result()
    assert sorted([*acked, *refused]) == list(range(sent))
    assert "TimeoutException" in refused[0]
    log = "".join(cluster.log(node).read_text() for node in cluster.nodes)
    assert f"in partition {topic}-0: 0 (incoming seq. number)" in log, "it was not refused as out of order"
    with TopicLog(cluster.internal) as there:
        times = Counter(seq_of(spec, record) for record in there.read(topic, {0: 0}))
    assert 0 not in times
    assert set(acked) <= times.keys()
    assert set(times.values()) == {1}
