"""Clients of every kind through a listener with TLS, beside one without, to a cluster without TLS."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient

from tests.integration.checks import check_all
from tests.integration.route import Route
from tests.kit.certificates import Authority
from tests.kit.clients import Client
from tests.kit.forebay import ForebayProcess
from tests.kit.go_clients import GoClient
from tests.kit.java import AncientJavaClient, JavaClient
from tests.kit.ports import LOOPBACK
from tests.kit.python_clients import AioKafkaClient, ConfluentClient, KafkaPythonClient
from tests.kit.spec import ProduceSpec
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.integration

CLIENTS = (
    "java-1.1.1",
    pytest.param("java-2.8.2", marks=pytest.mark.whole),  # between an older one and a newer one
    "java-4.3.1",
    "confluent",
    "aiokafka",
    "kafka-python",
    "franz-go",
    "sarama",
)
ANCIENT = ("0.9.0.1", pytest.param("0.10.2.2", marks=pytest.mark.whole))  # the same classes of the JDK
"""0.8.2 has no TLS."""


@dataclass
class Secured:
    """Forebay with both listeners, and what clients need to be let in."""

    route: Route
    authority: Authority

    @property
    def forebay(self) -> ForebayProcess:
        assert self.route.forebay is not None
        return self.route.forebay

    def librdkafka_props(self) -> dict[str, Any]:
        return {"security.protocol": "SSL", "ssl.ca.location": str(self.authority.pem)}

    def client(self, name: str, keystore: Path | None = None) -> Client:
        if name.startswith("java-"):
            return JavaClient(name.removeprefix("java-"), self.authority.java_props())
        if name in ("franz-go", "sarama"):
            return GoClient(name, self.authority.pem, keystore)
        if name == "confluent":
            props = self.librdkafka_props()
            if keystore is not None:
                props |= {"ssl.certificate.location": str(keystore), "ssl.key.location": str(keystore)}
            return ConfluentClient(props)
        context = self.authority.client_context(keystore)
        props = {"security_protocol": "SSL", "ssl_context": context}
        return AioKafkaClient(props) if name == "aiokafka" else KafkaPythonClient(props)


def secured(route: Route, folder: Path, workers: str = "1", **told: str) -> Secured:
    authority = Authority(folder)
    keystore = authority.issue("forebay", LOOPBACK, "localhost")
    tls = {"ssl.keystore.location": str(keystore), "ssl.truststore.location": str(authority.pem), **told}
    forebay = ForebayProcess(route.cluster.bootstrap, route.cluster.nodes, settings={"workers": workers}, tls=tls)
    return Secured(Route(route.cluster, route.log, forebay), authority)


@pytest.fixture(scope="module")
def with_tls(route: Route, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    found = secured(route, tmp_path_factory.mktemp("tls"))
    with found.forebay:
        yield found


@pytest.mark.parametrize("name", CLIENTS)
def test_each_client_produces_and_consumes_through_tls(with_tls: Secured, name: str) -> None:
    topic = f"tls-{name}"
    with_tls.route.cluster.create_topic(topic, 3)
    bootstrap = with_tls.forebay.tls_bootstrap
    with closing(with_tls.client(name)) as client:
        spec = ProduceSpec(topic, f"tls-{name}", count=500, keys="mixed", size=400)
        since = with_tls.route.log.ends(topic)
        result = client.produce(bootstrap, spec)
        check_all(spec, client, result, with_tls.route.log.read(topic, since, at_least=spec.count))
        assert len(client.consume(bootstrap, topic, f"readers-{name}", spec.count)) == spec.count
        assert client.brokers(bootstrap, topic) == with_tls.forebay.tls_addresses


@pytest.mark.parametrize("version", ANCIENT)
def test_clients_too_old_for_the_brokers_produce_through_tls(with_tls: Secured, version: str) -> None:
    topic = f"tls-{version}"
    with_tls.route.cluster.create_topic(topic, 3)
    with closing(AncientJavaClient(version, with_tls.authority.java_props())) as client:
        spec = ProduceSpec(topic, topic, count=500, keys="null")
        since = with_tls.route.log.ends(topic)
        result = client.produce(with_tls.forebay.tls_bootstrap, spec)
        assert not result.failures
        assert len(with_tls.route.log.read(topic, since, at_least=spec.count)) == spec.count


def test_who_closes_behind_records_without_acks_loses_none(with_tls: Secured) -> None:
    """librdkafka's flush returns once they are written, so that its farewell comes together with the last of them."""
    settings = {"acks": 0, "linger.ms": 0, "batch.num.messages": 1, **with_tls.librdkafka_props()}
    for number in range(3):
        topic = f"tls-farewell-{number}"
        with_tls.route.cluster.create_topic(topic, 1)
        producer = Producer({"bootstrap.servers": with_tls.forebay.tls_bootstrap, **settings})
        for value in range(300):
            producer.produce(topic, f"{value}".encode())
        assert producer.flush(60) == 0
        del producer
        found = with_tls.route.log.read(topic, {0: 0}, at_least=300)
        assert sorted(int(record.value or b"") for record in found) == list(range(300))


def test_clients_of_the_other_listener_are_told_its_addresses(with_tls: Secured) -> None:
    with_tls.route.cluster.create_topic("both", 3)
    with closing(ConfluentClient()) as plain, closing(with_tls.client("confluent")) as tls:
        for _ in range(2):  # the second time from the cache
            assert plain.brokers(with_tls.forebay.bootstrap, "both") == with_tls.forebay.addresses
            assert tls.brokers(with_tls.forebay.tls_bootstrap, "both") == with_tls.forebay.tls_addresses


def test_client_certificates_and_several_workers(route: Route, tmp_path: Path) -> None:
    """Whoever shows a valid certificate is served by whichever worker; without one nobody is."""
    it = secured(route, tmp_path, workers="2", **{"ssl.client.auth": "required"})
    route.cluster.create_topic("mtls", 3)
    keystore = it.authority.issue("client", subject="till")
    with it.forebay as forebay, closing(it.client("confluent", keystore)) as known:
        spec = ProduceSpec("mtls", "mtls", count=500, keys="mixed")
        since = route.log.ends("mtls")
        result = known.produce(forebay.tls_bootstrap, spec)
        check_all(spec, known, result, route.log.read("mtls", since, at_least=spec.count))
        stranger = AdminClient({"bootstrap.servers": forebay.tls_bootstrap, **it.librdkafka_props()})
        with pytest.raises(KafkaException):
            stranger.list_topics(timeout=1)
        failed = 'forebay_tls_handshakes_total{result="failed"}'
        wait_until(lambda: forebay.metrics()[failed] > 0, 60, "a handshake has failed")
        metrics = forebay.metrics()
        assert metrics['forebay_tls_handshakes_total{result="established"}'] > 0
