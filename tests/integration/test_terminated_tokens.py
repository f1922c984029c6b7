"""Clients that log in at Forebay itself with a token of an issuer: real ones, and byte by byte beside a broker."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

import pytest
from confluent_kafka import Producer

from forebay_codecs.sasl import BEARER_REFUSED, Authenticated, bearer
from tests.integration.checks import each_exactly_once, every_record_acknowledged
from tests.integration.test_terminated_bytes import METADATA_V4, PATIENCE_S, tell
from tests.kit.clients import Client
from tests.kit.forebay import ForebayProcess
from tests.kit.issuer import AUDIENCE, ISSUER, Issuer, new_key
from tests.kit.java import JavaClient
from tests.kit.kafka import KafkaCluster
from tests.kit.login_wire import authenticate, handshake
from tests.kit.paths import classpath
from tests.kit.python_clients import ConfluentClient
from tests.kit.sasl import MODULES
from tests.kit.spec import ProduceSpec
from tests.kit.topic_log import TopicLog
from tests.kit.waiting import wait_until
from tests.kit.wire import framed

pytestmark = [pytest.mark.integration, pytest.mark.whole]  # test_terminated_bytes.py has the answers

OAUTHBEARER = "OAUTHBEARER"
COUNT = 200
SHORT_S = 4
TRIES = 3
"""Where a client was late with its next token it is done once more: the machine may have stood still just then."""
_HANDLERS = "org.apache.kafka.common.security.oauthbearer."


@dataclass
class Stage:
    """Two ways: to a broker that asks for tokens, and to Forebay before another listener of it, which asks for none."""

    issuer: Issuer
    cluster: KafkaCluster
    log: TopicLog
    forebay: ForebayProcess

    @property
    def addresses(self) -> tuple[str, str]:
        return self.cluster.bootstrap, self.forebay.bootstrap

    def client(self, name: str, user: str) -> Client:
        props = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": OAUTHBEARER}
        if name == "confluent":
            return ConfluentClient(props | {"oauth_cb": lambda _: self._token(user)})
        props["sasl.login.callback.handler.class"] = f"{_HANDLERS}OAuthBearerLoginCallbackHandler"
        props["sasl.oauthbearer.token.endpoint.url"] = self.issuer.token_url
        props["sasl.jaas.config"] = f"{MODULES[OAUTHBEARER]} required clientId='{user}' clientSecret='any';"
        reads_tokens = [jar for jar in classpath("broker-4.3.1") if jar.name.startswith(("jose4j", "jackson"))]
        return JavaClient(name.removeprefix("java-"), props, reads_tokens)

    def _token(self, user: str) -> tuple[str, float]:
        return self.issuer.token(user), time.time() + self.issuer.token_s


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with Issuer() as issuer, pytest.MonkeyPatch.context() as patch:
        allowed = f"{issuer.jwks_url},{issuer.token_url}"
        patch.setenv("JAVA_TOOL_OPTIONS", f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={allowed}")
        issuers = {
            "sasl.oauthbearer.jwks.endpoint.url": issuer.jwks_url,
            "sasl.oauthbearer.expected.issuer": ISSUER,
            "sasl.oauthbearer.expected.audience": AUDIENCE,
        }
        prefix = "listener.name.client."
        broker = {
            "listener.security.protocol.map": "CLIENT:SASL_PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
            f"{prefix}sasl.enabled.mechanisms": OAUTHBEARER,
            f"{prefix}oauthbearer.sasl.jaas.config": f"{MODULES[OAUTHBEARER]} required;",
            f"{prefix}oauthbearer.sasl.server.callback.handler.class": (
                f"{_HANDLERS}OAuthBearerValidatorCallbackHandler"
            ),
            **{f"{prefix}oauthbearer.{name}": value for name, value in issuers.items()},
        }
        with (
            KafkaCluster("4.3.1", brokers=1, settings=broker) as cluster,
            TopicLog(cluster.internal) as log,
        ):
            told = {
                "client.authentication": "terminate",
                "upstream.identity": "service",
                "sasl.enabled.mechanisms": OAUTHBEARER,
                **issuers,
            }
            with ForebayProcess(cluster.internal, cluster.nodes, sasl=told) as forebay:
                yield Stage(issuer, cluster, log, forebay)


@pytest.mark.parametrize("name", ["confluent", "java-4.3.1"])
def test_records_of_a_client_with_a_token_are_merged_and_sent(stage: Stage, name: str) -> None:
    topic = f"tokens-{name}"
    stage.cluster.create_topic(topic, 4)
    before = stage.forebay.metrics()
    spec = ProduceSpec(topic, topic, count=COUNT, keys="mixed")
    with closing(stage.client(name, "alice")) as client:
        every_record_acknowledged(spec, client.produce(stage.forebay.bootstrap, spec))
    each_exactly_once(spec, stage.log.read(topic, dict.fromkeys(range(4), 0), at_least=COUNT))
    now = stage.forebay.metrics()
    fates = {fate: f'forebay_records_total{{fate="{fate}"}}' for fate in ("kept", "moved", "untouched")}
    told = {fate: now[sample] - before[sample] for fate, sample in fates.items()}
    assert (told["kept"] + told["moved"], told["untouched"]) == (COUNT, 0)
    shown = {who for row in stage.forebay.clients("--url", stage.forebay.admin_url) for who in row["principals"]}
    assert shown == {"User:alice"}


def test_a_token_that_is_over_is_replaced_on_the_same_connection(stage: Stage) -> None:
    """KIP-368: two tokens' time, one connection to the broker of the topic."""
    logins = f'forebay_client_logins_total{{mechanism="{OAUTHBEARER}",result="accepted"}}'
    stage.issuer.token_s = SHORT_S
    late = True
    try:
        for number in range(TRIES):
            topic, said = f"tokens-renewed-{number}", len(stage.forebay.log.read_text())
            stage.cluster.create_topic(topic, 1)
            before = stage.forebay.metrics()
            with closing(stage.client("java-4.3.1", "alice")) as client:
                spec = ProduceSpec(topic, topic, count=50 * 2 * SHORT_S, rate=50)
                every_record_acknowledged(spec, client.produce(stage.forebay.bootstrap, spec))
            late = "must log in again" in stage.forebay.log.read_text()[said:]
            if not late:
                break
    finally:
        stage.issuer.token_s = 3600
    assert not late
    each_exactly_once(spec, stage.log.read(topic, {0: 0}, at_least=spec.count))
    assert stage.forebay.metrics()[logins] - before[logins] >= 3


def test_whoever_has_no_good_token_gets_nowhere(stage: Stage) -> None:
    stage.cluster.create_topic("tokens-stolen", 1)
    failures: list[object] = []
    props = {"bootstrap.servers": stage.forebay.bootstrap, "error_cb": failures.append}
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": OAUTHBEARER}
    token = stage.issuer.token("alice", aud="canary")
    producer = Producer({**props, **login, "oauth_cb": lambda _: (token, time.time() + 60)})
    producer.produce("tokens-stolen", b"x")

    def refused() -> bool:
        producer.poll(0.1)
        return any("invalid_token" in str(each) or "SASL" in str(each) for each in failures)

    wait_until(refused, PATIENCE_S, "the token is refused")
    producer.purge()
    said = stage.forebay.log.read_text()
    assert "InvalidAudience" in said
    assert token not in said
    assert token.split(".")[2] not in said


def in_turn(*tokens: bytes) -> list[bytes]:
    return [handshake(1, OAUTHBEARER), *map(authenticate, tokens), METADATA_V4]


def said(issuer: Issuer) -> dict[str, Sequence[bytes]]:
    """Frames, by what they are."""
    good = issuer.token("alice")
    stranger = issuer.token("alice")
    with Issuer() as other:
        stranger = other.token("alice", {"kid": "1", "jku": other.jwks_url})
    now = int(time.time())
    wrong = {
        "for somebody else": issuer.token("alice", aud="other"),
        "of somebody else": issuer.token("alice", iss="other"),
        "signed by somebody else": stranger,
        "over": issuer.token("alice", exp=now - 120, iat=now - 240),
        "not yet good": issuer.token("alice", nbf=now + 120),
        "of nobody": issuer.token(" "),
        "without a user": issuer.token("alice", sub=None),
        "without an end": issuer.token("alice", exp=None),
        "without a beginning": issuer.token("alice", iat=None),
        "of tomorrow": issuer.token("alice", iat=now + 86_400, exp=now + 90_000),
        "no token": "a.b.c",
    }
    first = bearer(good)
    return {
        "right": in_turn(first),
        "with extensions": in_turn(bearer(good, [("traceid", "a b")])),
        "for two audiences": in_turn(bearer(issuer.token("alice", aud=["x", AUDIENCE]))),
        "as itself": in_turn(first.replace(b"n,,", b"n,a=alice,")),
        "as somebody else": in_turn(first.replace(b"n,,", b"n,a=bob,")),
        "handshake v0": [handshake(0, OAUTHBEARER), framed(first), METADATA_V4],
        "handshake v0, wrong": [handshake(0, OAUTHBEARER), framed(bearer("a.b.c")), framed(BEARER_REFUSED)],
        **{f"token {what}": in_turn(bearer(token), BEARER_REFUSED) for what, token in wrong.items()},
        "nothing": in_turn(b""),
        "garbage": in_turn(b"garbage"),
        "without a token": in_turn(b"n,,\x01\x01"),
        "with a channel binding": in_turn(first.replace(b"n,,", b"y,,")),
        "an odd extension": in_turn(bearer(good, [("a1", "x")])),
        "an end that is missing": in_turn(first[:-1]),
        "refused before it was": in_turn(BEARER_REFUSED),
        "again": [*in_turn(first), *in_turn(first)],
        "again, as somebody else": [*in_turn(first), *in_turn(bearer(issuer.token("bob")))],
    }


def test_it_is_answered_as_by_a_broker(stage: Stage) -> None:
    differs = {}
    for what, frames in said(stage.issuer).items():
        direct, through = (_without_times(tell(address, frames)) for address in stage.addresses)
        if direct != through:
            differs[what] = {"broker": direct, "Forebay": through}
    assert differs == {}


def _without_times(heard: list[object]) -> list[object]:
    """How long a session lasts depends on when its token was looked at; that there is an end does not."""
    return [
        each._replace(session_lifetime_ms=min(1, each.session_lifetime_ms)) if isinstance(each, Authenticated) else each
        for each in heard
    ]


def test_a_new_key_of_the_issuer_is_found_and_an_outage_borne(stage: Stage) -> None:
    before = dict(vars(stage.issuer))
    try:
        stage.issuer.rotate("RS256")
        deadline = time.monotonic() + PATIENCE_S
        frames = in_turn(bearer(stage.issuer.token("alice")))
        while tell(stage.forebay.bootstrap, frames)[-1] is None:
            assert time.monotonic() < deadline
            time.sleep(0.5)
        stage.issuer.status = 500
        assert tell(stage.forebay.bootstrap, frames)[-1] is not None
        stage.issuer.key = new_key("RS256")
        frames = in_turn(bearer(stage.issuer.token("alice")), BEARER_REFUSED)
        assert tell(stage.forebay.bootstrap, frames)[-1] is None
    finally:
        vars(stage.issuer).update(before)
