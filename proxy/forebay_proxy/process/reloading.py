"""SIGHUP: settings are read again, and those that may change while Forebay runs are put into force, in all workers.

    read all ──▶ compare ──▶ prepare in every worker ──▶ all have ──▶ commit in every worker, a new generation
     └ wrong       └ others have changed, too  └ one cannot, or does not answer
       └───────────────┴───────────────────────┴──▶ nothing changes, and it is told why

In: how to read the settings, and who serves with them. Out: one log line, and two metrics.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from forebay_proxy.config.live import difference
from forebay_proxy.config.settings import Settings
from forebay_proxy.console.api import Told
from forebay_proxy.errors import StartError
from forebay_proxy.logs import get_logger
from forebay_proxy.metrics.registry import MetricRegistry

Commit = Callable[[], None]


class Read(NamedTuple):
    """What the sources say now; `told` is for the page."""

    settings: Settings
    told: Told


Load = Callable[[], Read]
"""Reads all sources anew. Raises StartError, whose text says what is wrong with them."""

log: Final = get_logger()


class Served(Protocol):
    """Who serves with the settings."""

    async def prepare(self, settings: Settings) -> Commit:
        """Get ready for them, and change nothing; what puts them into force. Raises StartError."""


class Reloading:
    """Never leaves workers with different settings for longer than it takes to tell them.

    `load` is None where nobody knows where the settings came from; `tell` is told of those that are in force now.
    """

    def __init__(
        self,
        settings: Settings,
        load: Load | None,
        served: Served,
        stats: MetricRegistry,
        tell: Callable[[Told], None],
    ) -> None:
        self._settings = settings
        self._load = load
        self._served = served
        self._tell = tell
        self._sound = True
        self._generation = 1
        self._asked: asyncio.Task[None] | None = None
        self._again = False
        stats.gauge("forebay_config_last_reload_successful", lambda: self._sound)
        stats.gauge("forebay_config_generation", lambda: self._generation)

    def now(self) -> None:
        """Read the settings again soon. One reload at a time: asked meanwhile, it begins anew."""
        if self._load is None:
            return
        if self._asked is not None and not self._asked.done():
            self._again = True
            return
        self._asked = asyncio.get_running_loop().create_task(self._run(self._load))

    def close(self) -> None:
        """Nothing is put into force any more."""
        if self._asked is not None:
            self._asked.cancel()

    async def _run(self, load: Load) -> None:
        while True:
            self._again = False
            try:
                await self._reload(load)
                self._sound = True
            except StartError as error:
                self._sound = False
                log.error("settings not reloaded: those in force stay", error=str(error))
            if not self._again:
                return

    async def _reload(self, load: Load) -> None:
        new, told = await asyncio.to_thread(load)
        changes, others = difference(self._settings, new)
        if others:
            raise StartError(f"{', '.join(others)} cannot change without a restart; nothing was changed")
        if not changes:
            log.info("settings read again, nothing has changed", generation=self._generation)
            return
        commit = await self._served.prepare(new)
        commit()
        self._tell(told)
        self._settings = new
        self._generation += 1
        log.info("settings reloaded", generation=self._generation, changes=changes)
