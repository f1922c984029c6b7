"""Clients that log in by OAUTHBEARER, where they are to be recognised: which tokens are one user, and until when."""

from __future__ import annotations

import base64
import json
import time
from typing import Any

import pytest

from forebay_codecs import sasl
from forebay_codecs.api_keys import PRODUCE
from forebay_codecs.error_codes import NONE
from forebay_proxy.clients import login_watch
from forebay_proxy.security.logins import BearerLogin
from tests.kit.event_loop import in_loop, until
from tests.kit.fake_broker import BAD_SIGNATURE, SASL_AUTHENTICATION_FAILED
from tests.kit.wire import WireClient, framed
from tests.proxy.clients.test_login_watch import Town, handshake, presents, records, town

FOR_S = 600


def token(user: str, for_s: float = FOR_S, signature: str = "good", **claims: Any) -> str:
    parts = ({"alg": "none"}, {"sub": user, "iat": time.time(), "exp": time.time() + for_s, **claims})
    made = (base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts)
    return ".".join([*made, signature])


async def log_in(client: WireClient, jwt: str, version: int = 1, extensions: dict[str, str] | None = None) -> int:
    """Returns the broker's error code, after the second step where it refuses."""
    client.send(handshake(9001, mechanism="OAUTHBEARER"))
    await client.receives(9001)
    client.send(presents(9002, sasl.bearer(jwt, (extensions or {}).items()), version))
    (first,) = await client.receives(9002)
    said = sasl.parse_authenticate(first.whole, version)
    if not said.auth_bytes:
        return said.error_code
    client.send(presents(9003, sasl.BEARER_REFUSED, version))
    (last,) = await client.receives(9003)
    return sasl.parse_authenticate(last.whole, version).error_code


async def user(it: Town, jwt: str, version: int = 1, **extensions: str) -> WireClient:
    client = await it.forebay.client(0)
    assert await log_in(client, jwt, version, extensions) == NONE
    return client


def presented(it: Town) -> list[str]:
    """The token of each realm."""
    logins = [each.connector._authenticator._of_client for each in it.forebay.app._client_realms._realms.values()]  # type: ignore[union-attr]
    return [login.token.reveal() for login in logins if isinstance(login, BearerLogin)]


class TestServed:
    @in_loop
    @pytest.mark.parametrize("version", [0, 1, 2])
    async def test_tokens_that_say_the_same_of_a_user_are_merged(self, version: int) -> None:
        async with town(linger_ms=50) as it:
            clients = [await user(it, token("alice", FOR_S + number, jti=number), version) for number in range(3)]
            for number, client in enumerate(clients):
                client.send(records("alice-ponds", f"v{number}"))
            for client in clients:
                await client.receives(1)
            asked = [each for broker in it.cluster.brokers.values() for each in broker.requests(PRODUCE)]
            assert sorted(value for each in asked for value in each.values) == ["v0", "v1", "v2"]
            assert len(asked) < 3
            assert it.producers() == {"alice"}
            assert (it.records("untouched"), len(presented(it))) == (0, 1)

    @in_loop
    async def test_what_says_anything_else_is_another_identity(self) -> None:
        async with town(linger_ms=50) as it:
            clients = [
                await user(it, token("alice")),
                await user(it, token("alice", scope="all")),
                await user(it, token("alice"), pool="p"),
                await it.user("alice"),
            ]
            for client in clients:
                client.send(records("alice-ponds", "v"))
            for client in clients:
                await client.receives(1)
            asked = [each for broker in it.cluster.brokers.values() for each in broker.requests(PRODUCE)]
            assert len(asked) == 4
            assert len({each.connection for each in asked}) == 4
            assert (it.records("untouched"), len(presented(it))) == (0, 3)

    @in_loop
    async def test_a_token_without_a_header_is_one_as_well(self) -> None:
        """SaslHandshake v0."""
        async with town() as it:
            client = await it.forebay.client(0)
            client.send(handshake(1, 0, "OAUTHBEARER"), framed(sasl.bearer(token("alice"))))
            await client.receives(1)
            assert (await client.receive()).whole == b""
            client.send(records("alice-ponds", "a"))
            await client.receives(1)
            assert (it.records("untouched"), it.producers()) == (0, {"alice"})


class TestNotServed:
    @in_loop
    @pytest.mark.parametrize("version", [0, 1, 2])
    async def test_whom_the_broker_refuses_joins_nobody(self, version: int) -> None:
        """It says no error first, and why; the refusal comes in a second step."""
        async with town() as it:
            for jwt in (token("alice", signature=BAD_SIGNATURE), token("alice", -1), token("mallory")):
                client = await it.forebay.client(0)
                assert await log_in(client, jwt, version) == SASL_AUTHENTICATION_FAILED
                assert await client.is_closed()
            assert presented(it) == []

    @in_loop
    async def test_nobody_is_served_between_the_two_steps(self) -> None:
        async with town() as it:
            await user(it, token("alice"))
            client = await it.forebay.client(0)
            client.send(handshake(1, mechanism="OAUTHBEARER"))
            await client.receives(1)
            client.send(presents(2, sasl.bearer(token("alice", signature=BAD_SIGNATURE))))
            await client.receives(2)
            client.send(records("alice-ponds", "a", correlation_id=3))
            await client.receives(3)  # the fake broker takes it; Kafka closes the connection
            assert it.records("untouched") == 1


class TestSessions:
    @in_loop
    async def test_the_token_that_is_good_for_longest_is_presented(self) -> None:
        async with town() as it:
            tokens = [token("alice", for_s) for for_s in (100, 300, 200)]
            client = await user(it, tokens[0])
            client.send(records("alice-ponds", "a"))
            await client.receives(1)
            assert presented(it) == [tokens[0]]
            await user(it, tokens[1])
            await user(it, tokens[2])
            assert presented(it) == [tokens[1]]

    @in_loop
    async def test_a_client_that_logs_in_again_renews_it_for_all(self) -> None:
        async with town() as it:
            client, later = await user(it, token("alice", 100)), token("alice", 300)
            client.send(records("alice-ponds", "a"))
            await client.receives(1)
            assert await log_in(client, later) == NONE
            client.send(records("alice-ponds", "b", correlation_id=2))
            await client.receives(2)
            assert (presented(it), it.records("untouched")) == ([later], 0)

    @in_loop
    async def test_a_token_that_has_become_too_old_is_followed_by_the_next(self) -> None:
        """Brokers refuse it on Forebay's connections; they are tried at once when another one is there."""
        async with town(reconnect_backoff_ms=60_000, reconnect_backoff_max_ms=60_000) as it:
            client = await user(it, token("alice", 100))
            password = it.cluster.users.pop("alice")
            client.send(records("alice-ponds", "waits"))
            await until(lambda: it.forebay.count("forebay_errors_total", "upstream", "client_authentication") > 0)
            realms = it.forebay.app._client_realms._realms.values()
            (hers,) = (each for each in realms if each.connector.is_refused)
            it.cluster.users["alice"] = password
            await user(it, token("alice", 200))
            assert not hers.connector.is_refused, "no broker is left alone any more"
            await client.receives(1)
            assert it.producers() == {"alice"}

    @in_loop
    @pytest.mark.parametrize("version", [0, 1])
    async def test_no_session_is_longer_than_its_token(self, monkeypatch: pytest.MonkeyPatch, version: int) -> None:
        """A client of SaslAuthenticate v0 is told of no lifetime."""
        async with town() as it:
            now = 1000.0
            monkeypatch.setattr(login_watch, "monotonic", lambda: now)
            client = await user(it, token("alice", 100), version)
            now += 99
            client.send(records("alice-ponds", "a"))
            await client.receives(1)
            now += 2
            client.send(records("alice-ponds", "late", correlation_id=2))
            assert await client.is_closed()
            assert sum(map(len, it.cluster.log.values())) == 1
