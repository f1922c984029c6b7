"""What a broker offers, as clients ask for it: ApiVersions answers, asked once for each broker and version.

In: (broker, version of the request). Out: the broker's answer in that version, cut to what the proxy understands,
without a throttle time, which would be the proxy's own. Answers are kept for a minute, since a broker may be upgraded
behind the proxy; clients that ask at the same time wait for the same request. The last answer in each version, whoever
gave it, is kept for good: for those whom a broker that cannot be asked must not look like an older one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic

from forebay_codecs.api_versions import rewrite_api_versions, without_throttle_time
from forebay_codecs.errors import Malformed
from forebay_proxy.brokers.connector import Connector
from forebay_proxy.config.settings import HostPort
from forebay_proxy.logs import RateLimited

MAX_AGE = 60.0
"""Seconds that an answer is given again."""

OnReady = Callable[[bytes | None], None]


class BrokerVersions:
    """Asks a broker once a minute for each version, however many clients want to know.

    `addresses(node id)` are where to ask, in order; None: any broker.
    """

    def __init__(
        self,
        addresses: Callable[[int | None], list[HostPort]],
        connector: Connector,
        log: RateLimited,
    ) -> None:
        self._addresses = addresses
        self._connector = connector
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._known: dict[tuple[int | None, int], tuple[float, bytes]] = {}
        self._last: dict[int, bytes] = {}
        self._asking: dict[tuple[int | None, int], list[OnReady]] = {}
        self._silent: set[tuple[str, int]] = set()
        """Those that did not tell when they were last asked: the log has it once."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    def get(self, node_id: int | None, version: int, ready: OnReady) -> None:
        """`ready` gets a response from correlation_id on (not the client's), or None where no broker answers."""
        key = node_id, version
        known = self._known.get(key)
        if known is not None and monotonic() - known[0] < MAX_AGE:
            ready(known[1])
            return
        if self._closed:
            ready(None)
            return
        waiting = self._asking.setdefault(key, [])
        waiting.append(ready)
        if len(waiting) == 1:
            task = self._loop.create_task(self._ask(key))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def last(self, version: int) -> bytes | None:
        """What any broker told last in that version; None: none has."""
        return self._last.get(version)

    def forget(self, node_id: int) -> None:
        """The broker went away; it may come back another."""
        for key in [key for key in self._known if key[0] in (node_id, None)]:
            del self._known[key]

    async def _ask(self, key: tuple[int | None, int]) -> None:
        node_id, version = key
        response = None
        try:
            for host, port in self._addresses(node_id):
                try:
                    response = await self._ask_broker(host, port, version)
                except (OSError, UnicodeError, Malformed) as error:
                    if (host, port) not in self._silent:
                        self._silent.add((host, port))
                        self._log.warning("a broker did not tell its versions", host=host, port=port, error=str(error))
                else:
                    self._silent.discard((host, port))
                    self._known[key] = monotonic(), response
                    self._last[version] = response
                    break
        finally:
            self._tell(key, response)

    def _tell(self, key: tuple[int | None, int], response: bytes | None) -> None:
        for ready in self._asking.pop(key, ()):
            ready(response)

    async def _ask_broker(self, host: str, port: int, version: int) -> bytes:
        response = await self._connector.ask_versions(host, port, version)
        return without_throttle_time(rewrite_api_versions(response, version), version)

    def close(self) -> None:
        """Ask nothing more, and cancel the requests under way: who waits is told at once that there is no answer."""
        self._closed = True
        for task in self._tasks:
            task.cancel()
        for key in list(self._asking):  # a task that has not begun to run is never told of its end
            self._tell(key, None)
