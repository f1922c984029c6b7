"""Hostile clients and honest ones at the same `forebay run`: the honest lose nothing, and nothing is left behind.

Each attack stands while an honest client produces small requests and large ones, one after the other. All of them must
be acknowledged, with their records at the broker; memory must stay within its bounds; and once the attackers are gone
or closed, memory, connections, tasks and file descriptors are back.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from forebay_codecs.api_keys import PRODUCE
from forebay_codecs.error_codes import NONE
from tests.chaos.footprint import Footprint, footprint
from tests.kit.crowd import Crowd
from tests.kit.event_loop import in_loop
from tests.kit.fake_broker import FakeCluster
from tests.kit.forebay import ForebayProcess
from tests.kit.memory import resident
from tests.kit.wire import WireClient, batch, keyed, metadata, only, produce, request

MB = 1 << 20
LARGE = 300 * 1024
"""A request that does not arrive in one read."""
SPARE = 32 * MB
"""What memory may grow by for other reasons: the allocator's own, tables of connections."""
A_CONNECTION = 16 * 1024
"""What one takes that has said little."""
ROUNDS = 20
PATIENCE = 15.0

UNFINISHED = produce(1, ("ponds", 0, bytes(50 * MB)))[: 64 * 1024]
"""The beginning of a request of 50 MB."""
GARBAGE = (
    b"GET / HTTP/1.1\r\nHost: kafka\r\n\r\n",
    bytes.fromhex("16030100f1010000ed0303") + bytes(230),  # TLS
    b"\xff" * 64,
    bytes(64),
    b"\x00\x00\x00\x10" + b"\x7f" * 16,
    request(PRODUCE, 9, 1, b"\xff" * 40),
)


@dataclass
class Scene:
    forebay: ForebayProcess
    cluster: FakeCluster
    settled: Footprint
    rss: int
    sent: int = 0

    @property
    def port(self) -> int:
        return self.forebay.node_port(0)

    async def honest_client_is_served(self, rounds: int = ROUNDS, client: WireClient | None = None) -> None:
        """Small and large requests in turn, each acknowledged before the next."""
        client = client or await WireClient.connect(self.port)
        for _ in range(rounds):
            for padding in (0, LARGE):
                self.sent += 1
                client.send(produce(self.sent, ("ponds", 0, batch(keyed(f"{self.sent}:" + "x" * padding)))))
                async with asyncio.timeout(PATIENCE):
                    (response,) = await client.receives(self.sent)
                assert only(response).error_code == NONE
        client.close()

    def stalled(self) -> float:
        return self.forebay.metrics()['forebay_frames_refused_total{reason="stalled"}']

    async def has_closed(self, stalled: int) -> None:
        await self.until(lambda _: self.stalled() > stalled, "the stalled are still there")

    def numbers(self) -> list[int]:
        return [int(value.partition(":")[0]) for value in self.cluster.values("ponds", 0)]

    async def sample(self) -> Footprint:
        return await asyncio.to_thread(footprint, self.forebay)

    async def until(self, condition: Callable[[Footprint], bool], what: str) -> None:
        now = await self.sample()
        try:
            async with asyncio.timeout(PATIENCE):
                while not condition(now):
                    await asyncio.sleep(0.1)
                    now = await self.sample()
        except TimeoutError:
            raise AssertionError(f"{what}: {now}, at rest {self.settled}") from None


@asynccontextmanager
async def scene(**settings: int) -> AsyncIterator[Scene]:
    """Settled after a first load; at the end everything is as it was then, and nothing honest is missing."""
    async with FakeCluster({"ponds": [0]}) as cluster:
        bootstrap = ",".join(map(str, cluster.bootstrap))
        words = {name.replace("_", "."): str(value) for name, value in settings.items()}
        forebay = ForebayProcess(bootstrap, [0], settings=words)
        await asyncio.to_thread(forebay.start)
        try:
            now = Scene(forebay, cluster, await asyncio.to_thread(footprint, forebay), 0)
            client = await WireClient.connect(now.port)
            client.send(metadata(0, "ponds"))
            await client.receives(0)
            client.close()
            await now.honest_client_is_served()
            await now.until(lambda found: found.at_rest, "not at rest")
            now.settled, now.rss = await now.sample(), resident(forebay.pid)
            yield now
            await now.until(lambda found: not found.beyond(now.settled), "something is left")
            assert now.numbers() == list(range(1, now.sent + 1))
        except BaseException:
            forebay.kill()
            raise
        await asyncio.to_thread(forebay.stop)


async def attack(port: int, count: int, first: bytes) -> list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Connections that have sent `first`, as far as they were let."""
    found = []
    for _ in range(count):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(first)
        found.append((reader, writer))
    return found


def leave(attackers: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]) -> None:
    for _, writer in attackers:
        writer.transport.abort()


@in_loop
async def test_garbage_closes_whoever_sends_it() -> None:
    async with scene() as now:
        attackers = [found for each in GARBAGE for found in await attack(now.port, 50, each)]
        await now.honest_client_is_served()
        for reader, _ in attackers:
            with contextlib.suppress(ConnectionError):
                async with asyncio.timeout(PATIENCE):
                    assert await reader.read() == b""
        leave(attackers)


@in_loop
async def test_a_request_that_trickles_in_closes_its_client() -> None:
    async with scene(socket_request_timeout_ms=2_000) as now:
        attackers = await attack(now.port, 200, UNFINISHED[:5])

        async def trickle() -> None:
            for at in range(5, 1_000):
                for _, writer in attackers:
                    writer.write(UNFINISHED[at : at + 1])
                await asyncio.sleep(0.1)

        trickling = asyncio.create_task(trickle())
        await now.honest_client_is_served()
        await now.until(lambda found: found.client_connections == 0, "the slow are still there")
        trickling.cancel()
        leave(attackers)


@in_loop
async def test_requests_that_never_end_take_no_more_memory_than_is_set() -> None:
    """Eight waves of 26 MB; those of a wave that stall are closed when the next one comes."""
    limit, count = 8 * MB, 400
    async with scene(queued_max_request_bytes=limit) as now:
        attackers = []
        for wave in range(8):
            attackers += await attack(now.port, count, UNFINISHED)
            await now.honest_client_is_served(rounds=5)
            await now.has_closed(wave * count + count // 2)
        assert resident(now.forebay.pid) - now.rss < limit + 2 * count * len(UNFINISHED) + SPARE
        leave(attackers)
        await now.until(lambda found: found.client_connections == 0, "connections are left")
        assert now.forebay.metrics()["forebay_queued_request_bytes"] == 0


@in_loop
async def test_clients_that_come_and_go_leave_no_memory_behind() -> None:
    """Waves of 2,000 that ask for metadata. What the first few leave is the allocator's; then there is no more."""
    async with scene() as now:
        sizes = []
        for _ in range(10):
            with Crowd(now.port, 2_000, metadata(1, "ponds")) as crowd:
                await asyncio.to_thread(crowd.start)
                await now.until(lambda found: found.client_connections > 1_900, "they did not come")
            await now.until(lambda found: found.client_connections == 0, "connections are left")
            sizes.append(resident(now.forebay.pid))
        assert sizes[-1] - sizes[1] < 2 * MB, sizes


@in_loop
async def test_ten_thousand_connections_keep_nobody_from_being_served() -> None:
    """They connect while an honest client is served, which goes on being served. Each says something and waits."""
    async with scene() as now:
        client = await WireClient.connect(now.port)
        serving = asyncio.create_task(now.honest_client_is_served(5 * ROUNDS, client))
        with Crowd(now.port, 10_000, UNFINISHED[:10]) as crowd:
            await asyncio.to_thread(crowd.start)
            assert crowd.count > 500
            await serving
            await now.until(lambda found: found.client_connections > 0.9 * min(crowd.count, 9_000), "they did not come")
            assert resident(now.forebay.pid) - now.rss < crowd.count * A_CONNECTION + SPARE
