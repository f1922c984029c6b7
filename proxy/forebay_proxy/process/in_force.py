"""The settings in force, and how others come into force: in all workers, or in none.

    compare ─┬▶ prepare in every worker ──▶ all have ──▶ commit in every worker ─┬▶ a new generation
       │     │                              └ one cannot, or does not answer     │
       │     └▶ a setting of workers: others take their place, one by one ───────┘
       │                              └ one does not get ready
       └ one of the start has changed ┴─────▶ nothing changes, and StartError says why

In: what the sources say, and overrides of it. Out: settings in all workers, told to whoever wants to hear of it. Where
workers could neither be replaced nor put back, some differ until a reload replaces all.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from itertools import chain
from typing import NamedTuple, Protocol

from forebay_proxy.config.live import difference
from forebay_proxy.config.overriding import Override, overlaid
from forebay_proxy.config.security import security_conflicts
from forebay_proxy.config.settings import Settings, conflicts
from forebay_proxy.console.api import Told
from forebay_proxy.errors import StartError

Commit = Callable[[], None]


class Read(NamedTuple):
    """What the sources say now; `told` is for the page."""

    settings: Settings
    told: Told


class WorkersDiffer(StartError):
    """Some serve with settings that are not in force, and others cannot take their place."""


class Served(Protocol):
    """Who serves with the settings."""

    async def prepare(self, settings: Settings) -> Commit:
        """Get ready for them, and change nothing; what puts them into force. Raises StartError."""

    async def replace(self, settings: Settings) -> Commit:
        """Have workers that begin with them take the place of those that serve; what puts the rest into force.

        Raises StartError where they cannot: then whoever serves does so with the settings in force, unless
        it is WorkersDiffer.
        """


class SettingsInForce:
    """Leaves workers with different settings no longer than it takes to tell or replace them, unless that fails and
    cannot be taken back.

    Whoever changes them holds `turn` from before it reads what it changes.
    """

    def __init__(self, read: Read, served: Served) -> None:
        self.read = read
        self.overrides: Mapping[str, Override] = {}
        self.generation = 1
        self.turn = asyncio.Lock()
        self.settings = read.settings
        """With what is overridden."""
        self._astray: Settings | None = None
        """With what some serve instead, or did at first."""
        self._kept = False
        self._served = served
        self._listeners: list[Callable[[Told], None]] = []

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Once nobody changes them, until this fails: who would is refused. A successor begins with what it reads."""
        async with self.turn:
            self._kept = True
        try:
            yield
        except BaseException:
            self._kept = False
            raise

    def check(self) -> None:
        """Whoever holds `turn` may change them. Raises StartError where they are `kept`."""
        if self._kept:
            raise StartError("a successor is starting, which would not know of it; nothing was changed")

    def on_change(self, listener: Callable[[Told], None]) -> None:
        """Tell of what is in force from now on."""
        self._listeners.append(listener)

    async def put(
        self,
        read: Read,
        overrides: Mapping[str, Override],
        agreed: Callable[[Mapping[str, str]], None] = lambda changes: None,
        *,
        everywhere: bool = False,
    ) -> dict[str, str]:
        """Put these into force; name → "old → new". Raises StartError, and then nothing has changed.

        `agreed` is told the same once nothing is in the way any more, and everything is still as it was. `everywhere`:
        also in workers that differ.
        """
        settings = overlaid(read.settings, overrides.values())
        for name, message in chain(conflicts(settings), security_conflicts(settings)):
            raise StartError(f"{name}: {message}")
        changes, of_workers, others = difference(self.settings, settings)
        if others:
            raise StartError(f"{', '.join(others)} cannot change without a restart; nothing was changed")
        if everywhere and self._astray is not None:
            there = difference(self._astray, settings)
            changes = {**{name: there.changes[name] for name in there.workers}, **changes}
            of_workers = [name for name in changes if name in of_workers or name in there.workers]
        commit: Commit | None = None
        if of_workers:
            commit = await self._replace(settings, of_workers)
        elif changes:
            commit = await self._served.prepare(settings)
        agreed(changes)
        if commit is not None:
            commit()
            self.generation += 1
        self.read, self.overrides, self.settings = read, dict(overrides), settings
        told = read.told.overridden(self.overrides.values())
        for listener in self._listeners:
            listener(told)
        return changes

    async def _replace(self, settings: Settings, of_workers: list[str]) -> Commit:
        try:
            commit = await self._served.replace(settings)
        except StartError as error:
            self._astray = (self._astray or settings) if isinstance(error, WorkersDiffer) else None
            raise StartError(f"{', '.join(of_workers)}: {error}") from None
        self._astray = None
        return commit
