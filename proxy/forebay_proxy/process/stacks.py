"""Where the tasks of this process stand: names of functions and lines, never their variables.

Out: what JSON has a form for; MOST tasks, DEPTH frames of each at most. Compiled code has no frames.
"""

from __future__ import annotations

import asyncio
from types import FrameType
from typing import Any, Final

MOST: Final = 100
DEPTH: Final = 10


def stacks() -> dict[str, Any]:
    """Of the running loop's tasks; the innermost frame last."""
    tasks = sorted(asyncio.all_tasks(), key=lambda task: task.get_name())
    return {"total": len(tasks), "some": [_row(task) for task in tasks[:MOST]]}


def _row(task: asyncio.Task[Any]) -> dict[str, Any]:
    return {"task": _name(task), "stack": [_place(frame) for frame in task.get_stack(limit=DEPTH)]}


def _name(task: asyncio.Task[Any]) -> str:
    coroutine = task.get_coro()
    return str(getattr(coroutine, "__qualname__", type(coroutine).__name__))


def _place(frame: FrameType) -> str:
    module = frame.f_globals.get("__name__", "?")
    return f"{module}:{frame.f_lineno} {frame.f_code.co_qualname}"
