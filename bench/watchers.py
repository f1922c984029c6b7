"""People who watch the page, without their browsers: `python -m bench.watchers URL COUNT`, a process of its own.

Each asks for what the first screen of the page asks for, as often, on a connection of its own, and reads the answers;
it draws nothing, for that happens on people's desks. They come one after the other, within a second and a half. Prints
a line once all of them have been told of a second; until killed.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Final

import aiohttp

API: Final = "/api/v1/"
ASKED: Final = {
    "overview": 5,
    "brokers?sort=node&page=1&size=25": 2,
    "topics?cells=1&size=50&page=1": 10,
    "history?of=totals&seconds=300&points=600": 300,
    "history?of=worker&key=0&seconds=300&points=600": 300,
}
"""What is asked for, every so many seconds, where there is one worker (proxy/forebay_proxy/console/static)."""
APART_S: Final = 0.37


async def _ask(session: aiohttp.ClientSession, what: str, seconds: float) -> None:
    while True:
        async with session.get(API + what) as answer:
            answer.raise_for_status()
            await answer.read()
        await asyncio.sleep(seconds)


async def _watch(url: str, number: int, told: asyncio.Event) -> None:
    await asyncio.sleep(number * APART_S)
    async with aiohttp.ClientSession(url, timeout=aiohttp.ClientTimeout(None)) as session, asyncio.TaskGroup() as group:
        for what, seconds in ASKED.items():
            group.create_task(_ask(session, what, seconds))
        async with session.get(API + "stream") as answer:
            answer.raise_for_status()
            async for line in answer.content:
                if line.startswith(b"data:"):
                    told.set()


async def _main(url: str, count: int) -> None:
    each = [asyncio.Event() for _ in range(count)]
    async with asyncio.TaskGroup() as group:
        for number, told in enumerate(each):
            group.create_task(_watch(url, number, told))
        for told in each:
            await told.wait()
        print("watching", flush=True)


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], int(sys.argv[2])))
