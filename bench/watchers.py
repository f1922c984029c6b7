"""People who watch the page, without their browsers: `python -m bench.watchers URL COUNT`, a process of its own.

Each asks for what the first screen of the page asks for, as often and at the moments at which the page does, and reads
the answers; it draws nothing, for that happens on people's desks. They come one after the other, within a second and a
half. Prints a line once all of them have been told of a second; until killed.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Final

import aiohttp

API: Final = "/api/v1/"
ASKED: Final = {
    "overview": 3600,
    "brokers?sort=node&page=1&size=25": 10,
    "topics?cells=1&size=50&page=1": 10,
    "history?of=totals&seconds=300&points=600": 300,
    "history?of=worker&key=0&seconds=300&points=600": 300,
}
"""What is asked for, every so many seconds, where there is one worker (proxy/forebay_proxy/console/static); the
overview once, for the stream tells of it from then on."""
APART_S: Final = 0.37
BEFORE_S: Final = 0.5
"""What is due is asked for together with the next second that is told, from so long before on."""


class Told:
    """Of one second after the other."""

    def __init__(self) -> None:
        self.first = asyncio.Event()
        self._next = asyncio.Event()

    def tell(self) -> None:
        self.first.set()
        told, self._next = self._next, asyncio.Event()
        told.set()

    async def next(self) -> None:
        await self._next.wait()


async def _ask(session: aiohttp.ClientSession, told: Told, what: str, seconds: float) -> None:
    while True:
        async with session.get(API + what) as answer:
            answer.raise_for_status()
            await answer.read()
        await asyncio.sleep(seconds - BEFORE_S)
        await told.next()


async def _watch(url: str, number: int, told: Told) -> None:
    await asyncio.sleep(number * APART_S)
    async with aiohttp.ClientSession(url, timeout=aiohttp.ClientTimeout(None)) as session, asyncio.TaskGroup() as group:
        for what, seconds in ASKED.items():
            group.create_task(_ask(session, told, what, seconds))
        async with session.get(API + "stream") as answer:
            answer.raise_for_status()
            async for line in answer.content:
                if line.startswith(b"data:"):
                    told.tell()


async def _main(url: str, count: int) -> None:
    each = [Told() for _ in range(count)]
    async with asyncio.TaskGroup() as group:
        for number, told in enumerate(each):
            group.create_task(_watch(url, number, told))
        for told in each:
            await told.first.wait()
        print("watching", flush=True)


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], int(sys.argv[2])))
