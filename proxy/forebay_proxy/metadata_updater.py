"""Keeps the cluster's metadata fresh: one Metadata request in flight, the next one carries all that came meanwhile.

In: topics that produce requests need, topics whose leaders turned out wrong, the clock. Out: Cluster.apply, and a
call for each one that waited. A failed request is tried again with another broker, with backoff; who waits is bounded
by its own deadline.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from itertools import islice
from random import Random
from time import monotonic

from forebay_codecs.errors import Malformed
from forebay_codecs.metadata import METADATA, encode_metadata_request, parse_metadata_response
from forebay_policies import retry
from forebay_proxy.cluster import Cluster
from forebay_proxy.logs import get_logger
from forebay_proxy.metrics import Stats
from forebay_proxy.settings import Settings
from forebay_proxy.upstream_connection import CLIENT_ID, UpstreamConnection, open_connection

log = get_logger()

LOWEST_VERSION, HIGHEST_VERSION = 4, 12
LOG_EVERY = 60
"""Failures between two lines in the log, about a second apart."""
MOST_TOPICS = 10_000
"""In one request. Clients may name any number, and a broker closes the connection on a request above 100 MB."""
UNKNOWN_TOPIC_TRIES = 8
"""A topic that one broker has just created is not known to all at once: ask again before it is called unknown."""


class MetadataUpdater:
    """See the module. `run` is the task; everything else returns at once."""

    def __init__(self, cluster: Cluster, settings: Settings, stats: Stats, rng: Random) -> None:
        self._cluster = cluster
        self._settings = settings
        self._stats = stats
        self._rng = rng
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._wanted: dict[str, None] = {}
        self._waiting: dict[str, list[Callable[[], None]]] = {}
        self._tries: dict[str, int] = {}
        self._all = True
        self._connection: UpstreamConnection | None = None
        self._max_age = settings.metadata_max_age_ms / 1000
        self._refreshes = {
            cause: stats.counter("forebay_metadata_refreshes_total", cause=cause)
            for cause in ("new_topic", "error", "connection", "max_age")
        }
        self._failures = stats.counter("forebay_errors_total", side="upstream", kind="metadata")

    def want(self, name: str, ready: Callable[[], None]) -> None:
        """Ask for a topic that is not known; `ready` is called once it is, or is known not to exist."""
        self._waiting.setdefault(name, []).append(ready)
        self._ask((name,), "new_topic")

    def forget(self, name: str, ready: Callable[[], None]) -> None:
        """`ready` is not wanted any more."""
        waiting = self._waiting.get(name, [])
        if ready in waiting:
            waiting.remove(ready)

    def invalidate(self, names: Iterable[str], cause: str) -> None:
        """What is known of these topics (none: of the brokers) is wrong. `cause`: error, connection."""
        self._ask(names, cause)

    def _ask(self, names: Iterable[str], cause: str) -> None:
        self._refreshes[cause].value += 1
        for name in names:
            self._wanted[name] = None
        self._wake.set()

    def _ask_again(self, name: str) -> None:
        self._wanted[name] = None
        self._wake.set()

    async def run(self) -> None:
        failures = 0
        backoff = self._settings.retry_backoff_ms / 1000
        most = self._settings.retry_backoff_max_ms / 1000
        while True:
            names = set(self._cluster.topics) | set(self._wanted) if self._all else set(self._wanted)
            later = list(islice(names, MOST_TOPICS, None))
            names.difference_update(later)
            self._wanted = dict.fromkeys(later)
            self._wake.clear()
            if later:
                self._wake.set()
            try:
                await self._refresh(names)
                self._all = False
                if failures:
                    log.info("metadata refreshed again", tries=failures)
                failures = 0
            except (OSError, UnicodeError, Malformed) as error:
                failures += 1
                self._failures.value += 1
                if failures % LOG_EVERY == 0 or failures & (failures - 1) == 0:  # 1 2 4 8 … then once a minute
                    log.warning("metadata refresh failed", error=str(error), tries=failures)
                self._wanted.update(dict.fromkeys(names))
                self._drop_connection()
            # The pause gathers what others want, and keeps a topic without a leader from asking in a circle.
            await asyncio.sleep(retry.backoff(failures - 1, backoff, most, self._rng) if failures else backoff)
            if not failures:
                await self._wait_for_work()

    async def _wait_for_work(self) -> None:
        updated_at = self._cluster.updated_at
        age = monotonic() - updated_at if updated_at is not None else self._max_age
        try:
            async with asyncio.timeout(max(0.0, self._max_age - age)):
                await self._wake.wait()
        except TimeoutError:
            self._refreshes["max_age"].value += 1
            self._cluster.forget_idle(monotonic(), self._max_age)
            self._all = True

    async def _refresh(self, names: set[str]) -> None:
        connection = await self._connect()
        version = min(HIGHEST_VERSION, connection.versions[METADATA][1])
        response = await connection.call(
            lambda correlation_id: encode_metadata_request(correlation_id, CLIENT_ID, version, sorted(names))
        )
        metadata = parse_metadata_response(response, version)
        now = monotonic()
        self._cluster.apply(metadata, names, now, self._max_age)
        for name in names:
            self._settle(name)
            if self._cluster.waits_for_leader(name):
                self._ask_again(name)

    def _settle(self, name: str) -> None:
        """Tell those that wait for `name`, unless it may still turn up."""
        if name not in self._waiting:
            return
        if self._cluster.usable(name) is None:
            self._tries[name] = self._tries.get(name, 0) + 1
            if self._tries[name] < UNKNOWN_TOPIC_TRIES:
                self._ask_again(name)
                return
        self._tries.pop(name, None)
        for ready in self._waiting.pop(name):
            ready()
        self._cluster.forget_unknown(name)

    async def _connect(self) -> UpstreamConnection:
        """A connection to any broker that answers: known nodes in random order, then the bootstrap servers."""
        if self._connection is not None and not self._connection.closed:
            return self._connection
        nodes = list(self._cluster.nodes.values())
        self._rng.shuffle(nodes)
        addresses = [(node.host, node.port) for node in sorted(nodes, key=lambda node: node.down)]
        addresses += [address for address in self._settings.bootstrap_servers if address not in addresses]
        error: Exception = ConnectionError("no broker is known")
        for host, port in addresses:
            try:
                connection = await open_connection(host, port, self._settings, self._stats)
            except (OSError, UnicodeError, Malformed) as failure:
                error = failure
                continue
            if connection.versions.get(METADATA, (0, -1))[1] >= LOWEST_VERSION:
                self._connection = connection
                return connection
            connection.close()
            error = ConnectionError(f"{host}:{port} offers no Metadata v{LOWEST_VERSION}: is it a Kafka broker?")
        raise ConnectionError(f"no broker answers: {error}") from error

    def _drop_connection(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def close(self) -> None:
        self._drop_connection()
