"""Broker 0 behind toxiproxy, 40 ms later than the others: records without a key go elsewhere.

Shares are compared, not times. A partition is on each broker: partition i is led by broker i.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.integration.checks import each_exactly_once, every_record_acknowledged
from tests.kit.forebay import ForebayProcess
from tests.kit.java import JavaClient
from tests.kit.kafka import KafkaCluster
from tests.kit.ports import free_ports
from tests.kit.slow_cluster import cluster_with_slow_broker
from tests.kit.spec import ProduceSpec
from tests.kit.topic_log import TopicLog
from tests.kit.toxiproxy import ToxiproxyServer

pytestmark = [pytest.mark.integration, pytest.mark.whole]  # tests/proxy/demo has a slow broker, too

LATENCY_MS = 40
SERVES_MS = 20
TRIES = 3
DRAWN_TO_IT = 0.4
"""The share directly that shows the broker's slowness. 40 ms are less where all brokers are slow because the machine is
busy with something else: 0.53 was seen then. With 20 it was 0.37, where a quiet machine had 0.72 at least."""


_NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def slow_cluster() -> Iterator[KafkaCluster]:
    with ExitStack() as stack:
        toxiproxy = stack.enter_context(ToxiproxyServer())
        ports = dict(enumerate(free_ports(3)))
        advertised = {node: toxiproxy.proxy(f"broker-{node}", port) for node, port in ports.items()}
        cluster = stack.enter_context(KafkaCluster("4.3.1", ports=ports, advertised=advertised))
        toxiproxy.add_latency("broker-0", LATENCY_MS)
        yield cluster


@pytest.fixture(scope="module")
def old_sticky(slow_cluster: KafkaCluster) -> Iterator[JavaClient]:
    """2.8.2 changes partition with each new batch (KIP-480): a partition whose batches are away gets more.

    Warm: a JVM that has just started falls behind its rate and catches up in bursts, and in a burst every broker is
    as busy as the slow one (0.36 of the first quarter of a first run went to it, 0.86 of a second run).
    """
    client = JavaClient("2.8.2")
    share_of_slow_broker(client, slow_cluster, slow_cluster.internal, count=24_000, rate=8_000)
    yield client
    client.close()


def share_of_slow_broker(client: JavaClient, cluster: KafkaCluster, bootstrap: str, *, count: int, rate: int) -> float:
    """Sends records without keys over `bootstrap`; the share of them that broker 0 got."""
    topic = f"topic-{next(_NUMBERS)}"
    cluster.create_topic(topic, partitions=3)
    spec = ProduceSpec(topic, "slow", count=count, size=512, rate=rate, acks="1", linger_ms=0)
    result = client.produce(bootstrap, spec)
    with TopicLog(cluster.internal) as log:
        found = log.read(topic, dict.fromkeys(range(3), 0))
    every_record_acknowledged(spec, result)
    each_exactly_once(spec, found)
    return Counter(record.partition for record in found)[0] / count


def test_a_steady_load_moves_away_from_the_slow_broker(slow_cluster: KafkaCluster, old_sticky: JavaClient) -> None:
    """8,000 records/s: direct, the slow broker is drawn most of them (0.53 – 0.66 seen on a busy machine); through
    Forebay 0.20 – 0.21.

    64,000 records are 2,000 turns of 16 KB, so the share's standard deviation is 0.01, and 0.31 is ten of them above
    what was seen. Where partitions are drawn evenly the share is a third, and 0.4 is six of them above that. At 2,000
    records/s the difference was too small to be asserted, with 20 ms (0.30 – 0.34 seen, direct 0.61 – 0.75): the slow
    partition's queue hardly ever reaches one batch.size, and queues are measured in whole ones.
    """
    load = {"count": 64_000, "rate": 8_000}
    for _ in range(TRIES):
        direct = share_of_slow_broker(old_sticky, slow_cluster, slow_cluster.bootstrap, **load)
        with ForebayProcess(slow_cluster.bootstrap, slow_cluster.nodes) as forebay:
            through = share_of_slow_broker(old_sticky, slow_cluster, forebay.bootstrap, **load)
        if direct > DRAWN_TO_IT and through < 0.31:
            break
    assert direct > DRAWN_TO_IT
    assert through < 0.31


def test_a_full_load_moves_away_from_the_slow_broker(slow_cluster: KafkaCluster, old_sticky: JavaClient) -> None:
    """As fast as it goes: direct a third each; through Forebay 0.18 – 0.22 seen, and with a partitioner that does not
    look at queues 0.31 – 0.38. Under 0.27 the slow broker has less than three quarters of each other's share."""
    load = {"count": 30_000, "rate": 0}
    shares = {}
    for _ in range(TRIES):
        for partitioner in ("adaptive", "uniform"):
            settings = {"partitioner": partitioner}
            with ForebayProcess(slow_cluster.bootstrap, slow_cluster.nodes, settings=settings) as forebay:
                shares[partitioner] = share_of_slow_broker(old_sticky, slow_cluster, forebay.bootstrap, **load)
        if shares["adaptive"] < min(0.27, shares["uniform"] - 0.05):
            break
    assert shares["adaptive"] < 0.27
    assert shares["adaptive"] < shares["uniform"] - 0.05


def test_a_broker_that_serves_slowly_is_not_drawn_ever_more() -> None:
    """KIP-794's scenario: broker 0 takes 20 ms for each Produce request, one after the other. Direct, the old sticky
    partitioner runs away: 0.93 of the records seen there, and waits of seconds; through Forebay 0.31 – 0.39, and waits
    of 30 ms, which are not asserted."""
    with ExitStack() as stack:
        cluster = stack.enter_context(cluster_with_slow_broker(SERVES_MS))
        client = JavaClient("2.8.2")
        stack.callback(client.close)
        load = {"count": 12_288, "rate": 2_048}
        share_of_slow_broker(client, cluster, cluster.internal, **load)
        direct = share_of_slow_broker(client, cluster, cluster.bootstrap, **load)
        forebay = stack.enter_context(ForebayProcess(cluster.bootstrap, cluster.nodes))
        through = share_of_slow_broker(client, cluster, forebay.bootstrap, **load)
    assert direct > 0.6
    assert through < 0.45
