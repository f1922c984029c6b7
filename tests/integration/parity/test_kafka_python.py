"""kafka-python: KafkaProducer, KafkaConsumer and KafkaAdminClient."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition  # type: ignore[import-untyped]
from kafka.admin import (  # type: ignore[import-untyped]
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ConfigResource,
    ConfigResourceType,
    OffsetSpec,
    ResourcePattern,
    ResourceType,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kafka.errors import CommitFailedError, RebalanceInProgressError  # type: ignore[import-untyped]
from kafka.structs import OffsetAndMetadata  # type: ignore[import-untyped]

from tests.integration.parity.librdkafka import fill
from tests.integration.parity.way import ALONE, Way, again, both_ways, told

pytestmark = pytest.mark.integration

SECONDS = 90
LONG_POLL_MS = 10_000
"""A poll that ends while the consumer joins its group anew may be the last one to look after it (3.0.12, directly)."""
CODECS = (None, "gzip", "lz4", "zstd")
"""Snappy would need one more package."""
MADE_UP = {
    "member_id",
    "topic_id",
    "throttle_time_ms",
    "correlation_id",
    "coordinator_id",
    "controller_id",
    "finalized_epoch",
}
"""Fields of answers that no two runs have in common."""


@contextmanager
def consumer(way: Way, *topics: str, **settings: Any) -> Iterator[Any]:
    defaults = {"group_id": way.name("group"), "auto_offset_reset": "earliest", "enable_auto_commit": False}
    opened = KafkaConsumer(bootstrap_servers=way.bootstrap, **{**defaults, **settings})
    try:
        # A leader of a group that does not know a topic yet assigns none of it, and leaves it at that.
        for topic in topics:
            opened.partitions_for_topic(topic)
        if topics:
            opened.subscribe(topics)
        yield opened
    finally:
        opened.close()


@contextmanager
def producer(way: Way, **settings: Any) -> Iterator[Any]:
    opened = KafkaProducer(bootstrap_servers=way.bootstrap, **settings)
    try:
        yield opened
    finally:
        opened.close(SECONDS)


@contextmanager
def admin(way: Way) -> Iterator[Any]:
    opened = KafkaAdminClient(bootstrap_servers=way.bootstrap)
    try:
        yield opened
    finally:
        opened.close()


def partitions_of(topic: str) -> list[Any]:
    return [TopicPartition(topic, partition) for partition in range(3)]


def read(client: Any, count: int) -> list[list[Any]]:
    """At least `count` records, by topic, partition and offset."""
    records: list[list[Any]] = []
    deadline = time.monotonic() + SECONDS
    while len(records) < count:
        assert time.monotonic() < deadline, f"{len(records)} of {count} records"
        for fetched in client.poll(timeout_ms=LONG_POLL_MS).values():
            records += [
                [each.topic, each.partition, each.offset, each.key, each.value, each.headers] for each in fetched
            ]
    return sorted(records, key=lambda record: record[:3])


def commit(client: Any) -> None:
    """What was read; where the group is made up anew meanwhile, as on a busy machine, once it is read again.

    A consumer that has lost sight of its group (LONG_POLL_MS) joins as another member.
    """
    for _ in again():
        try:
            client.commit()
            return
        except (CommitFailedError, RebalanceInProgressError):
            topics = client.subscription()
            client.unsubscribe()
            client.subscribe(topics)
            _read_to_the_end(client)
    raise AssertionError("nothing was committed")


def _read_to_the_end(client: Any) -> None:
    for _ in again():
        client.poll(timeout_ms=200)
        own = client.assignment()
        if own and all(client.position(partition) == end for partition, end in client.end_offsets(own).items()):
            return


def everything(way: Way, topic: str, count: int, **settings: Any) -> list[list[Any]]:
    with consumer(way, group_id=None, **settings) as client:
        client.assign(partitions_of(topic))
        client.seek_to_beginning()
        return read(client, count)


def send(client: Any, topic: str, records: list[dict[str, Any]]) -> list[Any]:
    """Of each record partition and offset, or the error's name."""
    futures = [client.send(topic, **record) for record in records]
    client.flush(SECONDS)

    def answer(future: Any) -> Any:
        metadata = future.get(SECONDS)
        return [metadata.partition, metadata.offset]

    return [told(lambda future=future: answer(future)) for future in futures]  # type: ignore[misc]


def known(value: Any) -> Any:
    """An answer without what brokers made up."""
    if isinstance(value, dict):
        return {name: known(item) for name, item in value.items() if name not in MADE_UP}
    return [known(item) for item in value] if isinstance(value, list) else value


def until(ask: Callable[[], Any], good: Callable[[Any], bool]) -> Any:
    deadline = time.monotonic() + SECONDS
    while not good(answer := told(ask)):
        assert time.monotonic() < deadline, f"last answer: {answer}"
        time.sleep(0.005)
    return answer


def keyed(count: int) -> list[dict[str, Any]]:
    return [
        {
            "key": b"key-%d" % (seq % 7),
            "value": b"value-%d" % seq,
            "timestamp_ms": 1_000 + seq,
            "headers": [("a", b"b")],
        }
        for seq in range(count)
    ]


@pytest.mark.parametrize("codec", CODECS)
@both_ways
def test_records_with_keys(way: Way, codec: str | None) -> Any:
    topic = way.topic()
    outcome: list[Any] = []
    for settings in ({"acks": 1, "enable_idempotence": False}, {"enable_idempotence": True}):
        with producer(way, compression_type=codec, **settings) as client:
            outcome.append(send(client, topic, keyed(40)))
    return outcome, everything(way, topic, 80)


@both_ways
def test_records_without_keys(way: Way) -> Any:
    topic = way.topic()
    for settings in ({"acks": 0}, {"acks": 1}, {"acks": "all"}):
        with producer(way, enable_idempotence=False, **settings) as client:
            assert not [answer for answer in send(client, topic, [{"value": b"value"}] * 20) if isinstance(answer, str)]
    return [record[4] for record in everything(way, topic, 60)]


@both_ways
def test_transactions(way: Way) -> Any:
    topic = way.topic()
    outcome: list[Any] = []
    with producer(way, transactional_id=way.name("transaction")) as client:
        client.init_transactions()
        for run in (b"first", b"aborted", b"last"):
            client.begin_transaction()
            outcome.append(send(client, topic, [{"partition": seq % 3, "value": run} for seq in range(9)]))
            (client.abort_transaction if run == b"aborted" else client.commit_transaction)()
        client.begin_transaction()
        with consumer(way, topic) as reader:
            read(reader, 27)
            offsets = {TopicPartition(topic, 1): OffsetAndMetadata(3, "", -1)}
            client.send_offsets_to_transaction(offsets, reader.group_metadata())
            client.commit_transaction()
            # It is told as committed before the group's coordinator has written it.
            outcome.append(until(lambda: reader.committed(TopicPartition(topic, 1)), lambda found: found is not None))
    return outcome, everything(way, topic, 18, isolation_level="read_committed")


@both_ways
def test_partitions(way: Way) -> Any:
    topic = way.topic()
    with producer(way) as client:
        return client.partitions_for(topic), client.bootstrap_connected()


@both_ways
def test_a_group_reads_and_goes_on_where_it_was(way: Way) -> Any:
    topic = way.topic()
    outcome: list[Any] = []
    for _ in range(2):
        fill(way, topic)
        with consumer(way, topic) as client:
            outcome.append(read(client, 30))
            commit(client)
            outcome.append([client.committed(partition) for partition in partitions_of(topic)])
            outcome.append({client.position(partition) for partition in partitions_of(topic)})
    return outcome


@both_ways
def test_a_pattern(way: Way) -> Any:
    for what in ("wanted-1", "wanted-2", "other"):
        fill(way, way.topic(what))
    with consumer(way) as client:
        client.subscribe(pattern=f"^{way.name('wanted')}-.*")
        return read(client, 60), client.subscription()


@both_ways
def test_offsets(way: Way) -> Any:
    topic = way.topic()
    outcome: list[Any] = []
    fill(way, topic)
    partitions = partitions_of(topic)
    with consumer(way) as client:
        outcome.append(client.beginning_offsets(partitions))
        outcome.append(client.end_offsets(partitions))
        outcome.append(client.offsets_for_times(dict.fromkeys(partitions, 1_015)))
        outcome.append(client.offsets_for_times(dict.fromkeys(partitions, 5_000)))
        client.assign(partitions)
        client.pause(partitions[0])
        outcome.append(read(client, 20))
        outcome.append(client.paused())
        client.resume(partitions[0])
        client.seek(partitions[0], 8)
        outcome.append(read(client, 2))
        outcome.append([client.position(partitions[0]), client.highwater(partitions[0])])
        client.seek_to_end(partitions[0])
        outcome.append(client.position(partitions[0]))
        client.commit({partitions[1]: OffsetAndMetadata(4, "said", -1)})
        outcome.append(client.committed(partitions[1], metadata=True))
    return outcome


@both_ways
def test_list_topics(way: Way) -> Any:
    topic = way.topic()
    with consumer(way) as client, admin(way) as asking:
        described = known(asking.describe_topics([topic]))
        return way.own(client.topics()), client.partitions_for_topic(topic), way.own(asking.list_topics()), described


@both_ways
def test_topics(way: Way) -> Any:
    topic = way.name("made")
    outcome: list[Any] = []
    with admin(way) as client:
        new = {topic: {"num_partitions": 2, "replication_factor": 3, "configs": {"retention.ms": "3600000"}}}
        outcome.append(known(told(lambda: client.create_topics(new, validate_only=True))))
        outcome.append(known(told(lambda: client.create_topics(new, wait_for_metadata=True))))
        outcome.append(told(lambda: client.create_topics(new)))
        outcome.append(known(told(lambda: client.create_partitions({topic: 4}))))
        outcome.append(told(lambda: client.create_partitions({topic: 3})))
        described = until(lambda: client.describe_topics([topic]), lambda answer: len(answer[0]["partitions"]) == 4)
        outcome.append(len(described[0]["partitions"]))
        outcome.append(known(told(lambda: client.delete_topics([topic]))))
        gone = until(lambda: client.describe_topics([topic]), lambda answer: answer[0]["error_code"])
        outcome.append(gone[0]["error_code"])
    return outcome


@both_ways
def test_the_cluster(way: Way) -> Any:
    topic = way.topic()
    outcome: list[Any] = []
    with admin(way) as client:
        outcome.append(known(client.describe_cluster()))
        outcome.append(known(client.describe_features()))
        outcome.append(told(lambda: sorted(client.describe_log_dirs([TopicPartition(topic, 0)]))))
        outcome.append(known(client.describe_topic_partitions([topic])))
        moving = client.list_partition_reassignments()  # the other way's, too, while they last
        outcome.append({place: moves for place, moves in moving.items() if place.topic == topic})
        outcome.append(told(lambda: known(client.elect_leaders(0, partitions_of(topic)))))
        outcome.append(told(lambda: known(client.alter_partition_reassignments({TopicPartition(topic, 0): [1]}))))
    return outcome


@both_ways
def test_the_quorum(way: Way) -> Any:
    with admin(way) as client:
        return sorted(voter["replica_id"] for voter in voters(client.describe_metadata_quorum()))


def voters(quorum: Any) -> list[Any]:
    if isinstance(quorum, dict):
        found = quorum.get("current_voters")
        return found if found else [each for item in quorum.values() for each in voters(item)]
    return [each for item in quorum for each in voters(item)] if isinstance(quorum, list) else []


@both_ways
def test_configs(way: Way) -> Any:
    topic = way.topic()

    def resource(**configs: str) -> Any:
        return ConfigResource(ConfigResourceType.TOPIC, topic, configs=configs or None)

    with admin(way) as client:
        outcome = [client.describe_configs([resource()], config_filter="all")]
        outcome.append(client.alter_configs([resource(**{"max.message.bytes": "100000"})]))
        outcome.append(until(lambda: client.describe_configs([resource()]), lambda answer: "100000" in str(answer)))
        outcome.append(told(lambda: client.alter_configs([resource(**{"max.message.bytes": "many"})])))
        outcome.append(client.reset_configs([resource(**{"max.message.bytes": ""})]))
        listed = client.list_config_resources(["topic", "broker"])
        outcome.append({kind: [name for name in names if name in (topic, "1")] for kind, names in listed.items()})
    return outcome


@both_ways
def test_groups(way: Way) -> Any:
    topic, group = way.topic(), way.name("group")
    outcome: list[Any] = []
    fill(way, topic)
    with admin(way) as client:
        with consumer(way, topic, client_id="someone") as member:
            read(member, 30)
            commit(member)
            described = known(client.describe_groups([group]))
            for each in described[group]["members"]:
                each["client_id"] = each["client_id"].partition("-")[0]
            outcome.append(described)
            outcome.append(told(lambda: client.delete_groups([group])))
        outcome.append([known(each) for each in client.list_groups() if each["group_id"] == group])
        moved = {TopicPartition(topic, 1): OffsetAndMetadata(4, "moved", -1)}
        outcome.append(str(client.alter_group_offsets(group, moved)))
        outcome.append(str(client.delete_group_offsets(group, [TopicPartition(topic, 2)])))
        outcome.append(str(sorted(client.list_group_offsets(group)[group].items())))
        outcome.append(client.delete_groups([group]))
        outcome.append(client.delete_groups([group]))
    return outcome


@both_ways
def test_offsets_and_records(way: Way) -> Any:
    topic = way.topic()
    outcome: list[Any] = []
    fill(way, topic)
    with admin(way) as client:
        for spec in (OffsetSpec.EARLIEST, OffsetSpec.LATEST, OffsetSpec.MAX_TIMESTAMP, 1_015):
            outcome.append(
                str(sorted(client.list_partition_offsets(dict.fromkeys(partitions_of(topic), spec)).items()))
            )
        outcome.append(str(sorted(client.delete_records(dict.fromkeys(partitions_of(topic), 5)).items())))
        outcome.append(told(lambda: client.delete_records(dict.fromkeys(partitions_of(topic), 50))))
    with consumer(way) as reader:
        return outcome, sorted(reader.beginning_offsets(partitions_of(topic)).values())


@both_ways
def test_transactions_seen_by_an_admin(way: Way) -> Any:
    topic, identity = way.topic(), way.name("transaction")
    outcome: list[Any] = []
    with admin(way) as client, producer(way, transactional_id=identity) as sender:
        sender.init_transactions()
        sender.begin_transaction()
        send(sender, topic, [{"partition": 0, "value": b"open"}])
        listed = client.list_transactions()
        flat = [each for part in listed.values() for each in part] if isinstance(listed, dict) else listed
        outcome.append([each.state for each in flat if each.transactional_id == identity])
        described = client.describe_transactions([identity])[identity]
        outcome.append([described.state, sorted(map(str, described.topic_partitions))])
        producers = client.describe_producers([TopicPartition(topic, 0)])
        outcome.append([len(getattr(each, "active_producers", each)) for each in producers.values()])
        sender.abort_transaction()
    return outcome


@both_ways
def test_acls_and_users(way: Way) -> Any:
    user = way.name("someone")
    resource = ResourcePattern(ResourceType.TOPIC, way.name("topic"))
    acl = ACL("User:someone", "*", ACLOperation.READ, ACLPermissionType.ALLOW, resource)
    every = ACLFilter("User:someone", "*", ACLOperation.ANY, ACLPermissionType.ANY, resource)
    upsertion = UserScramCredentialUpsertion(user, "SCRAM-SHA-256", "secret")
    with ALONE, admin(way) as client:
        outcome = [told(lambda: str(client.create_acls([acl])["failed"])), told(lambda: client.describe_acls(every))]
        outcome.append(told(lambda: str(client.delete_acls([every]))))
        outcome.append(told(lambda: known(client.alter_user_scram_credentials([upsertion]))))
        outcome.append(
            str(until(lambda: client.describe_user_scram_credentials([user]), lambda answer: "4096" in str(answer)))
        )
        deletion = UserScramCredentialDeletion(user, "SCRAM-SHA-256")
        outcome.append(told(lambda: known(client.alter_user_scram_credentials([deletion]))))
    return outcome
