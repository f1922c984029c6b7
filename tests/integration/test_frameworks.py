"""Kafka Streams, Connect and MirrorMaker 2 themselves: all that they move is there once, where they put it.

They pick partitions themselves for records that may have no key, so by default Forebay leaves them alone
(own_choices.py). Old ones that are not idempotent are known by their client ids alone.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import KafkaException

from tests.integration.route import Route
from tests.kit import connect
from tests.kit.java import JavaClient
from tests.kit.paths import FRAMEWORK_VERSIONS, STREAMS_CLASSES, classpath
from tests.kit.server import Server
from tests.kit.spec import ClientFailed, ConsumedRecord, ProduceSpec

pytestmark = [pytest.mark.integration, pytest.mark.whole]

COUNT = 2_000
PARTITIONS = 3
SECONDS = 150
ONCE: Mapping[str, str] = {"enable.idempotence": "false", "acks": "1"}


def read(route: Route, topic: str) -> list[ConsumedRecord]:
    return route.log.read(topic, dict.fromkeys(range(PARTITIONS), 0))


def values(records: list[ConsumedRecord]) -> Counter[bytes | None]:
    return Counter(record.value for record in records)


@contextmanager
def running(server: Server) -> Iterator[Server]:
    try:
        yield server
    finally:
        server.kill()


@pytest.mark.parametrize(
    ("version", "props"),
    [
        *itertools.product(FRAMEWORK_VERSIONS, [{}]),
        ("2.8.2", {"processing.guarantee": "exactly_once"}),
        ("2.8.2", {"processing.guarantee": "exactly_once_beta"}),
        ("4.3.1", {"processing.guarantee": "exactly_once_v2"}),
        ("4.3.1", {"processing.guarantee": "exactly_once_v2", "group.protocol": "streams"}),
    ],
    ids=lambda of: of if isinstance(of, str) else "-".join(of.values()) or "at_least_once",
)
def test_streams(route: Route, newest_java: JavaClient, version: str, props: Mapping[str, str], tmp_path: Path) -> None:
    source = route.new_topic(PARTITIONS)
    newest_java.produce(route.bootstrap, ProduceSpec(source, "read", count=COUNT))
    sinks = {name: route.new_topic(PARTITIONS) for name in ("out", "pinned", "counts")}
    app = {
        "application.id": route.new_name("app"),
        "auto.offset.reset": "earliest",
        "num.stream.threads": 2,
        "state.dir": tmp_path,
        "replication.factor": 1,
        "cache.max.bytes.buffering": 0,  # each count is told; by the name that both versions know
        **props,
    }
    jars = [STREAMS_CLASSES, *classpath(f"streams-{version}")]
    with closing(JavaClient(version, more=jars)) as streams:
        streams.streams(route.bootstrap, source, sinks, COUNT, **app)
    found = {name: read(route, topic) for name, topic in sinks.items()}
    sent = values(read(route, source))
    assert sent.total() == COUNT
    assert values(found["out"]) == values(found["pinned"]) == sent
    assert {record.partition for record in found["pinned"]} == {0}
    counted = Counter[bytes | None]()
    for record in found["counts"]:
        assert record.value is not None
        counted[record.key] = int.from_bytes(record.value, "big")
    assert counted == Counter((record.value or b"")[-1:] for record in found["out"])


@pytest.mark.parametrize("version", FRAMEWORK_VERSIONS)
@pytest.mark.parametrize("producer", [{}, ONCE], ids=["defaults", "not idempotent"])
def test_connect(route: Route, version: str, producer: Mapping[str, str], tmp_path: Path) -> None:
    lines = [f"line {number}" for number in range(COUNT)]
    (tmp_path / "in.txt").write_text("".join(f"{line}\n" for line in lines))
    topic, copy = route.new_topic(PARTITIONS), tmp_path / "out.txt"
    worker = connect.copies_file(version, route.bootstrap, topic, tmp_path / "in.txt", tmp_path, producer)
    with running(worker):
        worker.wait_until(lambda: copy.exists() and copy.read_bytes().count(b"\n") >= COUNT, SECONDS)
    assert Counter(copy.read_text().splitlines()) == Counter(lines)
    assert values(read(route, topic)) == Counter(map(str.encode, lines))


@pytest.mark.parametrize("version", FRAMEWORK_VERSIONS)
def test_mirror_maker(
    open_route: Callable[[str], Route], newest_java: JavaClient, version: str, tmp_path: Path
) -> None:
    """The target has each record in the partition of the source, in its order: without a key, and not idempotent."""
    source, target = open_route("4.3.1"), open_route("3.9.2")
    topic, name = source.new_topic(PARTITIONS), source.new_name("near")
    for partition in range(2):
        spec = ProduceSpec(topic, f"p{partition}", count=COUNT // 2, partition=partition)
        newest_java.produce(source.cluster.internal, spec)
    near, far = (name, source.bootstrap), ("far", target.bootstrap)
    mirror = connect.mirrors(version, near, far, topic, tmp_path, ONCE)
    with running(mirror):
        mirror.wait_until(lambda: held(target, f"{name}.{topic}") >= COUNT, SECONDS)
    assert places(read(target, f"{name}.{topic}")) == places(read(source, topic))


def held(route: Route, topic: str) -> int:
    """How many records the topic has; none, if there is no such topic yet, or not every broker knows it."""
    try:
        return sum(route.log.ends(topic).values())
    except (ClientFailed, KafkaException):
        return 0


def places(records: list[ConsumedRecord]) -> list[tuple[int, int, bytes | None]]:
    return sorted((record.partition, record.offset, record.value) for record in records)
