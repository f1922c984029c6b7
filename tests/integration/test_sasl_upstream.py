"""Clients that know nothing of logins, Forebay, and a Kafka that takes nobody without one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from tests.kit.certificates import Authority
from tests.kit.forebay import ForebayProcess
from tests.kit.java import AncientJavaClient
from tests.kit.kafka import KafkaCluster
from tests.kit.paths import ANCIENT_CLIENT_VERSIONS
from tests.kit.ports import LOOPBACK
from tests.kit.sasl import PASSWORD, Secured
from tests.kit.spec import ProduceSpec
from tests.kit.topic_log import TopicLog
from tests.kit.unsigned_tokens import unsigned_tokens

pytestmark = pytest.mark.integration

REAUTH_MS = 6_000
"""Whoever renews after 85 to 95 % of it has at least 0.3 s for that, which is little on a busy machine."""
TOKEN_S = 10
TRIES = 3
"""Where a session was not renewed in time it is done once more: the machine may have stood still just then."""
COUNT = 100
OLDEST, *BETWEEN, NEWEST = ANCIENT_CLIENT_VERSIONS


class Stage:
    def __init__(self, secured: Secured, cluster: KafkaCluster) -> None:
        self.secured = secured
        self.cluster = cluster

    def forebay(self, mechanism: str, password: str = PASSWORD, tls: Path | None = None) -> ForebayProcess:
        """`tls`: the keystore of another listener."""
        settings = self.secured.forebay_settings(mechanism, password)
        told = {"ssl.keystore.location": str(tls)} if tls is not None else None
        return ForebayProcess(self.cluster.bootstrap, self.cluster.nodes, settings=settings, tls=told)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    secured = Secured(tmp_path_factory.mktemp("sasl"), REAUTH_MS)
    with KafkaCluster("4.3.1", brokers=1, settings=secured.broker_settings()) as cluster:
        secured.add_users(cluster)
        yield Stage(secured, cluster)


class Counting:
    """A producer, and what became of its records."""

    def __init__(self, bootstrap: str, **settings: object) -> None:
        self.acknowledged: list[int] = []
        self.failed: list[str] = []
        self._sent = 0
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, **settings})

    def send(self, topic: str, key: bytes | None = None) -> None:
        number, self._sent = self._sent, self._sent + 1

        def told(error: object, _: object) -> None:
            if error is None:
                self.acknowledged.append(number)
            else:
                self.failed.append(str(error))

        self._producer.produce(topic, str(number), key, on_delivery=told)
        self._producer.poll(0)

    def flush(self) -> None:
        assert self._producer.flush(90) == 0
        assert self.failed == []


def read_all(bootstrap: str, topic: str, count: int) -> list[int]:
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": f"of-{topic}", "auto.offset.reset": "earliest"})
    reader.subscribe([topic])
    found: list[int] = []
    try:
        while len(found) < count:
            message = reader.poll(60)
            assert message is not None, f"{len(found)} records of {count} after a minute"
            assert message.error() is None
            found.append(int(message.value() or b""))
    finally:
        reader.close()
    return sorted(found)


@pytest.mark.parametrize(
    "mechanism",
    [
        "PLAIN",
        pytest.param("SCRAM-SHA-256", marks=pytest.mark.whole),
        pytest.param("SCRAM-SHA-512", marks=pytest.mark.whole),
    ],  # it logs in for ancient producers
)
def test_records_and_groups_through_a_login(stage: Stage, mechanism: str) -> None:
    topic = f"through-{mechanism.lower()}"
    stage.cluster.create_topic(topic, 1)
    with stage.forebay(mechanism) as forebay:
        producer = Counting(forebay.bootstrap)
        for _ in range(COUNT):
            producer.send(topic)
        producer.flush()
        assert read_all(forebay.bootstrap, topic, COUNT) == list(range(COUNT))
        log = forebay.log.read_text()
        assert PASSWORD not in log
        assert "Traceback" not in log


@pytest.mark.parametrize("version", [OLDEST, *(pytest.param(it, marks=pytest.mark.whole) for it in BETWEEN), NEWEST])
def test_a_producer_that_knows_neither_tls_nor_sasl_reaches_a_kafka_4_that_wants_both(
    stage: Stage, version: str
) -> None:
    topic = f"ancient-{version}"
    stage.cluster.create_topic(topic, 1)
    client = AncientJavaClient(version)
    try:
        with stage.forebay("SCRAM-SHA-256") as forebay:
            result = client.produce(forebay.bootstrap, ProduceSpec(topic=topic, name="run", count=COUNT))
    finally:
        client.close()
    assert (len(result.acks), result.failures) == (COUNT, {})
    with TopicLog(stage.cluster.internal) as log:
        assert log.ends(topic) == {0: COUNT}


@pytest.mark.parametrize("version", [pytest.param(BETWEEN[0], marks=pytest.mark.whole), NEWEST])
def test_those_that_know_tls_speak_it_to_forebay_and_forebay_logs_in(
    stage: Stage, version: str, tmp_path: Path
) -> None:
    """Before 0.9 there is no TLS."""
    topic = f"ancient-tls-{version}"
    stage.cluster.create_topic(topic, 1)
    authority = Authority(tmp_path)
    client = AncientJavaClient(version, authority.java_props())
    try:
        with stage.forebay("SCRAM-SHA-512", tls=authority.issue("forebay", LOOPBACK, "localhost")) as forebay:
            result = client.produce(forebay.tls_bootstrap, ProduceSpec(topic=topic, name="run", count=COUNT))
            assert forebay.metrics()['forebay_tls_handshakes_total{result="established"}'] > 0
    finally:
        client.close()
    assert (len(result.acks), result.failures) == (COUNT, {})
    with TopicLog(stage.cluster.internal) as log:
        assert log.ends(topic) == {0: COUNT}


@pytest.mark.whole
def test_tokens_are_renewed_under_load(stage: Stage) -> None:
    assert any(nothing_goes_wrong_as_tokens_end(stage, f"tokens-{number}") for number in range(TRIES))


def nothing_goes_wrong_as_tokens_end(stage: Stage, topic: str) -> bool:
    stage.cluster.create_topic(topic, 1)
    with unsigned_tokens(TOKEN_S) as endpoint:
        settings = {
            "security.protocol": "SASL_SSL",
            "ssl.truststore.location": str(stage.secured.authority.pem),
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": endpoint.url,
            "sasl.oauthbearer.client.credentials.client.id": "forebay",
        }
        with ForebayProcess(stage.cluster.bootstrap, stage.cluster.nodes, settings=settings) as forebay:
            producer = Counting(forebay.bootstrap)
            until = time.monotonic() + 2 * TOKEN_S
            sent = 0
            while time.monotonic() < until:
                producer.send(topic)
                sent += 1
                time.sleep(0.01)  # the load's pace
            producer.flush()
            assert read_all(stage.cluster.internal, topic, sent) == list(range(sent))
            return nothing_went_wrong(forebay)


def nothing_went_wrong(forebay: ForebayProcess) -> bool:
    """No connection ended but by our own will, and no login was refused."""
    log = forebay.log.read_text()
    assert "Traceback" not in log
    assert "refuses" not in log
    lines = [line for line in ("does not renew", "not renewed", "connection lost") if line in log]
    metrics = forebay.metrics()
    kinds = ("connection_lost", "authentication", "timeout", "protocol")
    errors = {kind: metrics.get(f'forebay_errors_total{{kind="{kind}",side="upstream"}}', 0) for kind in kinds}
    print(lines, errors)
    return not lines and not any(errors.values())


@pytest.mark.parametrize("lifetimes", [1.4, pytest.param(2.0, marks=pytest.mark.whole)])
def test_sessions_are_renewed_under_load(stage: Stage, lifetimes: float) -> None:
    """Records that are merged, and those on clients' own connections, for as long: none is lost or doubled."""
    names = [f"renewed-{lifetimes}-{number}" for number in range(TRIES)]
    assert any(nothing_goes_wrong_as_sessions_end(stage, name, lifetimes) for name in names)


def nothing_goes_wrong_as_sessions_end(stage: Stage, topic: str, lifetimes: float) -> bool:
    for each in (topic, f"{topic}-own"):
        stage.cluster.create_topic(each, 1)
    with stage.forebay("SCRAM-SHA-512") as forebay:
        merged = Counting(forebay.bootstrap)
        own = Counting(forebay.bootstrap, **{"enable.idempotence": True})
        until = time.monotonic() + lifetimes * REAUTH_MS / 1000
        sent = 0
        while time.monotonic() < until:
            merged.send(topic)
            own.send(f"{topic}-own", b"k")
            sent += 1
            time.sleep(0.01)  # the load's pace
        merged.flush()
        own.flush()
        for each in (topic, f"{topic}-own"):
            assert read_all(stage.cluster.internal, each, sent) == list(range(sent))
        return nothing_went_wrong(forebay)


def test_a_wrong_password_is_told_once_and_takes_no_broker_down(stage: Stage) -> None:
    settings = stage.secured.forebay_settings("SCRAM-SHA-512", "wrong")
    forebay = ForebayProcess(stage.cluster.bootstrap, stage.cluster.nodes, settings=settings)
    log = forebay.fails_to_start()
    assert log.count("broker refuses Forebay's login") == 1
    assert "SCRAM" in log
    assert "wrong" not in log
    assert "broker unreachable" not in log
    assert "Traceback" not in log
