"""Where tasks stand: functions and lines, and nothing of what they hold."""

from __future__ import annotations

import asyncio
import json

from forebay_proxy.process.stacks import DEPTH, MOST, stacks
from tests.kit.event_loop import in_loop, turns


async def waits(secret: str, event: asyncio.Event, deeper: int = 0) -> None:
    if deeper:
        await waits(secret, event, deeper - 1)
    await event.wait()


@in_loop
async def test_functions_and_lines_and_no_values() -> None:
    task = asyncio.create_task(waits("canary", asyncio.Event()))
    await turns()
    told = stacks()
    (row,) = [row for row in told["some"] if row["task"] == "waits"]
    assert row["stack"][0].startswith(f"{__name__}:")
    assert row["stack"][0].endswith(" waits")
    assert "canary" not in json.dumps(told)
    task.cancel()


@in_loop
async def test_it_is_bounded() -> None:
    tasks = [asyncio.create_task(waits("", asyncio.Event(), 50)) for _ in range(MOST + 50)]
    await turns()
    told = stacks()
    assert (told["total"], len(told["some"])) == (MOST + 51, MOST)
    assert all(len(row["stack"]) <= DEPTH for row in told["some"])
    for task in tasks:
        task.cancel()
