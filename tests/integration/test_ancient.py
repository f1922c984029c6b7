"""Producers of before Kafka 0.11: Kafka 4 refuses them; through Forebay every record arrives, as it was sent.

FOREBAY_TEST_RECORDS=100000 runs the whole matrix with as many (half an hour); without it the matrix is small, and each
client sends 100,000 with each codec once.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import cycle, product

import pytest

from forebay_codecs import api_versions, version_support
from forebay_codecs.api_keys import FETCH, PRODUCE
from forebay_codecs.apis import APIS
from tests.integration.route import Route
from tests.kit.ancient import PROGRAMS, AncientProgram
from tests.kit.clients import Client
from tests.kit.java import AncientJavaClient
from tests.kit.matrix import pairs, part_of
from tests.kit.paths import ANCIENT_CLIENT_VERSIONS, BROKER_VERSIONS
from tests.kit.ports import LOOPBACK
from tests.kit.spec import Acks, Codec, ConsumedRecord, Keys, ProduceResult, ProduceSpec
from tests.kit.wire import request

pytestmark = pytest.mark.integration

RECORDS = int(os.environ.get("FOREBAY_TEST_RECORDS", "1500"))
MANY = 100_000
OLD_CODECS: tuple[Codec, ...] = ("none", "gzip", "snappy", "lz4")
ACKS: tuple[Acks, ...] = ("0", "1", "all")
KEYS: tuple[Keys, ...] = ("keyed", "null", "mixed")
SENDS_TIMESTAMPS = "0.10"
"""From this version on."""

Ancient = AncientJavaClient | AncientProgram


@pytest.fixture(scope="module")
def ancient() -> Iterator[Callable[[str], AncientJavaClient]]:
    """Version → client, one JVM each."""
    clients: dict[str, AncientJavaClient] = {}

    def get(version: str) -> AncientJavaClient:
        if version not in clients:
            clients[version] = AncientJavaClient(version)
        return clients[version]

    yield get
    for client in clients.values():
        client.close()


def produced(route: Route, client: Ancient, spec: ProduceSpec) -> None:
    """Produces over the route; then what must hold of what the brokers have."""
    began = time.time()
    since = route.log.ends(spec.topic)
    result = client.produce(route.bootstrap, spec)
    found = route.log.read(spec.topic, since, at_least=spec.count)
    assert not result.failures
    assert len(result.acks) == spec.count
    _content_unchanged(spec, found)
    _keyed_records_stay_in_order_where_the_client_put_them(spec, result, found)
    for record in found:  # the client's clock or the receipt's: both are this machine's
        assert 1000 * began - 1000 <= record.timestamp <= 1000 * time.time() + 1000
        assert record.headers == ()


def _content_unchanged(spec: ProduceSpec, found: list[ConsumedRecord]) -> None:
    sent = Counter((spec.key(seq), spec.value(seq)) for seq in range(spec.count))
    assert Counter((record.key, record.value) for record in found) == sent


def _keyed_records_stay_in_order_where_the_client_put_them(
    spec: ProduceSpec, result: ProduceResult, found: list[ConsumedRecord]
) -> None:
    """Keys are unique, so each names its record."""
    seq_of = {spec.key(seq): seq for seq in range(spec.count) if spec.is_keyed(seq)}
    acks = {ack.seq: ack for ack in result.acks}
    last: dict[int, int] = defaultdict(lambda: -1)
    for record in found:
        if record.key is None:
            continue
        seq = seq_of[record.key]
        assert last[record.partition] < seq
        last[record.partition] = seq
        if spec.acks != "0":
            assert acks[seq].partition == record.partition
            if spec.keys == "keyed":
                assert acks[seq].offset == record.offset


def spec_of(route: Route, whom: str, count: int, codec: Codec, acks: Acks, keys: Keys) -> ProduceSpec:
    topic = route.topic_for(f"ancient-{whom}")
    return ProduceSpec(
        topic, "old", count=count, keys=keys, key_count=count, acks=acks, compression=codec, contents="mixed"
    )


@pytest.mark.parametrize(
    ("version", "codec", "acks", "kafka"),
    part_of(product(ANCIENT_CLIENT_VERSIONS, OLD_CODECS, ACKS, BROKER_VERSIONS), pairs),
)
def test_java(
    open_route: Callable[[str], Route],
    ancient: Callable[[str], AncientJavaClient],
    version: str,
    codec: Codec,
    acks: Acks,
    kafka: str,
) -> None:
    route = open_route(kafka)
    for keys in KEYS:
        produced(route, ancient(version), spec_of(route, version, RECORDS, codec, acks, keys))


@pytest.mark.whole
@pytest.mark.parametrize(
    ("version", "codec", "acks", "kafka"),
    [
        (version, codec, acks, kafka)
        for kafka in BROKER_VERSIONS
        for version in ANCIENT_CLIENT_VERSIONS
        for codec, acks in zip(OLD_CODECS, cycle(reversed(ACKS)))
    ],
)
def test_a_hundred_thousand_records(
    open_route: Callable[[str], Route],
    ancient: Callable[[str], AncientJavaClient],
    version: str,
    codec: Codec,
    acks: Acks,
    kafka: str,
) -> None:
    route = open_route(kafka)
    produced(route, ancient(version), spec_of(route, version, MANY, codec, acks, "mixed"))


def program_cases() -> Iterator[tuple[AncientProgram, Codec, Acks, str]]:
    for program in PROGRAMS:
        for codec in OLD_CODECS:
            spec = ProduceSpec("", "", compression=codec, keys="keyed")
            if program.can(spec):
                some: tuple[Acks, ...] = ("1", "all")
                for acks, kafka in product(some, BROKER_VERSIONS):
                    yield program, codec, acks, kafka


@pytest.mark.parametrize(
    ("program", "codec", "acks", "kafka"),
    part_of(
        program_cases(),
        pairs,
        key=lambda case: (case[0].name, *case[1:]),
        name=lambda case: "-".join((case[0].name, *case[1:])),
    ),
)
def test_other_families(
    open_route: Callable[[str], Route], program: AncientProgram, codec: Codec, acks: Acks, kafka: str
) -> None:
    route = open_route(kafka)
    for keys in KEYS:
        spec = spec_of(route, program.name, RECORDS, codec, acks, keys)
        produced(route, program, spec if program.can(spec) else replace(spec, contents="text"))


@pytest.mark.parametrize("version", ANCIENT_CLIENT_VERSIONS)
def test_directly_kafka_4_serves_none_of_them(
    route: Route, ancient: Callable[[str], AncientJavaClient], version: str
) -> None:
    """What all of this is for."""
    topic = route.new_topic()
    spec = ProduceSpec(topic, "direct", count=10, props={"retries": "0", "request.timeout.ms": "2000"})
    result = ancient(version).produce(route.cluster.bootstrap, spec)
    assert sorted(result.failures) == list(range(10))


def test_who_is_too_old_is_found_before_the_upgrade(
    route: Route, ancient: Callable[[str], AncientJavaClient], get_client: Callable[[str], Client]
) -> None:
    assert route.forebay is not None
    version = "0.9.0.1"
    topic = route.new_topic()
    new = get_client("confluent")
    ancient(version).produce(route.bootstrap, ProduceSpec(topic, "old", props={"client.id": "till-7"}))
    new.produce(route.bootstrap, ProduceSpec(topic, "new", props={"client.id": "shop"}))
    for how in (("--bootstrap-servers", route.bootstrap), ("--url", route.forebay.admin_url)):
        rows = {row["client_id"]: row for row in route.forebay.clients(*how)}
        old, young = rows["till-7"], rows["shop"]
        assert (old["survives_kafka_4"], old["too_old_for_kafka_4"], old["bridged"]) == (False, ["Produce v1"], True)
        assert (old["software_name"], old["records"]) == (None, 200)
        assert old["requests"]["Produce"].keys() == {"1"}
        assert (young["survives_kafka_4"], young["software_name"]) == (True, "confluent-kafka-python")
        assert young["records"] == 200


def test_what_kafka_4_takes_is_what_it_says(route: Route) -> None:
    """But for Produce, of which it advertises what it refuses."""
    host, _, port = route.cluster.bootstrap.partition(",")[0].rpartition(":")
    asked = api_versions.request(1, "test", 0, "", "")
    with socket.create_connection((host, int(port)), 10) as connection, connection.makefile("rb") as answers:
        connection.sendall(len(asked).to_bytes(4, "big") + asked)
        answer = answers.read(int.from_bytes(answers.read(4), "big"))
    offered = api_versions.parse_api_versions(answer, 0)
    lowest = {key: low for key, (low, _) in offered.items() if low and key in APIS}
    assert lowest | {PRODUCE: 3} == dict(version_support.LOWEST)


def test_an_old_consumer_is_closed_and_the_log_says_once_why(route: Route) -> None:
    assert route.forebay is not None
    client_id = route.new_name("ancient-consumer")
    body = struct.pack(">iiii", -1, 100, 1, 0)  # replica_id, max_wait_ms, min_bytes, no topics
    for _ in range(3):
        with socket.create_connection((LOOPBACK, route.forebay.node_port(0)), 10) as connection:
            connection.sendall(request(FETCH, 2, 1, body, client_id))
            assert connection.recv(1) == b""
    lines = [line for line in route.forebay.log.read_text().splitlines() if client_id in line]
    assert len(lines) == 1
    assert all(word in lines[0] for word in ("KIP-896", "Fetch", "2"))
