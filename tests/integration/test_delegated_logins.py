"""Clients that log in at Forebay, and whom a delegation token makes themselves at the brokers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from kio.schema.create_acls.v3.request import AclCreation
from kio.static.primitive import i8

from forebay_codecs.error_codes import NONE
from forebay_codecs.sasl import parse_authenticate, plain
from tests.codecs.kio_oracle import decode_response, encode_request, message
from tests.integration.checks import each_exactly_once, every_record_acknowledged
from tests.integration.test_certificate_logins import Stage as WithCertificates
from tests.integration.test_terminated_logins import AUDIT, COUNT, PLAIN, SIZE, at_forebay, secret, spec_of
from tests.kit.forebay import ForebayProcess
from tests.kit.kafka import KafkaCluster
from tests.kit.login_wire import Wire, authenticate, handshake
from tests.kit.logins import USERS, Logins, password_of
from tests.kit.ports import LOOPBACK
from tests.kit.sasl import give_scram_password, login_line
from tests.kit.spec import ProduceResult, ProduceSpec
from tests.kit.topic_log import TopicLog
from tests.kit.waiting import wait_until
from tests.kit.wire import framed

pytestmark = [pytest.mark.integration, pytest.mark.whole]  # test_delegation_tokens.py has the tokens

SERVICE, SERVICE_PASSWORD, MECHANISM = "forebay", "its=own", "SCRAM-SHA-256"
BRIEF, UNKNOWN = "dave", "carol"
"""One more of whom Forebay may have tokens, and one of whom it may not."""
WATCHER = "bob"
"""Who may see everybody's tokens."""
TOKEN_MS = 6_000
"""Who renews its login by one after 85 to 95 % of it has at least 0.3 s for that, which is little on a busy machine."""
TRIES = 3
"""Where one was late it is done once more: the machine may have stood still just then."""
OUTCOME_UNKNOWN = "TimeoutException"
"""What a client is told of records that were under way when a broker ended the connection."""
RATE = 100
USER_RESOURCE, LITERAL, CREATE_TOKENS, ALLOW = 7, 3, 13, 3


def ask(wire: Wire, entity: object, answer: type) -> object:
    """One request in kio's words."""
    frame = wire.say(framed(encode_request(entity, correlation_id=7)))
    assert frame is not None
    return decode_response(answer, frame, correlation_id=7)


def may_ask_for(cluster: KafkaCluster, *users: str) -> None:
    """Forebay may have tokens of theirs (KIP-373)."""
    rules = tuple(
        AclCreation(
            resource_type=i8(USER_RESOURCE),
            resource_name=f"User:{user}",
            resource_pattern_type=i8(LITERAL),
            principal=f"User:{SERVICE}",
            host="*",
            operation=i8(CREATE_TOKENS),
            permission_type=i8(ALLOW),
        )
        for user in users
    )
    with Wire(cluster.internal.partition(",")[0], None) as wire:
        said = ask(
            wire,
            message("create_acls", 3, "CreateAclsRequest")(creations=rules),
            message("create_acls", 3, "CreateAclsResponse"),
        )
    assert [result.error_code for result in said.results] == [NONE] * len(users)  # type: ignore[attr-defined]


@dataclass
class Stage(WithCertificates):
    """Forebay with a login of its own, and no password of anybody else's."""

    logins: Logins

    def refused_and_lost(self) -> tuple[float, float]:
        """Logins that brokers have refused, by a token or Forebay's own, and connections that they have ended."""
        counted = self.forebay.metrics()
        kinds = ("authentication", "client_authentication", "connection_lost")
        *refused, lost = (counted[f'forebay_errors_total{{kind="{kind}",side="upstream"}}'] for kind in kinds)
        return sum(refused), lost

    def tokens(self) -> list[str]:
        """Owners of the tokens that brokers know, one of them as another."""
        with Wire(self.cluster.bootstrap.partition(",")[0], None) as wire:
            assert wire.say(handshake(1, PLAIN)) is not None
            answer = wire.say(authenticate(plain(WATCHER, password_of(WATCHER))))
            assert answer is not None
            assert parse_authenticate(answer, 1).error_code == NONE
            said = ask(
                wire,
                message("describe_delegation_token", 3, "DescribeDelegationTokenRequest")(owners=None),
                message("describe_delegation_token", 3, "DescribeDelegationTokenResponse"),
            )
        return sorted(token.principal_name for token in said.tokens)  # type: ignore[attr-defined]


@contextmanager
def before(folder: Path, logins: Logins, cluster: KafkaCluster) -> Iterator[ForebayProcess]:
    told = {**at_forebay(folder, *USERS, BRIEF, UNKNOWN), "upstream.identity": "delegation_token"}
    settings = {
        **logins.forebay_settings(),
        "sasl.mechanism": MECHANISM,
        "sasl.jaas.config": secret(folder, "service", login_line(MECHANISM, SERVICE_PASSWORD, SERVICE)),
        **{f"listener.name.sasl_plaintext.{name}": value for name, value in told.items()},
    }
    tls = {
        "client.authentication": "terminate",
        "upstream.identity": "delegation_token",
        "ssl.keystore.location": str(logins.authority.issue("forebay", LOOPBACK, "localhost")),
        "ssl.truststore.location": str(logins.authority.pem),
        "ssl.client.auth": "required",
        "ssl.principal.mapping.rules": r"RULE:^CN=(\w+).*$/$1/",
    }
    with ForebayProcess(
        cluster.bootstrap, cluster.nodes, settings=settings, tls=tls, protocols=("SASL_PLAINTEXT", "SSL")
    ) as forebay:
        yield forebay


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("delegated")
    logins = Logins(folder, "SASL_PLAINTEXT")
    more = {
        "delegation.token.secret.key": "canary-of-a-test",
        "delegation.token.expiry.time.ms": str(TOKEN_MS),
        "super.users": f"User:ANONYMOUS;User:{WATCHER}",
    }
    with (
        KafkaCluster("4.3.1", brokers=2, settings=logins.broker_settings() | more, loggers=AUDIT) as cluster,
        TopicLog(cluster.internal) as log,
    ):
        logins.add_users(cluster)
        for user in (BRIEF, UNKNOWN):
            logins.allow(cluster, user, f"{user}-")
        give_scram_password(cluster, SERVICE, SERVICE_PASSWORD)
        may_ask_for(cluster, *USERS, BRIEF)
        with before(folder, logins, cluster) as forebay:
            yield Stage(logins.authority, cluster, log, forebay, logins)


def write(stage: Stage, kind: str, specs: dict[tuple[str, str], ProduceSpec]) -> dict[tuple[str, str], ProduceResult]:
    """At the same time; keys are (user, "password" or "certificate")."""
    with ExitStack() as stack, ThreadPoolExecutor(len(specs)) as pool:
        work = {}
        for (user, way), spec in specs.items():
            if way == "password":
                client = stage.logins.client(kind, user, PLAIN, "SASL_PLAINTEXT")
                bootstrap = stage.forebay.bootstrap
            else:
                client, bootstrap = stage.client(kind, user), stage.forebay.tls_bootstrap
            work[user, way] = pool.submit(stack.enter_context(closing(client)).produce, bootstrap, spec)
        return {key: done.result() for key, done in work.items()}


@pytest.mark.parametrize("kind", ["confluent", "java-4.3.1"])
def test_each_is_itself_at_the_brokers_and_merged_with_what_it_sends_otherwise(stage: Stage, kind: str) -> None:
    specs = {}
    for user in USERS:
        topic = f"{user}-delegated-{kind}"
        stage.cluster.create_topic(topic, 4)
        for way in ("password", "certificate"):
            specs[user, way] = spec_of(topic, f"{topic}-{way}", kind)
    fates = [f'forebay_records_total{{fate="{fate}"}}' for fate in ("kept", "moved", "untouched")]
    earlier = stage.forebay.metrics()
    for key, result in write(stage, kind, specs).items():
        every_record_acknowledged(specs[key], result)
    for user in USERS:
        topic = f"{user}-delegated-{kind}"
        found = stage.log.read(topic, dict.fromkeys(range(4), 0), at_least=2 * COUNT)
        for spec in (spec for spec in specs.values() if spec.topic == topic):
            of_it = [each for each in found if (each.value or b"").startswith(f"{spec.name}-".encode())]
            each_exactly_once(spec, of_it)
        assert stage.authorized(topic) == {(f"User:{user}", "Allowed")}
    now = stage.forebay.metrics()
    kept, moved, untouched = (now.get(fate, 0) - earlier.get(fate, 0) for fate in fates)
    assert kept + moved == 2 * len(USERS) * COUNT
    assert moved > 0
    assert untouched == 0
    assert now["forebay_identities"] == len(USERS), "alice is alice, however she has logged in"


@pytest.mark.parametrize("seconds", [13, 60])
def test_tokens_follow_one_another_while_records_come(stage: Stage, seconds: int) -> None:
    """Each is good for a few seconds."""
    assert any(nothing_fails_as_tokens_end(stage, seconds, number) for number in range(TRIES))


def nothing_fails_as_tokens_end(stage: Stage, seconds: int, number: int) -> bool:
    specs = {}
    for user in USERS:
        topic = f"{user}-for-{seconds}-{number}"
        stage.cluster.create_topic(topic, 2)
        specs[user, "password"] = ProduceSpec(
            topic, topic, count=RATE * seconds, size=SIZE, keys="null", rate=RATE, props={"retries": "0"}
        )
    refused, lost = stage.refused_and_lost()
    results = write(stage, "java-4.3.1", specs)
    for user, way in specs:
        assert stage.authorized(specs[user, way].topic) == {(f"User:{user}", "Allowed")}
    now_refused, now_lost = stage.refused_and_lost()
    failures = [why for result in results.values() for why in result.failures.values()]
    assert all(OUTCOME_UNKNOWN in why for why in failures), failures[:3]
    if now_refused > refused or (now_lost > lost and failures):
        print(now_refused - refused, now_lost - lost, failures[:3])
        return False
    for key, result in results.items():
        every_record_acknowledged(specs[key], result)
        found = stage.log.read(specs[key].topic, dict.fromkeys(range(2), 0), at_least=RATE * seconds)
        each_exactly_once(specs[key], found)
    return True


def test_the_neighbours_topic_is_refused_by_the_brokers(stage: Stage) -> None:
    topic = "bob-not-hers"
    stage.cluster.create_topic(topic, 1)
    spec = ProduceSpec(topic, topic, count=5, keys="null")
    result = write(stage, "confluent", {("alice", "certificate"): spec})["alice", "certificate"]
    assert set(result.failures) == set(range(5))
    assert all(re.search("topic.?authorization", why, re.IGNORECASE) for why in result.failures.values())
    assert stage.authorized(topic) == {("User:alice", "Denied")}


def test_of_whom_forebay_may_have_no_token_nothing_is_sent_and_the_log_says_why(stage: Stage) -> None:
    for user in (UNKNOWN, "alice"):
        stage.cluster.create_topic(f"{user}-both", 1)
    in_vain = {"message.timeout.ms": "8000", "socket.timeout.ms": "4000"}
    specs = {
        (user, "password"): ProduceSpec(f"{user}-both", f"{user}-both", count=20, keys="null", props=props)
        for user, props in ((UNKNOWN, in_vain), ("alice", {}))
    }
    results = write(stage, "confluent", specs)
    every_record_acknowledged(specs["alice", "password"], results["alice", "password"])
    assert len(results[UNKNOWN, "password"].failures) == 20
    assert "needs CREATE_TOKENS on that user" in stage.forebay.log.read_text()
    assert not stage.authorized(f"{UNKNOWN}-both")


def test_brokers_are_told_that_tokens_are_not_needed_any_more(stage: Stage, tmp_path: Path) -> None:
    with before(tmp_path, stage.logins, stage.cluster) as forebay:
        own = Stage(stage.authority, stage.cluster, stage.log, forebay, stage.logins)
        topic = f"{BRIEF}-brief"
        stage.cluster.create_topic(topic, 1)
        spec = ProduceSpec(topic, topic, count=5, keys="null")
        result = write(own, "confluent", {(BRIEF, "password"): spec})[BRIEF, "password"]
        every_record_acknowledged(spec, result)
        assert stage.tokens().count(BRIEF) >= 1
    wait_until(lambda: BRIEF not in stage.tokens(), 10, "brokers know of none")
