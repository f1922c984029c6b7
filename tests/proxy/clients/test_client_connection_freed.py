"""A connection that has ended is freed by itself, whatever was under way: no collector has to find it.

What a full collection looks through grows with the connections that are open, and it stops everybody meanwhile.
"""

from __future__ import annotations

import gc
from collections.abc import Awaitable, Callable, Iterator
from itertools import count
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from forebay_codecs.api_keys import PRODUCE
from forebay_proxy.clients.client_connection import ClientConnection
from forebay_proxy.clients.client_upstream import ClientUpstream
from forebay_proxy.clients.opaque_connection import OpaqueConnection
from forebay_proxy.clients.tls_connection import TlsConnection
from tests.kit.app import Running, running
from tests.kit.event_loop import in_loop, turns, until
from tests.kit.fake_broker import FakeCluster
from tests.kit.wire import LIST_GROUPS, batch, echo, keyed, metadata, null_key, produce
from tests.proxy.clients.test_login_watch import records, town
from tests.proxy.clients.test_tls_connection import secured

OF_A_CONNECTION = (ClientConnection, ClientUpstream, OpaqueConnection, TlsConnection)
MERGED = produce(1, ("ponds", 0, batch(null_key("a"))))
UNTOUCHED = produce(1, ("ponds", 0, batch(keyed("a"), producer_id=7)))
CLIENTS = 3
FAR_S = 1e6


@pytest.fixture(autouse=True)
def _nobody_collects() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


def left_behind() -> list[str]:
    """What is there of client connections."""
    return [type(it).__name__ for it in gc.get_objects() if isinstance(it, OF_A_CONNECTION)]


async def come_and_go(forebay: Running, life: Callable[[], Awaitable[None]], *, owed: bool = False) -> None:
    """`owed`: they are not answered, and given up after a while."""
    for _ in range(CLIENTS):
        await life()
    assert left_behind(), "else nothing is seen"
    forebay.close_clients()
    forebay._clients.clear()
    connections = forebay.app._connections
    await until(lambda: all(each.done or each.hung_up or not owed for each in connections))
    for _ in range(2 * owed):  # that it has left, and that it was long ago
        connections.sweep(monotonic() + FAR_S)
    await until(lambda: len(connections) == 0)
    await turns(50)


@pytest.mark.parametrize(
    "asked",
    [None, metadata(1, "ponds"), MERGED, UNTOUCHED, echo(1)],
    ids=["nothing", "metadata", "merged", "untouched", "other"],
)
@pytest.mark.parametrize("how", [{}, {"producers_only": True}], ids=["a port for each broker", "one port"])
@in_loop
async def test_once_it_was_answered(asked: bytes | None, how: dict[str, Any]) -> None:
    async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap, linger_ms=0, **how) as forebay:

        async def life() -> None:
            client = await forebay.client(None if how else 0)
            if asked is not None:
                client.send(asked)
                await client.receives(1)

        await come_and_go(forebay, life)
        assert left_behind() == []


@pytest.mark.parametrize("asked", [UNTOUCHED, echo(1)], ids=["untouched", "other"])
@in_loop
async def test_while_its_broker_does_not_answer(asked: bytes) -> None:
    async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap, linger_ms=0) as forebay:
        cluster[0].holds(LIST_GROUPS)
        cluster[0].holds(PRODUCE)

        async def life() -> None:
            (await forebay.client(0)).send(asked)
            await cluster[0].receives(LIST_GROUPS if asked != UNTOUCHED else PRODUCE)

        await come_and_go(forebay, life, owed=True)
        assert left_behind() == []


@in_loop
async def test_once_its_records_have_an_answer_that_nobody_waits_for() -> None:
    async with FakeCluster({"ponds": [0]}) as cluster, running(cluster.bootstrap, linger_ms=0) as forebay:
        cluster[0].holds(PRODUCE)
        sent = count(1)

        async def life() -> None:
            (await forebay.client(0)).send(MERGED)
            now = next(sent)
            await until(lambda: forebay.count("forebay_produce_requests_total", "client") == now)

        await come_and_go(forebay, life, owed=True)
        away = await cluster[0].receives(PRODUCE)
        cluster[0].releases(PRODUCE)
        away.answer()
        await until(lambda: left_behind() == [])


@in_loop
async def test_once_it_waits_for_memory_no_longer() -> None:
    async with (
        FakeCluster({"ponds": [0]}) as cluster,
        running(cluster.bootstrap, buffer_memory=16_384, batch_max_size=16_384) as forebay,
    ):
        cluster[0].holds(PRODUCE)
        first = await forebay.client(0)
        first.send(produce(1, ("ponds", 0, batch(keyed("f" * 8_000)))))
        away = await cluster[0].receives(PRODUCE)
        waiting = count(1)

        async def life() -> None:
            (await forebay.client(0)).send(produce(2, ("ponds", 0, batch(keyed("l" * 12_000)))))
            now = next(waiting)
            await until(lambda: forebay.count("forebay_buffer_memory_waiters") == now)

        await come_and_go(forebay, life, owed=True)
        cluster[0].releases(PRODUCE)
        away.answer()
        await until(lambda: len(cluster.values("ponds", 0)) == 1 + CLIENTS)
        await until(lambda: left_behind() == [])


@in_loop
async def test_one_that_spoke_tls(tmp_path: Path) -> None:
    async with secured(tmp_path, linger_ms=0) as it:

        async def life() -> None:
            client = await it.client()
            client.send(MERGED)
            await client.receives(1)

        await come_and_go(it.forebay, life)
        assert left_behind() == []


@in_loop
async def test_one_that_had_logged_in() -> None:
    async with town(linger_ms=0) as it:

        async def life() -> None:
            client = await it.user("alice")
            client.send(records("alice-ponds", "a"))
            await client.receives(1)

        await come_and_go(it.forebay, life)
        assert left_behind() == []
