"""Each second's numbers as server-sent events, for as long as somebody watches; what was missed comes from history.

In: a request, perhaps with the last second that its browser has (Last-Event-ID). Out: events with the second as their
id, every OVERVIEW_S with the overview if it is not too long. A watcher is sent what it can take and no queue is kept
for it: one that is slow finds the next seconds in history. At most BYTES_S a second leave for one watcher, and at most
WATCHERS are served.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec
from aiohttp import web

from forebay_proxy.console.collector import Collector

WATCHERS: Final = 32
BYTES_S: Final = 16 * 1024
OVERVIEW_S: Final = 5
REPLAYED_S: Final = 600
"""Seconds that are sent again after a break; a page that has missed more reads the history."""


class Watchers:
    """`seen` tells them of each second; `overview` of everything, as the API does."""

    def __init__(self, seen: Collector, overview: Callable[[], dict[str, Any]]) -> None:
        self._seen = seen
        self._overview = overview
        self._watching = 0
        self._message: tuple[int, bytes] = (0, b"")

    @property
    def watching(self) -> int:
        """How many there are."""
        return self._watching

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Until the watcher leaves."""
        if self._watching >= WATCHERS:
            return web.json_response({"error": f"{WATCHERS} watch already"}, status=503, headers={"Retry-After": "5"})
        response = web.StreamResponse(
            headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        )
        self._watching += 1
        try:
            await response.prepare(request)
            await response.write(b"retry: 2000\n\n")
            await self._tell(response, _last_event(request))
        except ConnectionError:
            pass  # it has left
        finally:
            self._watching -= 1
        return response

    async def _tell(self, response: web.StreamResponse, last: int | None) -> None:
        seen = self._seen
        last = seen.second - 1 if last is None else last
        while True:
            await seen.after(last)
            if last > seen.second:  # the clock was set back
                last = seen.second - 1
            last = max(last, seen.second - REPLAYED_S)
            room = BYTES_S
            newest = seen.second
            while last < newest:
                event = self._event(last + 1)
                room -= len(event)
                if room < 0:
                    break
                await response.write(event)
                last += 1
            if last < newest:  # what is left has to wait for the next second's room
                await seen.after(newest)

    def _event(self, second: int) -> bytes:
        """Made once for all watchers of the same second."""
        if self._message[0] != second:
            message = self._seen.message(second)
            if second == self._seen.second and second % OVERVIEW_S == 0:
                overview = msgspec.json.encode(self._overview())
                if len(message) + len(overview) <= BYTES_S // 2:  # else the page asks for it
                    message = b'%b,"overview":%b}' % (message[:-1], overview)
            self._message = second, message
        return b"id: %d\ndata: %b\n\n" % (second, self._message[1])


def _last_event(request: web.Request) -> int | None:
    told = request.headers.get("Last-Event-ID") or request.query.get("after", "")
    return int(told) if told.isascii() and told.isdigit() and len(told) <= 12 else None
