"""confluent-kafka's AdminClient, call by call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, ElectionType, TopicCollection, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from tests.integration.parity.librdkafka import SECONDS, admin, consumer, fill, places, read
from tests.integration.parity.way import ALONE, Way, again, both_ways, told

pytestmark = pytest.mark.integration


# A client that nobody holds is closed, and its futures are told so: each scenario names its own.


def results(futures: Mapping[Any, Future[Any]]) -> list[Any]:
    return [told(lambda future=future: future.result(SECONDS)) for future in futures.values()]  # type: ignore[misc]


def until(ask: Callable[[], Any], good: Callable[[Any], bool]) -> Any:
    """The first good answer."""
    for _ in again():
        answer = ask()
        if good(answer):
            return answer
    raise AssertionError(f"last answer: {answer}")


def group_of(way: Way, topic: str) -> str:
    """A group that read the topic, whose 30 records are put there, committed and left."""
    fill(way, topic)
    with consumer(way) as client:
        client.subscribe([topic])
        read(client, 30)
        client.commit(asynchronous=False)
    return way.name("group")


def committed(client: Any, group: str) -> list[Any]:
    answers = client.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    return [places(future.result().topic_partitions or []) for future in answers.values()]


def describe(client: Any, topic: str) -> Any:
    future = client.describe_topics(TopicCollection([topic]))[topic]
    described = told(lambda: future.result(SECONDS))
    if isinstance(described, str):
        return described
    return [
        [part.id, part.leader and f"{part.leader.host}:{part.leader.port}", [node.id for node in part.replicas]]
        for part in described.partitions
    ]


@both_ways
def test_topics(way: Way) -> Any:
    client, topic = admin(way), way.name("made")
    outcome: list[Any] = []
    new = NewTopic(topic, 2, 3, config={"retention.ms": "3600000"})
    outcome.append(results(client.create_topics([new], validate_only=True)))
    outcome.append(results(client.create_topics([new], operation_timeout=SECONDS)))
    outcome.append(results(client.create_topics([new])))
    outcome.append(results(client.create_partitions([NewPartitions(topic, 4)])))
    outcome.append(results(client.create_partitions([NewPartitions(topic, 3)])))
    outcome.append(len(until(lambda: describe(client, topic), lambda described: len(described) == 4)))
    outcome.append(results(client.delete_topics([topic], operation_timeout=SECONDS)))
    outcome.append(until(lambda: describe(client, topic), lambda described: isinstance(described, str)))
    outcome.append(results(client.delete_topics([topic])))
    return outcome


@both_ways
def test_list_topics(way: Way) -> Any:
    topics = [way.topic("one"), way.topic("two", 5)]
    client = admin(way)
    everywhere = client.list_topics(timeout=SECONDS)
    one = client.list_topics(topics[1], timeout=SECONDS)
    none = client.list_topics(way.name("nowhere"), timeout=SECONDS)
    return (
        way.own(everywhere.topics),
        {name: sorted(everywhere.topics[name].partitions) for name in topics},
        {name: sorted(topic.partitions) for name, topic in one.topics.items()},
        [topic.error and topic.error.name() for topic in none.topics.values()],
        set(map(str, everywhere.brokers.values())),
        everywhere.cluster_id,
    )


@both_ways
def test_describe_topics(way: Way) -> Any:
    client = admin(way)
    return describe(client, way.topic()), describe(client, way.name("nowhere"))


@both_ways
def test_describe_cluster(way: Way) -> Any:
    client = admin(way)
    cluster = client.describe_cluster(include_authorized_operations=True).result(SECONDS)
    nodes = {(node.id, f"{node.host}:{node.port}", node.rack) for node in cluster.nodes}
    operations = {operation.name for operation in cluster.authorized_operations or []}
    return cluster.cluster_id, nodes, cluster.controller.id in {node.id for node in cluster.nodes}, operations


@both_ways
def test_configs(way: Way) -> Any:
    client, topic = admin(way), way.topic()
    outcome: list[Any] = []

    def configs(resource: ConfigResource) -> dict[str, Any]:
        entries = client.describe_configs([resource])[resource].result(SECONDS)
        return {name: [entry.value, entry.is_default, entry.is_read_only] for name, entry in entries.items()}

    def size() -> Any:
        return configs(of_topic)["max.message.bytes"]

    of_topic = ConfigResource(ConfigResource.Type.TOPIC, topic)
    outcome.append(configs(of_topic))
    for kind, value in ((AlterConfigOpType.SET, "100000"), (AlterConfigOpType.DELETE, "")):
        entry = ConfigEntry("max.message.bytes", value, incremental_operation=kind)
        changed = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
        outcome.append(results(client.incremental_alter_configs([changed])))
        expected = value or "1048588"  # the default
        outcome.append(until(size, lambda told, value=expected: told[0] == value))  # type: ignore[misc]
    wrong = ConfigEntry("max.message.bytes", "many", incremental_operation=AlterConfigOpType.SET)
    refused = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[wrong])
    outcome.append(results(client.incremental_alter_configs([refused])))
    whole = ConfigResource(ConfigResource.Type.TOPIC, topic, set_config={"retention.ms": "7200000"})
    outcome.append(results(client.alter_configs([whole])))
    of_broker = configs(ConfigResource(ConfigResource.Type.BROKER, "1"))
    outcome.append([of_broker[name] for name in ("node.id", "group.initial.rebalance.delay.ms", "compression.type")])
    return outcome


@both_ways
def test_groups(way: Way) -> Any:
    client = admin(way)
    outcome: list[Any] = []
    group = group_of(way, way.topic())
    listed = client.list_consumer_groups().result(SECONDS)
    outcome.append([[each.group_id, each.state, each.type] for each in listed.valid if each.group_id == group])
    outcome.append([str(error) for error in listed.errors])
    outcome.append([each.id for each in client.list_groups(timeout=SECONDS) if each.id == group])
    described = client.describe_consumer_groups([group])[group].result(SECONDS)
    outcome.append([described.group_id, described.state, described.members, described.type])
    coordinator = described.coordinator
    outcome.append(f"{coordinator.host}:{coordinator.port}" in way.nodes)
    outcome.append(results(client.delete_consumer_groups([group])))
    outcome.append(results(client.delete_consumer_groups([group])))
    return outcome


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@both_ways
def test_a_group_with_a_member(way: Way, protocol: str) -> Any:
    client, topic, group = admin(way), way.topic(), way.name("group")
    fill(way, topic)
    with consumer(way, group_protocol=protocol, client_id="someone") as member:
        member.subscribe([topic])
        read(member, 30)
        described = client.describe_consumer_groups([group])[group].result(SECONDS)
        members = [
            [each.client_id, each.host, places(each.assignment.topic_partitions), each.group_instance_id]
            for each in described.members
        ]
        refused = results(client.delete_consumer_groups([group]))
    return described.state, described.type, described.partition_assignor, members, refused


@both_ways
def test_offsets_of_a_group(way: Way) -> Any:
    client, topic = admin(way), way.topic()
    outcome: list[Any] = []
    group = group_of(way, topic)
    outcome.append(committed(client, group))
    moved = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 1, 4)])
    outcome.append([places(each.topic_partitions) for each in results(client.alter_consumer_group_offsets([moved]))])
    outcome.append(committed(client, group))
    asked = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 1), TopicPartition(way.name("nowhere"), 0)])
    answers = results(client.list_consumer_group_offsets([asked], require_stable=True))
    return outcome, [places(each.topic_partitions) for each in answers]


@both_ways
def test_list_offsets(way: Way) -> Any:
    client, topic = admin(way), way.topic()
    outcome: list[Any] = []
    fill(way, topic)
    specs: Any = OffsetSpec
    for spec in (specs.earliest(), specs.latest(), specs.max_timestamp(), specs.for_timestamp(1_015)):
        answers = client.list_offsets({TopicPartition(topic, partition): spec for partition in range(3)})
        outcome.append([[each.offset, each.timestamp, each.leader_epoch] for each in results(answers)])
    outcome.append(results(client.list_offsets({TopicPartition(way.name("nowhere"), 0): specs.latest()})))
    return outcome


@both_ways
def test_delete_records(way: Way) -> Any:
    client, topic = admin(way), way.topic()
    fill(way, topic)
    wanted = [TopicPartition(topic, partition, 5) for partition in range(3)]
    deleted = [each.low_watermark for each in results(client.delete_records(wanted))]
    beyond = results(client.delete_records([TopicPartition(topic, 0, 50)]))
    with consumer(way) as reader:
        marks = [reader.get_watermark_offsets(TopicPartition(topic, partition)) for partition in range(3)]
    return deleted, beyond, marks


@both_ways
def test_acls(way: Way) -> Any:
    """Kept by no cluster without an authorizer; it says so."""
    topic: Any = (ResourceType.TOPIC, way.name("topic"), ResourcePatternType.LITERAL)
    who: Any = ("User:someone", "*", AclOperation.READ, AclPermissionType.ALLOW)
    binding, binding_filter = AclBinding(*topic, *who), AclBindingFilter(*topic, *who)
    client = admin(way)
    return (
        results(client.create_acls([binding])),
        told(lambda: client.describe_acls(binding_filter).result(SECONDS)),
        results(client.delete_acls([binding_filter])),
    )


@both_ways
def test_scram_credentials(way: Way) -> Any:
    with ALONE:
        return scram_credentials(way)


def scram_credentials(way: Way) -> Any:
    client, user = admin(way), way.name("someone")
    outcome: list[Any] = []
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)

    def described() -> Any:
        answer = results(client.describe_user_scram_credentials([user]))[0]
        if isinstance(answer, str):
            return answer
        return [[each.mechanism, each.iterations] for each in answer.scram_credential_infos]

    outcome.append(described())
    upsertion = UserScramCredentialUpsertion(user, info, b"password", b"salt")
    outcome.append(results(client.alter_user_scram_credentials([upsertion])))
    assert outcome[-1] == [None], outcome
    outcome.append(until(described, lambda answer: not isinstance(answer, str)))
    deletion = UserScramCredentialDeletion(user, ScramMechanism.SCRAM_SHA_256)
    outcome.append(results(client.alter_user_scram_credentials([deletion])))
    outcome.append(until(described, lambda answer: isinstance(answer, str)))
    everybody = client.describe_user_scram_credentials().result(SECONDS)
    return outcome, [name for name in everybody if name == user]


@both_ways
def test_elect_leaders(way: Way) -> Any:
    client, topic = admin(way), way.topic()
    outcome: list[Any] = []
    for election in (ElectionType.PREFERRED, ElectionType.UNCLEAN):
        wanted = [TopicPartition(topic, 0), TopicPartition(way.name("nowhere"), 0)]
        answer = client.elect_leaders(election, wanted).result(SECONDS)
        outcome.append({f"{each.topic}-{each.partition}": error and error.name() for each, error in answer.items()})
    return outcome
