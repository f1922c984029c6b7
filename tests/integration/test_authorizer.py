"""An authorizer behind a login: clients of Forebay are told what its user may not do as that user itself is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AclOperation, ResourceType  # type: ignore[attr-defined]

from tests.kit.forebay import ForebayProcess
from tests.kit.kafka import KafkaCluster
from tests.kit.sasl import Secured
from tests.kit.topic_log import TopicLog
from tests.kit.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.whole]  # test_identities.py has what an authorizer refuses

MECHANISM = "SCRAM-SHA-512"
COUNT = 100
REFUSED_IDS = 'forebay_errors_total{kind="idempotence",side="upstream"}'
SECONDS = 60
ALLOWED, SEEN, HIDDEN, ABSENT = "allowed", "seen", "hidden", "absent"
"""A topic that the user may write and read, one that it may describe only, one without a rule, and none at all."""

Ways = list[tuple[str, Mapping[str, str]]]
"""Bootstrap servers and the client's settings: direct, and through Forebay."""


class Stage:
    """`early` was started when the user might not write anything yet: brokers give out no producer ids then."""

    def __init__(self, secured: Secured, cluster: KafkaCluster, early: ForebayProcess, forebay: ForebayProcess) -> None:
        self.cluster = cluster
        self.early = early
        self.forebay = forebay
        self.ways: Ways = [(cluster.bootstrap, secured.librdkafka_props(MECHANISM)), (forebay.bootstrap, {})]


@pytest.fixture(scope="module", params=["3.9.2", "4.3.1"])
def stage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    secured = Secured(tmp_path_factory.mktemp("authorizer"), authorizer=True)
    with ExitStack() as stack:
        cluster = stack.enter_context(KafkaCluster(request.param, brokers=1, settings=secured.broker_settings()))
        secured.add_users(cluster)
        for topic in (ALLOWED, SEEN, HIDDEN):
            cluster.create_topic(topic, 2)
        settings = secured.forebay_settings(MECHANISM, **{"enable.idempotence": "true"})
        early = stack.enter_context(ForebayProcess(cluster.bootstrap, cluster.nodes, settings=settings))
        wait_until(lambda: early.metrics()[REFUSED_IDS] == 1, SECONDS, "a refusal")
        secured.allow(cluster, ResourceType.TOPIC, ALLOWED, AclOperation.WRITE, AclOperation.READ)
        secured.allow(cluster, ResourceType.TOPIC, SEEN, AclOperation.DESCRIBE)
        secured.allow(cluster, ResourceType.GROUP, "readers", AclOperation.READ)
        forebay = stack.enter_context(ForebayProcess(cluster.bootstrap, cluster.nodes, settings=settings))
        wait_until(lambda: forebay.metrics()["forebay_producer_ids"] == 2, SECONDS, "producer ids")
        yield Stage(secured, cluster, early, forebay)


def outcomes(bootstrap: str, props: Mapping[str, str], **settings: object) -> dict[str, set[str]]:
    """Topic → what one producer was told of its records there."""
    told: dict[str, set[str]] = {topic: set() for topic in (ALLOWED, SEEN, HIDDEN, ABSENT)}
    producer = Producer({"bootstrap.servers": bootstrap, **props, **settings})

    def of(topic: str) -> Callable[[KafkaError | None, object], None]:
        return lambda error, _: told[topic].add(error.name() if error is not None else "")

    for number in range(COUNT):
        for topic in told:
            try:
                producer.produce(topic, str(number), on_delivery=of(topic))
            except KafkaException as refused:  # the client knows by now that the topic refuses it
                told[topic].add(refused.args[0].name())
    assert producer.flush(SECONDS) == 0
    return told


@pytest.mark.parametrize("idempotent", [False, True], ids=["merged", "on connections of its own"])
def test_what_the_user_may_not_is_told_as_directly_and_the_rest_is_written(stage: Stage, idempotent: bool) -> None:
    refused = {"TOPIC_AUTHORIZATION_FAILED"}
    with TopicLog(stage.cluster.internal) as log:
        for bootstrap, props in stage.ways:
            before = sum(log.ends(ALLOWED).values())
            found = outcomes(bootstrap, props, **{"enable.idempotence": idempotent})
            assert found == {ALLOWED: {""}, SEEN: refused, HIDDEN: refused, ABSENT: refused}, bootstrap
            assert sum(log.ends(ALLOWED).values()) - before == COUNT
            assert sum(log.ends(SEEN).values()) == 0
    metrics = stage.forebay.metrics()
    assert metrics['forebay_errors_total{kind="authentication",side="upstream"}'] == 0
    assert "Traceback" not in stage.forebay.log.read_text()


def test_where_brokers_refuse_producer_ids_records_are_written_without(stage: Stage) -> None:
    refused = {"TOPIC_AUTHORIZATION_FAILED"}
    with TopicLog(stage.cluster.internal) as log:
        before = sum(log.ends(ALLOWED).values())
        found = outcomes(stage.early.bootstrap, {})
        assert found == {ALLOWED: {""}, SEEN: refused, HIDDEN: refused, ABSENT: refused}
        assert sum(log.ends(ALLOWED).values()) - before == COUNT
    metrics = stage.early.metrics()
    assert (metrics[REFUSED_IDS], metrics["forebay_producer_ids"]) == (1, 0)
    assert stage.early.log.read_text().count("brokers give out no producer ids") == 1


def read(bootstrap: str, props: Mapping[str, str], group: str, topic: str, settings: Mapping[str, str]) -> str:
    """What a reader is told first: the name of an error, or nothing where it is a record."""
    given = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest", **props, **settings}
    reader = Consumer(given)
    try:
        reader.subscribe([topic])
        message = reader.poll(SECONDS)
        assert message is not None
        error = message.error()
        return error.name() if error is not None else ""
    finally:
        reader.close()


def test_readers_are_told_as_directly(stage: Stage) -> None:
    outcomes(*stage.ways[0])
    for bootstrap, props in stage.ways:
        told = [
            read(bootstrap, props, group, topic, {"client.id": "reader"})
            for group, topic in (("readers", ALLOWED), ("readers", SEEN), ("readers", HIDDEN), ("strangers", ALLOWED))
        ]
        topic_refused, group_refused = "TOPIC_AUTHORIZATION_FAILED", "GROUP_AUTHORIZATION_FAILED"
        assert told == ["", topic_refused, topic_refused, group_refused], bootstrap
