"""Delegation tokens of a real Kafka, frame by frame: made by one user for another, who it then is at the brokers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from forebay_codecs.delegation_tokens import (
    DelegationToken,
    encode_create,
    encode_expire,
    parse_create,
    parse_expire,
)
from forebay_codecs.error_codes import NONE
from forebay_codecs.metadata import parse_metadata_response
from forebay_codecs.metadata_request import encode_metadata_request
from forebay_codecs.sasl import parse_authenticate, plain
from forebay_codecs.scram import ScramClient, salt_password
from tests.kit.kafka import KafkaCluster
from tests.kit.login_wire import Wire, authenticate, handshake
from tests.kit.logins import Logins, password_of
from tests.kit.waiting import wait_until
from tests.kit.wire import framed

pytestmark = pytest.mark.integration

MECHANISM = "SCRAM-SHA-256"
LIFETIME_MS = 3_600_000
SECONDS = 30
DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65


@dataclass
class Stage:
    """A broker with users; bob may do everything, alice what bears her name."""

    cluster: KafkaCluster

    def logged_in(self, user: str) -> Wire:
        wire = Wire(self.cluster.bootstrap, None)
        assert wire.say(handshake(1, "PLAIN")) is not None
        answer = wire.say(authenticate(plain(user, password_of(user))))
        assert answer is not None
        assert parse_authenticate(answer, 1).error_code == NONE
        return wire

    def create(self, asks: str, owner: str) -> DelegationToken:
        with self.logged_in(asks) as wire:
            answer = wire.say(framed(encode_create(7, "forebay", owner, LIFETIME_MS, asks)))
        assert answer is not None
        return parse_create(answer)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    logins = Logins(tmp_path_factory.mktemp("tokens"), "SASL_PLAINTEXT")
    more = {"delegation.token.secret.key": "canary-of-a-test", "super.users": "User:ANONYMOUS;User:bob"}
    with KafkaCluster("4.3.1", brokers=1, settings=logins.broker_settings() | more) as cluster:
        logins.add_users(cluster)
        cluster.create_topic("alice-own", 1)
        cluster.create_topic("bob-own", 1)
        yield Stage(cluster)


def begin(stage: Stage, token: DelegationToken) -> Wire | None:
    """Logged in with it; None: it is not taken."""
    wire = Wire(stage.cluster.bootstrap, None)
    client = ScramClient(MECHANISM, token.token_id, "nonce-of-a-test", by_token=True)
    assert wire.say(handshake(1, MECHANISM)) is not None
    first = wire.say(authenticate(client.first()))
    assert first is not None
    said = parse_authenticate(first, 1)
    if said.error_code == NONE:
        challenge = client.challenge(said.auth_bytes)
        last = wire.say(authenticate(client.final(salt_password(MECHANISM, token.password, challenge))))
        assert last is not None
        said = parse_authenticate(last, 1)
        if said.error_code == NONE:
            client.verify(said.auth_bytes)
            return wire
    wire.__exit__()
    return None


def may_see(wire: Wire) -> set[str | None]:
    answer = wire.say(framed(encode_metadata_request(4, "c", 4, None, allow_auto_topic_creation=False)))
    assert answer is not None
    return {topic.name for topic in parse_metadata_response(answer, 4).topics}


def test_who_has_a_token_is_its_owner_until_it_is_expired(stage: Stage) -> None:
    token = stage.create("bob", "alice")
    assert (token.error_code, token.owner) == (NONE, "alice")
    opened: list[Wire] = []

    def taken() -> bool:
        """A broker may not know a new one for a moment."""
        wire = begin(stage, token)
        opened.extend([wire] if wire is not None else [])
        return wire is not None

    wait_until(taken, SECONDS, "the token is known")
    with opened[0] as wire:
        assert may_see(wire) == {"alice-own"}, "she is not bob, who asked for it"
        answer = wire.say(framed(encode_create(7, "forebay", "alice", LIFETIME_MS, "alice")))
        assert answer is not None
        assert parse_create(answer).error_code != NONE, "no token begets another"
    with stage.logged_in("bob") as bob:
        answer = bob.say(framed(encode_expire(8, "forebay", token.hmac)))
        assert answer is not None
        assert parse_expire(answer) == NONE
    wait_until(lambda: begin(stage, token) is None, SECONDS, "the token is worth nothing")


def test_whoever_may_not_gets_none_for_another(stage: Stage) -> None:
    token = stage.create("alice", "bob")
    assert token.error_code == DELEGATION_TOKEN_AUTHORIZATION_FAILED
    assert not token.hmac
