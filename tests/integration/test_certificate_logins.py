"""Clients whose certificate is their login at Forebay: who they are, and whom brokers take them for."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from ssl import PEM_cert_to_DER_cert

import pytest

from forebay_codecs.api_keys import SASL_HANDSHAKE
from forebay_codecs.error_codes import ILLEGAL_SASL_STATE
from forebay_codecs.metadata_request import encode_metadata_request
from forebay_proxy.security.der import certificate
from tests.integration.checks import each_exactly_once, every_record_acknowledged
from tests.integration.test_identities import AUTHORIZED
from tests.integration.test_terminated_logins import AUDIT, COUNT, secret, spec_of
from tests.kit.certificates import Authority
from tests.kit.clients import Client
from tests.kit.forebay import ForebayProcess
from tests.kit.java import JavaClient
from tests.kit.kafka import KafkaCluster
from tests.kit.login_wire import Wire, handshake
from tests.kit.logins import USERS, Logins, password_of
from tests.kit.ports import LOOPBACK
from tests.kit.python_clients import ConfluentClient
from tests.kit.sasl import login_line
from tests.kit.spec import ProduceSpec
from tests.kit.topic_log import TopicLog
from tests.kit.wire import framed

pytestmark = [pytest.mark.integration, pytest.mark.whole]  # test_terminated_logins.py has the same by passwords

RULES = r"RULE:^CN=(eve).*$/$1/,RULE:^CN=(alice|bob),OU=.*$/$1/L,RULE:^CN=((?:[^,\\]|\\.)*),.*$/$1/U"
ODD = 'Till "7", é; #1'
METADATA_V4 = framed(encode_metadata_request(4, "c", 4, None, allow_auto_topic_creation=False))


@dataclass
class Stage:
    """Forebay without a login of its own; each certificate's owner has one at the brokers."""

    authority: Authority
    cluster: KafkaCluster
    log: TopicLog
    forebay: ForebayProcess

    def keystore(self, name: str) -> Path:
        return self.authority.issue(f"of-{name}".replace(" ", "-"), f"{name[:3].lower()}.example", subject=name)

    def client(self, kind: str, name: str) -> Client:
        keystore = str(self.keystore(name))
        if kind == "confluent":
            stores = {"ca": str(self.authority.pem), "certificate": keystore, "key": keystore}
            props = {f"ssl.{store}.location": path for store, path in stores.items()}
            return ConfluentClient({"security.protocol": "ssl", **props})
        stores = {"truststore": str(self.authority.pem), "keystore": keystore}
        types = {f"ssl.{store}.type": "PEM" for store in stores}
        places = {f"ssl.{store}.location": path for store, path in stores.items()}
        return JavaClient(kind.removeprefix("java-"), {"security.protocol": "SSL", **types, **places})

    def wire(self, name: str) -> Wire:
        return Wire(self.forebay.tls_bootstrap, self.authority.client_context(self.keystore(name)))

    @property
    def shown(self) -> set[str]:
        rows = self.forebay.clients("--url", self.forebay.admin_url)
        return {who for row in rows for who in row["principals"]}

    def authorized(self, topic: str) -> set[tuple[str, str]]:
        """(who, allowed or denied), as the broker's authorizer has said; the test itself is anonymous."""
        lines = [line for node in self.cluster.nodes for line in self.cluster.log(node).read_text().splitlines()]
        found = [match for line in lines if (match := AUTHORIZED.search(line))]
        seen = {(match["who"], match["what"]) for match in found if match["topic"] == topic}
        return {each for each in seen if each[0] != "User:ANONYMOUS"}


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("certificates")
    logins = Logins(folder, "SASL_PLAINTEXT")
    text = ""
    for user in USERS:
        line = secret(folder, f"at-brokers-{user}", login_line("SCRAM-SHA-512", password_of(user), user))
        text += f'[identities.{user}]\n"sasl.mechanism" = "SCRAM-SHA-512"\n"sasl.jaas.config" = "{line}"\n'
    odd = 'User:TILL \\\\\\"7\\\\\\"\\\\, É\\\\; \\\\#1'
    mapped = [*((f"User:{user}", user) for user in USERS), (odd, "bob")]
    text += "[principals]\n" + "\n".join(f'"{principal}" = "{target}"' for principal, target in mapped)
    secret(folder, "identities.toml", text)
    tls = {
        "client.authentication": "terminate",
        "upstream.identity": "mapped",
        "upstream.identities.location": str(folder / "identities.toml"),
        "ssl.keystore.location": str(logins.authority.issue("forebay", LOOPBACK, "localhost")),
        "ssl.truststore.location": str(logins.authority.pem),
        "ssl.client.auth": "required",
        "ssl.principal.mapping.rules": RULES,
    }
    with (
        KafkaCluster("4.3.1", brokers=1, settings=logins.broker_settings(), loggers=AUDIT) as cluster,
        TopicLog(cluster.internal) as log,
    ):
        logins.add_users(cluster)
        with ForebayProcess(
            cluster.bootstrap,
            cluster.nodes,
            settings=logins.forebay_settings(),
            tls=tls,
            protocols=("SASL_PLAINTEXT", "SSL"),
        ) as forebay:
            yield Stage(logins.authority, cluster, log, forebay)


@pytest.mark.parametrize("kind", ["java-4.3.1", "confluent"])
def test_owners_of_certificates_are_merged_as_whom_they_are_at_the_brokers(stage: Stage, kind: str) -> None:
    specs = {}
    for user in USERS:
        topic = f"{user}-certificate-{kind}"
        stage.cluster.create_topic(topic, 4)
        specs[user] = spec_of(topic, topic, kind)
    fates = [f'forebay_records_total{{fate="{fate}"}}' for fate in ("kept", "moved", "untouched")]
    before = stage.forebay.metrics()
    with ExitStack() as stack, ThreadPoolExecutor(len(USERS)) as pool:
        clients = {user: stack.enter_context(closing(stage.client(kind, user))) for user in USERS}
        work = {
            user: pool.submit(clients[user].produce, stage.forebay.tls_bootstrap, spec) for user, spec in specs.items()
        }
        for user, spec in specs.items():
            every_record_acknowledged(spec, work[user].result())
    for user, spec in specs.items():
        each_exactly_once(spec, stage.log.read(spec.topic, dict.fromkeys(range(4), 0), at_least=COUNT))
        assert stage.authorized(spec.topic) == {(f"User:{user}", "Allowed")}
    kept, moved, untouched = (stage.forebay.metrics()[fate] - before[fate] for fate in fates)
    assert (kept + moved, untouched) == (len(USERS) * COUNT, 0)
    assert moved > 0
    assert {f"User:{user}" for user in USERS} <= stage.shown


def test_the_neighbours_topic_is_refused(stage: Stage) -> None:
    stage.cluster.create_topic("bob-own", 1)
    with closing(stage.client("confluent", "alice")) as client:
        told = str(client.produce(stage.forebay.tls_bootstrap, ProduceSpec("bob-own", "stolen", count=1)).failures)
    assert "TOPIC_AUTHORIZATION_FAILED" in told or "authorization" in told.lower()
    assert stage.authorized("bob-own") <= {("User:alice", "Denied")}


def test_a_name_of_any_kind_is_what_kafka_makes_of_it(stage: Stage) -> None:
    with stage.wire(ODD) as wire:
        assert wire.say(METADATA_V4) is not None
    pem = stage.keystore(ODD).read_text()
    leaf = pem[pem.index("-----BEGIN CERTIFICATE-----") : pem.index("-----END CERTIFICATE-----")]
    subject = certificate(PEM_cert_to_DER_cert(f"{leaf}-----END CERTIFICATE-----")).subject.whole
    with closing(JavaClient("4.3.1")) as kafka:
        ((_, name),) = kafka.principal_names(RULES, subject) or []
    assert f"User:{name}" in stage.shown


def test_whom_no_rule_or_no_identity_is_for_gets_nowhere(stage: Stage) -> None:
    for name, why in (("eve", "User:eve has no identity at the brokers"), ("carol", "User:CAROL has no identity")):
        with stage.wire(name) as wire:
            assert wire.say(METADATA_V4) is None
        assert why in stage.forebay.log.read_text()
    assert not stage.shown & {"User:eve", "User:CAROL"}


def test_a_login_by_sasl_is_told_that_there_is_none(stage: Stage) -> None:
    with stage.wire("alice") as wire:
        answer = wire.say(handshake(1, "PLAIN"))
        assert answer is not None
        assert int.from_bytes(answer[4:6], "big") == ILLEGAL_SASL_STATE
        assert wire.say(METADATA_V4) is not None, f"and API {SASL_HANDSHAKE} has done no harm"
