"""Whoever watches is told of each second once, of what it missed too, and costs no more than it may."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import aiohttp

from forebay_proxy.console import stream as module
from forebay_proxy.console.entry import PREFIX
from forebay_proxy.console.stream import BYTES_S, OVERVIEW_S, REPLAYED_S, WATCHERS
from tests.kit.event_loop import in_loop, soon, turns
from tests.proxy.console.seen import Seen
from tests.proxy.console.served import Served, served


class Watcher:
    """Reads events, one after the other."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._content = response.content

    async def second(self) -> int:
        """The next event's."""
        second: int = (await self.event())["second"]
        return second

    async def event(self) -> dict[str, Any]:
        """The next event's data, which repeats its id."""
        number = -1
        while line := await soon(self._content.readline()):
            if line.startswith(b"id: "):
                number = int(line[4:])
            elif line.startswith(b"data: "):
                told: dict[str, Any] = json.loads(line[6:])
                assert told["second"] == number
                return told
        raise AssertionError("the stream has ended")


@asynccontextmanager
async def watched(seen: Seen, query: str = "") -> AsyncIterator[tuple[Served, Watcher]]:
    """What is served, and somebody who watches it."""
    async with (
        served(seen) as forebay,
        aiohttp.ClientSession() as session,
        session.get(f"{forebay.url}{PREFIX}stream{query}") as response,
    ):
        assert response.content_type == "text/event-stream"
        yield forebay, Watcher(response)


@in_loop
async def test_each_second_is_told_once() -> None:
    seen = Seen()
    seen.step()
    async with watched(seen) as (_, watcher):
        assert await watcher.second() == 1_000_001
        for expected in (1_000_002, 1_000_003):
            seen.step()
            assert await watcher.second() == expected


@in_loop
async def test_who_comes_back_is_told_what_it_missed() -> None:
    seen = Seen()
    for _ in range(5):
        seen.step()
    async with served(seen) as forebay, aiohttp.ClientSession() as session:
        url = f"{forebay.url}{PREFIX}stream"
        async with session.get(url, headers={"Last-Event-ID": "1000003"}) as response:
            watcher = Watcher(response)
            assert [await watcher.second() for _ in range(2)] == [1_000_004, 1_000_005]
        async with session.get(f"{url}?after=1000004") as response:
            assert await Watcher(response).second() == 1_000_005
        for told in ("9" * 11, "nonsense"):  # of another clock, or of none
            async with session.get(url, headers={"Last-Event-ID": told}) as response:
                assert await Watcher(response).second() == 1_000_005


@in_loop
async def test_what_was_missed_comes_no_faster_than_it_may() -> None:
    seen = Seen()
    stats = seen.source.stats
    stats.gauge_of_brokers("forebay_broker_up", lambda: dict.fromkeys(range(40), 1))
    for _ in range(60):
        seen.step()
    size = len(seen.collector.message(seen.collector.second))
    assert size > BYTES_S / 60
    async with watched(seen, "?after=1000000") as (_, watcher):
        at_once = BYTES_S // (size + 20)
        for second in range(at_once - 1):
            assert await watcher.second() == 1_000_001 + second
        for _ in range(2):  # at most one more is within the bound
            waiting = asyncio.ensure_future(watcher.second())
            await turns(200)
            if not waiting.done():
                break
        assert not waiting.done()
        seen.step()
        await waiting
        for _ in range(at_once - 2):
            await watcher.second()


@in_loop
async def test_a_long_absence_is_not_told_of() -> None:
    seen = Seen()
    seen.step()
    seen.step(REPLAYED_S * 3)
    async with watched(seen, "?after=1000001") as (_, watcher):
        assert await watcher.second() == 1_000_002 + REPLAYED_S * 2


@in_loop
async def test_a_clock_that_is_set_silences_nobody() -> None:
    seen = Seen()
    seen.step()
    async with watched(seen) as (_, watcher):
        assert await watcher.second() == 1_000_001
        for step, second in ((-100, 999_901), (1, 999_902), (REPLAYED_S * 3, 1_001_103)):
            seen.step(step)
            assert await watcher.second() == second


@in_loop
async def test_there_are_so_many_watchers_and_no_more_and_places_become_free() -> None:
    seen = Seen()
    seen.step()
    async with served(seen) as forebay, aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        url = f"{forebay.url}{PREFIX}stream"
        async with AsyncExitStack() as stack:
            for _ in range(WATCHERS):
                response = await stack.enter_async_context(session.get(url))
                assert response.status == 200
                await Watcher(response).second()
            async with session.get(url) as response:
                assert response.status == 503
        for _ in range(1000):
            seen.step()
            await turns()
            async with session.get(url) as response:
                if response.status == 200:
                    break
        else:
            raise AssertionError("no place became free")


def test_a_second_fits_into_what_may_be_sent() -> None:
    assert module.BYTES_S == 16 * 1024


@in_loop
async def test_the_overview_comes_with_every_fifth_second() -> None:
    """As the API tells it, and not with a second that is past, which it is not of."""
    seen = Seen()
    for _ in range(6):
        seen.step()
    async with served(seen) as forebay, aiohttp.ClientSession() as session:
        url = f"{forebay.url}{PREFIX}"
        async with session.get(f"{url}stream", headers={"Last-Event-ID": "1000003"}) as response:
            watcher = Watcher(response)
            for second in range(1_000_004, 1_000_016):
                told = await watcher.event()
                assert told["second"] == second
                if second >= 1_000_006 and second % OVERVIEW_S == 0:
                    async with session.get(f"{url}overview") as answer:
                        assert told["overview"] == await answer.json()
                else:
                    assert "overview" not in told
                if second >= 1_000_006:
                    seen.step()


@in_loop
async def test_an_overview_that_is_too_long_holds_up_no_second() -> None:
    seen = Seen()
    seen.step()
    async with watched(seen) as (forebay, watcher):
        forebay.unready = "x" * BYTES_S
        for _ in range(OVERVIEW_S + 1):
            assert (await watcher.event()).keys() == {"second", "totals", "brokers", "workers"}
            seen.step()
