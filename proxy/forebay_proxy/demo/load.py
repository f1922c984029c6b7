"""The demo's load: many old producers, each with a connection of its own to every broker.

In: where the cluster is, a LoadPlan, and the random generator. Out: a LoadResult; `LoadCounts` can be watched while it
runs. Wrong: OSError where the cluster cannot be reached, Malformed where an answer is not one.

`measure_capacity` asks how much the machine bears, with as many clients as a load has.

The records are offered at a fixed mean rate with exponential gaps, whatever the brokers do; a record's latency counts
from the moment it was due, so a late answer, a waiting queue and a late generator all show. Each connection has one
request in flight (as producers have that must keep order), each request one record; the rest waits in the client.
Who sends, to which partition and how large is drawn from the generator: the same seed gives the same load.
"""

from __future__ import annotations

import asyncio
import random
import time
from array import array
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Final, NamedTuple, cast

from forebay_codecs.errors import Malformed
from forebay_proxy.demo.reader import Address, find_leaders
from forebay_proxy.demo.wire import ProduceAnswers, ProduceTemplate

_TICK: Final = 0.001
"""Seconds between two looks at what is due: uvloop's timers are no finer."""
_DRAIN_TIMEOUT: Final = 30.0
_STARTING_AT_ONCE: Final = 2
"""Clients that connect at the same time. The mock brokers' backlog is 5; a SYN that is lost there costs a second."""
VALUE_SIZES: Final = (200, 260, 320, 380, 440, 500)


class LoadPlan(NamedTuple):
    """`rate` in records/s over all clients; seconds of warm-up (offered, not measured), then of measuring."""

    topic: str
    partitions: int
    clients: int
    rate: float
    warm_up: float
    seconds: float


class Arrival(NamedTuple):
    """`due` in seconds from the start of the load."""

    due: float
    client: int
    partition: int
    size: int


class LoadCounts:
    """What has happened so far: records offered, acknowledged, refused; seconds waited for acknowledgements."""

    def __init__(self) -> None:
        self.offered = 0
        self.acknowledged = 0
        self.failed = 0
        self.waited = 0.0

    @property
    def outstanding(self) -> int:
        """Records offered whose fate is open."""
        return self.offered - self.acknowledged - self.failed


class LoadResult(NamedTuple):
    """Latencies in seconds, sorted, of the records that were due while measuring; those never answered count in
    `failed`. `per_second` is acknowledgements that came while measuring, by its length. `cpu` is the share of a core
    that the generator took. `late` is by how many seconds, on average, a record was offered after it was due: where it
    is more than a few milliseconds, the machine had no time for the generator."""

    acknowledged: int
    failed: int
    per_second: float
    latencies: array[float]
    cpu: float
    late: float


def arrivals(plan: LoadPlan, rng: random.Random) -> Iterator[Arrival]:
    """At a rate of 2000 the gaps have a mean of 0.5 ms."""
    due = 0.0
    end = plan.warm_up + plan.seconds
    while (due := due + rng.expovariate(plan.rate)) < end:
        yield Arrival(
            due,
            rng.randrange(plan.clients),
            rng.randrange(plan.partitions),
            rng.randrange(len(VALUE_SIZES)),
        )


class _Load:
    """What the connections of one load share: the counts, the clock, and what is measured."""

    def __init__(self, plan: LoadPlan, counts: LoadCounts) -> None:
        self.plan = plan
        self.counts = counts
        self.templates = [ProduceTemplate(plan.topic, size) for size in VALUE_SIZES]
        self.answers = ProduceAnswers(plan.topic)
        self.connections: list[_Connection] = []
        self.latencies: array[float] = array("d")
        self.measured = 0
        self.start = 0.0
        self.late = 0.0
        """Seconds from due to offered, of all records together."""
        self.over = asyncio.Event()
        """All is offered and nothing is outstanding."""
        self.saturating = False
        """Whether each connection sends its next record as soon as it has an answer."""
        self._all_offered = False

    def all_offered(self) -> None:
        self._all_offered = True
        self._look_whether_over()

    def answered(self, due: float, error: int) -> None:
        counts, plan = self.counts, self.plan
        now = time.perf_counter() - self.start
        if error:
            counts.failed += 1
        else:
            counts.acknowledged += 1
            counts.waited += now - due
            if due >= plan.warm_up:
                self.latencies.append(now - due)
            if plan.warm_up <= now < plan.warm_up + plan.seconds:
                self.measured += 1
        self._look_whether_over()

    def _look_whether_over(self) -> None:
        if self._all_offered and not self.counts.outstanding:
            self.over.set()


class _Connection(asyncio.Protocol):
    """One client's connection to one broker: one request in flight, what follows waits in line."""

    def __init__(self, load: _Load) -> None:
        self._load = load
        self._transport: asyncio.Transport | None = None
        self._waiting: deque[Arrival] = deque()
        self._in_flight: Arrival | None = None
        self._correlation_id = 0
        self._received = bytearray()
        self.error: Exception | None = None

    def offer(self, arrival: Arrival) -> None:
        if self._in_flight is None:
            self._write(arrival)
        else:
            self._waiting.append(arrival)

    def _write(self, arrival: Arrival) -> None:
        if self._transport is None:
            self._load.answered(arrival.due, -1)
            return
        self._in_flight = arrival
        self._correlation_id += 1
        template = self._load.templates[arrival.size]
        self._transport.write(template.frame(self._correlation_id, arrival.partition, int(time.time() * 1000)))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not derive from asyncio's.
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        if len(self._received) < self._load.answers.size:
            return
        try:
            correlation_id, error = self._load.answers.read(self._received, 0)
            if correlation_id != self._correlation_id or self._in_flight is None:
                raise Malformed("an answer to a request that is not in flight")
        except Malformed as malformed:
            self.error = malformed
            self.close()
            return
        del self._received[: self._load.answers.size]
        arrival, self._in_flight = self._in_flight, None
        self._load.answered(arrival.due, error)
        if self._waiting:
            self._write(self._waiting.popleft())
        elif self._load.saturating:
            self._load.counts.offered += 1
            self._write(arrival._replace(due=time.perf_counter() - self._load.start))

    def connection_lost(self, exc: Exception | None) -> None:
        """Like an old producer without retries: what was sent or waits on this connection has failed."""
        self._transport = None
        lost = [self._in_flight] if self._in_flight is not None else []
        self._in_flight = None
        for arrival in (*lost, *self._waiting):
            self._load.answered(arrival.due, -1)
        self._waiting.clear()


async def _connect_client(bootstrap: str, load: _Load, starting: asyncio.Semaphore) -> list[_Connection]:
    """What an old producer does at its start. The result is by partition; partitions share their leader's."""
    loop = asyncio.get_running_loop()
    by_address: dict[Address, _Connection] = {}
    async with starting:
        leaders = await find_leaders(bootstrap, load.plan.topic)
        for address in leaders.values():
            if address not in by_address:
                _, connection = await loop.create_connection(lambda: _Connection(load), *address)
                by_address[address] = connection
                load.connections.append(connection)
    return [by_address[leaders[partition]] for partition in range(load.plan.partitions)]


async def _offer(load: _Load, clients: list[list[_Connection]], rng: random.Random) -> None:
    for arrival in arrivals(load.plan, rng):
        early = load.start + arrival.due - time.perf_counter()
        if early > 0:
            await asyncio.sleep(max(early, _TICK))
        load.late += max(0.0, time.perf_counter() - load.start - arrival.due)
        load.counts.offered += 1
        clients[arrival.client][arrival.partition].offer(arrival)


@asynccontextmanager
async def _connected(bootstrap: str, load: _Load) -> AsyncIterator[list[list[_Connection]]]:
    """Connections by client and partition. Leaving the block fails what is outstanding, and raises their errors."""
    try:
        starting = asyncio.Semaphore(_STARTING_AT_ONCE)
        yield await asyncio.gather(*(_connect_client(bootstrap, load, starting) for _ in range(load.plan.clients)))
    finally:
        for connection in load.connections:
            connection.close()
    await load.over.wait()
    for connection in load.connections:
        if connection.error is not None:
            raise connection.error


async def _drain(load: _Load) -> None:
    load.all_offered()
    try:
        async with asyncio.timeout(_DRAIN_TIMEOUT):
            await load.over.wait()
    except TimeoutError:
        pass  # what is still outstanding fails when its connection closes


async def run_load(bootstrap: str, plan: LoadPlan, rng: random.Random, counts: LoadCounts) -> LoadResult:
    """Offer the planned load to the brokers of `bootstrap` (host:port), wait for the answers and tell how it went.

    `counts` is kept up to date meanwhile. Raises OSError where a broker cannot be reached, or Malformed.
    """
    load = _Load(plan, counts)
    async with _connected(bootstrap, load) as clients:
        cpu = time.thread_time()
        load.start = time.perf_counter()
        await _offer(load, clients, rng)
        await _drain(load)
        cpu = (time.thread_time() - cpu) / (time.perf_counter() - load.start)
    latencies = array("d", sorted(load.latencies))
    late = load.late / max(1, counts.offered)
    return LoadResult(counts.acknowledged, counts.failed, load.measured / plan.seconds, latencies, cpu, late)


async def measure_capacity(bootstrap: str, plan: LoadPlan) -> float:
    """Records/s acknowledged while every connection always has a request in flight; `plan.rate` does not matter."""
    load = _Load(plan, LoadCounts())
    async with _connected(bootstrap, load) as clients:
        load.saturating = True
        load.start = time.perf_counter()
        for client, by_partition in enumerate(clients):
            for connection, partition in {on: partition for partition, on in enumerate(by_partition)}.items():
                load.counts.offered += 1
                connection.offer(Arrival(0.0, client, partition, 0))
        await asyncio.sleep(plan.warm_up + plan.seconds)
        load.saturating = False
        await _drain(load)
    return load.measured / plan.seconds
