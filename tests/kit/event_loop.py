"""Tests that are coroutines, run in an event loop of their own: uvloop, as the proxy does.

    @in_loop
    async def test_…() -> None:
        await until(lambda: broker.connections)

A test fails on what it left behind, too: an exception that escaped a callback, or a task's that nobody looked at.
"""

from __future__ import annotations

import asyncio
import functools
import gc
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

import uvloop

TEST_SECONDS = 120.0
PATIENCE = 30.0
"""Seconds that something may take which takes milliseconds on a quiet machine."""

TICK = 0.002

P = ParamSpec("P")
T = TypeVar("T")


def in_loop(test: Callable[P, Coroutine[Any, Any, None]], seconds: float = TEST_SECONDS) -> Callable[P, None]:
    """The test as pytest wants it. It fails where it takes longer than `seconds`."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        escaped: list[dict[str, Any]] = []

        async def main() -> None:
            asyncio.get_running_loop().set_exception_handler(lambda _, context: escaped.append(context))
            async with asyncio.timeout(seconds):
                await test(*args, **kwargs)
            gc.collect()

        gc.freeze()  # what is there already is not this test's: to look through all of it takes most of a second
        try:
            uvloop.run(main())
        finally:
            gc.unfreeze()
        assert not escaped, escaped

    return run


async def until(condition: Callable[[], object], seconds: float = PATIENCE) -> None:
    """Wait for something that happens in this loop."""
    try:
        async with asyncio.timeout(seconds):
            while not condition():  # noqa: ASYNC110 - any condition, not one that somebody announces
                await asyncio.sleep(TICK)
    except TimeoutError:
        raise AssertionError(f"not so within {seconds:g} s") from None


async def soon(awaitable: Awaitable[T], seconds: float = PATIENCE) -> T:
    try:
        return await asyncio.wait_for(awaitable, seconds)
    except TimeoutError:
        raise AssertionError(f"nothing came within {seconds:g} s") from None


async def turns(count: int = 10) -> None:
    """Let the loop go round: everything that was scheduled, and what that schedules, is done."""
    for _ in range(count):
        await asyncio.sleep(0)
