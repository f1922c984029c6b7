"""The whole proxy over memory: a client that sends anything, a broker that answers anything.

Each input runs in an App of its own and a MemoryLoop, so it does the same whatever came before. Beside it a neighbour
produces and asks, whose every request must be answered as if it were alone. Afterwards nothing may be left: no memory
of the pool, no batch, no request that waits, no exception that escaped.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, MutableMapping
from random import Random
from typing import Any, Final, cast

import structlog

from forebay_codecs import produce_response
from forebay_codecs.produce_request import RECORD_BATCHES_FROM
from forebay_proxy.app import App
from forebay_proxy.config.settings import HostPort, Settings
from forebay_proxy.metrics.registry import MetricRegistry
from tests.codecs.kio_oracle import message
from tests.fuzz import message_sets
from tests.fuzz.batches import LIMIT, contents_of
from tests.fuzz.brokers import HOST, PORTS, Brokers, Spoil
from tests.fuzz.memory_loop import MemoryLoop, MemoryTransport
from tests.fuzz.schema import read
from tests.kit.own_logs import own_logs
from tests.kit.wire import batch, echo, keyed, null_key, produce

MOST: Final = 1 << 20
"""Bytes of a frame."""

PATIENCE: Final = 300.0
"""Seconds of the loop's own clock, beyond every timeout of the proxy."""

LINGERS: Final = (-1, 0, 5)


class Client(asyncio.Protocol):
    """A client's end of one connection; keeps all that it receives."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.closed = False
        self.transport: MemoryTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(MemoryTransport, transport)

    def data_received(self, data: bytes) -> None:
        self.received += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True

    def send(self, data: bytes) -> None:
        assert self.transport is not None
        self.transport.write(data)

    def leave(self) -> None:
        assert self.transport is not None
        self.transport.close()

    def responses(self) -> list[bytes]:
        """The whole ones, from correlation_id on."""
        return frames(bytes(self.received))


def frames(stream: bytes) -> list[bytes]:
    """What stands behind each size, up to the first that no frame can have."""
    found = []
    at = 0
    while at + 4 <= len(stream):
        size = int.from_bytes(stream[at : at + 4], "big", signed=True)
        if size < 4 or size > MOST or at + 4 + size > len(stream):
            break
        found.append(stream[at + 4 : at + 4 + size])
        at += 4 + size
    return found


class World:
    """A proxy between brokers and clients, all in one loop."""

    def __init__(self, loop: MemoryLoop, produce_version: int, linger_ms: int, spoil: Spoil | None) -> None:
        self.loop = loop
        self.brokers = Brokers(produce_version, spoil) if spoil is not None else Brokers(produce_version)
        loop.accept = self.brokers.accept
        settings = Settings(
            bootstrap_servers=tuple(HostPort(HOST, port) for port in PORTS.values()),
            listen=HostPort(HOST, 0),
            node_ports={0: 1, 1: 2},
            advertised_host="proxy.example",
            linger_ms=linger_ms,
            batch_max_size=65_536,
            buffer_memory=1 << 20,
            max_decompressed_bytes=LIMIT,
            socket_request_max_bytes=MOST,
            client_max_in_flight_requests=20,
        )
        self.app = App(settings, MetricRegistry(), rng=Random(1))
        self.app._realm.handler.classifier._now_ms = lambda: message_sets.RECEIVED
        self.app._connections._clock = loop.time  # a default argument took the clock before it could be changed

    async def start(self) -> None:
        (self.listener,) = self.app._listeners._listeners
        self.listener.open_node = lambda node_id: node_id in PORTS  # type: ignore[method-assign]
        await self.app.start()
        await self.until(lambda: self.app.ready() is None, "the proxy is not ready")

    def client(self, node_id: int | None = 0) -> Client:
        client = Client()
        assert self.listener._on_client is not None
        self.loop.pair(cast(asyncio.BufferedProtocol, self.listener._on_client(node_id)), client)
        return client

    async def until(self, condition: Callable[[], object], otherwise: str) -> None:
        end = self.loop.time() + PATIENCE
        while not condition():
            assert self.loop.time() < end, otherwise
            await asyncio.sleep(0.02)

    async def answers(self, client: Client, *correlation_ids: int) -> list[bytes] | None:
        """None where the client was closed instead."""
        count = len(correlation_ids)
        await self.until(lambda: len(client.responses()) >= count or client.closed, "a neighbour is not answered")
        found = client.responses()
        if len(found) < count:
            return None
        assert tuple(int.from_bytes(answer[:4], "big") for answer in found) == correlation_ids
        return found

    async def empties(self, connections: int) -> None:
        app = self.app

        def empty() -> bool:
            return (
                not len(app._realm.deadlines)
                and not app._pool.used
                and not app._realm.accumulator.queued_batches
                and not app._realm.accumulator.in_flight_bytes
                and len(app._connections) == connections
            )

        await self.until(empty, "something is left in the proxy")

    def finish(self) -> None:
        self.app.abort()


def in_world(
    run: Callable[[World], Coroutine[Any, Any, None]],
    produce_version: int = 12,
    linger_ms: int = -1,
    spoil: Spoil | None = None,
) -> None:
    """`run` with a proxy that is ready. Raises what it raises, and where anything escaped."""
    loop = MemoryLoop()

    async def main() -> None:
        world = World(loop, produce_version, linger_ms, spoil)
        try:
            await world.start()
            await run(world)
            assert not world.brokers.wrong, world.brokers.wrong
        finally:
            world.finish()
            await asyncio.sleep(1)

    modules = [module for name, module in sys.modules.items() if name.startswith("forebay_proxy.")]
    try:
        with own_logs(), loop.clock_of(modules), asyncio.Runner(loop_factory=lambda: loop) as runner:
            structlog.configure(processors=[_Faults(loop.escaped)])
            runner.run(main())
    finally:
        asyncio.set_event_loop(None)
    assert not loop.escaped, loop.escaped


class _Faults:
    """Logs nothing. What the proxy caught of its own faults is a finding all the same."""

    def __init__(self, found: list[Mapping[str, Any]]) -> None:
        self._found = found

    def __call__(self, _logger: Any, _name: str, event: MutableMapping[str, Any]) -> str:
        if "exc_info" in event:
            self._found.append(event)
        raise structlog.DropEvent


# A client that sends anything


def check_client(data: bytes) -> bool:
    """One byte of how, then a stream. True: the client was not closed."""
    how, stream = data[0] if data else 0, data[1:]
    outcome: list[bool] = []

    async def run(world: World) -> None:
        rng = Random(how)
        neighbour = world.client()
        hostile = world.client(rng.choice((0, 1, None)))
        step = rng.choice((1 << 20, 1 << 20, 1000, 100, 7))
        neighbour.send(produce(1, ("ponds", 0, batch(null_key("one")))))
        for at in range(0, len(stream), step):
            hostile.send(stream[at : at + step])
            await asyncio.sleep(0)
        neighbour.send(produce(2, ("ponds", 1, batch(keyed("two")))) + echo(3, b"three"))
        answers = await world.answers(neighbour, 1, 2, 3)
        assert answers is not None, "a neighbour was closed"
        assert answers[2][4:] == b"three"
        await asyncio.sleep(3)
        outcome.append(not hostile.closed)
        hostile.leave()
        await world.empties(1)
        _judge(world, stream, hostile)

    in_world(run, 12 if how & 1 else 8, LINGERS[how % 3])
    return outcome[0]


def _judge(world: World, stream: bytes, client: Client) -> None:
    asked: dict[int, Any] = {}
    ids = []
    sent: Counter[tuple[object, ...]] = Counter()
    for topic, partition, records in (("ponds", 0, null_key("one")), ("ponds", 1, keyed("two"))):
        sent.update(_places(topic, partition, contents_of(batch(records))))
    for frame in frames(stream):
        correlation_id = int.from_bytes(frame[4:8], "big")
        request = _produce_request(frame)
        # Where two requests, of whatever API, have one id, which response is whose cannot be told.
        asked[correlation_id] = request if correlation_id not in asked else None
        ids.append(correlation_id)
        if request is not None:
            for topic, partition, contents in _batches(request):
                sent.update(_places(topic, partition, contents))
    logged = Counter(
        place for entry in world.brokers.log.elements() for place in _places(entry[0], entry[1], [entry[2]])
    )
    assert not logged - sent, logged - sent
    order = iter(ids)
    for response in client.responses():
        correlation_id = int.from_bytes(response[:4], "big")
        assert correlation_id in order, "an answer to nothing, or out of order"
        request = asked.get(correlation_id)
        if request is not None and request["acks"]:
            _acknowledged(request, response, logged)


def _produce_request(frame: bytes) -> Any:
    version = int.from_bytes(frame[2:4], "big")
    if frame[:2] != b"\0\0" or not 0 <= version <= 12:
        return None
    if version < RECORD_BATCHES_FROM:  # as v3, which has a transactional id behind the client id
        at = 10 + max(0, int.from_bytes(frame[8:10], "big", signed=True))
        frame = frame[:2] + b"\0\3" + frame[4:at] + b"\xff\xff" + frame[at:]
    # Bytes that are left over are ignored, as brokers do.
    known = message("produce", max(version, RECORD_BATCHES_FROM), "ProduceRequest")
    request = read(known, frame, ends=False, as_brokers=True)
    return request and request | {"version": version}


def _batches(request: Any) -> list[tuple[str, int, list[tuple[object, ...]]]]:
    found = []
    contents = _contents_of_set if request["version"] < RECORD_BATCHES_FROM else contents_of
    for topic in request["topic_data"]:
        for partition in topic["partition_data"]:
            try:
                found.append((topic["name"], partition["index"], contents(partition["records"] or b"")))
            except Exception:  # whatever others say of bytes that are no batch
                continue
    return found


def _contents_of_set(data: bytes) -> list[tuple[object, ...]]:
    return [(record.key, record.value, record.timestamp, ()) for record in message_sets.read(data)]


def _places(topic: str, partition: int, contents: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
    """Where records may be found: without a key, on any partition."""
    return [(topic, None if content[0] is None else partition, content) for content in contents]


def _acknowledged(request: Any, response: bytes, logged: Counter[tuple[object, ...]]) -> None:
    told = {
        (topic, partition.partition): partition.error_code
        for topic, partitions in produce_response.parse(response, request["version"]).topics
        for partition in partitions
    }
    assert set(told) == {
        (topic["name"], partition["index"]) for topic in request["topic_data"] for partition in topic["partition_data"]
    }
    twice = len(told) < sum(len(topic["partition_data"]) for topic in request["topic_data"])
    for topic, partition, contents in _batches(request):
        if not twice and told[topic, partition] == 0:
            assert all(logged[place] for place in _places(topic, partition, contents)), "acknowledged and lost"
