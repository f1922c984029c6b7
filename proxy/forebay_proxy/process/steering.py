"""What people may do to a Forebay that runs, put together: console.changes.Control.

In: SIGHUP, and requests of the API. Out: the same for both.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol

from forebay_proxy import __version__
from forebay_proxy.errors import StartError
from forebay_proxy.metrics.registry import Snapshot
from forebay_proxy.process.overrides import DEFAULT_S, Overrides
from forebay_proxy.process.reloading import Reloaded, Reloading
from forebay_proxy.security.renewals import SECRETS, Outcome

RENEW_WAIT_S: Final = 15.0
"""Longer than a worker may take (supervisor.RENEW_WAIT_S)."""

Renew = Callable[[], Awaitable[list[Outcome]]]
"""Makes certificates and secrets anew; what came of it."""


class Watched(Protocol):
    """Who serves, looked at."""

    async def looked_at(self) -> tuple[Snapshot, list[int]]:
        """What all have counted by now; the numbers of those of which that is not known, but what they had earlier."""

    async def dumps(self) -> list[dict[str, Any]]:
        """How each stands."""


class Steering:
    """`on_reload` hears of each reload before settings are read: certificates and secrets are made anew by others."""

    def __init__(self, reloading: Reloading, overrides: Overrides, workers: Watched) -> None:
        self._reloading = reloading
        self._overrides = overrides
        self._workers = workers
        self._renewing: list[Renew] = []
        self._tasks: set[asyncio.Task[list[Outcome]]] = set()
        self._restart: Callable[[], asyncio.Task[int]] | None = None

    def on_reload(self, renew: Renew) -> None:
        """Call it, too."""
        self._renewing.append(renew)

    def on_restart(self, restart: Callable[[], asyncio.Task[int]]) -> None:
        """It starts a successor, whose process id the task gives."""
        self._restart = restart

    async def restart(self) -> dict[str, Any]:
        """As SIGUSR2 does, and wait for it."""
        if self._restart is None:
            raise StartError("nobody knows how Forebay was started")
        return {"process": await asyncio.shield(self._restart())}

    def hang_up(self) -> None:
        """SIGHUP."""
        self._begin()

    def _begin(self) -> tuple[asyncio.Task[Reloaded], asyncio.Task[list[Outcome]]]:
        renewing = asyncio.get_running_loop().create_task(self._renew())
        self._tasks.add(renewing)
        renewing.add_done_callback(self._tasks.discard)
        return self._reloading.now(), renewing

    async def _renew(self) -> list[Outcome]:
        return [each for found in await asyncio.gather(*map(_in_time, self._renewing)) for each in found]

    async def reload(self) -> dict[str, Any]:
        """As SIGHUP does, and wait for it."""
        reloading, renewing = self._begin()
        done = await asyncio.shield(reloading)  # others may wait for the same one
        outcomes = await asyncio.shield(renewing)
        if done.changes and any(each.error for each in outcomes):  # workers that know where the files are now may serve
            outcomes = await self._renew()
        renewed = [each.of for each in outcomes if not each.error]
        failed = {each.of: each.error for each in outcomes if each.error}
        if done.error:
            told = [f"renewed all the same: {', '.join(renewed)}"] if renewed else []
            told += [f"{of} not renewed: {why}" for of, why in failed.items()]
            raise StartError("; ".join([done.error, *told]))
        return {"generation": done.generation, "changes": done.changes, "renewed": renewed, "not_renewed": failed}

    def overrides(self) -> list[dict[str, Any]]:
        """What is overridden."""
        return self._overrides.rows()

    async def override(self, settings: Mapping[str, object], reason: str, for_s: float | None) -> list[dict[str, Any]]:
        """Override these."""
        return await self._overrides.add(settings, reason, DEFAULT_S if for_s is None else for_s)

    async def restore(self, name: str) -> list[dict[str, Any]]:
        """End an override."""
        return await self._overrides.remove(name)

    async def avoid(self, node_id: int, reason: str, for_s: float | None) -> list[dict[str, Any]]:
        """Have nothing go to a broker that may go elsewhere."""
        up = brokers((await self._workers.looked_at())[0], "forebay_broker_up")
        if node_id not in up:
            raise LookupError(f"broker {node_id} is not known")
        reachable = {other for other, is_up in up.items() if is_up}
        return await self._overrides.avoid(node_id, reachable, reason, DEFAULT_S if for_s is None else for_s)

    async def no_longer_avoid(self, node_id: int) -> list[dict[str, Any]]:
        """End that."""
        return await self._overrides.no_longer_avoid(node_id)

    async def drained(self, node_id: int) -> dict[str, Any]:
        """What waits for a broker, and is under way; and which workers do not say."""
        now, silent = await self._workers.looked_at()
        if node_id not in brokers(now, "forebay_broker_up"):
            raise LookupError(f"broker {node_id} is not known")
        queued = int(brokers(now, "forebay_broker_queued_bytes").get(node_id, 0))
        in_flight = int(brokers(now, "forebay_broker_in_flight_requests").get(node_id, 0))
        told = {"queued_bytes": queued, "in_flight_requests": in_flight, "silent_workers": silent}
        return {**told, "drained": not (queued or in_flight or silent)}

    async def dump(self) -> dict[str, Any]:
        """How all workers stand, and what is overridden."""
        return {"version": __version__, "overrides": self.overrides(), "workers": await self._workers.dumps()}

    async def run(self) -> None:
        """End what is for a while when its time is up, until cancelled."""
        await self._overrides.run()

    def close(self) -> None:
        """Nothing changes any more."""
        self._reloading.close()


async def _in_time(renew: Renew) -> list[Outcome]:
    try:
        async with asyncio.timeout(RENEW_WAIT_S):
            return await asyncio.shield(renew())
    except TimeoutError:
        return [Outcome(SECRETS, f"not done within {RENEW_WAIT_S:g} s")]


def brokers(now: Snapshot, gauge: str) -> dict[int, float]:
    """By node id, what a gauge of brokers says."""
    return {int(labels[0]): level for (name, labels), level in now.gauges.items() if name == gauge}
