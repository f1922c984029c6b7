"""Who may ask what at the admin endpoint: the checks before each handler of this room, and the form of answers.

In: requests that AdminAccess has admitted, with their Standing. Out: 403 {"error"} for whoever comes to the port by a
foreign name (own_hosts.py), or would change things without being allowed to; 415 for a change that is no JSON, 400 for
JSON that cannot be what is meant, 413 for too much of it. By the socket no name is asked for: no browser can use it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
from aiohttp import web

from forebay_proxy.console import page
from forebay_proxy.metrics.admin import STANDING_OF
from forebay_proxy.metrics.admin_access import Standing
from forebay_proxy.metrics.own_hosts import OwnHosts

PREFIX: Final = "/api/v1/"
READ_ONLY: Final = "read-only here: changes go through admin.socket, or with admin.change.token"

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Change = Callable[[web.Request, dict[str, Any]], Awaitable[web.StreamResponse]]
"""(request, what its JSON says) → its answer."""


class Entry:
    """`hosts`: the names by which requests may come."""

    def __init__(self, hosts: OwnHosts) -> None:
        self._hosts = hosts

    def reading(self, handler: Handler) -> Handler:
        """`handler`, for whoever may read."""

        async def read(request: web.Request) -> web.StreamResponse:
            refusal = self._refusal(request)
            return refused(refusal, 403) if refusal is not None else await handler(request)

        return read

    def changing(self, change: Change) -> Handler:
        """`change`, for whoever may change things, with an object of JSON; without a body it is empty."""

        async def run(request: web.Request) -> web.StreamResponse:
            refusal = self._refusal(request)
            if refusal is None and _standing(request) not in (Standing.OWNER, Standing.CHANGER):
                refusal = READ_ONLY
            if refusal is not None:
                return refused(refusal, 403)
            if request.content_type != "application/json":
                return refused("Content-Type must be application/json", 415)
            body = await request.read()  # raises 413
            try:
                asked: dict[str, Any] = msgspec.json.decode(body, type=dict[str, Any]) if body else {}
            except (ValueError, RecursionError):
                return refused("the body must be an object of JSON", 400)
            return await change(request, asked)

        return run

    def _refusal(self, request: web.Request) -> str | None:
        return None if _standing(request) is Standing.OWNER else self._hosts.refusal(request.headers)


def _standing(request: web.Request) -> Standing | None:
    return request.app[STANDING_OF](request)


def answer(content: object, status: int = 200) -> web.Response:
    """`content` as JSON."""
    headers = {**page.HEADERS, "Cache-Control": "no-store", "Content-Type": "application/json; charset=utf-8"}
    return web.Response(body=msgspec.json.encode(content), status=status, headers=headers)


def refused(why: str, status: int) -> web.Response:
    """Why nothing came of it."""
    return answer({"error": why}, status)
