"""Clients of a SASL listener: what they send reaches their broker on one connection, and nothing of Forebay's with it.

The brokers take nothing in front of a login but ApiVersions, once, and SaslHandshake.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any

import pytest

from forebay_codecs import api_versions, sasl
from forebay_codecs.api_keys import API_VERSIONS, FIND_COORDINATOR, METADATA, PRODUCE, SASL_AUTHENTICATE, SASL_HANDSHAKE
from forebay_codecs.error_codes import NONE, UNSUPPORTED_VERSION
from forebay_proxy.config.kinds import ListenerAddress
from forebay_proxy.config.listeners import ListenerSettings
from forebay_proxy.config.secret import Secret
from forebay_proxy.produce.handler import INSPECTED_AT_ONCE
from tests.codecs.message_oracle import messages
from tests.kit.app import Running, running
from tests.kit.event_loop import in_loop, turns, until
from tests.kit.fake_broker import Exchange, FakeCluster
from tests.kit.ports import LOOPBACK, free_run
from tests.kit.sasl import login_line
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
    old_produce,
    produce,
    produced,
    request,
)

PLAIN = [(sasl.plain("alice", "secret"), b"")]
SCRAM = [(b"n,,n=alice,r=abc", b"r=abcdef,s=salt,i=4096"), (b"c=biws,r=abcdef,p=proof", b"v=signature")]
BEARER = [(b"n,,\x01auth=Bearer token\x01\x01", b"")]
KERBEROS: Exchange = [
    (bytes.fromhex("6082034d") + bytes(600), bytes.fromhex("6081") + bytes(100)),
    (b"", bytes.fromhex("050405ff000c0000") + bytes(20)),
    (bytes.fromhex("050404ff000c0000") + bytes(20), None),
]
"""The last token is not answered."""
EXCHANGES = {"PLAIN": PLAIN, "SCRAM-SHA-256": SCRAM, "OAUTHBEARER": BEARER, "GSSAPI": KERBEROS}


def handshake(correlation_id: int, version: int, mechanism: str = "PLAIN") -> bytes:
    return request(SASL_HANDSHAKE, version, correlation_id, len(mechanism).to_bytes(2, "big") + mechanism.encode())


@asynccontextmanager
async def passing(
    exchange: Exchange, nodes: int = 1, partitions: int = 0, **changed: Any
) -> AsyncIterator[tuple[FakeCluster, Running]]:
    """Forebay with one SASL_PLAINTEXT listener and no login, before a cluster that wants one.

    Its topic has a partition on each broker, or so many `partitions` on the first.
    """
    topics = {"ponds": [0] * partitions or list(range(nodes))}
    async with FakeCluster(topics, nodes=nodes) as cluster:
        cluster.exchange = exchange
        port = free_run(8)
        listeners = {"listen": None, "listeners": (ListenerAddress("SASL_PLAINTEXT", LOOPBACK, port),)}
        told = {**listeners, "security_protocol": "SASL_PLAINTEXT", **changed}
        async with running(cluster.bootstrap, **told) as forebay:
            forebay.port = port
            cluster[0].forget()
            yield cluster, forebay


async def logged_in(client: WireClient, exchange: Exchange) -> None:
    """By raw tokens; what the broker answers is what the client is told."""
    client.send(handshake(1, 0))
    await client.receives(1)
    for token, answer in exchange:
        client.send(framed(token))
        if answer is not None:
            assert (await client.receive()).whole == answer


def versions(correlation_id: int, version: int = 0) -> bytes:
    return framed(api_versions.request(correlation_id, "old-producer", version, "old", "1"))


class TestTokensWithoutHeader:
    @in_loop
    @pytest.mark.parametrize("exchange", EXCHANGES.values(), ids=EXCHANGES)
    async def test_they_pass_both_ways_and_requests_behind_them_are_requests_again(self, exchange: Exchange) -> None:
        async with passing(exchange, nodes=2) as (cluster, forebay):
            client = await forebay.client()
            await logged_in(client, exchange)
            client.send(versions(2), metadata(3, "ponds"), echo(4, b"four"))
            offered, told, last = await client.receives(2, 3, 4)
            assert api_versions.parse_api_versions(offered.whole, 0)[PRODUCE] == (0, 8)
            brokers = metadata_of(told).brokers
            assert {broker.port for broker in brokers.values()} == {forebay.node_port(0), forebay.node_port(1)}
            assert last.body == b"four"
            assert sum(broker.accepted for broker in cluster.brokers.values()) == 2, "the probe's and the client's"

    @in_loop
    async def test_they_may_come_byte_by_byte(self) -> None:
        async with passing(SCRAM) as (_, forebay):
            client = await forebay.client()
            client.send(handshake(1, 0))
            await client.receives(1)
            for token, answer in SCRAM:
                for byte in framed(token):
                    client.send(bytes([byte]))
                    await turns()
                assert (await client.receive()).whole == answer
            client.send(echo(2, b"x"))
            await client.receives(2)

    @in_loop
    async def test_a_client_need_not_wait_for_the_last_one(self) -> None:
        """Its first request may be under way when the broker's last token comes, which is no answer to it."""
        async with passing(PLAIN) as (_, forebay):
            client = await forebay.client()
            client.send(handshake(1, 0))
            await client.receives(1)
            client.send(framed(PLAIN[0][0]), echo(2, b"two"), metadata(3, "ponds"))
            assert (await client.receive()).whole == b""
            two, told = await client.receives(2, 3)
            assert two.body == b"two"
            assert {broker.port for broker in metadata_of(told).brokers.values()} == {forebay.node_port(0)}

    @in_loop
    async def test_what_forebay_answers_itself_comes_behind_the_token_that_is_due(self) -> None:
        """A version of ApiVersions that Forebay does not know."""
        async with passing(PLAIN) as (_, forebay):
            client = await forebay.client()
            client.send(
                handshake(1, 0), framed(PLAIN[0][0]), versions(2, 5), produce(3, ("ponds", 0, batch(keyed("a"))))
            )
            await client.receives(1)
            assert (await client.receive()).whole == b""
            await client.receives(2, 3)

    @in_loop
    async def test_a_token_that_holds_what_the_client_chose_is_never_read_as_an_answer(self) -> None:
        """A broker repeats the nonce of SCRAM: here it would name a broker of the client's choice."""
        find = request(FIND_COORDINATOR, 0, int.from_bytes(b"r=ab", "big"), b"\0\5group")
        host = b"evil.example".ljust(0x2121, b".")
        exchange = [(b"n,,n=eve,r=ab", b"r=ab" + b"!!" + b"node" + b"!!" + host + b"port")]
        async with passing(exchange) as (_, forebay):
            client = await forebay.client()
            client.send(handshake(1, 0))
            await client.receives(1)
            client.send(framed(exchange[0][0]), find)
            assert await client.is_closed()
            neighbour = await forebay.client()
            neighbour.send(versions(1))
            await neighbour.receives(1)
            assert forebay.count("forebay_errors_total", "upstream", "protocol") == 1

    @in_loop
    async def test_a_wrong_one_closes_the_connection_without_a_word(self) -> None:
        async with passing(PLAIN) as (_, forebay):
            client = await forebay.client()
            client.send(handshake(1, 0))
            await client.receives(1)
            client.send(framed(sasl.plain("alice", "wrong")))
            assert await client.is_closed()

    @in_loop
    @pytest.mark.parametrize("frame", [framed(b"\0" * 4), (-1).to_bytes(4, "big", signed=True)])
    async def test_behind_them_frames_are_checked_again(self, frame: bytes) -> None:
        async with passing(PLAIN) as (_, forebay):
            client = await forebay.client()
            await logged_in(client, PLAIN)
            client.send(echo(2))
            await client.receives(2)
            client.send(frame)
            assert await client.is_closed()
            assert forebay.count("forebay_frames_refused_total", "malformed") == 1


class TestRequests:
    @in_loop
    async def test_versions_are_asked_for_on_the_clients_own_connection_and_cut(self) -> None:
        async with passing(PLAIN) as (cluster, forebay):
            cluster.produce_versions = (3, 13)
            client = await forebay.client()
            client.send(versions(1, 3))
            (response,) = await client.receives(1)
            offered = api_versions.parse_api_versions(response.whole, 3)
            assert (offered[PRODUCE], offered[SASL_HANDSHAKE]) == ((0, 12), (0, 1))
            assert 99 not in offered
            assert (await cluster[0].receives(API_VERSIONS)).client_id == "old-producer"
            client.send(handshake(2, 1), request(SASL_AUTHENTICATE, 0, 3, b"\0\0\0\1x"), echo(4))
            await client.receives(2, 3, 4)

    @in_loop
    async def test_who_takes_no_answer_for_an_old_broker_is_told_by_another_where_its_own_is_away(self) -> None:
        async with passing(PLAIN, nodes=2) as (cluster, forebay):
            client = await forebay.client()
            await logged_in(client, PLAIN)
            client.send(metadata(2, "ponds"))
            await client.receives(2)
            cluster[1].down()
            other = await forebay.client(1)
            other.send(versions(1))
            (told,) = await other.receives(1)
            assert api_versions.parse_api_versions(told.whole, 0)[PRODUCE] == (0, 8)
            other.send(handshake(2, 1))  # which no other can take
            assert await other.is_closed()
            today = await forebay.client(1)
            today.send(versions(1, 3))
            assert await today.is_closed()
            later = await forebay.client(1)
            later.send(versions(1))
            await later.receives(1)
            later.send(versions(2, 3))
            assert await later.is_closed()
            both = await forebay.client(1)
            both.send(versions(1), handshake(2, 1))
            await both.receives(1)
            assert await both.is_closed()
            await cluster[1].up()
            back = await forebay.client(1)
            back.send(versions(1))
            await back.receives(1)
            assert (await cluster[1].receives(API_VERSIONS)).client_id == "old-producer"
            await logged_in(back, PLAIN)

    @in_loop
    async def test_a_version_of_them_that_is_too_new_is_answered_here(self) -> None:
        async with passing(PLAIN) as (cluster, forebay):
            client = await forebay.client()
            client.send(request(API_VERSIONS, 5, 1, b"whatever"))
            (response,) = await client.receives(1)
            assert int.from_bytes(response.body[:2], "big") == UNSUPPORTED_VERSION
            assert cluster[0].seen == []

    @in_loop
    async def test_all_others_in_front_of_a_login_are_the_brokers_to_refuse(self) -> None:
        async with passing(PLAIN) as (cluster, forebay):
            for frame in (metadata(1, "ponds"), echo(1), produce(1, ("ponds", 0, batch(null_key("a")))), versions(1)):
                client = await forebay.client()
                client.send(frame)
                if frame == versions(1):
                    await client.receives(1)
                    client.send(versions(2))
                assert await client.is_closed()
            assert cluster.log == {}

    @in_loop
    async def test_records_of_all_formats_go_on_by_themselves(self) -> None:
        async with passing(PLAIN) as (cluster, forebay):
            client = await forebay.client()
            await logged_in(client, PLAIN)
            new = produce(2, ("ponds", 0, batch(null_key("new"))))
            client.send(new, old_produce(3, ("ponds", 0, messages(null_key("old"), magic=0))), metadata(4, "ponds"))
            answers = [*await client.receives(2, 3, 4)]
            assert produced(answers[0])["ponds", 0].error_code == NONE
            first, second = [await cluster[0].receives(PRODUCE) for _ in "ab"]
            assert first.frame == new[4:]
            assert (second.version, second.client_id, second.values) == (3, "old-producer", ["old"])
            assert cluster.values("ponds", 0) == ["new", "old"]
            assert forebay.count("forebay_batches_in_total", "own_login") == 2

    @in_loop
    async def test_old_formats_of_so_many_partitions_that_they_are_looked_at_in_parts_do_too(self) -> None:
        many = 2 * INSPECTED_AT_ONCE
        async with passing(PLAIN, partitions=many) as (cluster, forebay):
            client = await forebay.client()
            await logged_in(client, PLAIN)
            old = messages(null_key("old"), magic=0)
            client.send(old_produce(2, *[("ponds", partition, old) for partition in range(many)]))
            (response,) = await client.receives(2)
            assert {told.error_code for told in produced(response, 0).values()} == {NONE}
            assert [asked.client_id for asked in cluster[0].requests(PRODUCE)] == ["old-producer"]
            assert [cluster.values("ponds", partition) for partition in range(many)] == [["old"]] * many
            assert forebay.count("forebay_batches_in_total", "own_login") == many

    @in_loop
    async def test_brokers_are_reached_by_ports_of_the_listener_as_they_become_known(self) -> None:
        async with passing(PLAIN, nodes=3) as (cluster, forebay):
            first = await forebay.client()
            await logged_in(first, PLAIN)
            first.send(request(FIND_COORDINATOR, 0, 2, b"\0\5group"), metadata(3, "ponds"))
            await first.receives(2, 3)
            for node in range(3):
                client = await forebay.client(node)
                await logged_in(client, PLAIN)
                client.send(echo(2, bytes([node])))
                await client.receives(2)
                assert (await cluster[node].receives(LIST_GROUPS)).body == bytes([node])

    @in_loop
    async def test_a_client_is_closed_with_its_brokers_connection_logged_in_or_not(self) -> None:
        async with passing(PLAIN) as (cluster, forebay):
            for frames in ((versions(1),), (handshake(1, 0),), (handshake(1, 1),)):
                client = await forebay.client()
                client.send(*frames)
                await client.receives(1)
                cluster[0].close_connections()
                assert await client.is_closed()

    @in_loop
    async def test_a_broker_that_only_they_connect_to_is_told_of_while_it_is_down(self) -> None:
        async with passing(PLAIN, nodes=2) as (cluster, forebay):
            first = await forebay.client()
            await logged_in(first, PLAIN)
            first.send(metadata(2, "ponds"))
            await first.receives(2)
            assert forebay.count("forebay_broker_up", "1") == 1
            cluster[1].down()
            other = await forebay.client(1)
            other.send(handshake(1, 0))
            assert await other.is_closed()
            assert forebay.count("forebay_broker_up", "1") == 0
            await cluster[1].up()
            forebay.app._realm.dispatcher.sweep(monotonic())
            await until(lambda: forebay.count("forebay_broker_up", "1") == 1)


class TestBesideALoginOfForebays:
    @in_loop
    async def test_it_is_not_used_for_them_and_what_it_showed_is_not_told_to_them(self) -> None:
        port = free_run(16)
        told: dict[str, Any] = {
            "listeners": (
                ListenerAddress("SASL_PLAINTEXT", LOOPBACK, port),
                ListenerAddress("PLAINTEXT", LOOPBACK, port + 8),
            ),
            "sasl_mechanism": "PLAIN",
            "sasl_jaas_config": Secret(login_line("PLAIN")),
        }
        async with passing(PLAIN, **told) as (cluster, forebay):
            local = await WireClient.connect(port + 8)
            local.send(metadata(1, "ponds"), produce(2, ("ponds", 0, batch(null_key("a")))))
            told_locally, _ = await local.receives(1, 2)
            assert metadata_of(told_locally).brokers[0].port == port + 9
            cluster[0].forget()
            forebay.port = port
            for frame in (metadata(1, "ponds"), produce(1, ("ponds", 0, batch(null_key("b"))))):
                stranger = await forebay.client(0)
                stranger.send(frame)
                assert await stranger.is_closed()
            alice = await forebay.client(0)
            await logged_in(alice, PLAIN)
            alice.send(metadata(2, "ponds"))
            (response,) = await alice.receives(2)
            assert metadata_of(response).brokers[0].port == port + 1
            assert [asked.client_id for asked in cluster[0].seen] == ["old-producer"] * 2, "her handshake and Metadata"
            assert cluster.values("ponds", 0) == ["a"]
            local.close()


class TestABrokerThatIsNotKnownYet:
    """After a restart clients may know brokers' ports only, and Forebay no broker."""

    @in_loop
    async def test_any_other_tells_where_it_is_and_nothing_else(self) -> None:
        port = free_run(8)
        listener = ListenerAddress("SASL_PLAINTEXT", LOOPBACK, port)
        told: dict[str, Any] = {
            "listener_name": {"sasl_plaintext": ListenerSettings(node_ports={1: port + 2})},
            "listeners": (listener,),
        }
        async with passing(PLAIN, nodes=2, **told) as (cluster, forebay):
            forebay.port = port
            produced_to = produce(3, ("ponds", 1, batch(null_key("a"))))
            client = await forebay.client(1)
            await logged_in(client, PLAIN)
            client.send(versions(2), produced_to)
            await client.receives(2)
            assert await client.is_closed()
            assert cluster.log == {}

            client = await forebay.client(1)
            await logged_in(client, PLAIN)
            client.send(metadata(2, "ponds"))
            (response,) = await client.receives(2)
            assert metadata_of(response).brokers[1].port == port + 2
            client.send(produced_to)
            assert await client.is_closed()

            client = await forebay.client(1)
            await logged_in(client, PLAIN)
            client.send(produced_to)
            await client.receives(3)
            assert cluster.values("ponds", 1) == ["a"]


class TestReadiness:
    @in_loop
    async def test_it_is_ready_once_a_broker_has_answered_and_asks_no_more(self) -> None:
        async with passing(PLAIN) as (cluster, forebay):
            assert forebay.app.ready() is None
            assert cluster[0].accepted == 1
            assert cluster[0].requests(METADATA) == []
