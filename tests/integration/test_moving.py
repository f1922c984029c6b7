"""What Forebay may do to records without a key, what it must never do to others, and merging between clients."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import product

import pytest
from confluent_kafka import KafkaError, Producer

from tests.integration.checks import check_all, of_spec, produce_and_check
from tests.integration.route import Route
from tests.kit.clients import Client, make_client
from tests.kit.matrix import part_of, values
from tests.kit.spec import ConsumedRecord, ProduceSpec

pytestmark = pytest.mark.integration

# Enough bytes for a partitioner that changes partition every 16 KB to have done so many times.
# librdkafka would send them all as one batch, which goes to one partition as it is.
SMALL_BATCHES = {"confluent": {"batch.num.messages": "50"}}
TO_PARTITION_0 = ProduceSpec("", "to-0", count=3_000, size=200, partition=0, acks="1")


def shares(found: Sequence[ConsumedRecord]) -> Counter[int]:
    return Counter(record.partition for record in found)


@pytest.mark.parametrize(
    ("name", "codec"),
    part_of(product(["java-1.1.1", "java-2.8.2", "java-4.3.1", "confluent", "aiokafka"], ["none", "lz4"]), values),
)
def test_records_without_a_key_leave_the_clients_partition(
    route: Route, get_client: Callable[[str], Client], name: str, codec: str
) -> None:
    spec = replace(
        TO_PARTITION_0,
        topic=route.new_topic(),
        compression=codec,  # type: ignore[arg-type]
        props=SMALL_BATCHES.get(name, {}),
    )
    found = produce_and_check(route, get_client(name), spec)
    assert (set(shares(found)) != {0}) == route.moves


@pytest.mark.parametrize(
    "variant",
    [
        pytest.param(replace(TO_PARTITION_0, keys="keyed"), id="keyed"),
        pytest.param(replace(TO_PARTITION_0, acks="all", idempotence=True), id="idempotent"),
        pytest.param(replace(TO_PARTITION_0, acks="all", transactional_id="moving"), id="transactional"),
        pytest.param(replace(TO_PARTITION_0, props={"client.id": "connector-producer-sink-0"}), id="connect"),
        pytest.param(replace(TO_PARTITION_0, props={"client.id": "app-StreamThread-1-producer"}), id="streams"),
    ],
)
@pytest.mark.parametrize("name", ["java-2.8.2", "confluent"])
def test_never_moved(route: Route, get_client: Callable[[str], Client], name: str, variant: ProduceSpec) -> None:
    transaction = variant.transactional_id and route.new_name("txn")
    spec = replace(variant, topic=route.topic_for(f"never-moved-{name}"), transactional_id=transaction)
    found = produce_and_check(route, get_client(name), spec)
    assert shares(found) == Counter({0: spec.count})


def test_a_mixed_batch_is_split(route: Route, get_client: Callable[[str], Client]) -> None:
    """Those with a key stay in partition 0, those without may go."""
    spec = replace(TO_PARTITION_0, topic=route.new_topic(), keys="mixed")
    found = produce_and_check(route, get_client("java-2.8.2"), spec)
    assert shares([record for record in found if record.key is not None]) == Counter({0: spec.count // 2})
    # Not to all three: partition 0 has the longer queue, for it holds what has a key.
    assert (set(shares([record for record in found if record.key is None])) != {0}) == route.moves


MANY_CLIENTS = ("java-1.1.1", "java-2.8.2", "confluent", "aiokafka", "kafka-python")
LIKE_ANOTHER = ("java-3.2.3",) if os.environ.get("WHOLE") else ()
"""Three more JVMs, of which `make test` has six."""


@pytest.mark.parametrize("acks", [pytest.param("1", marks=pytest.mark.whole), "all"])
def test_many_producers_at_once(route: Route, acks: str) -> None:
    """Batches of different clients are merged; each client finds its own, in order, where it was told."""
    topic = route.new_topic()
    producers = [
        (
            make_client(name),
            ProduceSpec(
                topic,
                f"{name}-{keys}",
                count=500,
                keys=keys,  # type: ignore[arg-type]
                acks=acks,  # type: ignore[arg-type]
                linger_ms=0,
                headers=True,
                null_header=False,
                compression=codec,  # type: ignore[arg-type]
            ),
        )
        for name in MANY_CLIENTS + LIKE_ANOTHER
        for keys, codec in (("keyed", "none"), ("mixed", "lz4"), ("null", "gzip"))
    ]
    try:
        with ThreadPoolExecutor(len(producers)) as pool:
            results = list(pool.map(lambda each: each[0].produce(route.bootstrap, each[1]), producers))
    finally:
        for client, _ in producers:
            client.close()
    found = route.log.read(topic, dict.fromkeys(range(3), 0))
    assert len(found) == sum(spec.count for _, spec in producers)
    for (client, spec), result in zip(producers, results, strict=True):
        check_all(spec, client, result, of_spec(spec, found))


def test_times_that_brokers_fail_at_cost_their_sender_alone(route: Route) -> None:
    """Brokers that compress anew answer UNKNOWN_SERVER_ERROR to all of a batch with a time before 1970."""
    topic = route.new_name("times")
    route.cluster.create_topic(topic, 1, config={"compression.type": "lz4"})
    told: dict[int, Counter[str]] = {-62_135_596_800_000: Counter(), 0: Counter()}
    producers = {when: Producer({"bootstrap.servers": route.bootstrap, "linger.ms": 0}) for when in told}
    for _ in range(100):
        for when, producer in producers.items():

            def on_delivery(error: KafkaError | None, _: object, counts: Counter[str] = told[when]) -> None:
                counts["" if error is None else error.name()] += 1

            producer.produce(topic, b"x" * 100, key=b"k", timestamp=when, on_delivery=on_delivery)
            producer.poll(0.005)
    assert [producer.flush(60) for producer in producers.values()] == [0, 0]
    assert list(told.values()) == [{"UNKNOWN": 100}, {"": 100}]
