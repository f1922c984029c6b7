"""SIGHUP, and whoever else asks for it: settings are read again, and put into force (in_force.py).

In: how to read the settings. Out: what has changed, or why nothing has; one log line, and two metrics.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec

from forebay_proxy.errors import StartError
from forebay_proxy.logs import get_logger
from forebay_proxy.metrics.registry import MetricRegistry
from forebay_proxy.process.in_force import Read, SettingsInForce

Load = Callable[[], Read]
"""Reads all sources anew. Raises StartError, whose text says what is wrong with them."""

NO_SOURCES: Final = "nobody knows where the settings came from"

log: Final = get_logger()


class Reloaded(msgspec.Struct, frozen=True):
    """What came of it: name → "old → new", or `error`, and nothing has changed."""

    generation: int
    changes: dict[str, str] = {}
    error: str = ""


class Reloading:
    """One reload at a time, and at most one that waits: all who ask before it begins share it.

    `load` is None where nobody knows where the settings came from.
    """

    def __init__(self, in_force: SettingsInForce, load: Load | None, stats: MetricRegistry) -> None:
        self._in_force = in_force
        self._load = load
        self._sound = True
        self._next: asyncio.Task[Reloaded] | None = None
        self._tasks: set[asyncio.Task[Reloaded]] = set()
        stats.gauge("forebay_config_last_reload_successful", lambda: self._sound)
        stats.gauge("forebay_config_generation", lambda: in_force.generation)

    def now(self) -> asyncio.Task[Reloaded]:
        """Read the settings again soon."""
        if self._next is None:
            self._next = asyncio.get_running_loop().create_task(self._run())
            self._tasks.add(self._next)
            self._next.add_done_callback(self._tasks.discard)
        return self._next

    def close(self) -> None:
        """Nothing is put into force any more."""
        for task in self._tasks:
            task.cancel()

    async def _run(self) -> Reloaded:
        async with self._in_force.turn:
            self._next = None  # what is written from now on, another one reads
            generation = self._in_force.generation
            if self._load is None:
                return Reloaded(generation, error=NO_SOURCES)
            try:
                changes = await self._reload(self._load)
            except StartError as error:
                self._sound = False
                log.error("settings not reloaded: those in force stay", error=str(error))
                return Reloaded(generation, error=str(error))
            self._sound = True
            return Reloaded(self._in_force.generation, changes)

    async def _reload(self, load: Load) -> dict[str, str]:
        in_force = self._in_force
        in_force.check()
        read = await asyncio.to_thread(load)
        changes = await in_force.put(read, in_force.overrides, everywhere=True)
        if changes:
            log.info("settings reloaded", generation=in_force.generation, changes=changes)
        else:
            log.info("settings read again, nothing has changed", generation=in_force.generation)
        return changes
