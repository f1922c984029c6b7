"""A token for each owner: asked for once, again before it ends, and given back; a broker of the test's own answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Any

import pytest
import structlog
from kio.schema.errors import ErrorCode
from kio.static.primitive import TZAware
from msgspec.structs import replace as with_settings

from forebay_codecs.api_keys import CREATE_DELEGATION_TOKEN, EXPIRE_DELEGATION_TOKEN, SASL_AUTHENTICATE, SASL_HANDSHAKE
from forebay_codecs.sasl import plain
from forebay_proxy.brokers import delegation_tokens
from forebay_proxy.brokers.broker_addresses import BrokerAddresses
from forebay_proxy.brokers.connector import Connector
from forebay_proxy.brokers.delegation_tokens import FRESH_PART, KNOWN_S, PAUSE_S, DelegationTokens
from forebay_proxy.config.secret import Secret
from forebay_proxy.metrics.registry import MetricRegistry
from tests.codecs.kio_oracle import decode_request, encode_response, example, message
from tests.kit import fakes_proxy as fakes
from tests.kit.app import settings
from tests.kit.event_loop import in_loop, soon, turns, until
from tests.kit.fake_broker import Asked, FakeBroker, FakeCluster
from tests.kit.sasl import PASSWORD, USER, login_line

LIFE_S = 1000
KNOWN_AS = example(
    message("create_delegation_token", 3, "CreateDelegationTokenResponse")
).token_requester_principal_name
OTHER = "forebay-2"
AUTHORIZATION_FAILED, NOT_FOUND = 65, 62


class Asking:
    """Forebay, logged in as itself, before one broker; `now` in seconds."""

    def __init__(self, cluster: FakeCluster) -> None:
        told = self.told = settings(
            cluster.bootstrap,
            1,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="PLAIN",
            sasl_jaas_config=Secret(login_line("PLAIN")),
        )
        self.broker: FakeBroker = cluster[0]
        self.broker.holds(CREATE_DELEGATION_TOKEN, EXPIRE_DELEGATION_TOKEN)
        self.now = 1000.0
        addresses = BrokerAddresses(fakes.known(fakes.accumulator(), {}, nodes=()), cluster.bootstrap, Random(1))
        self.connector = Connector(told, MetricRegistry())
        self.tokens = DelegationTokens(addresses, self.connector, lambda: self.now)

    def logs_in_as(self, user: str) -> None:
        """From now on, as its file says."""
        line = Secret(login_line("PLAIN", user=user))
        self.connector.renewable.prepare(with_settings(self.told, sasl_jaas_config=line))()

    async def asked(self) -> Asked:
        return await self.broker.receives(CREATE_DELEGATION_TOKEN)

    async def given(self, token_id: str, error_code: int = 0) -> Any:
        """The next request for one is answered; what it has asked for."""
        asked = await self.asked()
        asked.respond(created(token_id, error_code))
        return decode_request(message("create_delegation_token", 3, "CreateDelegationTokenRequest"), asked.frame)[1]

    def of(self, owner: str) -> asyncio.Task[Any]:
        return asyncio.get_running_loop().create_task(self.tokens.of(owner))

    async def has_first(self) -> None:
        """Alice has a token, `first`."""
        task = self.of("alice")
        await self.given("first")
        await soon(task)


def created(token_id: str, error_code: int = 0) -> bytes:
    """What stands behind a response's correlation id."""
    answer = example(message("create_delegation_token", 3, "CreateDelegationTokenResponse"))
    expiry = TZAware.truncate(answer.issue_timestamp + timedelta(seconds=LIFE_S))
    return encode_response(
        replace(answer, error_code=ErrorCode(error_code), token_id=token_id, expiry_timestamp=expiry)
    )[4:]


def expired(error_code: int = 0) -> bytes:
    answer = example(message("expire_delegation_token", 2, "ExpireDelegationTokenResponse"))
    return encode_response(replace(answer, error_code=ErrorCode(error_code)))[4:]


@asynccontextmanager
async def asking() -> AsyncIterator[Asking]:
    async with FakeCluster({}) as cluster:
        cluster.ranges = {CREATE_DELEGATION_TOKEN: (1, 3)}
        cluster[0].holds(SASL_HANDSHAKE, SASL_AUTHENTICATE)

        async def lets_in() -> None:
            while True:
                (await cluster[0].receives(SASL_HANDSHAKE)).respond(b"\0\0" + b"\0\0\0\1" + b"\0\5PLAIN")
                asked = await cluster[0].receives(SASL_AUTHENTICATE)
                assert asked.body[2:].rstrip(b"\0") in (plain(USER, PASSWORD), plain(OTHER, PASSWORD))
                asked.respond(b"\0" + b"\0\0" + b"\0" + b"\1" + bytes(8) + b"\0")

        door = asyncio.get_running_loop().create_task(lets_in())
        try:
            yield Asking(cluster)
        finally:
            door.cancel()


@in_loop
async def test_it_is_asked_for_once_by_all_who_want_it_and_may_be_ended_by_who_asks() -> None:
    async with asking() as it:
        both = [it.of("alice"), it.of("alice")]
        request = await it.given("first")
        first, second = [await soon(each) for each in both]
        assert first == second
        assert first.token_id == "first"
        assert (request.owner_principal_type, request.owner_principal_name) == ("User", "alice")
        assert request.max_lifetime == timedelta(hours=1)
        assert [each.principal_name for each in request.renewers] == [USER]
        assert await soon(it.tokens.of("alice")) == first
        other = it.of("bob")
        request = await it.given("other")
        assert [each.principal_name for each in request.renewers] == [KNOWN_AS], "as the broker has said"
        assert (await soon(other)).token_id == "other"
        assert it.broker.accepted == 1, "by one connection"


@in_loop
async def test_another_one_follows_before_a_session_ends() -> None:
    async with asking() as it:
        await it.has_first()
        it.now += LIFE_S * FRESH_PART - 1
        assert (await soon(it.tokens.of("alice"))).token_id == "first"
        it.now += 1
        task = it.of("alice")
        await it.given("second")
        assert (await soon(task)).token_id == "first", "brokers may not know the other one yet"
        it.now += KNOWN_S - 1
        assert (await soon(it.tokens.of("alice"))).token_id == "first"
        it.now += 1
        assert (await soon(it.tokens.of("alice"))).token_id == "second"


@pytest.mark.parametrize("refused", [False, True])
@in_loop
async def test_a_new_one_is_given_at_once_where_the_old_one_ends_too_soon_or_is_refused(refused: bool) -> None:
    async with asking() as it:
        await it.has_first()
        it.now += LIFE_S * FRESH_PART if refused else LIFE_S - 2 * KNOWN_S
        task = it.of("alice")
        await it.given("second")
        if refused:
            assert (await soon(task)).token_id == "first"
            assert it.tokens.refused("alice"), "the next may not be known"
            task = it.of("alice")
        assert (await soon(task)).token_id == "second"


@in_loop
async def test_why_there_is_none_is_told_and_not_asked_again_at_once() -> None:
    async with asking() as it:
        task = it.of("alice")
        await it.given("", AUTHORIZATION_FAILED)
        why = "no delegation token for User:alice: Forebay's user needs CREATE_TOKENS on that user"
        with pytest.raises(ConnectionError, match=why):
            await soon(task)
        with pytest.raises(ConnectionError, match=why):
            await soon(it.tokens.of("alice"))
        it.now += PAUSE_S
        task = it.of("alice")
        await it.given("first")
        assert (await soon(task)).token_id == "first"
        assert len(it.broker.requests(CREATE_DELEGATION_TOKEN)) == 2


@in_loop
async def test_one_that_is_good_is_used_on_where_there_is_no_other() -> None:
    async with asking() as it:
        await it.has_first()
        it.now += LIFE_S * FRESH_PART
        task = it.of("alice")
        with structlog.testing.capture_logs() as logs:
            await it.given("", AUTHORIZATION_FAILED)
            assert (await soon(task)).token_id == "first"
        assert [line["event"] for line in logs] == ["no new delegation token: the one before is used on"]
        assert (await soon(it.tokens.of("alice"))).token_id == "first"
        assert len(it.broker.requests(CREATE_DELEGATION_TOKEN)) == 2
        it.now += LIFE_S * (1 - FRESH_PART) - 2 * KNOWN_S
        task = it.of("alice")
        await it.given("", AUTHORIZATION_FAILED)
        with pytest.raises(ConnectionError, match="needs CREATE_TOKENS"):
            await soon(task)


@in_loop
async def test_a_broker_may_not_know_a_new_one_and_an_old_one_that_it_refuses_is_not_used_again() -> None:
    async with asking() as it:
        assert not it.tokens.refused("alice"), "there is none"
        await it.has_first()
        it.now += KNOWN_S - 1
        assert it.tokens.refused("alice")
        assert (await soon(it.tokens.of("alice"))).token_id == "first"
        it.now += 1
        assert not it.tokens.refused("alice")
        task = it.of("alice")
        await it.given("second")
        assert (await soon(task)).token_id == "second"


@in_loop
async def test_brokers_are_told_that_one_is_not_needed_any_more() -> None:
    async with asking() as it:
        await it.has_first()
        it.tokens.end("nobody")
        it.tokens.end("alice")
        asked = await it.broker.receives(EXPIRE_DELEGATION_TOKEN)
        request = decode_request(message("expire_delegation_token", 2, "ExpireDelegationTokenRequest"), asked.frame)[1]
        assert request.hmac == example(message("create_delegation_token", 3, "CreateDelegationTokenResponse")).hmac
        with structlog.testing.capture_logs() as logs:
            asked.respond(expired(NOT_FOUND))
            await until(lambda: logs != [])
        assert [line["error"] for line in logs] == ["error 62"]
        assert not it.tokens._owned, "nothing is kept of it"


@in_loop
async def test_a_process_that_leaves_gives_all_of_them_back_and_waits_for_no_broker_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with asking() as it:
        for owner in ("alice", "bob"):
            task = it.of(owner)
            await it.given(owner)
            await soon(task)
        closing = asyncio.get_running_loop().create_task(it.tokens.close())
        for _ in range(2):
            asked = await it.broker.receives(EXPIRE_DELEGATION_TOKEN)
            await turns(2)
            assert not closing.done()
            asked.respond(expired())
        await soon(closing)
        task = it.of("carol")
        await it.given("carol")
        await soon(task)
        monkeypatch.setattr(delegation_tokens, "END_S", 0.01)
        await soon(it.tokens.close())


@in_loop
async def test_brokers_that_give_none_for_others_are_not_asked() -> None:
    async with asking() as it:
        it.broker.cluster.ranges = {CREATE_DELEGATION_TOKEN: (1, 2)}
        with pytest.raises(ConnectionError, match="no delegation tokens for others"):
            await soon(it.tokens.of("alice"))
        assert it.broker.requests(CREATE_DELEGATION_TOKEN) == []


@in_loop
async def test_a_broker_that_is_silent_is_waited_for_less_long_than_another_brokers_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    setup_ms = settings((), 1).socket_connection_setup_timeout_ms
    assert setup_ms > 1000 * delegation_tokens.ASK_S, "or that broker would be taken for silent"
    monkeypatch.setattr(delegation_tokens, "ASK_S", 0.05)
    async with asking() as it:
        task = it.of("alice")
        await it.asked()
        with pytest.raises(ConnectionError, match=r"no delegation token for User:alice: no broker answered within"):
            await soon(task)
        monkeypatch.undo()
        it.now += PAUSE_S
        task = it.of("alice")
        await it.given("first")
        assert (await soon(task)).token_id == "first"
        assert it.broker.accepted == 2, "not on the connection that was silent"


@in_loop
async def test_a_connection_that_is_lost_is_replaced() -> None:
    async with asking() as it:
        task = it.of("alice")
        (await it.asked()).close()
        with pytest.raises(ConnectionError, match=r"no delegation token for User:alice: the connection to .* was lost"):
            await soon(task)
        it.now += PAUSE_S
        task = it.of("alice")
        await it.given("first")
        assert (await soon(task)).token_id == "first"


@pytest.mark.parametrize(("user", "renewer"), [(USER, KNOWN_AS), (OTHER, OTHER)])
@in_loop
async def test_another_login_may_end_those_that_it_asks_for_from_the_first_one_on(user: str, renewer: str) -> None:
    async with asking() as it:
        await it.has_first()
        it.logs_in_as(user)
        task = it.of("bob")
        request = await it.given("as before")
        assert [each.principal_name for each in request.renewers] == [KNOWN_AS], "this connection is the former one's"
        await soon(task)
        task = it.of("carol")
        (await it.asked()).close()
        with pytest.raises(ConnectionError):
            await soon(task)
        it.now += PAUSE_S
        task = it.of("carol")
        request = await it.given("another")
        assert [each.principal_name for each in request.renewers] == [renewer]
        await soon(task)
