"""An answer is read to its end, and no further than it may be long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web

from forebay_proxy.security.http_answer import MAX_ANSWER, whole_body
from tests.kit.event_loop import in_loop
from tests.kit.ports import LOOPBACK, free_port


@asynccontextmanager
async def answering(*pieces: bytes) -> AsyncIterator[str]:
    """A server that sends these one after the other: each when the one before has been taken."""

    async def serve(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for piece in pieces:
            await response.write(piece)
            await asyncio.sleep(0.02)  # a segment of its own
        return response

    app = web.Application()
    app.router.add_get("/", serve)
    runner = web.AppRunner(app)
    await runner.setup()
    port = free_port()
    await web.TCPSite(runner, LOOPBACK, port).start()
    try:
        yield f"http://{LOOPBACK}:{port}/"
    finally:
        await runner.cleanup()


async def read(url: str) -> bytes:
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return await whole_body(response)


@in_loop
async def test_what_comes_in_pieces_is_read_whole() -> None:
    async with answering(b"one, ", b"two, ", b"three") as url:
        assert await read(url) == b"one, two, three"


@in_loop
async def test_more_than_its_bound_is_an_error_that_says_whose_it_was() -> None:
    async with answering(bytes(MAX_ANSWER)) as url:
        assert len(await read(url)) == MAX_ANSWER
    async with answering(bytes(MAX_ANSWER), b"x") as url:
        with pytest.raises(ConnectionError, match=f"{url} answered more than {MAX_ANSWER} bytes"):
            await read(url)
