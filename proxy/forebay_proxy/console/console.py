"""All of this room in one: what the process that has the admin endpoint makes, runs and mounts.

In: settings, a Source, and what the command line knows. Out: routes for the endpoint, a task that looks every second.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from aiohttp import web

from forebay_proxy.config.settings import Settings
from forebay_proxy.console.api import Api, Told
from forebay_proxy.console.changes import Changes, Control
from forebay_proxy.console.collector import Collector
from forebay_proxy.console.entry import Entry
from forebay_proxy.console.source import Source
from forebay_proxy.logs import get_logger
from forebay_proxy.metrics.own_hosts import LOCAL, OwnHosts


class Console:
    """Looks and remembers from `run` on, until that is cancelled. `control` changes what is to be changed."""

    def __init__(
        self,
        settings: Settings,
        source: Source,
        told: Told,
        unready: Callable[[], str | None],
        control: Control,
        ailing: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        host = settings.admin.host if settings.admin is not None else LOCAL
        self.seen = Collector(source, settings.admin_history_bytes, time.monotonic, time.time)
        entry = Entry(OwnHosts(host, settings.admin_hosts))
        self._api = Api(self.seen, told, entry, unready, settings.workers, time.time, ailing)
        self._changes = Changes(entry, control)

    @property
    def open_paths(self) -> frozenset[str]:
        """What anybody may read: it shows nothing."""
        return self._api.open_paths

    def tell(self, told: Told) -> None:
        """Settings have changed."""
        self._api.tell(told)

    def mount(self, app: web.Application) -> None:
        """Serve the page, its API, and what changes things."""
        self._api.mount(app)
        self._changes.mount(app)

    async def run(self) -> None:
        """Until cancelled."""
        try:
            await self.seen.run()
        except Exception as error:  # a fault of ours: records pass on, and it must not go unseen
            get_logger().error("the page's numbers have stopped", exc_info=error)
