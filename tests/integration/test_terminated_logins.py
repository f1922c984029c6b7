"""Clients that log in at Forebay itself, which logs in at the brokers: real ones, and byte by byte beside a broker."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner

from forebay_codecs.error_codes import NONE, SASL_AUTHENTICATION_FAILED
from forebay_codecs.sasl import parse_authenticate, plain
from forebay_codecs.scram import ScramClient, salt_password
from forebay_proxy.commands import cli
from tests.integration.checks import each_exactly_once, every_record_acknowledged
from tests.integration.test_identities import AUTHORIZED
from tests.kit.clients import SPREADING
from tests.kit.forebay import ForebayProcess
from tests.kit.kafka import KafkaCluster
from tests.kit.login_wire import Wire, authenticate, handshake
from tests.kit.logins import USERS, Logins, password_of
from tests.kit.ports import LOOPBACK
from tests.kit.sasl import MODULES, give_scram_password, login_line, quoted
from tests.kit.spec import ProduceSpec
from tests.kit.topic_log import TopicLog
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.integration
whole = pytest.mark.whole

REAUTH_MS = 6_000
"""Of a login by PLAIN, at the brokers and at Forebay's listener without TLS. Whoever renews after 85 to 95 % of it has
at least 0.3 s for that, which is little on a busy machine."""
COUNT = 200
SIZE = 500
"""Bytes: those without a key are more than one turn of Forebay's partitioner."""
PLAIN = "PLAIN"
SERVICE = "forebay"
WRONG = "another=one"
AUDIT = {"kafka.authorizer.logger": "debug"}
CLIENTS = (
    "java-0.10.2.2",  # SaslHandshake v0
    "java-4.3.1",
    pytest.param("confluent", marks=whole),
    pytest.param("kafka-python", marks=whole),
    pytest.param("aiokafka", marks=whole),
    pytest.param("java-2.8.2", marks=whole),
    pytest.param("franz-go", marks=whole),
    pytest.param("sarama", marks=whole),
)


@dataclass
class Stage:
    """A cluster with users, and Forebay before it with a user of its own, where the same users log in."""

    logins: Logins
    cluster: KafkaCluster
    log: TopicLog
    forebay: ForebayProcess


def secret(folder: Path, name: str, text: str) -> str:
    """A reference to a file of that content."""
    path = folder / name
    path.touch(mode=0o600)
    path.write_text(text)
    return f"${{dir:{folder}:{name}}}"


def at_forebay(folder: Path, *users: str) -> dict[str, str]:
    """What a listener is told at which they may log in by PLAIN."""
    options = " ".join(f"user_{user}={quoted(password_of(user))}" for user in users)
    return {
        "client.authentication": "terminate",
        "sasl.enabled.mechanisms": PLAIN,
        "plain.sasl.jaas.config": secret(folder, "-".join(users), f"{MODULES[PLAIN]} required {options};"),
    }


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("terminated")
    logins = Logins(folder, "SASL_PLAINTEXT")
    more = {
        "listener.name.client.plain.connections.max.reauth.ms": str(REAUTH_MS),
        "super.users": f"User:ANONYMOUS;User:{SERVICE}",
    }
    told = {**at_forebay(folder, *USERS), "upstream.identity": "service"}
    settings = {
        **logins.forebay_settings(),
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": secret(folder, "service", login_line("SCRAM-SHA-512", "its=own", SERVICE)),
        "upstream.identity.shared": "true",
        "journal.dir": str(folder),
        "journal.ledger": "true",
        **{f"listener.name.sasl_plaintext.{name}": value for name, value in told.items()},
        "listener.name.sasl_plaintext.connections.max.reauth.ms": str(REAUTH_MS),
    }
    with (
        KafkaCluster("4.3.1", brokers=2, settings=logins.broker_settings() | more, loggers=AUDIT) as cluster,
        TopicLog(cluster.internal) as log,
    ):
        logins.add_users(cluster)
        give_scram_password(cluster, SERVICE, "its=own")
        keystore = logins.authority.issue("forebay", LOOPBACK, "localhost")
        with ForebayProcess(
            cluster.bootstrap,
            cluster.nodes,
            settings=settings,
            tls={"ssl.keystore.location": str(keystore), **told},
            protocols=("SASL_PLAINTEXT", "SASL_SSL"),
        ) as forebay:
            yield Stage(logins, cluster, log, forebay)


def spec_of(topic: str, name: str, client: str) -> ProduceSpec:
    return ProduceSpec(topic, name, count=COUNT, size=SIZE, keys="mixed", props=SPREADING.get(client, {}))


@pytest.mark.parametrize("name", CLIENTS)
def test_records_of_a_client_that_logs_in_here_are_merged_and_sent(stage: Stage, name: str) -> None:
    """Two users at the same time, on one topic."""
    topic = f"terminated-{name}"
    stage.cluster.create_topic(topic, 4)
    before = stage.forebay.metrics()
    specs = {user: spec_of(topic, f"{user}-{name}", name) for user in USERS}
    with ExitStack() as stack, ThreadPoolExecutor(len(USERS)) as pool:
        make = partial(stage.logins.client, name, mechanism=PLAIN, protocol="SASL_SSL")
        clients = {user: stack.enter_context(closing(make(user=user))) for user in USERS}
        work = {user: pool.submit(clients[user].produce, stage.forebay.tls_bootstrap, specs[user]) for user in USERS}
        for user, spec in specs.items():
            every_record_acknowledged(spec, work[user].result())
    found = stage.log.read(topic, dict.fromkeys(range(4), 0), at_least=2 * COUNT)
    for spec in specs.values():
        each_exactly_once(spec, [each for each in found if (each.value or b"").startswith(f"{spec.name}-".encode())])
    now = stage.forebay.metrics()
    fates = {fate: f'forebay_records_total{{fate="{fate}"}}' for fate in ("kept", "moved", "untouched")}
    told = {fate: now[sample] - before[sample] for fate, sample in fates.items()}
    assert told["kept"] + told["moved"] == 2 * COUNT
    assert told["moved"] > 0
    assert told["untouched"] == 0
    shown = {who for row in stage.forebay.clients("--url", stage.forebay.admin_url) for who in row["principals"]}
    assert shown == {f"User:{user}" for user in USERS}


@contextmanager
def without_a_login(stage: Stage, told: Mapping[str, str]) -> Iterator[ForebayProcess]:
    """Forebay with none of its own, whose two listeners are told the same."""
    keystore = stage.logins.authority.issue("another", LOOPBACK, "localhost")
    plaintext = {f"listener.name.sasl_plaintext.{name}": value for name, value in told.items()}
    with ForebayProcess(
        stage.cluster.bootstrap,
        stage.cluster.nodes,
        settings={**stage.logins.forebay_settings(), **plaintext},
        tls={"ssl.keystore.location": str(keystore), **told},
        protocols=("SASL_PLAINTEXT", "SASL_SSL"),
    ) as forebay:
        yield forebay


MAPPED = {"alice": "alice", "amy": "alice", "bob": "bob"}
"""User at Forebay → at the brokers."""


@pytest.fixture(scope="module")
def mapped(stage: Stage, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForebayProcess]:
    """Forebay without a login of its own; its users have theirs, one by SCRAM and one by PLAIN, which brokers renew."""
    folder = tmp_path_factory.mktemp("mapped")
    text = ""
    for user, mechanism in (("alice", "SCRAM-SHA-512"), ("bob", PLAIN)):
        line = secret(folder, f"at-brokers-{user}", login_line(mechanism, password_of(user), user))
        text += f'[identities.{user}]\n"sasl.mechanism" = "{mechanism}"\n"sasl.jaas.config" = "{line}"\n'
    text += "[principals]\n" + "\n".join(f'"User:{user}" = "{target}"' for user, target in MAPPED.items())
    secret(folder, "identities.toml", text)
    told = {
        **at_forebay(folder, *MAPPED, "eve"),
        "upstream.identity": "mapped",
        "upstream.identities.location": str(folder / "identities.toml"),
    }
    with without_a_login(stage, told) as forebay:
        yield forebay


@pytest.mark.parametrize("name", CLIENTS)
def test_users_are_merged_by_what_they_are_at_the_brokers(stage: Stage, mapped: ForebayProcess, name: str) -> None:
    """Three users at once, two of whom are one there; the authorizer knows who is who."""
    topics = {user: f"{target}-mapped-{name}" for user, target in MAPPED.items()}
    for topic in set(topics.values()):
        stage.cluster.create_topic(topic, 4)
    fates = [f'forebay_records_total{{fate="{fate}"}}' for fate in ("kept", "moved", "untouched")]
    before = mapped.metrics()
    specs = {user: spec_of(topic, f"{user}-{name}", name) for user, topic in topics.items()}
    with ExitStack() as stack, ThreadPoolExecutor(len(MAPPED)) as pool:
        make = partial(stage.logins.client, name, mechanism=PLAIN, protocol="SASL_SSL")
        clients = {user: stack.enter_context(closing(make(user=user))) for user in MAPPED}
        work = {user: pool.submit(clients[user].produce, mapped.tls_bootstrap, specs[user]) for user in MAPPED}
        for user, spec in specs.items():
            every_record_acknowledged(spec, work[user].result())
    for topic in set(topics.values()):
        own = [spec for spec in specs.values() if spec.topic == topic]
        found = stage.log.read(topic, dict.fromkeys(range(4), 0), at_least=COUNT * len(own))
        for spec in own:
            of_it = [each for each in found if (each.value or b"").startswith(f"{spec.name}-".encode())]
            each_exactly_once(spec, of_it)
        writes = [each for each in authorized(stage, topic) if each["request"] == "Produce"]  # others may ask of it
        seen = {(each["who"], each["what"]) for each in writes}
        assert seen == {(f"User:{topic.partition('-')[0]}", "Allowed")}
    now = mapped.metrics()
    kept, moved, untouched = (now[fate] - before[fate] for fate in fates)
    assert (kept + moved, untouched) == (3 * COUNT, 0)
    assert moved > 0
    assert now["forebay_identities"] == len(set(MAPPED.values()))
    shown = {who for row in mapped.clients("--url", mapped.admin_url) for who in row["principals"]}
    assert shown == {f"User:{user}" for user in MAPPED}


SCRAM = (
    ("java-4.3.1", "SCRAM-SHA-512"),
    ("confluent", "SCRAM-SHA-256"),
    pytest.param("kafka-python", "SCRAM-SHA-512", marks=whole),
    pytest.param("aiokafka", "SCRAM-SHA-256", marks=whole),
    pytest.param("confluent", "SCRAM-SHA-512", marks=whole),
    pytest.param("franz-go", "SCRAM-SHA-256", marks=whole),
)


@pytest.fixture(scope="module")
def by_key(stage: Stage, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForebayProcess]:
    """Forebay without any password: by SCRAM its users are who they are at the brokers, too."""
    folder = tmp_path_factory.mktemp("scram")
    credentials = folder / "credentials.json"
    where = ("--bootstrap-servers", stage.cluster.internal, "--credentials", str(credentials))
    for user in USERS:
        added = CliRunner().invoke(cli.main, ("users", "add", user, *where), input=f"{password_of(user)}\n")
        assert added.exit_code == 0, added.output
    told = {
        "client.authentication": "terminate",
        "upstream.identity": "client",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
        "scram.credentials.location": str(credentials),
    }
    with without_a_login(stage, told) as forebay:
        yield forebay


@pytest.mark.parametrize(("name", "mechanism"), SCRAM)
def test_by_scram_users_are_themselves_at_the_brokers_though_forebay_knows_no_password(
    stage: Stage, by_key: ForebayProcess, name: str, mechanism: str
) -> None:
    specs = {}
    for user in USERS:
        topic = f"{user}-{name}-{mechanism}".lower()
        stage.cluster.create_topic(topic, 4)
        specs[user] = spec_of(topic, topic, name)
    fates = [f'forebay_records_total{{fate="{fate}"}}' for fate in ("kept", "moved", "untouched")]
    before = by_key.metrics()
    with ExitStack() as stack, ThreadPoolExecutor(len(USERS)) as pool:
        make = partial(stage.logins.client, name, mechanism=mechanism, protocol="SASL_SSL")
        clients = {user: stack.enter_context(closing(make(user=user))) for user in USERS}
        work = {user: pool.submit(clients[user].produce, by_key.tls_bootstrap, spec) for user, spec in specs.items()}
        for user, spec in specs.items():
            every_record_acknowledged(spec, work[user].result())
    for user, spec in specs.items():
        each_exactly_once(spec, stage.log.read(spec.topic, dict.fromkeys(range(4), 0), at_least=COUNT))
        seen = {(each["who"], each["what"]) for each in authorized(stage, spec.topic)}
        assert seen == {(f"User:{user}", "Allowed")}
    kept, moved, untouched = (by_key.metrics()[fate] - before[fate] for fate in fates)
    assert (kept + moved, untouched) == (len(USERS) * COUNT, 0)
    assert moved > 0


def test_a_login_that_the_brokers_do_not_take_any_more_is_refused_here_too(
    stage: Stage, by_key: ForebayProcess
) -> None:
    """Their password is another one, and the file has not been told."""
    try:
        give_scram_password(stage.cluster, "bob", "another")
        wait_until(lambda: says_no(stage, by_key, "bob", password_of("bob")), 30, "Forebay refuses bob")
    finally:
        give_scram_password(stage.cluster, "bob", password_of("bob"))
    assert "forebay users add" in by_key.log.read_text()


def says_no(stage: Stage, forebay: ForebayProcess, user: str, password: str) -> bool:
    """Whether who logs in by SCRAM is told that the password is wrong."""
    with Wire(forebay.tls_bootstrap, stage.logins.authority.client_context()) as wire:
        client = ScramClient("SCRAM-SHA-512", user, "nonce")
        assert wire.say(handshake(1, "SCRAM-SHA-512")) is not None
        first = wire.say(authenticate(client.first()))
        assert first is not None
        challenge = client.challenge(parse_authenticate(first, 1).auth_bytes)
        final = client.final(salt_password("SCRAM-SHA-512", password, challenge))
        last = wire.say(authenticate(final))
    return last is not None and parse_authenticate(last, 1).error_code == SASL_AUTHENTICATION_FAILED


def authorized(stage: Stage, topic: str) -> list[dict[str, str]]:
    """What the brokers' authorizers have said of the topic; the test itself is anonymous."""
    lines = [line for node in stage.cluster.nodes for line in stage.cluster.log(node).read_text().splitlines()]
    found = [match.groupdict() for line in lines if (match := AUTHORIZED.search(line))]
    return [each for each in found if each["topic"] == topic and each["who"] != "User:ANONYMOUS"]


def test_who_has_no_identity_at_the_brokers_does_not_get_in_and_the_neighbours_topic_is_refused(
    stage: Stage, mapped: ForebayProcess
) -> None:
    topic = "bob-refused"
    stage.cluster.create_topic(topic, 2)
    for user, told in (("eve", "authentication"), ("amy", "topic.?authorization")):
        with closing(stage.logins.client("java-4.3.1", user, PLAIN, "SASL_SSL")) as client:
            try:
                said = str(client.produce(mapped.tls_bootstrap, ProduceSpec(topic, "stolen", count=1)).failures)
            except Exception as error:  # each client has its own
                said = repr(error)
        assert re.search(told, said, re.IGNORECASE), said
    assert not stage.log.read(topic, {0: 0, 1: 0})
    assert "User:eve has no identity at the brokers" in mapped.log.read_text()


def logs_in(stage: Stage, forebay: ForebayProcess, password: str) -> bool:
    """Whether alice is taken by PLAIN."""
    with Wire(forebay.tls_bootstrap, stage.logins.authority.client_context()) as wire:
        assert wire.say(handshake(1, PLAIN)) is not None
        answer = wire.say(authenticate(plain("alice", password)))
    return answer is not None and parse_authenticate(answer, 1).error_code == NONE


def test_nothing_secret_is_told(stage: Stage, mapped: ForebayProcess, by_key: ForebayProcess) -> None:
    for forebay in (stage.forebay, mapped):
        assert logs_in(stage, forebay, password_of("alice"))
        assert not logs_in(stage, forebay, WRONG)
    assert not says_no(stage, by_key, "alice", password_of("alice"))
    assert says_no(stage, by_key, "alice", WRONG)
    for forebay in (stage.forebay, mapped, by_key):
        log = forebay.log.read_text()
        assert "a client whose login was refused" in log
        assert not any(password in log for password in (*map(password_of, (*MAPPED, "eve")), WRONG))
        assert "Traceback" not in log
