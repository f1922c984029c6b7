"""Clients that log in by PLAIN, where they are to be recognised: who is served as whom, and from when until when."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from forebay_codecs import api_versions, sasl
from forebay_codecs.api_keys import METADATA, PRODUCE, SASL_AUTHENTICATE, SASL_HANDSHAKE
from forebay_codecs.error_codes import NONE, TOPIC_AUTHORIZATION_FAILED
from forebay_policies.identities import KEPT_S
from forebay_policies.journal_rows import BatchRow, LedgerRow, ObservedRow
from forebay_proxy.brokers.connector import Connector
from forebay_proxy.clients import login_watch
from forebay_proxy.config.kinds import ListenerAddress
from forebay_proxy.config.listeners import ListenerSettings
from forebay_proxy.produce import one_principal
from tests.kit.app import Running, running
from tests.kit.event_loop import in_loop, turns, until
from tests.kit.fake_broker import SASL_AUTHENTICATION_FAILED, FakeCluster
from tests.kit.journal import of, rows_in
from tests.kit.ports import LOOPBACK, free_run
from tests.kit.wire import (
    LIST_GROUPS,
    WireClient,
    batch,
    echo,
    framed,
    keyed,
    metadata,
    metadata_of,
    null_key,
    only,
    produce,
    request,
)

USERS = {"alice": "hers", "bob": "his"}
TOPICS = {"alice-ponds": [0, 1], "bob-ponds": [0, 1]}


def handshake(correlation_id: int, version: int = 1, mechanism: str = "PLAIN") -> bytes:
    return request(SASL_HANDSHAKE, version, correlation_id, len(mechanism).to_bytes(2, "big") + mechanism.encode())


def presents(correlation_id: int, token: bytes, version: int = 1) -> bytes:
    return framed(sasl.authenticate_request(correlation_id, "client", version, token))


class Town:
    """Forebay with one listener for users, before a cluster of two brokers that knows them."""

    def __init__(self, cluster: FakeCluster, forebay: Running) -> None:
        self.cluster = cluster
        self.forebay = forebay

    async def log_in(self, client: WireClient, user: str, version: int = 1, password: str = "") -> int:
        """Returns the broker's error code."""
        token = sasl.plain(user, password or self.cluster.users.get(user, "none"))
        client.send(handshake(9001))
        await client.receives(9001)
        client.send(presents(9002, token, version))
        (said,) = await client.receives(9002)
        return sasl.parse_authenticate(said.whole, version).error_code

    async def user(self, user: str, version: int = 1, node: int | None = 0) -> WireClient:
        client = await self.forebay.client(node)
        assert await self.log_in(client, user, version) == NONE
        return client

    @property
    def identities(self) -> float:
        return self.forebay.count("forebay_identities")

    def records(self, fate: str) -> float:
        return self.forebay.count("forebay_records_total", fate)

    def sweep(self, now: float) -> None:
        self.forebay.app._client_realms.sweep(now)

    async def gives_up_those_who_left(self) -> None:
        """Who sends no more may still wait for answers, but not for so long."""
        connections = self.forebay.app._connections
        await until(lambda: all(each.done for each in connections))
        connections.sweep(monotonic() + 1e6)
        await until(lambda: len(connections) == 0)

    def producers(self) -> set[str]:
        """Whose connections have carried records."""
        return {asked.user for broker in self.cluster.brokers.values() for asked in broker.requests(PRODUCE)}


@asynccontextmanager
async def town(**changed: Any) -> AsyncIterator[Town]:
    async with FakeCluster(TOPICS, nodes=2) as cluster:
        cluster.exchange, cluster.users = [], dict(USERS)
        cluster.produce_versions, cluster.metadata_versions = (3, 8), (0, 12)
        port = free_run(8)
        told = {
            "listen": None,
            "listeners": (ListenerAddress("SASL_PLAINTEXT", LOOPBACK, port),),
            "listener_name": {
                "sasl_plaintext": ListenerSettings(upstream_identity="client", node_ports={0: port + 1, 1: port + 2})
            },
            "security_protocol": "SASL_PLAINTEXT",
            **changed,
        }
        async with running(cluster.bootstrap, **told) as forebay:
            forebay.port = port
            scout = await forebay.client()  # so that brokers are known
            found = Town(cluster, forebay)
            assert await found.log_in(scout, "alice") == NONE
            scout.send(metadata(1, "alice-ponds"))
            await scout.receives(1)
            scout.close()
            await until(lambda: len(forebay.app._connections) == 0)
            for broker in cluster.brokers.values():
                broker.forget()
            yield found


class Clock:
    now = 1000.0


@asynccontextmanager
async def timed_sessions(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Town, Clock]]:
    """A town whose sessions last for five seconds of a clock that is turned by hand."""
    clock = Clock()
    async with town() as it:
        monkeypatch.setattr(login_watch, "monotonic", lambda: clock.now)
        it.cluster.session_ms = 5000
        yield it, clock


def records(topic: str, *values: str, partition: int = 0, correlation_id: int = 1) -> bytes:
    return produce(correlation_id, *[(topic, partition, batch(null_key(value))) for value in values])


class TestServed:
    @in_loop
    @pytest.mark.parametrize("version", [0, 1, 2])
    async def test_records_of_a_user_are_merged_and_moved_and_sent_as_that_user(self, version: int) -> None:
        async with town(linger_ms=50) as it:
            clients = [await it.user("alice", version) for _ in range(3)]
            for number, client in enumerate(clients):
                client.send(records("alice-ponds", f"v{number}"))
            for client in clients:
                (response,) = await client.receives(1)
                assert only(response).error_code == NONE
            asked = [a for broker in it.cluster.brokers.values() for a in broker.requests(PRODUCE)]
            assert sorted(value for each in asked for value in each.values) == ["v0", "v1", "v2"]
            assert len(asked) < 3
            assert it.producers() == {"alice"}
            assert {each.client_id for each in asked} == {"forebay"}
            assert (it.records("untouched"), it.identities) == (0, 1)

    @in_loop
    async def test_what_lingers_of_one_leaves_when_another_waits_for_its_memory(self) -> None:
        small = {"buffer_memory": 16_384, "batch_max_size": 16_384}
        async with town(linger_ms=60_000, delivery_timeout_ms=120_000, **small) as it:
            alice, bob = await it.user("alice"), await it.user("bob")
            alice.send(records("alice-ponds", "a" * 8_000))
            await until(lambda: it.forebay.count("forebay_queued_bytes") > 0)
            bob.send(records("bob-ponds", "b" * 12_000))
            await alice.receives(1)

    @in_loop
    async def test_what_goes_on_untouched_waits_for_no_memory_however_much_its_user_holds_while_another_waits(
        self,
    ) -> None:
        async with town(buffer_memory=65_536, batch_max_size=16_384, topics_exclude=("alice-ponds",)) as it:
            it.cluster.topics["alice-lakes"] = [0, 0, 0]
            alice, beside, bob = await it.user("alice"), await it.user("alice"), await it.user("bob")
            broker = it.cluster[0]
            broker.holds(PRODUCE)
            alice.send(produce(1, ("alice-ponds", 0, batch(keyed("first")))))
            away = await broker.receives(PRODUCE)
            beside.send(produce(1, *[("alice-lakes", index, batch(keyed("a" * 12_000))) for index in range(3)]))
            await broker.receives(PRODUCE)
            bob.send(produce(1, ("bob-ponds", 0, batch(keyed("b" * 12_000)))))
            await until(lambda: it.forebay.count("forebay_buffer_memory_waiters") == 1)
            it.forebay.change(topics_exclude=())
            alice.send(produce(2, ("alice-ponds", 0, batch(keyed("second")))))
            behind = await broker.receives(PRODUCE)
            assert (behind.connection, behind.values) == (away.connection, ["second"])
            assert it.forebay.count("forebay_buffer_memory_waiters") == 1

    @in_loop
    async def test_two_users_share_no_request_and_no_connection(self) -> None:
        async with town(linger_ms=50) as it:
            alice, bob = await it.user("alice"), await it.user("bob")
            alice.send(records("alice-ponds", "a"))
            bob.send(records("bob-ponds", "b"))
            await alice.receives(1)
            await bob.receives(1)
            for broker in it.cluster.brokers.values():
                for asked in broker.requests(PRODUCE):
                    assert all(topic.startswith(asked.user) for topic, _ in asked.partitions)
                    assert asked.connection.sessions == 1
            assert it.producers() == {"alice", "bob"}
            assert it.identities == 2

    @in_loop
    async def test_a_neighbours_topic_is_refused_by_the_broker_itself(self) -> None:
        async with town() as it:
            alice, bob = await it.user("alice"), await it.user("bob")
            alice.send(records("alice-ponds", "a"))
            await alice.receives(1)
            bob.send(records("alice-ponds", "b"))
            (response,) = await bob.receives(1)
            assert only(response).error_code == TOPIC_AUTHORIZATION_FAILED
            assert sum(map(len, it.cluster.log.values())) == 1

    @in_loop
    async def test_the_journal_tells_whose_records_they_are(self, tmp_path: Path) -> None:
        async with town(journal_dir=str(tmp_path), journal_ledger=True) as it:
            for user in ("alice", "bob"):
                client = await it.user(user)
                client.send(records(f"{user}-ponds", "a"))
                await client.receives(1)
            await it.forebay.app.drain()
        rows = rows_in(tmp_path)
        own = {("alice-ponds", "User:alice"), ("bob-ponds", "User:bob")}
        assert {(row.topic, row.principal) for row in of(BatchRow, rows)} == own
        assert {(row.topic, row.principal) for row in of(LedgerRow, rows)} == own

    @in_loop
    @pytest.mark.parametrize("meanwhile", ["leaves", "logs in again"])
    async def test_whose_records_they_are_is_who_it_was_when_it_sent_them(self, meanwhile: str, tmp_path: Path) -> None:
        async with town(journal_dir=str(tmp_path), journal_ledger=True) as it:
            client = await it.user("alice")
            it.cluster[0].holds(PRODUCE)
            client.send(produce(1, ("alice-ponds", 0, batch(keyed("a")))))
            asked = await it.cluster[0].receives(PRODUCE)
            if meanwhile == "leaves":
                client.close()
                await it.gives_up_those_who_left()
            else:
                client.send(handshake(2))
                await turns(20)
            asked.answer()
            await it.forebay.app.drain()
        assert [row.principal for row in of(LedgerRow, rows_in(tmp_path))] == ["User:alice"]

    @in_loop
    async def test_whose_records_are_observed_is_who_it_was_when_it_sent_them(self, tmp_path: Path) -> None:
        async with town(journal_dir=str(tmp_path), moves="observe") as it:
            client = await it.user("alice")
            broker = it.cluster[0]
            broker.forget()
            broker.holds(PRODUCE, SASL_HANDSHAKE)
            client.send(produce(1, ("alice-ponds", 0, batch(keyed("a")))))
            client.send(handshake(2))
            for api in (PRODUCE, SASL_HANDSHAKE):
                (await broker.receives(api)).answer()
            await client.receives(1, 2)
            await it.forebay.app.drain()
        assert [row.principal for row in of(ObservedRow, rows_in(tmp_path))] == ["User:alice"]

    @in_loop
    async def test_metadata_is_each_users_own(self) -> None:
        async with town() as it:
            alice, bob = await it.user("alice"), await it.user("bob")
            for number in (2, 3):  # the second time from the cache
                alice.send(metadata(number, "alice-ponds"))
                (told,) = await alice.receives(number)
                assert [len(topic.partitions) for topic in metadata_of(told).topics] == [2]
            bob.send(metadata(4, "alice-ponds"))
            (told,) = await bob.receives(4)
            assert [topic.error_code for topic in metadata_of(told).topics] == [TOPIC_AUTHORIZATION_FAILED]
            asked = [each for broker in it.cluster.brokers.values() for each in broker.requests(METADATA)]
            assert {each.client_id for each in asked} <= {"forebay", "old-producer"}
            ports = {broker.port for broker in metadata_of(told).brokers.values()}
            assert ports <= {it.forebay.node_port(0), it.forebay.node_port(1)}

    @in_loop
    async def test_everything_else_stays_on_the_clients_own_connection(self) -> None:
        async with town() as it:
            client = await it.user("alice")
            client.send(echo(2, b"two"), framed(api_versions.request(3, "client", 0, "c", "1")))
            await client.receives(2, 3)
            (asked,) = it.cluster[0].requests(LIST_GROUPS)
            assert asked.user == "alice"

    @in_loop
    async def test_their_broker_may_leave_its_idle_connection_and_they_stay(self) -> None:
        """As clients of other listeners do: Forebay can log in as them again."""
        async with town() as it:
            client = await it.user("alice")
            it.cluster[0].close_connections()
            await turns(20)
            client.send(records("alice-ponds", "a"), echo(2, b"two"))
            _, echoed = await client.receives(1, 2)
            assert echoed.body == b"two"
            assert {asked.user for asked in it.cluster[0].requests(LIST_GROUPS)} == {"alice"}

    @in_loop
    async def test_a_login_by_tokens_without_a_header_is_one_as_well(self) -> None:
        """SaslHandshake v0, of clients that gain most."""
        async with town() as it:
            client = await it.forebay.client(0)
            client.send(handshake(1, 0), framed(sasl.plain("alice", "hers")))
            await client.receives(1)
            assert (await client.receive()).whole == b""
            client.send(records("alice-ponds", "a"), metadata(2, "alice-ponds", "bob-ponds"), echo(3))
            _, told, _ = await client.receives(1, 2, 3)
            codes = {topic.name: topic.error_code for topic in metadata_of(told).topics}
            assert codes == {"alice-ponds": NONE, "bob-ponds": TOPIC_AUTHORIZATION_FAILED}
            assert (it.records("untouched"), it.producers()) == (0, {"alice"})

    @in_loop
    async def test_a_wrong_token_without_a_header_joins_nobody(self) -> None:
        async with town() as it:
            for token in (sasl.plain("alice", "wrong"), b"\0alice", b"n,,n=alice,r=abc", b""):
                client = await it.forebay.client(0)
                client.send(handshake(1, 0), framed(token), records("alice-ponds", "a", correlation_id=2))
                await client.receives(1)
                assert await client.is_closed()
            assert it.cluster.log == {}


class TestNotServed:
    @in_loop
    async def test_nothing_in_front_of_the_brokers_yes(self) -> None:
        async with town() as it:
            warm = await it.user("alice")
            warm.send(metadata(1, "alice-ponds"), records("alice-ponds", "a", correlation_id=2))
            await warm.receives(1, 2)
            for first in ([], [handshake(1)]):
                for last in (metadata(3, "alice-ponds"), records("alice-ponds", "stolen")):
                    client = await it.forebay.client(0)
                    client.send(*first, last)
                    await client.receives(*[1 for _ in first])
                    assert await client.is_closed()
            assert sum(map(len, it.cluster.log.values())) == 1

    @in_loop
    @pytest.mark.parametrize(("user", "password"), [("alice", "wrong"), ("carol", "hers"), ("bob", "hers")])
    async def test_a_wrong_login_is_refused_in_the_brokers_words_and_joins_nobody(
        self, user: str, password: str
    ) -> None:
        async with town() as it:
            await it.user("alice")
            client = await it.forebay.client(0)
            assert await it.log_in(client, user, password=password) == SASL_AUTHENTICATION_FAILED
            assert await client.is_closed()
            assert it.identities == 1

    @in_loop
    async def test_a_login_must_be_by_plain_from_its_handshake_on(self) -> None:
        """What looks like a token of PLAIN may be anything to another mechanism."""
        async with town() as it:
            client = await it.forebay.client(0)
            client.send(handshake(1, mechanism="SCRAM-SHA-256"), presents(2, sasl.plain("alice", "hers")))
            await client.receives(1, 2)
            client.send(records("alice-ponds", "a"))
            await client.receives(1)
            assert it.records("untouched") == 1
            (asked,) = it.cluster[0].requests(PRODUCE)
            assert asked.client_id != "forebay"

    @in_loop
    async def test_a_second_token_is_none_of_plains(self) -> None:
        async with town() as it:
            it.cluster[0].holds(SASL_AUTHENTICATE)
            client = await it.forebay.client(0)
            client.send(handshake(1), presents(2, sasl.plain("alice", "hers")), presents(3, sasl.plain("bob", "his")))
            for _ in "ab":
                (await it.cluster[0].receives(SASL_AUTHENTICATE)).answer()
            await client.receives(1, 2, 3)
            client.send(records("alice-ponds", "a"))
            await client.receives(1)
            assert it.records("untouched") == 1

    @in_loop
    async def test_a_mechanism_that_the_broker_has_not_is_no_login(self) -> None:
        async with town() as it:
            it.cluster.one_at_a_time = True
            it.cluster[0].holds(SASL_HANDSHAKE)
            client = await it.forebay.client(0)
            client.send(handshake(1), presents(2, sasl.plain("alice", "hers")))
            (await it.cluster[0].receives(SASL_HANDSHAKE)).respond(b"\0\x21" + bytes(4))
            await client.receives(1, 2)
            client.send(records("alice-ponds", "a"))
            await client.receives(1)
            assert it.records("untouched") == 1

    @in_loop
    async def test_records_that_are_on_their_way_untouched_are_not_overtaken(self) -> None:
        """A client that does not wait for the answer to its login."""
        async with town() as it:
            it.cluster[0].holds(PRODUCE)
            client = await it.forebay.client(0)
            token = sasl.plain("alice", "hers")
            client.send(handshake(1), presents(2, token), produce(3, ("alice-ponds", 0, batch(keyed("first")))))
            await client.receives(1, 2)
            first = await it.cluster[0].receives(PRODUCE)
            client.send(produce(4, ("alice-ponds", 0, batch(keyed("second")))))
            second = await it.cluster[0].receives(PRODUCE)
            assert first.connection is second.connection
            first.answer()
            second.answer()
            await client.receives(3, 4)
            assert it.cluster.values("alice-ponds", 0) == ["first", "second"]

    @in_loop
    async def test_beyond_the_most_identities_clients_are_untouched(self) -> None:
        async with town(max_identities=1) as it:
            alice = await it.user("alice")
            bob = await it.user("bob")
            bob.send(records("bob-ponds", "b"))
            await bob.receives(1)
            assert (it.records("untouched"), it.identities) == (1, 1)
            alice.send(records("alice-ponds", "a"))
            await alice.receives(1)
            assert it.records("untouched") == 1

    @in_loop
    async def test_without_the_setting_everything_is_untouched(self) -> None:
        async with town(listener_name={}) as it:
            client = await it.user("alice")
            client.send(records("alice-ponds", "a"))
            await client.receives(1)
            assert (it.records("untouched"), it.identities) == (1, 0)


class TestSessions:
    @in_loop
    async def test_between_the_requests_of_another_login_it_is_not_settled(self) -> None:
        async with town() as it:
            client = await it.user("alice")
            (connection,) = it.forebay.app._connections
            await until(lambda: connection.settled)
            client.send(handshake(1))
            await client.receives(1)
            assert not connection.settled
            client.send(presents(2, sasl.plain("alice", "hers")))
            await client.receives(2)
            await until(lambda: connection.settled)

    @in_loop
    async def test_another_login_of_the_same_user_goes_on_in_the_same_realm(self) -> None:
        async with town() as it:
            client = await it.user("alice")
            client.send(records("alice-ponds", "a"))
            await client.receives(1)
            assert await it.log_in(client, "alice") == NONE
            client.send(records("alice-ponds", "b", correlation_id=2))
            await client.receives(2)
            assert (it.records("untouched"), it.identities) == (0, 1)

    @in_loop
    async def test_between_two_logins_nothing_is_served(self) -> None:
        async with town() as it:
            client = await it.user("alice")
            client.send(handshake(1), records("alice-ponds", "a", correlation_id=2))
            await client.receives(1)
            await client.receives(2)  # the fake broker takes it; Kafka closes the connection
            assert it.records("untouched") == 1

    @in_loop
    async def test_a_session_that_is_over_ends_the_connection_at_the_next_request(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with timed_sessions(monkeypatch) as (it, clock):
            client, other = await it.user("alice"), await it.user("alice")
            clock.now += 4.9
            client.send(records("alice-ponds", "a"))
            await client.receives(1)
            clock.now += 0.2
            client.send(records("alice-ponds", "late", correlation_id=2))
            assert await client.is_closed()
            assert await it.log_in(other, "alice") == NONE, "this one logs in again"
            other.send(records("alice-ponds", "b", correlation_id=3))
            await other.receives(3)
            assert sum(map(len, it.cluster.log.values())) == 2

    @in_loop
    async def test_nor_does_it_last_longer_for_a_client_that_is_no_longer_served(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A broker refused its identity for a moment: Forebay goes on logging in as it for its own connections."""
        async with timed_sessions(monkeypatch) as (it, clock):
            client = await it.user("alice")
            monkeypatch.setattr(Connector, "is_refused", True)
            client.send(echo(2))
            await client.receives(2)
            clock.now += 5.1
            client.send(echo(3))
            assert await client.is_closed()

    @in_loop
    async def test_whoever_fails_to_log_in_again_is_closed_and_not_served_as_who_it_was(self) -> None:
        async with town() as it:
            for broker_left in (False, True):
                client, other = await it.user("alice"), await it.user("alice")
                if broker_left:  # Forebay opens the connection again, and the login fails all the same
                    it.cluster[0].close_connections()
                    await turns(20)
                assert await it.log_in(client, "alice", password="wrong") == SASL_AUTHENTICATION_FAILED
                assert await client.is_closed()
                other.send(records("alice-ponds", "a"))
                await other.receives(1)
            assert it.records("untouched") == 0

    @in_loop
    async def test_a_login_as_somebody_else_moves_the_connection_to_that_realm(self) -> None:
        """Kafka's brokers refuse it; those of others may not."""
        async with town() as it:
            client = await it.user("alice")
            client.send(records("alice-ponds", "a"))
            await client.receives(1)
            assert await it.log_in(client, "bob") == NONE
            client.send(records("alice-ponds", "b", correlation_id=2), records("bob-ponds", "b", correlation_id=3))
            refused, taken = await client.receives(2, 3)
            assert (only(refused).error_code, only(taken).error_code) == (TOPIC_AUTHORIZATION_FAILED, NONE)
            assert it.producers() == {"alice", "bob"}

    @in_loop
    @pytest.mark.parametrize("observed", [False, True])
    async def test_requests_are_numbered_on_in_that_realm(self, observed: bool, tmp_path: Path) -> None:
        kind = {"moves": "observe"} if observed else {"journal_ledger": True}
        async with town(journal_dir=str(tmp_path), **kind) as it:
            client = await it.user("alice")
            for number in (1, 2):
                client.send(records("alice-ponds", "a", correlation_id=number))
                await client.receives(number)
            assert await it.log_in(client, "bob") == NONE
            client.send(records("bob-ponds", "b", correlation_id=3))
            await client.receives(3)
            await it.forebay.app.drain()
        rows = [row for row in rows_in(tmp_path) if isinstance(row, ObservedRow if observed else LedgerRow)]
        assert [(row.topic, row.number) for row in rows] == [("alice-ponds", 1), ("alice-ponds", 2), ("bob-ponds", 3)]
        assert len({row.connection for row in rows}) == 1

    @in_loop
    async def test_it_ends_where_records_of_the_former_are_on_their_way(self) -> None:
        async with town() as it:
            client = await it.user("alice")
            for broker in it.cluster.brokers.values():
                broker.holds(PRODUCE)
            client.send(produce(1, ("alice-ponds", 0, batch(keyed("a")))), handshake(2))
            asked = await it.cluster[0].receives(PRODUCE)
            client.send(presents(3, sasl.plain("bob", "his")))
            await until(lambda: any(c.leaving_for(1e9) for c in it.forebay.app._connections))
            asked.answer()
            first, _, _ = await client.receives(1, 2, 3)
            assert only(first).error_code == NONE, "what was asked is still answered"
            assert await client.is_closed()

    @in_loop
    async def test_a_login_that_brokers_do_not_take_any_more_is_not_used_for_those_who_had_it(self) -> None:
        """Their own connections stand: they go on untouched, as directly."""
        async with town() as it:
            client, other = await it.user("alice"), await it.user("alice")
            it.cluster.users["alice"] = "changed"
            other.send(records("alice-ponds", "waits"))
            await until(lambda: it.forebay.count("forebay_errors_total", "upstream", "client_authentication") > 0)
            client.send(records("alice-ponds", "a", correlation_id=2))
            await client.receives(2)
            assert it.records("untouched") == 1
            assert it.cluster.values("alice-ponds", 0) == ["a"]
            assert it.forebay.count("forebay_broker_up", "0") == 1, "the broker is there, and others may use it"
            it.cluster.users["alice"] = "hers"
            (response,) = await other.receives(1)
            assert only(response).error_code == NONE, "what waits is tried again, until its time is up"


class TestTheWrongRealm:
    @in_loop
    async def test_whoever_gets_into_it_ends_the_process_before_a_record_is_sent(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The lookup of realms, broken on purpose: bob is given alice's."""
        ended: list[str] = []

        def end(topic: str, partition: int) -> None:
            ended.append(topic)
            raise ConnectionError("the process would have ended")  # so that the request is not written

        monkeypatch.setattr(one_principal, "end_process", end)
        async with town() as it:
            await it.user("alice")
            realms = it.forebay.app._client_realms._realms
            (hers,) = realms.values()

            class Broken(dict[str, Any]):
                def get(self, key: str, default: Any = None) -> Any:
                    return hers

            it.forebay.app._client_realms._realms = Broken(realms)
            bob = await it.user("bob")
            bob.send(records("alice-ponds", "b"))
            await until(lambda: ended == ["alice-ponds"])
            await bob.receives(1)
            assert it.cluster.log == {}


class TestTheLifeOfARealm:
    @in_loop
    async def test_it_is_forgotten_a_while_after_its_last_client(self) -> None:
        async with town() as it:
            client = await it.user("alice")
            client.send(records("alice-ponds", "a"))
            await client.receives(1)
            (each,) = it.forebay.app._client_realms._realms.values()
            client.close()
            await until(lambda: len(it.forebay.app._connections) == 0)
            await until(lambda: each.realm.at_rest)
            it.sweep(100.0)
            assert each.connector._authenticator is None, "no credential is kept"
            assert it.identities == 1
            it.sweep(100.0 + KEPT_S)
            assert it.identities == 0
            await until(lambda: not any(broker.connections for broker in it.cluster.brokers.values()))
            assert it.records("moved") + it.records("kept") == 1, "what was counted stays counted"
            again = await it.user("alice")
            again.send(records("alice-ponds", "b"))
            await again.receives(1)
            assert it.identities == 1

    @in_loop
    async def test_records_whose_clients_have_left_are_still_delivered(self) -> None:
        async with town(linger_ms=60_000) as it:
            client = await it.user("alice")
            client.send(metadata(2, "alice-ponds"))
            await client.receives(2)
            client.send(records("alice-ponds", "a"))
            (each,) = it.forebay.app._client_realms._realms.values()
            await until(lambda: each.realm.accumulator.queued_batches == 1)
            brokers = it.cluster.brokers.values()
            for broker in brokers:
                broker.holds(PRODUCE)
            client.close()
            await it.gives_up_those_who_left()
            it.sweep(100.0)
            assert each.connector._authenticator is not None, "it drains"
            await until(lambda: any(broker.requests(PRODUCE) for broker in brokers))
            for asked in [asked for broker in brokers for asked in broker.requests(PRODUCE)]:
                asked.answer()
            await until(lambda: sum(map(len, it.cluster.log.values())) == 1)

    @in_loop
    async def test_untouched_ones_without_acks_are_too(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Beside them are some whose topic is not known yet."""
        monkeypatch.setitem(TOPICS, "alice-new", [0])
        async with town(topics_exclude=("alice-ponds",)) as it:
            client = await it.user("alice")
            standing = len(it.forebay.app._connections)
            brokers = it.cluster.brokers.values()
            for broker in brokers:
                broker.holds(METADATA)
                broker.forget()
            own, new = ("alice-ponds", 0, batch(keyed("a"))), ("alice-new", 0, batch(keyed("b")))
            client.send(produce(2, own, new, acks=0))
            await until(lambda: any(broker.requests(METADATA) for broker in brokers))
            client.close()
            await until(lambda: len(it.forebay.app._connections) < standing)
            for broker in brokers:
                broker.releases(METADATA)
                for asked in broker.requests(METADATA):
                    asked.answer()
            await until(lambda: it.cluster.values("alice-ponds", 0) == ["a"])
            await until(lambda: it.cluster.values("alice-new", 0) == ["b"])
