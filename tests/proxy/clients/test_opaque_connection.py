"""A client's own upstream connection: when it is there, what its end means, and that no broker's address passes it."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import cast

import pytest

from forebay_codecs import api_versions
from forebay_codecs.addresses import rewrite_describe_cluster, rewrite_find_coordinator
from forebay_codecs.api_keys import API_VERSIONS, DESCRIBE_CLUSTER, FIND_COORDINATOR, METADATA, PRODUCE, SASL_HANDSHAKE
from forebay_codecs.apis import APIS
from forebay_codecs.error_codes import NONE, REQUEST_TIMED_OUT
from forebay_codecs.errors import Malformed
from forebay_policies.response_memory import SMALL, ResponseMemory
from forebay_proxy.brokers import dial as dial_module
from forebay_proxy.brokers.dial import dial
from forebay_proxy.clients import opaque_connection
from forebay_proxy.clients.opaque_connection import FAREWELL_S, Expected, OpaqueConnection
from forebay_proxy.clients.response_orderer import ResponseOrderer
from forebay_proxy.metrics.registry import MetricRegistry
from forebay_proxy.metrics.traffic import TrafficMetrics
from tests.kit.app import Running, running
from tests.kit.certificates import Authority, server_context
from tests.kit.event_loop import in_loop, turns, until
from tests.kit.fake_broker import FakeBroker, FakeCluster
from tests.kit.ports import LOOPBACK
from tests.kit.wire import (
    LIST_GROUPS,
    batch,
    echo,
    framed,
    keyed,
    metadata,
    metadata_of,
    null_key,
    only,
    produce,
    produced,
    request,
)
from tests.proxy.clients.upstream_kit import FakeTransport


def opened(forebay: Running) -> float:
    return forebay.count("forebay_upstream_connections")


async def settled(broker: FakeBroker) -> int:
    """Connections to a broker, once those that only ask for its versions are gone."""
    await turns()
    return len(broker.connections)


class Torn:
    """A client that is told what its broker did, and is closed some time later."""

    patience = 120.0
    left = False

    def __init__(self) -> None:
        self.orderer = ResponseOrderer(lambda buffers: None)
        self.stats = MetricRegistry()
        self.metrics = TrafficMetrics(self.stats)
        self.told: list[str] = []
        self.unsent = 0

    def translate(self, node_id: int, host: str, port: int, /) -> None: ...

    def upstream_paused(self, *, paused: bool) -> None: ...

    def upstream_lost(self, why: str, awaited: Expected | None) -> None:
        self.told.append("lost")

    def upstream_left(self) -> None:
        self.told.append("left")

    def upstream_malformed(self, error: Malformed) -> None:
        self.told.append("malformed")

    def produce_answered(self, response: bytes, version: int) -> None: ...

    def topics_changed(self) -> None: ...

    def not_taken(self) -> None:
        self.told.append("not taken")

    def upstream_unread(self) -> None:
        self.told.append("unread")

    def upstream_closed(self, connection: OpaqueConnection) -> None: ...


def test_nothing_more_is_read_of_a_broker_that_broke_the_protocol() -> None:
    """More may come before the client, and the connection with it, is gone."""
    client = Torn()
    connection = OpaqueConnection(client, ResponseMemory())
    for _ in range(2):
        connection.data_received((8).to_bytes(4, "big") + bytes(8))
    connection.connection_lost(None)
    assert client.told == ["malformed"]


def test_behind_tokens_a_response_has_a_correlation_id_again() -> None:
    client = Torn()
    connection = OpaqueConnection(client, ResponseMemory())

    def expect(key: int, correlation_id: int) -> None:
        connection.expect(Expected(APIS[key], 0, correlation_id, client.orderer.open()))

    expect(SASL_HANDSHAKE, 1)
    connection.data_received(framed((1).to_bytes(4, "big") + bytes(6)) + framed(b"") + framed(b"a token"))
    expect(LIST_GROUPS, 2)
    connection.data_received(framed((2).to_bytes(4, "big")))
    assert client.told == []
    expect(LIST_GROUPS, 0)
    connection.data_received(framed(b""))
    assert client.told == ["malformed"]


def test_a_token_that_nobody_waits_for_ends_the_connection() -> None:
    """Not even Kerberos has one behind the proxy's own request."""
    client = Torn()
    connection = OpaqueConnection(client, ResponseMemory())
    connection.expect(Expected(APIS[SASL_HANDSHAKE], 0, 1, client.orderer.open()))
    connection.data_received(framed((1).to_bytes(4, "big") + bytes(6)))
    connection.sent_token(b"\x60")
    connection.expect(Expected(APIS[PRODUCE], 9, 2, capture=lambda answer: None))
    connection.data_received(framed(b"a token"))
    assert client.told == ["malformed"]


def test_what_passes_counts_as_sent_to_brokers_and_as_received_from_them() -> None:
    client = Torn()
    connection = OpaqueConnection(client, ResponseMemory())
    connection.sent_unacknowledged()
    connection.write([b"kept ", b"until it stands"])
    connection.connection_made(cast(asyncio.Transport, FakeTransport()))
    connection.expect(Expected(APIS[PRODUCE], 9, 2, client.orderer.open()))
    connection.write([b"records"])
    connection.expect(Expected(APIS[LIST_GROUPS], 0, 3, client.orderer.open()))
    connection.write([b"?"])
    connection.data_received(framed((2).to_bytes(4, "big") + bytes(6)))
    counters = client.stats.take().counters
    assert [
        counters[f"forebay_{name}_total", ("upstream",)]
        for name in ("produce_requests", "request_bytes", "response_bytes")
    ] == [2, 20 + 7 + 1, 14]


class Secured:
    """A transport with TLS: what it is told."""

    def __init__(self) -> None:
        self.did: list[str] = []

    def get_extra_info(self, name: str) -> bool:
        return name == "sslcontext"

    def abort(self) -> None:
        self.did.append("abort")


def test_the_farewell_of_a_broker_ends_a_connection_with_tls_at_once() -> None:
    secured = Secured()
    connection = OpaqueConnection(Torn(), ResponseMemory())
    connection.connection_made(cast(asyncio.BaseTransport, secured))
    connection.eof_received()
    assert secured.did == ["abort"]


class Unanswering(asyncio.Protocol):
    """A broker that takes TLS's farewell for nothing, and closes as the stream ends: as Kafka where both the last
    request and the farewell are in one read."""

    def __init__(self, keystore: Path, *, reads: bool) -> None:
        context = server_context(keystore)
        self._into, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._into, self._out, server_side=True)
        self._reads = reads
        self._greeted = False
        self.got = bytearray()
        self.over = False
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._into.write(data)
        with suppress(ssl.SSLWantReadError, ssl.SSLZeroReturnError):
            if not self._greeted:
                try:
                    self._tls.do_handshake()
                finally:
                    self.transport.write(self._out.read())
                self._greeted = True
                if not self._reads:
                    self.transport.pause_reading()
            while more := self._tls.read(1 << 20):
                self.got += more

    def eof_received(self) -> None:
        self.over = True


class Parted(Torn):
    gone = False
    connection: OpaqueConnection

    def upstream_closed(self, connection: OpaqueConnection) -> None:
        self.gone = True


@asynccontextmanager
async def parting(
    folder: Path, size: int, *, reads: bool, records: bool = True, leaves: bool = True
) -> AsyncIterator[tuple[Unanswering, Parted]]:
    """A broker, and whose connection to it ends behind `size` bytes: `records` without acks, or nothing to miss."""
    authority = Authority(folder)
    broker = Unanswering(authority.issue("kafka", LOOPBACK), reads=reads)
    client = Parted()
    connection = client.connection = OpaqueConnection(client, ResponseMemory())
    async with await asyncio.get_running_loop().create_server(lambda: broker, LOOPBACK, 0) as server:
        port = server.sockets[0].getsockname()[1]
        await dial(LOOPBACK, port, 5.0, lambda: connection, authority.client_context())
        if records:
            connection.sent_unacknowledged()
        connection.write([bytes(size)])
        if leaves:
            connection.close()
        yield broker, client


class TestFarewell:
    MANY = 20_000_000
    """Bytes, more than the system keeps."""

    @in_loop
    async def test_a_broker_that_has_all_records_and_does_not_answer_it_is_left(self, tmp_path: Path) -> None:
        async with parting(tmp_path, 1000, reads=True) as (broker, client):
            await until(lambda: client.gone and broker.over, 10)
            assert len(broker.got) == 1000

    @in_loop
    async def test_one_that_reads_late_gets_all_records_first(self, tmp_path: Path) -> None:
        async with parting(tmp_path, self.MANY, reads=False) as (broker, client):
            await asyncio.sleep(3 * FAREWELL_S)  # in which it would have been left
            assert not client.gone
            broker.transport.resume_reading()
            await until(lambda: client.gone and broker.over)
            assert len(broker.got) == self.MANY

    @in_loop
    async def test_one_that_does_not_read_in_time_is_left(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with parting(tmp_path, self.MANY, reads=False) as (_, client):
            now = monotonic() + client.patience
            monkeypatch.setattr(opaque_connection, "monotonic", lambda: now)
            await until(lambda: client.gone)
            assert client.told == ["unread"]

    @in_loop
    async def test_nor_in_the_time_that_tls_has_for_it(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(dial_module, "SHUTDOWN_S", 0.1)
        async with parting(tmp_path, self.MANY, reads=False) as (_, client):
            await until(lambda: client.gone)
            assert client.told == ["unread"]

    @in_loop
    async def test_of_one_that_has_ended_nothing_more_is_asked(self, tmp_path: Path) -> None:
        """As where a broker leaves an idle connection, and then the client leaves."""
        async with parting(tmp_path, 1000, reads=True, leaves=False) as (broker, client):
            await until(lambda: len(broker.got) == 1000)
            broker.transport.abort()
            await until(lambda: client.told == ["lost"])
            client.connection.close()
            await asyncio.sleep(3 * FAREWELL_S)

    @in_loop
    async def test_it_is_said_once(self, tmp_path: Path) -> None:
        async with parting(tmp_path, 1000, reads=True) as (broker, client):
            client.connection.close()
            await until(lambda: client.gone and broker.over, 10)
            await asyncio.sleep(2 * FAREWELL_S)

    @in_loop
    async def test_where_no_records_may_be_left_it_is_not_waited_for(self, tmp_path: Path) -> None:
        async with parting(tmp_path, self.MANY, reads=False, records=False) as (_, client):
            await until(lambda: client.gone, 10)


class TestLife:
    @in_loop
    async def test_a_client_that_only_produces_has_none(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            clients = [await forebay.client(0) for _ in range(5)]
            for client in clients:
                asked = api_versions.request(1, "old-producer", 0, "old", "1")
                client.send(len(asked).to_bytes(4, "big") + asked, produce(2, ("ponds", 0, batch(null_key("a")))))
                await client.receives(1, 2)
            assert opened(forebay) == 1  # the sender's
            clients[0].send(echo(3))
            await clients[0].receives(3)
            assert opened(forebay) == 2

    @in_loop
    async def test_a_broker_that_closes_it_idle_is_reached_again_by_the_next_request(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            client = await forebay.client(0)
            for number in range(3):
                client.send(echo(number, b"x" * number))
                (response,) = await client.receives(number)
                assert response.body == b"x" * number
                (await cluster[0].receives(LIST_GROUPS)).close()
                await until(lambda: opened(forebay) == 0)

    @in_loop
    async def test_a_broker_that_closes_it_with_an_answer_awaited_closes_the_client(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            cluster[0].holds(LIST_GROUPS)
            client, neighbour = await forebay.client(0), await forebay.client(0)
            client.send(echo(1))
            (await cluster[0].receives(LIST_GROUPS)).close()
            assert await client.is_closed()
            cluster[0].releases(LIST_GROUPS)
            neighbour.send(echo(1))
            await neighbour.receives(1)

    @in_loop
    async def test_a_broker_that_closes_it_in_the_middle_of_an_answer_closes_the_client(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            cluster[0].holds(LIST_GROUPS)
            client = await forebay.client(0)
            client.send(echo(1))
            asked = await cluster[0].receives(LIST_GROUPS)
            asked.connection.write((100).to_bytes(4, "big") + (1).to_bytes(4, "big") + b"half")
            asked.close()
            with pytest.raises(asyncio.IncompleteReadError) as cut:
                await client.receive()
            assert cut.value.partial == b"\0\0\0\1half"

    @in_loop
    async def test_a_client_that_leaves_takes_it_along(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            before = await settled(cluster[0])
            client = await forebay.client(0)
            client.send(echo(1))
            await client.receives(1)
            assert len(cluster[0].connections) == before + 1
            client.close()
            await until(lambda: len(cluster[0].connections) == before)

    @in_loop
    async def test_a_client_of_a_broker_that_cannot_be_reached_is_closed(self) -> None:
        async with FakeCluster({"ponds": [0, 1]}, nodes=2) as cluster, running(cluster.bootstrap) as forebay:
            cluster[1].down()
            client = await forebay.client(1)
            client.send(echo(1))
            assert await client.is_closed()

    @in_loop
    async def test_a_broker_that_closes_it_behind_records_without_acks_has_refused_them(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            client = await forebay.client(0)
            client.send(produce(1, ("ponds", 0, batch(keyed("a"), producer_id=7)), acks=0))
            (await cluster[0].receives(PRODUCE)).close()
            assert await client.is_closed()

    @in_loop
    async def test_an_answer_to_what_came_before_them_says_nothing_about_records_without_acks(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            cluster[0].holds(LIST_GROUPS)
            client = await forebay.client(0)
            client.send(echo(1), produce(2, ("ponds", 0, batch(keyed("a"), producer_id=7)), acks=0))
            refused = await cluster[0].receives(PRODUCE)
            (await cluster[0].receives(LIST_GROUPS)).answer()
            await client.receives(1)
            refused.close()
            assert await client.is_closed()

    @in_loop
    async def test_untouched_records_without_acks_of_a_client_that_leaves_at_once_arrive(self) -> None:
        async with FakeCluster({"raw": [0]}) as cluster, running(cluster.bootstrap, topics_exclude=("raw",)) as forebay:
            client = await forebay.client(0)
            client.send(*[produce(n, ("raw", 0, batch(null_key(str(n)))), acks=0) for n in range(50)])
            await client.leave()
            await until(lambda: len(cluster.values("raw", 0)) == 50)

    @in_loop
    async def test_a_client_that_is_logged_in_is_closed_with_it_since_the_next_one_would_be_a_stranger(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            client = await forebay.client(0)
            client.send(request(SASL_HANDSHAKE, 1, 1, b"\0\5PLAIN"))
            await client.receives(1)
            (await cluster[0].receives(SASL_HANDSHAKE)).close()
            assert await client.is_closed()

    @in_loop
    async def test_records_of_a_client_that_logs_in_go_its_own_way(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            client = await forebay.client(0)
            records = produce(2, ("ponds", 0, batch(null_key("a"))))
            client.send(request(SASL_HANDSHAKE, 1, 1, b"\0\5PLAIN"), records)
            await client.receives(1, 2)
            assert (await cluster[0].receives(PRODUCE)).frame == records[4:]

    @in_loop
    async def test_an_answer_to_nothing_closes_the_client(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            client = await forebay.client(0)
            client.send(echo(1))
            asked = await cluster[0].receives(LIST_GROUPS)
            await client.receives(1)
            asked.answer()
            assert await client.is_closed()

    @in_loop
    async def test_the_answer_to_an_untouched_batch_that_is_lost_is_told_for_that_partition_alone(self) -> None:
        async with (
            FakeCluster({"ponds": [0], "raw": [0]}) as cluster,
            running(cluster.bootstrap, topics_exclude=("raw",)) as forebay,
        ):
            cluster[0].holds(PRODUCE)
            client = await forebay.client(0)
            client.send(produce(1, ("ponds", 0, batch(null_key("a"))), ("raw", 0, batch(null_key("b")))))
            asked = {
                request.partitions[0][0]: request for request in [await cluster[0].receives(PRODUCE) for _ in "ab"]
            }
            asked["ponds"].answer()
            asked["raw"].close()
            (response,) = await client.receives(1)
            answers = {topic: answer.error_code for (topic, _), answer in produced(response).items()}
            assert answers == {"ponds": NONE, "raw": REQUEST_TIMED_OUT}


class TestAddresses:
    @in_loop
    async def test_metadata_names_the_listeners(self) -> None:
        async with FakeCluster({"ponds": [0, 1]}, nodes=2) as cluster, running(cluster.bootstrap) as forebay:
            client = await forebay.client()
            client.send(metadata(1, "ponds"))
            found = metadata_of((await client.receives(1))[0])
            assert {node: (broker.host, broker.port) for node, broker in found.brokers.items()} == {
                node: (LOOPBACK, forebay.node_port(node)) for node in (0, 1)
            }
            assert [partition.leader_id for partition in found.topics[0].partitions] == [0, 1]

    @in_loop
    async def test_the_advertised_host_is_told_where_one_is_set(self) -> None:
        async with (
            FakeCluster({"ponds": [0]}) as cluster,
            running(cluster.bootstrap, advertised_host="forebay.example") as forebay,
        ):
            client = await forebay.client()
            client.send(metadata(1, "ponds"))
            found = metadata_of((await client.receives(1))[0])
            assert found.brokers[0].host == "forebay.example"

    @in_loop
    @pytest.mark.parametrize("api_key", [METADATA, FIND_COORDINATOR, DESCRIBE_CLUSTER])
    async def test_no_broker_address_is_in_any_byte(self, api_key: int) -> None:
        async with FakeCluster({"ponds": [0, 1]}, nodes=2) as cluster, running(cluster.bootstrap) as forebay:
            client = await forebay.client(0)
            asks = {
                METADATA: metadata(1, "ponds"),
                FIND_COORDINATOR: request(FIND_COORDINATOR, 0, 1, b"\0\1g"),
                DESCRIBE_CLUSTER: request(DESCRIBE_CLUSTER, 0, 1, b"\0\0\0"),
            }
            client.send(asks[api_key])
            (response,) = await client.receives(1)
            named: list[tuple[int, int]] = []

            def note(node_id: int, host: str, port: int) -> tuple[str, int]:
                named.append((node_id, port))
                return host, port

            if api_key == FIND_COORDINATOR:
                rewrite_find_coordinator(response.whole, 0, note)
            elif api_key == DESCRIBE_CLUSTER:
                rewrite_describe_cluster(response.whole, 0, note)
            else:
                named += [(node, broker.port) for node, broker in metadata_of(response).brokers.items()]
            assert named
            assert all(port == forebay.node_port(node) for node, port in named)
            for broker in cluster.brokers.values():
                assert broker.port.to_bytes(4, "big") not in response.whole

    @in_loop
    async def test_a_broker_that_joins_later_has_a_listener_when_it_is_first_named(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            client = await forebay.client(0)
            await cluster.join(3)
            cluster.topics["lakes"] = [3]
            client.send(metadata(1, "lakes"))
            found = metadata_of((await client.receives(1))[0])
            assert found.brokers[3].port == forebay.node_port(3)
            new = await forebay.client(3)
            new.send(echo(1, b"to three"), produce(2, ("lakes", 0, batch(null_key("a")))))
            first, second = await new.receives(1, 2)
            assert first.body == b"to three"
            assert only(second).error_code == NONE
            assert len(cluster[3].requests(LIST_GROUPS)) == 1

    @in_loop
    async def test_a_broker_whose_port_is_taken_is_not_named(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            squatter = await asyncio.start_server(lambda reader, writer: None, LOOPBACK, forebay.node_port(2))
            await cluster.join(2)
            client = await forebay.client(0)
            client.send(metadata(1, "ponds"))
            found = metadata_of((await client.receives(1))[0])
            assert list(found.brokers) == [0]
            squatter.close()
            await squatter.wait_closed()
            client.send(metadata(2, "ponds"))
            assert sorted(metadata_of((await client.receives(2))[0]).brokers) == [0, 2]

    @in_loop
    async def test_a_broker_that_says_what_cannot_be_read_closes_the_client_rather_than_leak(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            client = await forebay.client(0)
            cluster[0].holds(FIND_COORDINATOR)
            client.send(request(FIND_COORDINATOR, 0, 1, b"\0\1g"))
            asked = await cluster[0].receives(FIND_COORDINATOR)
            asked.respond(b"\0\0\0\0\0\0\0\x09127")
            assert await client.is_closed()


def coordinator(broker: FakeBroker, more: int) -> bytes:
    """FindCoordinator v0, with as many bytes behind it, which clients ignore."""
    host = LOOPBACK.encode()
    return bytes(6) + len(host).to_bytes(2, "big") + host + broker.port.to_bytes(4, "big") + bytes(more)


def gathered(forebay: Running) -> int:
    """Bytes that stand in the proxy of responses to be rewritten."""
    opaque = [connection._upstream._opaque for connection in forebay.app._connections]
    return sum(one._splitter.buffered for one in opaque if one is not None)


class TestGatheredResponses:
    """They are held until they are whole, within a memory for all."""

    LIMIT = 1 << 20
    SLICE = 100_000
    """Of each response in turn, so that they arrive at the same time."""

    @in_loop
    async def test_many_large_ones_are_gathered_in_turn(self) -> None:
        size, crowd = 1_500_000, 12
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            memory = forebay.app._connections._response_memory
            memory._limit = self.LIMIT
            cluster[0].holds(FIND_COORDINATOR)
            clients = [await forebay.client(0) for _ in range(crowd)]
            for client in clients:
                client.send(request(FIND_COORDINATOR, 0, 1, b"\0\1g"))
            await until(lambda: len(cluster[0].requests(FIND_COORDINATOR)) == crowd)
            received = asyncio.gather(*[client.receives(1) for client in clients])
            answer = bytes([0, 0, 0, 1]) + coordinator(cluster[0], size)
            answer = len(answer).to_bytes(4, "big") + answer
            highest = 0
            for start in range(0, len(answer), self.SLICE):
                for asked in cluster[0].requests(FIND_COORDINATOR):
                    asked.connection.write(answer[start : start + self.SLICE])
                await turns(3)
                highest = max(highest, gathered(forebay))
            assert self.LIMIT // 2 < highest <= self.LIMIT + crowd * SMALL + len(answer)
            assert {len(response.body) for (response,) in await received} == {size + 21}
            await until(lambda: memory.total == 0)

    @in_loop
    async def test_a_client_that_does_not_take_its_own_keeps_nobody_else_from_theirs(self) -> None:
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            memory = forebay.app._connections._response_memory
            memory._limit = self.LIMIT
            cluster[0].holds(FIND_COORDINATOR)
            hoarder, *others = [await forebay.client(0) for _ in range(4)]
            hoarder.send(request(FIND_COORDINATOR, 0, 1, b"\0\1g"))
            (await cluster[0].receives(FIND_COORDINATOR)).respond(coordinator(cluster[0], 64 << 20))
            await until(lambda: memory.total > (32 << 20))
            assert forebay.count("forebay_gathered_response_bytes") == memory.total
            answer, asked = coordinator(cluster[0], 500_000), []
            for client in others:
                client.send(request(FIND_COORDINATOR, 0, 1, b"\0\1g"))
                asked.append(await cluster[0].receives(FIND_COORDINATOR))
                asked[-1].connection.write((4 + len(answer)).to_bytes(4, "big") + bytes([0, 0, 0, 1]) + answer[:-1])
            await until(lambda: forebay.count("forebay_frames_refused_total", "not_taken") == 1)
            for one in asked:
                one.connection.write(answer[-1:])
            await asyncio.gather(*[client.receives(1) for client in others])
            await until(lambda: memory.total == 0)

    @in_loop
    async def test_what_a_closed_client_did_not_take_counts_no_more_though_its_broker_does_not_read(self) -> None:
        """It was said to be closed, with what its broker has not read, and said so again: that ended the watch."""
        size = 24 << 20
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            memory = forebay.app._connections._response_memory
            cluster[0].holds(FIND_COORDINATOR)
            clients = [await forebay.client(0) for _ in range(2)]
            for client in clients:
                client.send(request(FIND_COORDINATOR, 0, 1, b"\0\1g"))
            await until(lambda: len(cluster[0].requests(FIND_COORDINATOR)) == 2)
            asked = cluster[0].requests(FIND_COORDINATOR)
            for one, client in zip(asked, clients, strict=True):
                one.connection.read(False)
                client.send(echo(2, bytes(size)))
            await until(lambda: forebay.count("forebay_request_bytes_total", "upstream") > 64 * 1024)
            await until(lambda: all(not it._state.taking for it in forebay.app._connections))
            for one in asked:
                one.respond(coordinator(cluster[0], size))
            await until(lambda: forebay.count("forebay_frames_refused_total", "not_taken"))
            await until(lambda: memory.total < 1.5 * size)
            for _ in range(3):
                memory.tick()
            assert forebay.count("forebay_frames_refused_total", "not_taken") == 1
            assert forebay.app.unhealthy() is None

    @in_loop
    async def test_one_larger_than_any_bound_is_given_all_the_same(self) -> None:
        size = 40 << 20
        async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
            cluster[0].holds(FIND_COORDINATOR)
            client = await forebay.client(0)
            client.send(request(FIND_COORDINATOR, 0, 1, b"\0\1g"))
            (await cluster[0].receives(FIND_COORDINATOR)).respond(coordinator(cluster[0], size))
            (response,) = await client.receives(1)
            assert len(response.body) == size + 21


@in_loop
async def test_versions_are_asked_once_for_all_clients_that_ask() -> None:
    async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap) as forebay:
        cluster[0].holds(API_VERSIONS)
        before = cluster[0].accepted
        clients = [await forebay.client(0) for _ in range(5)]
        for client in clients:
            asked = api_versions.request(1, "old-producer", 2, "old", "1")
            client.send(len(asked).to_bytes(4, "big") + asked)
        await until(lambda: cluster[0].accepted == before + 1)
        cluster[0].releases(API_VERSIONS)
        cluster[0].requests(API_VERSIONS)[-1].answer()
        for client in clients:
            await client.receives(1)
        assert cluster[0].accepted == before + 1
