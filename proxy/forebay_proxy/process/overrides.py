"""Settings that somebody has changed by hand, for a while: above everything that the sources say, in all workers.

    add ──▶ in force ──▶ its time is up, or removed ──▶ what the sources say

In: names, values, a reason, and for how long; the clock. Out: settings in force (in_force.py), which workers that are
started again begin with, too; one log event each. What cannot be meant raises ValueError, what is refused StartError,
and then nothing has changed. One that cannot be ended when its time is up, since a worker does not answer, stays and is
tried again. They are gone with the process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, Final

import msgspec

from forebay_proxy.config.overriding import Override, parsed
from forebay_proxy.config.settings import ALIASES
from forebay_proxy.config.values import SETTINGS, render
from forebay_proxy.errors import StartError
from forebay_proxy.logs import get_logger
from forebay_proxy.process.in_force import SettingsInForce
from forebay_proxy.process.worker_slot import Clock

MOST_REASON: Final = 200
"""Characters."""
DEFAULT_S: Final = 3600.0
LONGEST_S: Final = 7 * 24 * 3600.0
"""What is to stay for longer belongs into the file."""
AVOID: Final = "brokers.avoid"
ADDS: Final = "+"
"""Behind a name: the value comes to others."""
AGAIN_S: Final = 5.0
"""Until the next try to end one."""

log: Final = get_logger()


class Overrides:
    """At most one for each live setting, and one for each value that comes to those of a list.

    `run` ends each in time, by `clock`; `time_of_day` is for people.
    """

    def __init__(self, in_force: SettingsInForce, clock: Clock, time_of_day: Clock) -> None:
        self._in_force = in_force
        self._clock = clock
        self._time_of_day = time_of_day
        self._ends_at: dict[str, float] = {}
        """By `clock`, of each that is in force."""
        self._changed = asyncio.Event()

    @property
    def avoided(self) -> set[int]:
        """The brokers that are avoided, by the sources and by overrides."""
        return set(self._in_force.settings.brokers_avoid)

    def rows(self) -> list[dict[str, Any]]:
        """All that are in force, in their names' order, and what the sources say `instead_of` which each counts."""
        below = self._in_force.read.settings
        return [
            {
                **msgspec.structs.asdict(each),
                "value": each.written,
                "instead_of": "" if each.adds else render(getattr(below, SETTINGS[each.name].attribute)),
            }
            for _, each in sorted(self._in_force.overrides.items())
        ]

    async def add(self, settings: Mapping[str, object], reason: str, for_s: float) -> list[dict[str, Any]]:
        """Put all of these into force, or none; those in force. One that is there already is replaced.

        What a name with "+" behind it has comes to the setting's other values.
        """
        found: dict[str, Override] = {}
        for written_name, written in settings.items():
            name, value = parsed(written_name.removesuffix(ADDS), written)
            adds = written_name.endswith(ADDS)
            if adds and not (value and isinstance(value, tuple)):
                raise ValueError(f"{name} += {render(written)}: must add to a list")
            key = _adding(name, value) if adds else name
            if key in found:
                raise ValueError(f"{written_name}: {name} must be named once")
            found[key] = Override(name, value, reason, 0.0, adds=adds)
        if not found:
            raise ValueError("at least one setting must be named")
        return await self._add(found, reason, for_s)

    async def avoid(self, node_id: int, reachable: Set[int], reason: str, for_s: float) -> list[dict[str, Any]]:
        """One broker more that is avoided, whatever others are; those in force.

        Raises StartError where none of the `reachable` ones would be left.
        """

        def allowed() -> None:
            if reachable <= self.avoided | {node_id}:
                raise StartError(f"without broker {node_id} no other would be left that can be reached")

        override = Override(AVOID, (node_id,), reason, 0.0, adds=True)
        return await self._add({_adding(AVOID, override.value): override}, reason, for_s, allowed)

    async def _add(
        self, wanted: Mapping[str, Override], reason: str, for_s: float, allowed: Callable[[], None] = lambda: None
    ) -> list[dict[str, Any]]:
        """When they begin, and whether they are `allowed`, is known once nobody else changes settings."""
        reason = reason.strip()
        if not reason or len(reason) > MOST_REASON or not reason.isprintable():
            raise ValueError(f"a reason must be given, in one line of at most {MOST_REASON} characters")
        if not 0 < for_s <= LONGEST_S:
            raise ValueError(f"an override must last longer than 0, and at most {LONGEST_S / 86_400:g} days")

        def tell(changes: Mapping[str, str]) -> None:  # before log.level may be another one
            for each in wanted.values():
                told = {"setting": each.name, "value": each.written, "change": changes.get(each.name, "none")}
                log.warning("setting overridden", **told, reason=reason, for_s=for_s)

        async with self._in_force.turn:
            self._in_force.check()
            allowed()
            ends_at, expires_at = self._clock() + for_s, self._time_of_day() + for_s
            new = {
                key: msgspec.structs.replace(each, reason=reason, expires_at=expires_at) for key, each in wanted.items()
            }
            await self._in_force.put(self._in_force.read, {**self._in_force.overrides, **new}, tell)
            self._ends_at.update(dict.fromkeys(new, ends_at))
            self._changed.set()
        return self.rows()

    async def remove(self, name: str) -> list[dict[str, Any]]:
        """End all of a setting now, by any of its names, or NAME+=VALUE, as it was added; those that remain.

        Raises LookupError where there is none.
        """
        proper = ALIASES.get(name, name)
        missing = LookupError(f"{name} is not overridden")
        return await self._remove(lambda key, each: key == name or each.name == proper, lambda: missing)

    async def no_longer_avoid(self, node_id: int) -> list[dict[str, Any]]:
        """End it now; those that remain. Raises LookupError where it is not avoided, StartError where by others."""
        avoiding = _adding(AVOID, (node_id,))
        return await self._remove(lambda key, each: key == avoiding, lambda: self._why_avoided(node_id))

    def _why_avoided(self, node_id: int) -> Exception:
        if node_id not in self.avoided:
            return LookupError(f"broker {node_id} is not avoided")
        if node_id in self._in_force.read.settings.brokers_avoid and AVOID not in self._in_force.overrides:
            return StartError(f"broker {node_id} is avoided by {AVOID} in the settings: change these, then reload")
        return StartError(f"broker {node_id} is avoided by another override: forebay overrides --remove {AVOID}")

    async def _remove(
        self, meant: Callable[[str, Override], bool], why_not: Callable[[], Exception]
    ) -> list[dict[str, Any]]:
        async with self._in_force.turn:
            self._in_force.check()
            keys = [key for key, each in self._in_force.overrides.items() if meant(key, each)]
            if not keys:
                raise why_not()
            await self._end(keys, "override removed")
        return self.rows()

    async def _end(self, keys: Sequence[str], event: str) -> None:
        """At once: what one of them leaves behind alone is what nobody asked for."""
        overrides = self._in_force.overrides
        changes = await self._in_force.put(
            self._in_force.read, {key: each for key, each in overrides.items() if key not in keys}
        )
        for key in keys:
            del self._ends_at[key]
            ended = overrides[key]
            change, generation = changes.get(ended.name, "none"), self._in_force.generation
            log.info(event, setting=ended.name, value=ended.written, change=change, generation=generation)

    async def run(self) -> None:
        """End each when its time is up, until cancelled."""
        while True:
            self._changed.clear()
            pause = min(self._ends_at.values(), default=float("inf")) - self._clock()
            try:
                async with asyncio.timeout(None if pause == float("inf") else max(0.0, pause)):
                    await self._changed.wait()
            except TimeoutError:
                if not await self.expire():
                    await asyncio.sleep(AGAIN_S)

    async def expire(self) -> bool:
        """End those whose time is up; False: they could not be ended, and stay."""
        async with self._in_force.turn:
            keys = [key for key, ends_at in self._ends_at.items() if ends_at <= self._clock()]
            try:
                if keys:
                    await self._end(keys, "override expired")
            except StartError as error:
                names = ", ".join(sorted({self._in_force.overrides[key].name for key in keys}))
                log.error("an override cannot be ended, and stays", setting=names, error=str(error))
                return False
        return True


def _adding(name: str, value: object) -> str:
    """The key of an override that adds."""
    return f"{name}+={render(value)}"
