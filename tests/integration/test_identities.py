"""Clients that log in by PLAIN or tokens before a Kafka with users and rules: merged, each user's among themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from time import monotonic
from typing import NamedTuple

import pytest

from forebay_codecs import produce_response
from forebay_codecs.api_keys import METADATA
from forebay_codecs.metadata import Metadata, parse_metadata_response
from forebay_codecs.metadata_request import encode_metadata_request
from forebay_codecs.sasl import plain
from tests.integration.checks import each_exactly_once, every_record_acknowledged
from tests.kit.clients import SPREADING, Client
from tests.kit.forebay import ForebayProcess
from tests.kit.kafka import KafkaCluster
from tests.kit.login_wire import Wire, authenticate, handshake
from tests.kit.logins import USERS, Logins, password_of
from tests.kit.metadata import ask_metadata
from tests.kit.ports import LOOPBACK
from tests.kit.quotas import user_quota
from tests.kit.spec import ConsumedRecord, ProduceResult, ProduceSpec
from tests.kit.topic_log import TopicLog
from tests.kit.wire import batch, framed, null_key, produce, request

pytestmark = pytest.mark.integration

PLAIN, SCRAM, BEARER = "PLAIN", "SCRAM-SHA-512", "OAUTHBEARER"
COUNT = 500
REAUTH_MS = 6_000
"""Whoever renews after 85 to 95 % of it has at least 0.3 s for that, which is little on a busy machine."""
LATE = ("must log in again", "does not renew", "broker closed a client's connection")
"""What the log says where a session was not renewed in time."""
TRIES = 3
"""Where one was not, it is done once more: the machine may have stood still just then."""
CLIENTS = {
    PLAIN: ("confluent", "confluent", "java-4.3.1", "kafka-python"),
    BEARER: ("confluent",) * 4,
}
"""Of each user, at the same time."""
AUTHORIZED = re.compile(
    r"Principal = (?P<who>\S+) is (?P<what>Allowed|Denied) operation = (?P<operation>\w+) .*"
    r"on resource = Topic:LITERAL:(?P<topic>\S+) for request = (?P<request>\w+)"
)


class Stage(NamedTuple):
    logins: Logins
    cluster: KafkaCluster
    log: TopicLog
    forebay: ForebayProcess

    def client(self, user: str, name: str = "confluent", mechanism: str = PLAIN) -> Client:
        return self.logins.client(name, user, mechanism, "SASL_SSL")

    def topic(self, name: str) -> None:
        """Once."""
        known = ask_metadata(self.cluster.internal_ports[0], name)
        if known is None or known.topics[0].error_code:
            self.cluster.create_topic(name, 2)

    def authorized(self, prefix: str) -> list[dict[str, str]]:
        """What the brokers' authorizers have said of topics whose names begin so; the test itself is anonymous."""
        lines = [line for node in self.cluster.nodes for line in self.cluster.log(node).read_text().splitlines()]
        found = [match.groupdict() for line in lines if (match := AUTHORIZED.search(line))]
        return [each for each in found if each["topic"].startswith(prefix) and each["who"] != "User:ANONYMOUS"]

    def counts(self, *names: str) -> list[float]:
        now = self.forebay.metrics()
        return [now.get(name, 0) for name in names]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    logins = Logins(tmp_path_factory.mktemp("logins"), "SASL_SSL")
    audit = {"kafka.authorizer.logger": "debug"}
    with (
        KafkaCluster("4.3.1", brokers=2, settings=logins.broker_settings(), loggers=audit) as cluster,
        TopicLog(cluster.internal) as log,
    ):
        logins.add_users(cluster)
        keystore = logins.authority.issue("forebay", LOOPBACK, "localhost")
        with ForebayProcess(
            cluster.bootstrap,
            cluster.nodes,
            settings=logins.forebay_settings(),
            tls={"ssl.keystore.location": str(keystore), "upstream.identity": "client"},
            protocols=("SASL_PLAINTEXT", "SASL_SSL"),
        ) as forebay:
            yield Stage(logins, cluster, log, forebay)


def is_of(spec: ProduceSpec, record: ConsumedRecord) -> bool:
    return record.value is not None and record.value.startswith(f"{spec.name}-".encode())


@pytest.mark.parametrize(
    ("mechanism", "count"),
    [
        (PLAIN, COUNT),
        pytest.param(BEARER, COUNT, marks=pytest.mark.whole),
        # A million records, every one of which is looked at, and every request of which the authorizer has told.
        pytest.param(PLAIN, 125_000, marks=[pytest.mark.whole, pytest.mark.timeout(1800)]),
    ],
)
def test_two_users_at_once_are_merged_each_among_themselves_and_the_authorizer_knows_who_is_who(
    stage: Stage, mechanism: str, count: int
) -> None:
    names = CLIENTS[mechanism]
    bootstrap = stage.forebay.tls_bootstrap
    counted = (
        'forebay_records_total{fate="kept"}',
        'forebay_records_total{fate="moved"}',
        'forebay_records_total{fate="untouched"}',
    )
    before = stage.counts(*counted)
    specs: dict[tuple[str, int], ProduceSpec] = {}
    for user in USERS:
        topic = f"{user}-merged-{mechanism.lower()}-{count}"
        stage.cluster.create_topic(topic, 4)
        for number, name in enumerate(names):
            own = f"{topic}-{number}"
            specs[user, number] = ProduceSpec(topic, own, count=count, keys="null", props=SPREADING.get(name, {}))

    def works(client: Client, spec: ProduceSpec) -> ProduceResult:
        return client.produce(bootstrap, spec)

    with ExitStack() as stack, ThreadPoolExecutor(len(specs)) as pool:
        at_work = {}
        for (user, number), spec in specs.items():
            client = stack.enter_context(closing(stage.client(user, names[number], mechanism)))
            at_work[user, number] = pool.submit(works, client, spec)
        for key, spec in specs.items():
            every_record_acknowledged(spec, at_work[key].result())
    for user in USERS:
        topic = f"{user}-merged-{mechanism.lower()}-{count}"
        found = stage.log.read(topic, dict.fromkeys(range(4), 0), at_least=count * len(names))
        assert len(found) == count * len(names)
        for (whose, _), spec in specs.items():
            if whose == user:
                each_exactly_once(spec, [record for record in found if is_of(spec, record)])
    kept, moved, untouched = (now - was for now, was in zip(stage.counts(*counted), before, strict=True))
    assert kept + moved == count * len(specs)
    assert moved > 0
    assert untouched == 0
    assert stage.forebay.metrics()["forebay_identities"] >= 2
    shown = {
        principal for row in stage.forebay.clients("--url", stage.forebay.admin_url) for principal in row["principals"]
    }
    assert shown == {f"User:{user}" for user in USERS}
    assert "User:" not in stage.forebay.get("/metrics"), "names of users are no labels"
    for user in USERS:
        writes = [
            each
            for each in stage.authorized(f"{user}-merged-{mechanism.lower()}-{count}")
            if each["request"] == "Produce"
        ]
        assert writes, "the authorizer tells of what it allows, too"
        assert {(each["who"], each["what"]) for each in writes} == {(f"User:{user}", "Allowed")}
        assert len(writes) < count * len(names), "requests, of many records each"


def test_clients_of_old_gain_it_too(stage: Stage) -> None:
    """SaslHandshake v0, raw tokens, Produce v2."""
    topic = "alice-old"
    stage.cluster.create_topic(topic, 4)
    fates = [f'forebay_records_total{{fate="{fate}"}}' for fate in ("kept", "moved", "untouched")]
    before = stage.counts(*fates)
    spec = ProduceSpec(topic, topic, count=COUNT)
    with closing(stage.client("alice", "java-0.10.2.2")) as client:
        every_record_acknowledged(spec, client.produce(stage.forebay.tls_bootstrap, spec))
    kept, moved, untouched = (now - was for now, was in zip(stage.counts(*fates), before, strict=True))
    assert (kept + moved, untouched) == (COUNT, 0)
    each_exactly_once(spec, stage.log.read(topic, dict.fromkeys(range(4), 0), at_least=COUNT))
    assert {each["who"] for each in stage.authorized(topic)} == {"User:alice"}


def codes(client: Client, bootstrap: str, topic: str) -> str:
    """What the client says of a topic that it may not write."""
    try:
        return str(client.produce(bootstrap, ProduceSpec(topic, "stolen", count=1)).failures)
    except Exception as error:  # each client has its own
        return repr(error)


@pytest.mark.parametrize("name", ["confluent", "java-4.3.1", "kafka-python"])
def test_the_neighbours_topic_is_refused_as_by_the_broker(stage: Stage, name: str) -> None:
    """29, TOPIC_AUTHORIZATION_FAILED, from the broker's own mouth; while the neighbour writes it."""
    topic = f"alice-hers-{name.replace('.', '-')}"
    stage.cluster.create_topic(topic, 2)
    with closing(stage.client("alice")) as alice, closing(stage.client("bob", name)) as bob:
        spec = ProduceSpec(topic, topic, count=10)
        every_record_acknowledged(spec, alice.produce(stage.forebay.tls_bootstrap, spec))
        refused = codes(bob, stage.forebay.tls_bootstrap, topic)
        assert re.search("topic.?authorization", refused, re.IGNORECASE), refused
        direct = codes(bob, stage.cluster.bootstrap, topic)
        assert re.search("topic.?authorization", direct, re.IGNORECASE)
    assert len(stage.log.read(topic, {0: 0, 1: 0}, at_least=10)) == 10
    assert {each["who"] for each in stage.authorized(topic) if each["what"] == "Allowed"} == {"User:alice"}
    assert {each["who"] for each in stage.authorized(topic) if each["what"] == "Denied"} <= {"User:bob"}


def produce_frame(topic: str) -> bytes:
    return produce(9, (topic, 0, batch(null_key("stolen"))), version=8)


def test_a_produce_request_without_a_look_at_metadata_is_refused_too(stage: Stage) -> None:
    """Byte by byte: bob knows the topic's name, and alice's metadata is in a cache here."""
    topic = "alice-known"
    stage.cluster.create_topic(topic, 1)
    with closing(stage.client("alice")) as alice:
        every_record_acknowledged(
            spec := ProduceSpec(topic, topic, 5), alice.produce(stage.forebay.tls_bootstrap, spec)
        )
    told = []
    for address in (stage.cluster.bootstrap.split(",")[0], f"{LOOPBACK}:{stage.forebay.tls_port + 1}"):
        with logged_in(stage, "bob", address) as wire:
            answer = wire.say(produce_frame(topic))
            assert answer is not None
            told.append(produce_response.parse(answer, 8).topics[0][1][0].error_code)
    assert told == [29, 29]
    assert len(stage.log.read(topic, {0: 0}, at_least=5)) == 5


@contextmanager
def logged_in(stage: Stage, user: str, address: str) -> Iterator[Wire]:
    with Wire(address, stage.logins.authority.client_context()) as wire:
        assert wire.say(handshake(1, PLAIN)) is not None
        answer = wire.say(authenticate(plain(user, password_of(user))))
        assert answer is not None
        assert answer[4:6] == b"\0\0"
        yield wire


FORMS = {
    "all topics, v0": (0, [], [], False),
    "all topics, v4": (4, None, [], False),
    "all topics, v12": (12, None, [], False),
    "by name, v1": (1, ["alice-secret"], [], False),
    "by name, v4, as if to create it": (4, ["alice-secret"], [], True),
    "by name, v9": (9, ["alice-secret", "bob-own"], [], False),
    "by name, v12": (12, ["alice-secret", "alice-absent", "bob-own"], [], False),
    "by id, v12": (12, [], ["alice-secret"], False),
    "by both ids, v12": (12, [], ["alice-secret", "bob-own"], False),
    "brokers only, v4": (4, [], [], False),
}


def asks(version: int, names: list[str] | None, ids: list[bytes], *, creates: bool) -> bytes:
    if version < 4:
        body = b"".join(len(name).to_bytes(2, "big") + name.encode() for name in names or ())
        return request(METADATA, version, 7, len(names or ()).to_bytes(4, "big") + body)
    frame = encode_metadata_request(7, "spy", version, names, ids, allow_auto_topic_creation=creates)
    return framed(frame)


def without_places(told: Metadata) -> Metadata:
    """Where brokers are, and which of them answers first, is another matter."""
    brokers = {node: broker._replace(host="", port=0) for node, broker in told.brokers.items()}
    topics = sorted(told.topics, key=lambda topic: (topic.name or "", topic.topic_id))
    return told._replace(brokers=brokers, topics=tuple(topics), throttle_time_ms=0, controller_id=0)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_metadata_right_after_the_neighbour_tells_what_the_broker_would(
    stage: Stage, form: tuple[int, list[str] | None, list[str], bool]
) -> None:
    version, names, of_ids, creates = form
    for topic in ("alice-secret", "bob-own"):
        stage.topic(topic)
    forebay = stage.forebay.tls_bootstrap
    with logged_in(stage, "alice", forebay) as alice:
        answer = alice.say(asks(12, ["alice-secret", "bob-own"], [], creates=False))
        assert answer is not None
        known = {topic.name: topic for topic in parse_metadata_response(answer, 12).topics}
        assert known["alice-secret"].error_code == 0
        assert known["bob-own"].error_code == 29, "nor does she see his"
        ids = {"alice-secret": known["alice-secret"].topic_id}
        with logged_in(stage, "bob", forebay) as bob:
            answer = bob.say(asks(12, ["bob-own"], [], creates=False))
            assert answer is not None
            ids["bob-own"] = parse_metadata_response(answer, 12).topics[0].topic_id
            told = []
            for ask in (alice, bob):  # she has all of it in her cache right before he asks
                ask.say(asks(4, None, [], creates=False))
            question = asks(version, names, [ids[name] for name in of_ids], creates=creates)
            said = bob.say(question)
            assert said is not None
            assert b"alice-secret" not in said or "alice-secret" in (names or [])
            told.append(said)
        with logged_in(stage, "bob", stage.cluster.bootstrap.split(",")[0]) as direct:
            said = direct.say(question)
            assert said is not None
            told.append(said)
    if version == 0:
        assert all(b"alice" not in said and b"bob-own" in said for said in told)
        return
    through, directly = (without_places(parse_metadata_response(said, version)) for said in told)
    assert through == directly


def test_clients_of_other_mechanisms_stay_untouched(stage: Stage) -> None:
    topic = "alice-untouched"
    stage.cluster.create_topic(topic, 2)
    counted = ('forebay_records_total{fate="untouched"}', 'forebay_batches_in_total{reason="own_login"}')
    before = stage.counts(*counted)
    spec = ProduceSpec(topic, topic, count=COUNT)
    with closing(stage.client("alice", mechanism=SCRAM)) as client:
        every_record_acknowledged(spec, client.produce(stage.forebay.tls_bootstrap, spec))
    untouched, own_login = (now - was for now, was in zip(stage.counts(*counted), before, strict=True))
    assert untouched == COUNT
    assert own_login > 0
    each_exactly_once(spec, stage.log.read(topic, {0: 0, 1: 0}, at_least=COUNT))


def test_a_wrong_password_joins_nobody_and_nothing_secret_is_told(stage: Stage) -> None:
    with closing(stage.client("alice")) as alice:
        stage.cluster.create_topic("alice-guarded", 1)
        spec = ProduceSpec("alice-guarded", "guarded", count=10)
        every_record_acknowledged(spec, alice.produce(stage.forebay.tls_bootstrap, spec))
        (before,) = stage.counts("forebay_identities")
        for token in (plain("alice", "wrong"), plain("nobody", password_of("alice")), b"\0alice\0", b"garbage"):
            with Wire(stage.forebay.tls_bootstrap, stage.logins.authority.client_context()) as wire:
                assert wire.say(handshake(1, PLAIN)) is not None
                wire.say(authenticate(token))
                answer = wire.say(asks(4, ["alice-guarded"], [], creates=False))
                assert answer is None
        assert stage.counts("forebay_identities") <= [before]
    log = stage.forebay.log.read_text()
    assert not any(password_of(user) in log for user in USERS)
    assert "Traceback" not in log


QUOTA = 1_000_000
"""Bytes a second of a user, to each broker. The last requests are throttled, too, but nobody waits for that: up to
three seconds of the time, since Forebay's requests are larger."""
QUOTA_SECONDS = 90


@pytest.mark.whole
@pytest.mark.timeout(600)
def test_a_users_quota_is_what_it_is_directly(stage: Stage) -> None:
    """Within 5 %: by how long it takes to write what the quota lets through in that time."""
    took = {}
    size = 1_000
    for way, bootstrap in (("directly", stage.cluster.bootstrap), ("through", stage.forebay.tls_bootstrap)):
        topic = f"alice-quota-{way}"
        stage.cluster.create_topic(topic, assignment=[[0]])
        with (
            user_quota(stage.cluster.internal_ports[0], QUOTA, "alice"),
            closing(stage.client("alice", "java-4.3.1")) as client,
        ):
            spec = ProduceSpec(topic, topic, count=QUOTA * QUOTA_SECONDS // size, keys="keyed", size=size)
            begun = monotonic()
            every_record_acknowledged(spec, client.produce(bootstrap, spec))
            took[way] = monotonic() - begun
    print(took)  # pytest -rP shows it
    assert took["directly"] > QUOTA_SECONDS / 2, "the quota is felt"
    assert took["through"] == pytest.approx(took["directly"], rel=0.05)


@pytest.mark.whole
def test_sessions_are_renewed_on_both_sides_and_nothing_is_lost_with_them(tmp_path: Path) -> None:
    """KIP-368: the client logs in again on its connection, and Forebay on those that it has made as the client."""
    logins = Logins(tmp_path, "SASL_PLAINTEXT")
    reauth = {"listener.name.client.plain.connections.max.reauth.ms": str(REAUTH_MS)}
    with (
        KafkaCluster("4.3.1", brokers=1, settings=logins.broker_settings() | reauth) as cluster,
        TopicLog(cluster.internal) as log,
    ):
        logins.add_users(cluster)
        keystore = logins.authority.issue("forebay", LOOPBACK, "localhost")
        tls = {"ssl.keystore.location": str(keystore), "upstream.identity": "client"}
        forebay = ForebayProcess(
            cluster.bootstrap,
            cluster.nodes,
            settings=logins.forebay_settings(),
            tls=tls,
            protocols=("SASL_PLAINTEXT", "SASL_SSL"),
        )
        seconds = 2 * REAUTH_MS // 1000
        with forebay, closing(logins.client("java-4.3.1", "alice", PLAIN, "SASL_SSL")) as client:
            for number in range(TRIES):
                topic, before = f"alice-renewed-{number}", len(forebay.log.read_text())
                cluster.create_topic(topic, 2)
                spec = ProduceSpec(topic, "renewed", count=50 * seconds, rate=50)
                every_record_acknowledged(spec, client.produce(forebay.tls_bootstrap, spec))
                said = forebay.log.read_text()
                assert "Traceback" not in said
                assert forebay.metrics()['forebay_records_total{fate="untouched"}'] == 0
                if not (late := [event for event in LATE if event in said[before:]]):
                    break
            # First: a client that was late with its login, whom a broker would have closed too, sends records twice.
            assert late == []
            each_exactly_once(spec, log.read(topic, {0: 0, 1: 0}, at_least=spec.count))
