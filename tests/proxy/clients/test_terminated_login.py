"""Logins that end at Forebay: what comes before them, during them and after them, and what is left of those in vain."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic, time
from typing import Any

import pytest
from structlog.testing import capture_logs

from forebay_codecs import api_versions, sasl
from forebay_codecs.api_keys import PRODUCE, SASL_AUTHENTICATE, SASL_HANDSHAKE
from forebay_codecs.apis import OF_ONES_OWN_USER
from forebay_codecs.error_codes import (
    CLUSTER_AUTHORIZATION_FAILED,
    ILLEGAL_SASL_STATE,
    NONE,
    SASL_AUTHENTICATION_FAILED,
    TOPIC_AUTHORIZATION_FAILED,
    UNSUPPORTED_SASL_MECHANISM,
)
from forebay_policies.identities import KEPT_S
from forebay_policies.journal_rows import BatchRow, LedgerRow
from forebay_proxy.clients import opaque_connection, terminated_login
from forebay_proxy.config.kinds import ListenerAddress
from forebay_proxy.config.listeners import ListenerSettings
from forebay_proxy.config.secret import Secret
from forebay_proxy.security.client_exchanges import PlainExchange, Proved, Said
from forebay_proxy.security.upstream_identities import UpstreamIdentities
from tests.kit.app import Running, running
from tests.kit.certificates import Authority
from tests.kit.event_loop import in_loop, soon, turns, until
from tests.kit.fake_broker import Asked, FakeCluster
from tests.kit.journal import of, rows_in
from tests.kit.ports import LOOPBACK, free_run
from tests.kit.sasl import MODULES
from tests.kit.wire import LIST_GROUPS, WireClient, batch, echo, framed, metadata, null_key, only, produce, request

USERS = {"alice": "hers", "bob": "his"}
LINE = f"{MODULES['PLAIN']} required user_alice='hers' user_bob='his';"
TOPICS = {"ponds": [0, 1], "alice-ponds": [0, 1], "bob-ponds": [0, 1]}
LOGINS = "forebay_client_logins_total"


def handshake(correlation_id: int, version: int = 1, mechanism: str = "PLAIN") -> bytes:
    return request(SASL_HANDSHAKE, version, correlation_id, len(mechanism).to_bytes(2, "big") + mechanism.encode())


def presents(correlation_id: int, token: bytes, version: int = 1) -> bytes:
    return framed(sasl.authenticate_request(correlation_id, "till-7", version, token))


class Gate:
    """Forebay with one listener where users log in, before brokers that ask nobody."""

    def __init__(self, cluster: FakeCluster, forebay: Running) -> None:
        self.cluster = cluster
        self.forebay = forebay

    async def user(self, name: str, version: int = 1, node: int | None = 0) -> WireClient:
        client = await self.forebay.client(node)
        assert await self.log_in(client, name, version) == NONE
        return client

    async def log_in(self, client: WireClient, name: str, version: int = 1) -> int:
        client.send(handshake(9001))
        await client.receives(9001)
        client.send(presents(9002, sasl.plain(name, USERS.get(name, "hers")), version))
        (said,) = await client.receives(9002)
        return sasl.parse_authenticate(said.whole, version).error_code

    def logins(self, result: str, mechanism: str = "PLAIN") -> float:
        return self.forebay.count(LOGINS, mechanism, result)

    @property
    def logins_at_brokers(self) -> int:
        return sum(len(broker.requests(SASL_AUTHENTICATE)) for broker in self.cluster.brokers.values())

    @property
    def asked(self) -> list[Asked]:
        """What brokers were asked on clients' behalf."""
        return [each for broker in self.cluster.brokers.values() for each in broker.requests(LIST_GROUPS)]


@asynccontextmanager
async def gate(listener: dict[str, Any] | None = None, **changed: Any) -> AsyncIterator[Gate]:
    async with FakeCluster(TOPICS, nodes=2) as cluster:
        cluster.produce_versions, cluster.metadata_versions = (3, 8), (0, 12)
        port = free_run(8)
        own = ListenerSettings(
            **{
                "client_authentication": "terminate",
                "upstream_identity": "service",
                "sasl_enabled_mechanisms": ("PLAIN",),
                "plain_sasl_jaas_config": Secret(LINE),
                **(listener or {}),
            }
        )
        if own.upstream_identity != "service":
            cluster.exchange, cluster.users = [], dict(USERS)
        told = {
            "listen": None,
            "listeners": (ListenerAddress("SASL_PLAINTEXT", LOOPBACK, port),),
            "listener_name": {"sasl_plaintext": own},
            "connection_failed_authentication_delay_ms": 1,
            **changed,
        }
        async with running(cluster.bootstrap, **told) as forebay:
            forebay.port = port
            yield Gate(cluster, forebay)


def records(*values: str, correlation_id: int = 1) -> bytes:
    return produce(correlation_id, ("ponds", 0, batch(null_key(*values))))


class TestLoggedIn:
    @in_loop
    @pytest.mark.parametrize("version", [0, 1, 2])
    async def test_a_clients_requests_are_served_as_those_of_a_listener_without_logins(self, version: int) -> None:
        async with gate(linger_ms=50) as it:
            clients = [await it.user(name, version) for name in USERS]
            for client in clients:
                client.send(records("a"), echo(2, b"two"))
            for client in clients:
                (response, echoed) = await client.receives(1, 2)
                assert only(response).error_code == NONE
                assert echoed.body == b"two"
            produced = [asked for broker in it.cluster.brokers.values() for asked in broker.requests(PRODUCE)]
            assert sum(len(asked.values) for asked in produced) == 2
            assert len(produced) == 1, "merged"
            assert it.logins("accepted") == 2

    @in_loop
    async def test_by_tokens_without_a_header_too(self) -> None:
        async with gate() as it:
            client = await it.forebay.client(0)
            client.send(handshake(1, 0), framed(sasl.plain("alice", "hers")), metadata(2, "ponds"))
            await client.receives(1)
            assert (await client.receive()).whole == b""
            await client.receives(2)

    @in_loop
    @pytest.mark.parametrize("size", [1, 3, 1000])
    async def test_however_its_bytes_come(self, size: int) -> None:
        async with gate() as it:
            client = await it.forebay.client(0)
            sent = handshake(1) + presents(2, sasl.plain("alice", "hers")) + metadata(3, "ponds")
            for at in range(0, len(sent), size):
                client.send(sent[at : at + size])
                await asyncio.sleep(0)
            await client.receives(1, 2, 3)

    @in_loop
    async def test_between_the_requests_of_its_login_it_is_not_settled(self) -> None:
        async with gate() as it:
            client = await it.forebay.client(0)
            client.send(handshake(1))
            await client.receives(1)
            (connection,) = it.forebay.app._connections
            assert not connection.settled
            client.send(presents(2, sasl.plain("alice", "hers")))
            await client.receives(2)
            await until(lambda: connection.settled)

    @in_loop
    async def test_people_and_the_journal_are_told_who_it_is_and_brokers_are_not(self, tmp_path: Path) -> None:
        async with gate(journal_dir=str(tmp_path), journal_ledger=True) as it:
            client = await it.forebay.client(0)
            client.send(framed(api_versions.request(1, "till-7", 3, "till", "1.0")))
            await client.receives(1)
            assert it.forebay.clients() == [], "it may be anybody"
            await it.log_in(client, "alice")
            client.send(records("a", correlation_id=3))
            await client.receives(3)
            (seen,) = it.forebay.clients()
            assert (seen.client_id, seen.software, seen.principals) == ("till-7", "till", ["User:alice"])
            await it.forebay.app.drain()
        rows = rows_in(tmp_path)
        assert [row.principal for row in of(LedgerRow, rows)] == ["User:alice"]
        assert [row.principal for row in of(BatchRow, rows)] == [""], "Forebay sends it as itself"

    @in_loop
    async def test_apis_that_would_speak_of_forebays_own_user_are_hidden(self) -> None:
        async with gate() as it:
            client = await it.user("alice")
            client.send(framed(api_versions.request(3, "c", 3, "c", "1")))
            (told,) = await client.receives(3)
            offered = api_versions.parse_api_versions(told.whole, 3)
            assert offered
            assert not OF_ONES_OWN_USER & set(offered)
            client.send(request(min(OF_ONES_OWN_USER), 0, 4, b""))
            assert await client.is_closed()


class TestRefused:
    @in_loop
    async def test_in_words_that_tell_nothing(self) -> None:
        async with gate() as it:
            told = set()
            for token in (sasl.plain("alice", "wrong"), sasl.plain("nobody", "hers"), b"garbage"):
                client = await it.forebay.client(0)
                client.send(handshake(1), presents(2, token))
                _, said = await client.receives(1, 2)
                answer = sasl.parse_authenticate(said.whole, 1)
                told.add(answer._replace(session_lifetime_ms=0))
                assert await client.is_closed()
            assert len(told) == 1
            (answer,) = told
            assert answer.error_code == SASL_AUTHENTICATION_FAILED
            assert answer.error_message is not None
            assert "invalid credentials" in answer.error_message
            assert it.logins("refused") == 3

    @in_loop
    async def test_after_a_while_and_meanwhile_nothing_is_taken(self) -> None:
        async with gate(connection_failed_authentication_delay_ms=3_600_000) as it:
            client = await it.forebay.client(0)
            client.send(handshake(1), presents(2, sasl.plain("alice", "wrong")))
            await client.receives(1)
            client.send(presents(3, sasl.plain("alice", "hers")), echo(4))
            await until(lambda: it.logins("refused"))
            await turns(50)
            assert it.logins("accepted") == 0
            assert not it.asked

    @in_loop
    async def test_a_mechanism_that_there_is_not(self) -> None:
        async with gate() as it:
            client = await it.forebay.client(0)
            client.send(handshake(1, mechanism="GSSAPI"))
            (said,) = await client.receives(1)
            assert sasl.parse_handshake(said.whole) == (UNSUPPORTED_SASL_MECHANISM, ["PLAIN"])
            assert await client.is_closed()
            assert it.logins("refused", "none") == 1

    @in_loop
    async def test_whoever_does_not_log_in_in_time(self) -> None:
        async with gate(authentication_timeout_ms=1) as it:
            silent = await it.forebay.client(0)
            assert await silent.is_closed()
            assert it.logins("timed_out", "none") == 1
            assert len(it.forebay.app._connections) == 0

    @in_loop
    @pytest.mark.parametrize("before", [[], [handshake(1)]], ids=["first", "in the middle"])
    async def test_a_request_that_is_no_login_reaches_nobody(self, before: list[bytes]) -> None:
        async with gate() as it:
            client = await it.forebay.client(0)
            client.send(*before, records("stolen"), echo(2))
            await client.receives(*range(1, 1 + len(before)))
            assert await client.is_closed()
            assert not it.asked
            assert not any(broker.requests(PRODUCE) for broker in it.cluster.brokers.values())

    @in_loop
    async def test_a_frame_that_is_too_large_is_not_waited_for(self) -> None:
        async with gate({"sasl_server_max_receive_size": 2000}) as it:
            client = await it.forebay.client(0)
            client.send((2001).to_bytes(4, "big") + handshake(1)[4:12])
            assert await client.is_closed()

    @in_loop
    async def test_a_frame_that_is_too_short_for_a_request_after_a_login_by_tokens(self) -> None:
        async with gate() as it:
            client = await it.forebay.client(0)
            client.send(handshake(1, 0), framed(sasl.plain("alice", "hers")), echo(2))
            await client.receives(1)
            assert (await client.receive()).whole == b""
            await client.receives(2)
            client.send(framed(b"ab"))
            assert await client.is_closed()
            assert it.forebay.count("forebay_frames_refused_total", "malformed") == 1

    @in_loop
    async def test_its_log_names_who_came_and_no_secret(self) -> None:
        with capture_logs() as logs:
            async with gate() as it:
                client = await it.forebay.client(0)
                client.send(handshake(1), presents(2, sasl.plain("alice", "secret-canary")))
                await client.receives(1, 2)
                await until(lambda: len(it.forebay.app._connections) == 0)
        assert "secret-canary" not in str(logs)
        (told,) = [line for line in logs if line["event"] == "closing a client whose login was refused"]
        assert (told["client"].startswith(LOOPBACK), told["mechanism"]) == (True, "PLAIN")

    @in_loop
    async def test_nothing_is_left_of_those_who_leave_in_the_middle(self) -> None:
        async with gate(connection_failed_authentication_delay_ms=3_600_000) as it:
            for sent in ([], [handshake(1)], [handshake(1), presents(2, b"garbage")], [handshake(1, 0), framed(b"")]):
                client = await it.forebay.client(0)
                client.send(*sent)
                await turns()
                client.close()
            await until(lambda: len(it.forebay.app._connections) == 0)
            assert it.forebay.clients() == []


SESSION = {"connections_max_reauth_ms": 3_600_000}


class TestAgain:
    @in_loop
    async def test_it_is_told_for_how_long(self) -> None:
        async with gate(SESSION) as it:
            client = await it.forebay.client(0)
            client.send(handshake(1), presents(2, sasl.plain("alice", "hers")))
            _, said = await client.receives(1, 2)
            assert sasl.parse_authenticate(said.whole, 1).session_lifetime_ms == 3_600_000

    @in_loop
    async def test_the_same_user_goes_on(self) -> None:
        async with gate(SESSION) as it:
            client = await it.user("alice")
            assert await it.log_in(client, "alice") == NONE
            client.send(metadata(3, "ponds"))
            await client.receives(3)

    @in_loop
    async def test_another_user_does_not(self) -> None:
        async with gate(SESSION) as it:
            client = await it.user("alice")
            assert await it.log_in(client, "bob") == SASL_AUTHENTICATION_FAILED
            assert await client.is_closed()

    @in_loop
    async def test_answers_to_what_came_before_still_go_out(self) -> None:
        async with gate(SESSION) as it:
            client = await it.user("alice")
            for broker in it.cluster.brokers.values():
                broker.holds(PRODUCE)
            client.send(records("a"), handshake(2), presents(3, sasl.plain("bob", "his")))
            await until(lambda: any(broker.requests(PRODUCE) for broker in it.cluster.brokers.values()))
            asked = [each for broker in it.cluster.brokers.values() for each in broker.requests(PRODUCE)]
            await until(lambda: it.logins("refused"))
            asked[0].answer()
            response, _, refused = await client.receives(1, 2, 3)
            assert only(response).error_code == NONE
            assert sasl.parse_authenticate(refused.whole, 1).error_code == SASL_AUTHENTICATION_FAILED
            assert await client.is_closed()

    @in_loop
    async def test_where_sessions_do_not_end_it_is_told_that_this_is_not_the_time(self) -> None:
        async with gate() as it:
            client = await it.user("alice")
            client.send(handshake(1), presents(2, sasl.plain("alice", "hers")), metadata(3, "ponds"))
            shook, said, _ = await client.receives(1, 2, 3)
            assert sasl.parse_handshake(shook.whole) == (ILLEGAL_SASL_STATE, [])
            assert sasl.parse_authenticate(said.whole, 1).error_code == ILLEGAL_SASL_STATE

    @in_loop
    @pytest.mark.parametrize("version", [0, 1])
    async def test_once_its_session_is_over_it_is_closed_at_its_next_request(
        self, version: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with gate(SESSION) as it:
            client = await it.user("alice", version)
            now = monotonic()
            monkeypatch.setattr(terminated_login, "monotonic", lambda: now + 3_601)
            client.send(metadata(3, "ponds"))
            assert await client.is_closed()

    @in_loop
    @pytest.mark.parametrize("sessions", [SESSION, {}], ids=["end", "do not end"])
    async def test_or_once_what_it_has_shown_expires(
        self, sessions: dict[str, int], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def proves(self: PlainExchange, token: bytes) -> Said:
            return Said(b"", Proved("alice", "PLAIN", expires_at=time() + 60))

        monkeypatch.setattr(PlainExchange, "step", proves)
        async with gate(sessions) as it:
            client = await it.forebay.client(0)
            client.send(handshake(1), presents(2, b"a token"), metadata(3, "ponds"))
            _, said, _ = await client.receives(1, 2, 3)
            assert 0 < sasl.parse_authenticate(said.whole, 1).session_lifetime_ms <= 60_000
            now = monotonic()
            monkeypatch.setattr(terminated_login, "monotonic", lambda: now + 61)
            client.send(metadata(4, "ponds"))
            assert await client.is_closed()

    @in_loop
    async def test_or_it_logs_in_again_just_then(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async with gate(SESSION) as it:
            client = await it.user("alice")
            now = monotonic()
            monkeypatch.setattr(terminated_login, "monotonic", lambda: now + 3_601)
            assert await it.log_in(client, "alice") == NONE
            client.send(metadata(3, "ponds"))
            await client.receives(3)


_PLAIN = MODULES["PLAIN"]
MAP = f"""
[identities.a]
"sasl.mechanism" = "PLAIN"
"sasl.jaas.config" = "{_PLAIN} required username='alice' password='hers';"
[identities.b]
"sasl.mechanism" = "PLAIN"
"sasl.jaas.config" = "{_PLAIN} required username='bob' password='his';"
[principals]
"""
TOWN = f"{MODULES['PLAIN']} required user_alice='hers' user_bob='his' user_amy='hers' user_eve='hers';"


def mapped(folder: Path, principals: str = "'User:alice'='a'\n'User:amy'='a'\n'User:bob'='b'") -> dict[str, Any]:
    path = folder / "identities.toml"
    path.write_text(MAP + principals)
    path.chmod(0o600)
    return {
        "upstream_identity": "mapped",
        "upstream_identities_location": str(path),
        "plain_sasl_jaas_config": Secret(TOWN),
        "node_ports": {},
    }


UPSTREAM = {"security_protocol": "SASL_PLAINTEXT"}


async def sends_without_acks_while_no_broker_reads(it: Gate) -> None:
    client = await it.user("alice", node=None)
    client.send(metadata(1, "alice-ponds"))
    await client.receives(1)
    for broker in it.cluster.brokers.values():
        broker.reads(False)
    client.send(produce(2, ("alice-ponds", 0, batch(null_key("late"))), acks=0))
    await until(lambda: it.forebay.count("forebay_upstream_connections"))


class TestMapped:
    @in_loop
    async def test_records_are_merged_by_identity_and_sent_as_that(self, tmp_path: Path) -> None:
        async with gate(
            mapped(tmp_path), **UPSTREAM, linger_ms=50, journal_dir=str(tmp_path), journal_ledger=True
        ) as it:
            topics = {"alice": "alice-ponds", "amy": "alice-ponds", "bob": "bob-ponds"}
            clients = {name: await it.user(name, node=None) for name in topics}
            for name, client in clients.items():
                client.send(produce(1, (topics[name], 0, batch(null_key(name)))), echo(2, b"two"))
            for client in clients.values():
                (response, echoed) = await client.receives(1, 2)
                assert only(response).error_code == NONE
                assert echoed.body == b"two"
            asked = [each for broker in it.cluster.brokers.values() for each in broker.requests(PRODUCE)]
            assert sorted((each.user, sorted(each.values)) for each in asked) == [
                ("alice", ["alice", "amy"]),
                ("bob", ["bob"]),
            ]
            assert sorted(each.user for each in it.asked) == ["alice", "alice", "bob"]
            assert it.forebay.count("forebay_identities") == 2
            assert {who for seen in it.forebay.clients() for who in seen.principals} == {
                f"User:{name}" for name in topics
            }
            await it.forebay.app.drain()
        rows = rows_in(tmp_path)
        assert {row.principal for row in of(LedgerRow, rows)} == {f"User:{name}" for name in topics}
        assert {row.principal for row in of(BatchRow, rows)} == {"User:alice", "User:bob"}

    @in_loop
    async def test_brokers_versions_are_told_though_forebay_has_no_login(self, tmp_path: Path) -> None:
        async with gate(mapped(tmp_path), **UPSTREAM) as it:
            client = await it.forebay.client()
            client.send(framed(api_versions.request(1, "c", 3, "c", "1")), handshake(2))
            (told, _) = await client.receives(1, 2)
            assert api_versions.parse_api_versions(told.whole, 3)

    @in_loop
    async def test_what_an_identity_may_not_is_refused_by_the_broker(self, tmp_path: Path) -> None:
        async with gate(mapped(tmp_path), **UPSTREAM) as it:
            client = await it.user("amy", node=None)
            client.send(produce(1, ("bob-ponds", 0, batch(null_key("stolen")))))
            (response,) = await client.receives(1)
            assert only(response).error_code == TOPIC_AUTHORIZATION_FAILED

    @in_loop
    async def test_one_that_gets_no_producer_ids_is_missed_among_those_that_do(self, tmp_path: Path) -> None:
        async with gate(mapped(tmp_path), **UPSTREAM, enable_idempotence=True) as it:
            it.cluster.idempotent = True
            it.cluster.id_errors = [CLUSTER_AUTHORIZATION_FAILED]
            with capture_logs() as logs:
                bob = await it.user("bob", node=None)
                await until(lambda: it.forebay.count("forebay_errors_total", "upstream", "idempotence") == 1)
            refused = [line["user"] for line in logs if line["event"].startswith("brokers give out no producer ids")]
            assert refused == ["bob"]
            alice = await it.user("alice", node=None)
            await until(lambda: it.forebay.count("forebay_producer_ids") == 2)
            for without, client, topic in ((0, alice, "alice-ponds"), (1, bob, "bob-ponds")):
                client.send(produce(1, (topic, 0, batch(null_key("a")))))
                await client.receives(1)
                assert it.forebay.count("forebay_identities_without_producer_ids") == without

    @in_loop
    async def test_whoever_has_none_does_not_get_in_and_the_log_says_why(self, tmp_path: Path) -> None:
        async with gate(mapped(tmp_path), **UPSTREAM) as it:
            client = await it.forebay.client()
            assert await it.log_in(client, "eve") == SASL_AUTHENTICATION_FAILED
            assert await client.is_closed()
            assert it.forebay.count("forebay_identities") == 0

    @in_loop
    async def test_beyond_the_most_a_client_is_closed_to_come_again(self, tmp_path: Path) -> None:
        async with gate(mapped(tmp_path), **UPSTREAM, max_identities=1) as it:
            alice = await it.user("alice", node=None)
            bob = await it.forebay.client()
            bob.send(handshake(1), presents(2, sasl.plain("bob", "his")))
            await bob.receives(1)
            assert await bob.is_closed()
            amy = await it.user("amy", node=None)
            for client in (alice, amy):
                client.send(metadata(3, "alice-ponds"))
                await client.receives(3)

    @in_loop
    async def test_who_becomes_somebody_else_must_log_in_again(self, tmp_path: Path) -> None:
        async with gate(mapped(tmp_path), **UPSTREAM) as it:
            alice, amy, bob = [await it.user(name, node=None) for name in ("alice", "amy", "bob")]
            mapped(tmp_path, "'User:alice'='a'\n'User:amy'='b'")
            it.forebay.app.reload()
            door = it.forebay.app._listeners._contexts[0].door
            assert door is not None
            before = door.identities.generation
            await until(lambda: door.identities.generation != before)
            for client in (amy, bob):
                client.send(metadata(3, "bob-ponds"))
                assert await client.is_closed()
            alice.send(metadata(3, "alice-ponds"))
            await alice.receives(3)
            amy = await it.user("amy", node=None)
            amy.send(produce(1, ("bob-ponds", 0, batch(null_key("now")))))
            (response,) = await amy.receives(1)
            assert only(response).error_code == NONE

    @in_loop
    async def test_an_identity_is_forgotten_after_its_last_client(self, tmp_path: Path) -> None:
        async with gate(mapped(tmp_path), **UPSTREAM) as it:
            client = await it.user("alice", node=None)
            client.close()
            await until(lambda: len(it.forebay.app._connections) == 0)
            realms = it.forebay.app._client_realms

            def forgotten() -> bool:
                realms.sweep(monotonic())
                realms.sweep(monotonic() + KEPT_S + 1)
                return it.forebay.count("forebay_identities") == 0

            await until(forgotten)  # what it asks brokers is let go on first

    @pytest.mark.parametrize("drains", [False, True])
    @in_loop
    async def test_an_identity_stays_until_records_without_acks_of_its_last_client_have_gone(
        self, drains: bool, tmp_path: Path
    ) -> None:
        async with gate(mapped(tmp_path), **UPSTREAM, topics_exclude=("alice-ponds",)) as it:
            app = it.forebay.app
            await sends_without_acks_while_no_broker_reads(it)
            draining = asyncio.create_task(app.drain()) if drains else None
            if draining is None:
                next(iter(app._connections)).abort()
            await until(lambda: not len(app._connections))
            (home,) = app._client_realms._realms.values()
            await until(lambda: not home.realm.view.updater.asking)
            app._client_realms.sweep(monotonic())
            assert home.awake
            for broker in it.cluster.brokers.values():
                broker.reads(True)
            await until(lambda: it.cluster.values("alice-ponds", 0) == ["late"])
            if draining is not None:
                await soon(draining)
            await until(lambda: home.realm.at_rest)
            app._client_realms.sweep(monotonic())
            assert not home.awake

    @in_loop
    async def test_who_stops_at_once_waits_for_no_records_without_acks_of_an_identity(self, tmp_path: Path) -> None:
        async with gate(mapped(tmp_path), **UPSTREAM, topics_exclude=("alice-ponds",)) as it:
            await sends_without_acks_while_no_broker_reads(it)
            (realm,) = it.forebay.app._client_realms
            next(iter(it.forebay.app._connections)).abort()
            await until(lambda: realm.departing)
            it.forebay.app.abort()
            assert not realm.departing

    @in_loop
    async def test_nor_does_an_identity_stay_for_a_broker_that_does_not_read_them(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with gate(mapped(tmp_path), **UPSTREAM, topics_exclude=("alice-ponds",)) as it:
            app = it.forebay.app
            client = await it.user("alice", node=None)
            client.send(metadata(0, "alice-ponds"), echo(1))
            await client.receives(0, 1)
            for broker in it.cluster.brokers.values():
                broker.reads(False)
            (connection,) = app._connections
            client.send(*[produce(2, ("alice-ponds", 0, batch(null_key("x" * 2_000_000))), acks=0)] * 16)
            await until(lambda: "broker slow" in connection.holds)
            (home,) = app._client_realms._realms.values()
            connection.abort()
            await until(lambda: home.realm.departing)
            now = monotonic() + 1_000
            monkeypatch.setattr(opaque_connection, "monotonic", lambda: now)
            await until(lambda: not home.realm.departing)
            await until(lambda: home.realm.at_rest)
            app._client_realms.sweep(monotonic())
            assert not home.awake


class TestProof:
    """What a login has revealed counts here only once a broker takes it (as of upstream.identity=client)."""

    @pytest.fixture(autouse=True)
    def need(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(UpstreamIdentities, "need_proof", True)

    @in_loop
    async def test_a_broker_is_asked_once_as_long_as_its_word_counts(self, tmp_path: Path) -> None:
        async with gate(mapped(tmp_path), **UPSTREAM) as it:
            client = await it.user("alice", node=None)
            assert it.logins_at_brokers == 1
            client.send(metadata(3, "alice-ponds"))
            await client.receives(3)
            before = it.logins_at_brokers
            await it.user("amy", node=None)
            assert it.logins_at_brokers == before
            assert it.forebay.count("forebay_identities") == 1

    @in_loop
    async def test_who_is_refused_there_is_refused_here_and_joins_nobody(self, tmp_path: Path) -> None:
        async with gate(mapped(tmp_path), **UPSTREAM) as it:
            it.cluster.users["alice"] = "another"
            client = await it.forebay.client()
            assert await it.log_in(client, "alice") == SASL_AUTHENTICATION_FAILED
            assert await client.is_closed()
            assert it.forebay.count("forebay_identities") == 0
            it.cluster.users["alice"] = "hers"
            while await it.log_in(await it.forebay.client(), "alice") != NONE:
                assert it.forebay.count("forebay_identities") == 0

    @in_loop
    async def test_a_login_that_is_refused_again_and_again_is_left_alone_for_a_while(self, tmp_path: Path) -> None:
        """A broker, or what it asks, may lock out who keeps trying. Other logins are not concerned."""
        async with gate(
            mapped(tmp_path), **UPSTREAM, reconnect_backoff_ms=100_000, reconnect_backoff_max_ms=100_000
        ) as it:
            it.cluster.users["alice"] = "another"
            for name in ("alice", "alice", "amy"):
                assert await it.log_in(await it.forebay.client(), name) == SASL_AUTHENTICATION_FAILED
            assert it.logins_at_brokers == 1
            await it.user("bob", node=None)
            path = tmp_path / "identities.toml"
            path.write_text(path.read_text().replace("hers", "another"))
            it.forebay.app.reload()
            door = it.forebay.app._listeners._contexts[0].door
            assert door is not None
            before = door.identities.generation
            await until(lambda: door.identities.generation != before)
            await it.user("alice", node=None)

    @in_loop
    async def test_a_broker_is_asked_once_for_all_who_log_in_at_once(self, tmp_path: Path) -> None:
        async with gate(mapped(tmp_path), **UPSTREAM) as it:
            it.cluster.users["alice"] = "another"
            clients = [await it.forebay.client() for _ in range(30)]
            said = await asyncio.gather(*[it.log_in(client, "alice") for client in clients])
            assert set(said) == {SASL_AUTHENTICATION_FAILED}
            assert it.logins_at_brokers == 1

    @in_loop
    async def test_where_no_broker_says_anything_it_may_come_again(self, tmp_path: Path) -> None:
        async with gate(mapped(tmp_path), **UPSTREAM) as it:
            for broker in it.cluster.brokers.values():
                broker.down()
            client = await it.forebay.client()
            client.send(handshake(1), presents(2, sasl.plain("alice", "hers")))
            await client.receives(1)
            assert await client.is_closed(), "and is told nothing that would be for good"


@in_loop
async def test_a_fault_of_ours_lets_nobody_in(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(self: PlainExchange, token: bytes) -> Said:
        raise RuntimeError("a bug")

    monkeypatch.setattr(PlainExchange, "step", fails)
    async with gate(authentication_timeout_ms=200) as it:
        client = await it.forebay.client(0)
        client.send(handshake(1), presents(2, sasl.plain("alice", "hers")), echo(3))
        await client.receives(1)
        await until(lambda: len(it.forebay.app._connections) == 0)
        assert not it.asked


class TestCertificates:
    """A listener with TLS and without SASL, where a certificate is the login."""

    @staticmethod
    def told(authority: Authority, client_auth: str) -> dict[str, Any]:
        return {
            "client_authentication": "terminate",
            "upstream_identity": "service",
            "ssl_client_auth": client_auth,
            "ssl_keystore_location": str(authority.issue("forebay", LOOPBACK)),
            "ssl_truststore_location": str(authority.pem),
            "ssl_principal_mapping_rules": "RULE:^CN=(till[^,]*),.*$/$1/U",
        }

    @in_loop
    async def test_who_shows_one_is_somebody_at_once(self, tmp_path: Path) -> None:
        authority = Authority(tmp_path)
        async with (
            FakeCluster(TOPICS) as cluster,
            running(cluster.bootstrap, tls=self.told(authority, "required")) as it,
        ):
            client = await it.client(0, authority.client_context(authority.issue("till", subject="till-7")))
            client.send(records("a"))
            (response,) = await client.receives(1)
            assert only(response).error_code == NONE
            (connection,) = it.app._connections
            assert connection._client.user == "User:TILL-7"
            seen = connection._who._seen
            assert seen is not None
            assert seen.principals == ["User:TILL-7"]
            client.send(handshake(2))
            (answer,) = await client.receives(2)
            assert answer.body[:2] == ILLEGAL_SASL_STATE.to_bytes(2, "big")

    @in_loop
    @pytest.mark.parametrize("identity", ["service", "mapped"])
    async def test_behind_one_port_apis_that_would_speak_of_anothers_user_are_hidden_too(
        self, identity: str, tmp_path: Path
    ) -> None:
        authority = Authority(tmp_path)
        told = {**self.told(authority, "required"), "producers_only": True}
        if identity == "mapped":
            told |= mapped(tmp_path, "'User:TILL-7'='a'")
            del told["plain_sasl_jaas_config"]
        login = Secret(f"{_PLAIN} required username='a' password='its';")
        async with FakeCluster(TOPICS) as cluster:
            cluster.exchange, cluster.users = [], {**USERS, "a": "its"}
            async with running(
                cluster.bootstrap, tls=told, **{**UPSTREAM, "sasl_mechanism": "PLAIN", "sasl_jaas_config": login}
            ) as it:
                context = authority.client_context(authority.issue("till", subject="till-7"))
                for key in sorted(OF_ONES_OWN_USER):
                    client = await it.client(None, context)
                    client.send(framed(api_versions.request(1, "c", 3, "c", "1")))
                    (offers,) = await client.receives(1)
                    assert key not in api_versions.parse_api_versions(offers.whole, 3)
                    client.send(request(key, 0, 2, bytes(8)))
                    assert await client.is_closed()
                    assert not cluster[0].requests(key)

    @in_loop
    async def test_behind_one_port_untouched_records_go_as_its_identity_too(self, tmp_path: Path) -> None:
        authority = Authority(tmp_path)
        told = {**self.told(authority, "required"), **mapped(tmp_path, "'User:TILL-7'='a'"), "producers_only": True}
        del told["plain_sasl_jaas_config"]
        changed = {
            **UPSTREAM,
            "topics_exclude": ("alice-ponds",),
            "sasl_mechanism": "PLAIN",
            "sasl_jaas_config": Secret(f"{_PLAIN} required username='a' password='its';"),
        }
        async with FakeCluster(TOPICS) as cluster:
            cluster.exchange, cluster.users = [], {**USERS, "a": "its"}
            async with running(cluster.bootstrap, tls=told, **changed) as it:
                client = await it.client(None, authority.client_context(authority.issue("till", subject="till-7")))
                client.send(produce(1, ("alice-ponds", 0, batch(null_key("hers")))))
                (response,) = await client.receives(1)
                assert only(response).error_code == NONE
                assert [asked.user for asked in cluster[0].requests(PRODUCE)] == ["alice"], "not as Forebay, which may"

    @in_loop
    async def test_whom_no_rule_names_is_closed_and_nothing_of_it_is_served(self, tmp_path: Path) -> None:
        authority = Authority(tmp_path)
        changed = {"connection_failed_authentication_delay_ms": 1}
        async with (
            FakeCluster(TOPICS) as cluster,
            running(cluster.bootstrap, tls=self.told(authority, "required"), **changed) as it,
        ):
            client = await it.client(0, authority.client_context(authority.issue("bob", subject="bob")))
            client.send(records("a"))
            assert await client.is_closed()
            assert cluster[0].requests(PRODUCE) == []

    @in_loop
    async def test_whoever_shows_none_where_none_is_needed_is_anonymous(self, tmp_path: Path) -> None:
        authority = Authority(tmp_path)
        async with (
            FakeCluster(TOPICS) as cluster,
            running(cluster.bootstrap, tls=self.told(authority, "requested")) as it,
        ):
            client = await it.client(0, authority.client_context())
            client.send(records("a"))
            await client.receives(1)
            (connection,) = it.app._connections
            assert connection._client.user == "User:ANONYMOUS"
