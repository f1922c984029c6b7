"""Every client as a member of a group: it reads what is there, each record once, and its group remembers how far."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing

import pytest
from confluent_kafka import Consumer

from tests.integration.route import Route
from tests.kit.clients import CLIENT_NAMES, Client
from tests.kit.java import JavaClient
from tests.kit.python_clients import librdkafka_record
from tests.kit.spec import CODECS, ConsumedRecord, ProduceSpec

pytestmark = pytest.mark.integration


def fill(route: Route, client: Client, topic: str) -> int:
    """A batch or more of every codec that the client has, through the route; returns how many records."""
    specs = [
        ProduceSpec(topic, codec, keys="mixed", compression=codec, headers=True, null_header=False, size=100)
        for codec in CODECS
    ]
    possible = [spec for spec in specs if client.can(spec)] or [ProduceSpec(topic, "plain", keys="mixed")]
    for spec in possible:
        client.produce(route.bootstrap, spec)
    return sum(spec.count for spec in possible)


def place(record: ConsumedRecord) -> tuple[int, int]:
    return record.partition, record.offset


def read_group_offsets(route: Route, java: JavaClient, group: str, topic: str) -> dict[int, int]:
    offsets = java.admin(route.bootstrap, "group_offsets", group)
    return {int(name.removeprefix(f"{topic}-")): offset for name, offset in offsets.items()}


def consume_and_compare(route: Route, client: Client, java: JavaClient) -> None:
    topic, group = route.new_topic(), route.new_name("group")
    count = fill(route, client, topic)
    read = client.consume(route.bootstrap, topic, group, count)
    there = route.log.read(topic, dict.fromkeys(range(3), 0))
    assert sorted(read, key=place) == sorted(there, key=place)
    if client.name != "kcat":  # kcat stores offsets at its own pace
        assert read_group_offsets(route, java, group, topic) == {
            partition: end for partition, end in route.log.ends(topic).items() if end
        }


@pytest.mark.parametrize("name", CLIENT_NAMES)
def test_reads_in_a_group(
    route: Route, get_client: Callable[[str], Client], newest_java: JavaClient, name: str
) -> None:
    consume_and_compare(route, get_client(name), newest_java)


@pytest.mark.whole
@pytest.mark.parametrize("name", ["java-1.1.1", "java-4.3.1", "confluent", "aiokafka"])
def test_reads_in_a_group_on_kafka_3_9(
    open_route: Callable[[str], Route],
    get_client: Callable[[str], Client],
    newest_java: JavaClient,
    name: str,
) -> None:
    consume_and_compare(open_route("3.9.2"), get_client(name), newest_java)


@pytest.mark.parametrize("name", [name for name in CLIENT_NAMES if name != "kcat"])
def test_read_committed_sees_no_aborted_record(route: Route, get_client: Callable[[str], Client], name: str) -> None:
    client, topic = get_client(name), route.new_topic()
    for run, abort in (("first", False), ("aborted", True), ("last", False)):
        transaction = route.new_name("txn")
        client.produce(route.bootstrap, ProduceSpec(topic, run, count=100, transactional_id=transaction, abort=abort))
    read = client.consume(route.bootstrap, topic, route.new_name("group"), 200, read_committed=True)
    expected = sorted(f"{run}-{seq}".encode() for run in ("first", "last") for seq in range(100))
    assert sorted(record.value or b"" for record in read) == expected
    uncommitted = client.consume(route.bootstrap, topic, route.new_name("group"), 300)
    assert sum(record.value is not None and record.value.startswith(b"aborted") for record in uncommitted) == 100


def test_a_transactional_id_is_used_again(route: Route, get_client: Callable[[str], Client]) -> None:
    """The second producer of an id finds the coordinator, fences the first (KIP-98) and commits its own."""
    client, topic, transaction = get_client("java-2.8.2"), route.new_topic(), route.new_name("txn")
    for run, abort in (("aborted", True), ("kept", False)):
        client.produce(route.bootstrap, ProduceSpec(topic, run, count=50, transactional_id=transaction, abort=abort))
    # A client is told that it has committed before partitions are.
    committed = route.log.read(topic, dict.fromkeys(range(3), 0), at_least=50, read_committed=True)
    assert sorted(record.value or b"" for record in committed) == sorted(f"kept-{seq}".encode() for seq in range(50))


def test_two_members_share_a_group(route: Route, get_client: Callable[[str], Client]) -> None:
    topic, group, count = route.new_topic(), route.new_name("group"), 600
    with ExitStack() as stack:
        members = [stack.enter_context(closing(join(route.bootstrap, group, topic))) for _ in range(2)]
        # Nothing is there to be read yet, so that neither member can read it all before the other has joined.
        poll_until(members, lambda _: sum(map(owned, members)) == 3 and all(map(owned, members)))
        get_client("confluent").produce(
            route.bootstrap, ProduceSpec(topic, "shared", count=count, keys="keyed", key_count=100)
        )
        read = poll_until(members, lambda records: len(records) >= count)
    there = route.log.read(topic, dict.fromkeys(range(3), 0))
    assert sorted(map(place, read)) == sorted(map(place, there))


def join(bootstrap: str, group: str, topic: str) -> Consumer:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    return consumer


def owned(member: Consumer) -> int:
    return len(member.assignment())


def poll_until(members: Sequence[Consumer], enough: Callable[[list[ConsumedRecord]], bool]) -> list[ConsumedRecord]:
    """Polls the members in turn until there is enough."""
    records: list[ConsumedRecord] = []
    deadline = time.monotonic() + 120
    while not enough(records):
        assert time.monotonic() < deadline, f"only {len(records)} records, owned {list(map(owned, members))}"
        for member in members:
            records += map(librdkafka_record, member.consume(1_000, timeout=0.05))
    return records


def test_share_consumer_reads(route: Route, newest_java: JavaClient) -> None:
    """KIP-932: ShareFetch and ShareAcknowledge name brokers, too."""
    topic, group, count = route.new_topic(), route.new_name("share-group"), 300
    newest_java.produce(route.bootstrap, ProduceSpec(topic, "shared", count=count, keys="mixed", headers=True))
    read = newest_java.consume_shared(route.bootstrap, topic, group, count)
    there = route.log.read(topic, dict.fromkeys(range(3), 0))
    assert sorted(read, key=place) == sorted(there, key=place)
