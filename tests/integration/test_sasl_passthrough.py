"""Clients of SASL listeners before a Kafka with users: each is who it is at the brokers, and Forebay is nobody."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from forebay_codecs.metadata import parse_metadata_response
from forebay_codecs.metadata_request import encode_metadata_request
from forebay_codecs.sasl import plain
from tests.integration.checks import check_all, each_exactly_once, every_record_acknowledged
from tests.kit.ancient import AncientProgram
from tests.kit.clients import Client
from tests.kit.forebay import ForebayProcess
from tests.kit.java import JavaClient
from tests.kit.kafka import KafkaCluster
from tests.kit.login_wire import Wire, authenticate, handshake
from tests.kit.logins import USERS, Logins, password_of
from tests.kit.ports import LOOPBACK
from tests.kit.python_clients import ConfluentClient
from tests.kit.sasl import USER
from tests.kit.spec import ProduceResult, ProduceSpec
from tests.kit.topic_log import TopicLog
from tests.kit.waiting import wait_until
from tests.kit.wire import framed

pytestmark = pytest.mark.integration
whole = pytest.mark.whole

REAUTH_MS = 6_000
"""Whoever renews after 85 to 95 % of it has at least 0.3 s for that, which is little on a busy machine."""
TRIES = 3
"""Where one was late it is done once more: the machine may have stood still just then."""
DENIED = re.compile("topic.?authorization", re.IGNORECASE)
COUNT = 200
SCRAM_512, BEARER, SCRAM_256, PLAIN = "SCRAM-SHA-512", "OAUTHBEARER", "SCRAM-SHA-256", "PLAIN"
CASES = (
    ("confluent", SCRAM_512, "SASL_PLAINTEXT"),
    ("confluent", BEARER, "SASL_SSL"),
    ("java-0.10.2.2", PLAIN, "SASL_SSL"),  # SaslHandshake v0; its SCRAM wants a JDK before 11
    *(
        pytest.param(*case, marks=whole)
        for case in (
            ("java-4.3.1", SCRAM_512, "SASL_SSL"),
            ("kafka-python", PLAIN, "SASL_SSL"),
            ("confluent", PLAIN, "SASL_SSL"),
            ("java-0.10.2.2", PLAIN, "SASL_PLAINTEXT"),
            ("java-2.8.2", SCRAM_512, "SASL_SSL"),
            ("java-2.8.2", PLAIN, "SASL_PLAINTEXT"),
            ("java-4.3.1", PLAIN, "SASL_SSL"),
            ("confluent", BEARER, "SASL_PLAINTEXT"),  # Java's wants Jackson, which the kit has not
            ("kafka-python", SCRAM_512, "SASL_PLAINTEXT"),
            ("aiokafka", SCRAM_512, "SASL_SSL"),
            ("aiokafka", PLAIN, "SASL_PLAINTEXT"),
        )
    ),
)


@dataclass
class Stage:
    """A cluster with users, and Forebay with two SASL listeners before it."""

    logins: Logins
    cluster: KafkaCluster
    log: TopicLog
    keystore: Path
    forebay: ForebayProcess

    def bootstrap(self, protocol: str) -> str:
        return self.forebay.bootstrap if protocol == "SASL_PLAINTEXT" else self.forebay.tls_bootstrap

    def addresses(self, protocol: str) -> set[str]:
        return self.forebay.addresses if protocol == "SASL_PLAINTEXT" else self.forebay.tls_addresses


@pytest.fixture(
    scope="module",
    params=[("4.3.1", "SASL_SSL"), pytest.param(("3.9.2", "SASL_PLAINTEXT"), marks=whole)],
    ids=lambda param: param[0],
)
def stage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    version, protocol = request.param
    logins = Logins(tmp_path_factory.mktemp("logins"), protocol, REAUTH_MS)
    with (
        KafkaCluster(version, brokers=2, settings=logins.broker_settings()) as cluster,
        TopicLog(cluster.internal) as log,
    ):
        logins.add_users(cluster)
        keystore = logins.authority.issue("forebay", LOOPBACK, "localhost")
        with ForebayProcess(
            cluster.bootstrap,
            cluster.nodes,
            settings=logins.forebay_settings(),
            tls={"ssl.keystore.location": str(keystore)},
            protocols=("SASL_PLAINTEXT", "SASL_SSL"),
        ) as forebay:
            yield Stage(logins, cluster, log, keystore, forebay)


def refusal(client: Client, bootstrap: str, topic: str) -> str:
    """What the client says of a topic that it may not write."""
    try:
        return str(client.produce(bootstrap, ProduceSpec(topic, "stolen", count=1)).failures)
    except Exception as error:  # each client has its own
        return repr(error)


@pytest.mark.parametrize(("name", "mechanism", "protocol"), CASES)
def test_each_client_is_who_it_is_at_the_brokers(stage: Stage, name: str, mechanism: str, protocol: str) -> None:
    """Two users at the same time: each writes and reads its own topic, and is refused the other's."""
    specs: dict[str, ProduceSpec] = {}
    for user in USERS:
        topic = f"{user}-{name}-{mechanism}-{protocol}".lower()
        stage.cluster.create_topic(topic, 2)
        specs[user] = ProduceSpec(topic, topic, count=COUNT, keys="mixed")
    ancient = name.startswith("java-0.")
    # kafka-python's consumer now and then stays without partitions of a new topic, with Kafka itself, too.
    reads = not ancient and name != "kafka-python"
    bootstrap = stage.bootstrap(protocol)

    def works(user: str, client: Client) -> ProduceResult:
        spec = specs[user]
        result = client.produce(bootstrap, spec)
        assert not reads or len(client.consume(bootstrap, spec.topic, spec.topic, COUNT)) == COUNT
        assert client.brokers(bootstrap, spec.topic) == stage.addresses(protocol)
        (neighbour,) = set(USERS) - {user}
        assert DENIED.search(refusal(client, bootstrap, specs[neighbour].topic))
        return result

    with ExitStack() as stack:
        make = partial(stage.logins.client, name, mechanism=mechanism, protocol=protocol)
        clients = {user: stack.enter_context(closing(make(user=user))) for user in USERS}
        with ThreadPoolExecutor(len(USERS)) as pool:
            at_work = {user: pool.submit(works, user, clients[user]) for user in USERS}
        for user, spec in specs.items():
            found = stage.log.read(spec.topic, {0: 0, 1: 0}, at_least=COUNT)
            if ancient:
                every_record_acknowledged(spec, at_work[user].result())
                each_exactly_once(spec, found)
            else:
                check_all(spec, clients[user], at_work[user].result(), found)


@pytest.mark.parametrize("mechanism", [SCRAM_512, pytest.param(PLAIN, marks=whole)])
def test_kafka_python_of_old_logs_in_by_tokens_without_a_header(stage: Stage, mechanism: str) -> None:
    topic = f"bob-old-python-{mechanism.lower()}"
    stage.cluster.create_topic(topic, 2)
    login = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "bob",
        "sasl_plain_password": password_of("bob"),
    }
    spec = ProduceSpec(topic, topic, count=COUNT, props=login)
    every_record_acknowledged(spec, AncientProgram("kafka-python", "0.10").produce(stage.forebay.bootstrap, spec))
    each_exactly_once(spec, stage.log.read(topic, {0: 0, 1: 0}, at_least=COUNT))


def test_nothing_of_theirs_is_merged_and_nothing_secret_is_told(stage: Stage) -> None:
    stage.cluster.create_topic("alice-untouched", 2)
    before = stage.forebay.metrics()
    with closing(stage.logins.client("confluent", "alice", SCRAM_512, "SASL_SSL")) as client:
        spec = ProduceSpec("alice-untouched", "untouched", count=COUNT)
        every_record_acknowledged(spec, client.produce(stage.forebay.tls_bootstrap, spec))
    now = stage.forebay.metrics()

    def told(name: str) -> float:
        return now.get(name, 0) - before.get(name, 0)

    assert told('forebay_records_total{fate="untouched"}') == COUNT
    assert told('forebay_records_total{fate="moved"}') == told('forebay_records_total{fate="kept"}') == 0
    log = stage.forebay.log.read_text()
    assert not any(password_of(user) in log for user in USERS)
    assert "Traceback" not in log


@pytest.mark.whole
def test_sessions_that_the_client_renews_stand(stage: Stage) -> None:
    """KIP-368: the broker closes the connection of a client that does not log in again in time."""
    late = True
    with closing(stage.logins.client("java-4.3.1", "alice", SCRAM_256, "SASL_SSL")) as client:
        for number in range(TRIES):
            topic, before = f"alice-renewed-{number}", len(stage.forebay.log.read_text())
            stage.cluster.create_topic(topic, 2)
            seconds = 2 * REAUTH_MS // 1000
            spec = ProduceSpec(topic, "renewed", count=50 * seconds, rate=50, idempotence=True)
            every_record_acknowledged(spec, client.produce(stage.forebay.tls_bootstrap, spec))
            late = "broker closed a client's connection" in stage.forebay.log.read_text()[before:]
            if not late:
                break
    assert not late


@whole
def test_a_client_that_knows_brokers_ports_only_outlives_a_restart(stage: Stage, tmp_path: Path) -> None:
    """Java 2.8 never comes back to its bootstrap servers, and Forebay knows no broker when it starts."""
    stage.cluster.create_topic("alice-restart", 2)
    tls = {"ssl.keystore.location": str(stage.keystore)}
    forebay = ForebayProcess(
        stage.cluster.bootstrap,
        stage.cluster.nodes,
        settings=stage.logins.forebay_settings(),
        tls=tls,
        protocols=("SASL_PLAINTEXT", "SASL_SSL"),
    )
    tls["node.ports"] = ",".join(f"{node}:{forebay.tls_port + 1 + node}" for node in stage.cluster.nodes)
    stop = tmp_path / "stop"
    spec = ProduceSpec("alice-restart", "restart", count=100_000, rate=100, idempotence=True)
    client = stage.logins.client("java-2.8.2", "alice", SCRAM_512, "SASL_SSL")
    assert isinstance(client, JavaClient)
    acknowledged: list[int] = []
    with forebay, closing(client):
        for line in client.produce_live(forebay.tls_bootstrap, spec, stop, 90):
            assert "error" not in line, line
            if "seq" in line:
                acknowledged.append(line["seq"])
                if len(acknowledged) == COUNT:
                    forebay.stop()
                    forebay.start()
                elif len(acknowledged) == 4 * COUNT:
                    stop.touch()
    assert sorted(acknowledged) == list(range(len(acknowledged)))
    assert len(stage.log.read("alice-restart", {0: 0, 1: 0})) == len(acknowledged) >= 4 * COUNT


RIGHT, WRONG = plain("alice", password_of("alice")), plain("alice", "wrong")
METADATA = framed(encode_metadata_request(3, "c", 4, None, allow_auto_topic_creation=False))
REFUSED = {
    "unknown mechanism, v0": [handshake(0, "NONSENSE"), METADATA],
    "unknown mechanism, v1": [handshake(1, "NONSENSE"), METADATA],
    "wrong password, v0": [handshake(0, PLAIN), framed(WRONG)],
    "wrong password, v1": [handshake(1, PLAIN), authenticate(WRONG), METADATA],
    "a token that is none, v0": [handshake(0, PLAIN), framed(b"")],
    "a token behind v1": [handshake(1, PLAIN), framed(RIGHT)],
    "no login": [METADATA],
    "not logged in yet": [handshake(1, PLAIN), METADATA],
}


@pytest.mark.parametrize("frames", REFUSED.values(), ids=REFUSED)
def test_what_a_broker_refuses_looks_as_it_does_directly(stage: Stage, frames: list[bytes]) -> None:
    protocol = stage.logins.protocol
    context = stage.logins.authority.client_context() if protocol == "SASL_SSL" else None
    heard = []
    for address in (stage.cluster.bootstrap.split(",")[0], stage.bootstrap(protocol)):
        with Wire(address, context) as wire:
            heard.append([wire.say(frame) for frame in frames])
    direct, through = heard
    assert through == direct
    assert nothing_told(direct[-1])


def nothing_told(answer: bytes | None) -> bool:
    """None, or to Metadata v4 an answer as brokers give it in the middle of a login: it names nothing."""
    if answer is None:
        return True
    told = parse_metadata_response(answer, 4)
    return not told.brokers and not tuple(told.topics)


def test_a_client_is_told_the_brokers_own_words(stage: Stage) -> None:
    for mechanism, user, password in ((SCRAM_512, "alice", "wrong"), (PLAIN, "nobody", "any")):
        errors = [error_of(stage, address, mechanism, user, password) for address in addresses_of(stage)]
        assert errors[0] == errors[1]
        assert "invalid credentials" in errors[0] or "Invalid username" in errors[0]


def addresses_of(stage: Stage) -> tuple[str, str]:
    return stage.cluster.bootstrap.split(",")[0], stage.bootstrap(stage.logins.protocol)


def error_of(stage: Stage, bootstrap: str, mechanism: str, user: str, password: str) -> str:
    """librdkafka's, without the address and what it measured."""
    told: list[str] = []
    props = stage.logins.librdkafka_props(user, mechanism, stage.logins.protocol, password)
    props |= {"bootstrap.servers": bootstrap, "error_cb": lambda error: told.append(error.str())}
    admin = AdminClient(props)

    def refused() -> bool:
        admin.poll(0.1)
        return any("SASL" in each for each in told)

    wait_until(refused, 60, "a login that is refused")
    text = next(each for each in told if "SASL" in each)
    return re.sub(r"^.*?: |\(after .*", "", text)


def test_whoever_logs_in_never_rides_on_forebays_own_login(stage: Stage) -> None:
    """A sidecar for its own host that lets others in, too: these are who they say they are, or nobody."""
    secured, protocol = stage.logins.secured, stage.logins.protocol
    secured.add_users(stage.cluster)
    stage.logins.allow(stage.cluster, USER, "forebay-")
    stage.cluster.create_topic("forebay-own", 2)
    stage.cluster.create_topic("alice-beside", 2)
    forebay = ForebayProcess(
        stage.cluster.bootstrap,
        stage.cluster.nodes,
        settings={**secured.forebay_settings(SCRAM_512), "security.protocol": protocol},
        tls={"ssl.keystore.location": str(stage.keystore)},
        protocols=("PLAINTEXT", "SASL_SSL"),
    )
    own = ProduceSpec("forebay-own", "own", count=COUNT)
    hers = ProduceSpec("alice-beside", "beside", count=COUNT)
    with (
        forebay,
        closing(ConfluentClient()) as local,
        closing(stage.logins.client("confluent", "alice", SCRAM_512, "SASL_SSL")) as alice,
    ):
        every_record_acknowledged(own, local.produce(forebay.bootstrap, own))
        every_record_acknowledged(hers, alice.produce(forebay.tls_bootstrap, hers))
        assert local.brokers(forebay.bootstrap, "forebay-own") == forebay.addresses
        assert alice.brokers(forebay.tls_bootstrap, "alice-beside") == forebay.tls_addresses
        assert DENIED.search(refusal(local, forebay.bootstrap, "alice-beside"))
        assert DENIED.search(refusal(alice, forebay.tls_bootstrap, "forebay-own"))
        for frames in (
            [METADATA],
            [handshake(1, PLAIN), METADATA],
            [handshake(1, PLAIN), authenticate(WRONG), METADATA],
        ):
            with Wire(forebay.tls_bootstrap, stage.logins.authority.client_context()) as wire:
                assert nothing_told([wire.say(frame) for frame in frames][-1])
        assert "broker refuses Forebay's login" not in forebay.log.read_text()
    assert len(stage.log.read("forebay-own", {0: 0, 1: 0}, at_least=COUNT)) == COUNT
