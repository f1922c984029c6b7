"""What may be changed by the API: JSON over POST and DELETE, for whom Entry lets change things.

    POST /api/v1/reload             read the settings again, as SIGHUP does: {generation, changes, renewed, not_renewed}
    POST /api/v1/restart            another process takes the place of this one, as by SIGUSR2: {"process": 4711}
    GET /api/v1/overrides           what is overridden: {"rows": [{name, value, reason, expires_at, adds, instead_of}]}
    POST /api/v1/overrides          {"settings": {"linger.ms": 5}, "reason": "…", "for_ms": 1800000}; an hour by default
                                    {"settings": {"topics.exclude+": "a"}, …}: adds to a list
    DELETE /api/v1/overrides/NAME   end one now
    POST /api/v1/brokers/ID/avoid   {"reason": "…", "for_ms": 1800000}: what may go elsewhere goes there
    DELETE /api/v1/brokers/ID/avoid
    POST /api/v1/brokers/ID/drain   the same with {"confirm": true}; what waits and is under way for the broker
    GET /api/v1/brokers/ID/drain    what waits and is under way now: {queued_bytes, in_flight_requests, drained,
                                    silent_workers}
    GET /api/v1/debug/dump          how all workers stand, of bounded size, without payloads and secrets

In: requests, and who does it (Control). Out: 200 with what is in force now; an {"error"} where nothing has changed: 400
for what cannot be meant, 404 for what is not there, 409 where it was refused; 405 for another method.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any, Protocol

import msgspec
from aiohttp import web
from msgspec import convert

from forebay_proxy.console.entry import PREFIX, Change, Entry, answer, refused
from forebay_proxy.errors import StartError

Ms = Annotated[int, msgspec.Meta(ge=-(1 << 53), le=1 << 53)]
"""A number of which seconds can be made; how long anything may last, Control says."""


class Nothing(msgspec.Struct, forbid_unknown_fields=True):
    """What takes no further words."""


class Wanted(msgspec.Struct, forbid_unknown_fields=True):
    """An override, as asked for."""

    settings: dict[str, str | int | float | bool | list[str | int]]
    reason: str
    for_ms: Ms | None = None


class Avoided(msgspec.Struct, forbid_unknown_fields=True):
    """A broker that is to be avoided, and how it is asked for."""

    reason: str
    for_ms: Ms | None = None
    confirm: bool = False


class Control(Protocol):
    """Who changes things in all workers. All may raise StartError, whose text says why nothing was changed."""

    async def reload(self) -> dict[str, Any]:
        """Read the settings again: {generation, changes, renewed, not_renewed}."""

    async def restart(self) -> dict[str, Any]:
        """Have another Forebay take the place of this one: {process}."""

    def overrides(self) -> list[dict[str, Any]]:
        """What is overridden: as overriding.Override has it, and instead_of, what the sources say."""

    async def override(self, settings: Mapping[str, object], reason: str, for_s: float | None) -> list[dict[str, Any]]:
        """Override these, for so long (None: as long as is usual); what is overridden now. Raises ValueError."""

    async def restore(self, name: str) -> list[dict[str, Any]]:
        """End an override; what is overridden now. Raises LookupError."""

    async def avoid(self, node_id: int, reason: str, for_s: float | None) -> list[dict[str, Any]]:
        """Have nothing go to a broker that may go elsewhere; what is overridden now. Raises LookupError, ValueError."""

    async def no_longer_avoid(self, node_id: int) -> list[dict[str, Any]]:
        """End that; what is overridden now. Raises LookupError."""

    async def drained(self, node_id: int) -> dict[str, Any]:
        """What waits for a broker, and is under way. Raises LookupError."""

    async def dump(self) -> dict[str, Any]:
        """How all workers stand."""


class Changes:
    """Mounted beside the Api."""

    def __init__(self, entry: Entry, control: Control) -> None:
        self._entry = entry
        self._control = control

    def mount(self, app: web.Application) -> None:
        """Serve all of it."""
        entry, router = self._entry, app.router
        router.add_post(f"{PREFIX}reload", entry.changing(_answered(self._reload)))
        router.add_post(f"{PREFIX}restart", entry.changing(_answered(self._restart)))
        router.add_get(f"{PREFIX}overrides", entry.reading(self._overrides), allow_head=False)
        router.add_post(f"{PREFIX}overrides", entry.changing(_answered(self._override)))
        router.add_delete(f"{PREFIX}overrides/{{name}}", entry.changing(_answered(self._restore)))
        broker = f"{PREFIX}brokers/{{id:\\d{{1,10}}}}/"
        router.add_post(f"{broker}avoid", entry.changing(_answered(self._avoid)))
        router.add_delete(f"{broker}avoid", entry.changing(_answered(self._no_longer_avoid)))
        router.add_post(f"{broker}drain", entry.changing(_answered(self._drain)))
        router.add_get(f"{broker}drain", entry.reading(self._drained), allow_head=False)
        router.add_get(f"{PREFIX}debug/dump", entry.reading(self._dump), allow_head=False)

    async def _reload(self, request: web.Request, asked: dict[str, Any]) -> dict[str, Any]:
        convert(asked, Nothing)
        return await self._control.reload()

    async def _restart(self, request: web.Request, asked: dict[str, Any]) -> dict[str, Any]:
        convert(asked, Nothing)
        return await self._control.restart()

    async def _overrides(self, request: web.Request) -> web.Response:
        return answer({"rows": self._control.overrides()})

    async def _override(self, request: web.Request, asked: dict[str, Any]) -> dict[str, Any]:
        wanted = convert(asked, Wanted)
        for_s = None if wanted.for_ms is None else wanted.for_ms / 1000
        return {"rows": await self._control.override(wanted.settings, wanted.reason, for_s)}

    async def _restore(self, request: web.Request, asked: dict[str, Any]) -> dict[str, Any]:
        convert(asked, Nothing)
        return {"rows": await self._control.restore(request.match_info["name"])}

    async def _avoid(self, request: web.Request, asked: dict[str, Any]) -> dict[str, Any]:
        return {"rows": await self._avoided(request, convert(asked, Avoided))}

    async def _avoided(self, request: web.Request, wanted: Avoided) -> list[dict[str, Any]]:
        for_s = None if wanted.for_ms is None else wanted.for_ms / 1000
        return await self._control.avoid(_node_id(request), wanted.reason, for_s)

    async def _no_longer_avoid(self, request: web.Request, asked: dict[str, Any]) -> dict[str, Any]:
        convert(asked, Nothing)
        return {"rows": await self._control.no_longer_avoid(_node_id(request))}

    async def _drain(self, request: web.Request, asked: dict[str, Any]) -> dict[str, Any]:
        wanted = convert(asked, Avoided)
        if not wanted.confirm:
            raise ValueError("confirm must be true")
        rows = await self._avoided(request, wanted)
        return {"rows": rows, **await self._control.drained(_node_id(request))}

    async def _drained(self, request: web.Request) -> web.Response:
        try:
            return answer(await self._control.drained(_node_id(request)))
        except LookupError as error:
            return refused(str(error.args[0]), 404)

    async def _dump(self, request: web.Request) -> web.Response:
        return answer(await self._control.dump())


def _node_id(request: web.Request) -> int:
    return int(request.match_info["id"])


Doing = Callable[[web.Request, dict[str, Any]], Awaitable[dict[str, Any]]]


def _answered(do: Doing) -> Change:
    async def change(request: web.Request, asked: dict[str, Any]) -> web.Response:
        try:
            return answer(await do(request, asked))
        except ValueError as error:
            return refused(str(error), 400)
        except LookupError as error:
            return refused(str(error.args[0]), 404)
        except StartError as error:
            return refused(str(error), 409)

    return change
