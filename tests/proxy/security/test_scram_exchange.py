"""SCRAM at Forebay itself, with the client's side of our own: who gets in, and what nobody learns."""

from __future__ import annotations

import asyncio

import pytest

from forebay_codecs.errors import Malformed
from forebay_codecs.scram import HASHES, Challenge, ScramClient, salt_password
from forebay_codecs.scram_credential import ScramCredential, credential_of
from forebay_proxy.security.client_exchanges import Proved
from forebay_proxy.security.logins import ScramKeyLogin
from forebay_proxy.security.scram_exchange import NOBODY, ScramExchange, ScramUsers

MECHANISMS = pytest.mark.parametrize("mechanism", HASHES)
CHALLENGE = Challenge(b"salt" * 6, 8192)


def kept(mechanism: str, password: str, challenge: Challenge = CHALLENGE) -> ScramCredential:
    return credential_of(mechanism, salt_password(mechanism, password, challenge), challenge)


USERS = ScramUsers({("alice", mechanism): kept(mechanism, "hers") for mechanism in HASHES}, b"key")


def logs_in(mechanism: str, user: str, password: str, users: ScramUsers = USERS) -> tuple[Challenge, Proved]:
    client = ScramClient(mechanism, user, "client-nonce")
    exchange = ScramExchange(mechanism, users, "server-nonce")
    first = asyncio.run(exchange.step(client.first()))
    assert first.proved is None
    challenge = client.challenge(first.token)
    last = asyncio.run(exchange.step(client.final(salt_password(mechanism, password, challenge))))
    client.verify(last.token)
    assert last.proved is not None
    return challenge, last.proved


@MECHANISMS
def test_who_knows_the_password_gets_in_and_leaves_the_key_for_the_brokers(mechanism: str) -> None:
    challenge, proved = logs_in(mechanism, "alice", "hers")
    assert challenge == CHALLENGE
    assert (proved.principal, proved.mechanism, proved.expires_at) == ("User:alice", mechanism, 0)
    login = proved.login
    assert isinstance(login, ScramKeyLogin)
    assert login.kept == USERS.credentials["alice", mechanism]
    again = logs_in(mechanism, "alice", "hers")[1]
    assert again.login == login, "the same each time, so that all her logins are one identity"
    assert login.client_key.reveal() not in repr(proved)


@MECHANISMS
@pytest.mark.parametrize(("user", "password"), [("alice", "his"), ("nobody", "hers"), ("nobody", "")])
def test_nobody_else_does_and_each_is_told_so_at_the_end(mechanism: str, user: str, password: str) -> None:
    with pytest.raises(Malformed, match="wrong proof"):
        logs_in(mechanism, user, password)


def challenge_of(user: str, users: ScramUsers = USERS) -> Challenge:
    client = ScramClient("SCRAM-SHA-512", user, "client-nonce")
    said = asyncio.run(ScramExchange("SCRAM-SHA-512", users, "server-nonce").step(client.first()))
    return client.challenge(said.token)


def test_a_user_that_there_is_not_looks_like_one() -> None:
    mine, other = challenge_of("nobody"), challenge_of("somebody")
    assert mine == challenge_of("nobody"), "the same each time"
    assert mine.salt != other.salt
    assert mine.iterations == other.iterations == CHALLENGE.iterations, "as most users"
    assert len(mine.salt) == len(CHALLENGE.salt)
    assert challenge_of("nobody", ScramUsers(USERS.credentials, b"other")) != mine


def test_where_there_are_no_users_it_is_the_same() -> None:
    assert challenge_of("nobody", NOBODY).iterations == 4096


def test_who_would_be_somebody_else_does_not_get_in() -> None:
    with pytest.raises(Malformed, match="authzid"):
        asyncio.run(ScramExchange("SCRAM-SHA-256", USERS, "n").step(b"n,a=bob,n=alice,r=abc"))
