"""Asks brokers for metadata, one request after the other.

What to ask for, and when, is decided by forebay_policies.metadata_requests; here it is sent to a broker, and the answer
handed to the cache, to the cluster, and to those who wait. A failed request is tried again with another broker, with
backoff; who waits is bounded by its own deadline.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from math import inf
from random import Random
from time import monotonic
from typing import NamedTuple

from forebay_codecs import error_codes
from forebay_codecs.api_keys import METADATA
from forebay_codecs.errors import Malformed
from forebay_codecs.metadata import Metadata, parse_metadata_response
from forebay_codecs.metadata_request import ASK_BY_ID_FROM, MAX_VERSION, encode_metadata_request
from forebay_policies import retry
from forebay_policies.metadata_cache import CachedTopic, MetadataCache
from forebay_policies.metadata_requests import Cause, MetadataQuery, MetadataRequests
from forebay_policies.throttling import CLIENT_ID
from forebay_proxy.brokers.broker_addresses import BrokerAddresses
from forebay_proxy.brokers.cluster import Cluster
from forebay_proxy.brokers.connector import Connector
from forebay_proxy.brokers.upstream_connection import UpstreamConnection
from forebay_proxy.config.settings import HostPort, Settings
from forebay_proxy.journal.recorder import Journal
from forebay_proxy.logs import get_logger
from forebay_proxy.metrics.registry import MetricRegistry

log = get_logger()

LOWEST_VERSION = 4
HEDGE_S = 0.5
"""A broker that has not answered by then has another asked beside it. Answers take milliseconds, large ones tenths."""
SLOW_S = 60.0
"""For so long such a broker is asked after others that may be."""
LOG_EVERY = 60
"""Failures between two lines in the log, about a second apart."""
ALL = -1
"""Topics that a journal's row says were asked for, where none was named."""


class _Attempt:
    """Which broker is being tried."""

    __slots__ = ("address",)

    def __init__(self) -> None:
        self.address: HostPort | None = None


class _Found(NamedTuple):
    """A broker's answer to a request that was sent at `asked_at`."""

    connection: UpstreamConnection
    address: HostPort | None
    asked_at: float
    metadata: Metadata


_Attempts = set[asyncio.Task[_Found]]


async def _first(open_: _Attempts) -> tuple[_Found | None, _Attempts]:
    """What the next of them found, None where it failed, and those that are still open; its error if none is."""
    done, open_ = await asyncio.wait(open_, return_when=asyncio.FIRST_COMPLETED)
    found = next((attempt.result() for attempt in done if attempt.exception() is None), None)
    if found is None and not open_:
        done.pop().result()
    return found, open_


class MetadataUpdater:
    """Keeps cache and cluster up to date for as long as `run` runs; everything else returns at once.

    `requests` is where clients' requests wait. `journal` is told of every request that was sent.
    """

    def __init__(
        self,
        cluster: Cluster,
        cache: MetadataCache,
        addresses: BrokerAddresses,
        connector: Connector,
        settings: Settings,
        stats: MetricRegistry,
        rng: Random,
        journal: Journal | None = None,
    ) -> None:
        self._cluster = cluster
        self._cache = cache
        self._addresses = addresses
        self._connector = connector
        self._rng = rng
        self._journal = journal
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._connection: UpstreamConnection | None = None
        self._address: HostPort | None = None
        """Of the broker that answered last."""
        self.asking = False
        """A request is under way."""
        self._left: HostPort | None = None
        """A broker whose answers did not help."""
        self._standing: dict[HostPort, tuple[UpstreamConnection, float]] = {}
        """Connections to brokers that were left, and when."""
        self._ignorant: dict[HostPort, float] = {}
        """Brokers that did not know the cluster since one last did, and when."""
        self._slow: dict[HostPort, float] = {}
        """Brokers beside which another one had to be asked, and when."""
        self._versions: dict[int, tuple[int, int]] = {}
        self._backoff = settings.retry_backoff_ms / 1000
        self._max_backoff = settings.retry_backoff_max_ms / 1000
        self.requests = MetadataRequests(
            cache,
            cluster.topics,
            self._backoff,
            self._max_backoff,
            settings.metadata_refresh_group_size,
            self._on_wanted,
        )
        causes: tuple[Cause, ...] = ("new_topic", "error", "connection", "max_age", "client")
        self._refreshes = {cause: stats.counter("forebay_metadata_refreshes_total", cause=cause) for cause in causes}
        self._leaders_named = stats.counter("forebay_metadata_leaders_named_total")
        self._failures = stats.counter("forebay_errors_total", side="upstream", kind="metadata")
        self._requests_sent = stats.counter("forebay_metadata_upstream_requests_total")
        self._bytes_sent = stats.counter("forebay_metadata_upstream_bytes_total", direction="request")
        self._bytes_received = stats.counter("forebay_metadata_upstream_bytes_total", direction="response")

    def _on_wanted(self, cause: Cause) -> None:
        self._refreshes[cause].value += 1
        self._wake.set()

    # Records

    def want(self, name: str, ready: Callable[[], None], *, anew: bool = False) -> None:
        """A topic that is not known to the cluster; `ready` is called once it is, or is known not to exist.

        `anew`: what is known of it will not do, a broker is asked.
        """
        known = self.requests.want(name, ready, monotonic(), anew=anew)
        if known is not None:
            self._loop.call_soon(self._from_cache, known)

    def forget(self, name: str, ready: Callable[[], None]) -> None:
        """`ready` is not wanted any more."""
        self.requests.forget(name, ready)

    def invalidate(self, names: Iterable[str], cause: Cause) -> None:
        """What is known of these topics (none: of the brokers) is wrong; they are asked for if records go there."""
        self.requests.invalidate(names, cause, monotonic())

    def leader_changed(self, name: str) -> None:
        """A broker refused records of a partition, and named no other."""
        self.invalidate((name,), "error")

    def leaders_named(self, name: str, named: Mapping[int, tuple[int, int]]) -> None:
        """A broker refused records of these partitions, and named their leaders and epochs (KIP-951): nobody is asked,
        but where that is no news, or it is not known how to reach one. All that a response names come together."""
        reachable = {partition: leader for partition, leader in named.items() if leader[0] in self._cluster.nodes}
        news = self._cache.new_leaders(name, reachable)
        if news:
            self._cluster.set_leaders(name, news, monotonic())
            self._leaders_named.value += len(news)
        if len(news) < len(named):
            self.invalidate((name,), "error")

    def _from_cache(self, known: CachedTopic) -> None:
        if self.requests.wanted_by_records(known.name):
            now = monotonic()
            self._cluster.apply_topics((known.topic,), {known.name}, now)
            self._settle(known.name, now)
            self._wake.set()  # it may have to be asked for all the same

    def _settle(self, name: str, now: float) -> None:
        if self.requests.settle(name, now, usable=self._cluster.usable(name) is not None):
            self._cluster.forget_unknown(name)

    # Brokers

    def takes(self, api_key: int, version: int) -> bool:
        """Whether the broker that was last asked takes requests of that version; True where none has been."""
        lowest, highest = self._versions.get(api_key, (version, version))
        return lowest <= version <= highest

    async def run(self) -> None:
        """Ask for what is wanted, until cancelled."""
        failures = 0
        while True:
            self._wake.clear()
            now = monotonic()
            if self.requests.checks_ages(now):
                self._cluster.forget_idle(now, self._cache.ages.idle)
            query = self.requests.next_request(now)
            if query is None:
                with suppress(TimeoutError):
                    async with asyncio.timeout(self.requests.next_wake(now) - now):
                        await self._wake.wait()
                continue
            self.asking = True
            try:
                await self._ask(query)
                if failures:
                    log.info("metadata refreshed again", tries=failures)
                failures = 0
                self.asking = False
            except (OSError, UnicodeError, Malformed) as error:
                self.requests.failed(query)
                failures += 1
                self._failures.value += 1
                if failures % LOG_EVERY == 0 or failures & (failures - 1) == 0:  # 1 2 4 8 … then once a minute
                    log.warning("metadata refresh failed", error=str(error), tries=failures)
                self.close()
                self.asking = False
                await asyncio.sleep(retry.backoff(failures - 1, self._backoff, self._max_backoff, self._rng))

    async def _ask(self, query: MetadataQuery) -> None:
        """Ask one broker, and another one beside it where that one takes its time: the first answer counts.

        Of these two one that fails is followed by the next broker, as long as there is one that was not asked: the
        other may hang. Raises OSError, UnicodeError or Malformed where no broker answers, or none that helps.
        """
        if query.elsewhere:
            self._leave()
        self.requests.sent(query, monotonic())
        tried: list[_Attempt] = []
        attempts: _Attempts = set()

        def another() -> asyncio.Task[_Found]:
            avoid = tuple(attempt.address for attempt in tried)
            tried.append(_Attempt())
            task = self._loop.create_task(self._try(query, tried[-1], avoid))
            attempts.add(task)
            return task

        open_ = {another()}
        found: _Found | None = None
        try:
            done, _ = await asyncio.wait(open_, timeout=HEDGE_S)
            slow = tried[0].address
            if not done and (slow is None or len(self._addresses.of(None)) > 1):
                log.info("metadata: a broker takes its time, asking another", broker=str(slow or "?"))
                if slow is not None:
                    self._slow[slow] = monotonic()
                open_.add(another())
            while found is None:
                found, open_ = await _first(open_)
                if found is None and len(tried) < len(self._addresses.of(None)):
                    open_.add(another())
        finally:
            for task in attempts:  # another one may have answered in the same turn
                if not task.cancel() and task.exception() is None and task.result() is not found:
                    task.result().connection.close()
        if self._connection is not None and self._connection is not found.connection:
            self._connection.close()
        self._connection, self._versions, self._address = found.connection, found.connection.versions, found.address
        if found.address is not None:
            self._slow.pop(found.address, None)
        self._ignorant.clear()
        self._answered(query, found.metadata, found.asked_at)

    async def _try(self, query: MetadataQuery, attempt: _Attempt, avoid: tuple[HostPort | None, ...]) -> _Found:
        """One broker's answer. Its connection is closed if none comes that helps, or it is not waited for."""
        connection = await self._connect(attempt, avoid)
        version = min(MAX_VERSION, connection.versions[METADATA][1])
        ids = query.ids if version >= ASK_BY_ID_FROM else []
        asked_at = monotonic()
        size = 0

        def encode(correlation_id: int) -> bytes:
            nonlocal size
            request = encode_metadata_request(
                correlation_id, CLIENT_ID, version, query.names, ids, allow_auto_topic_creation=query.creates
            )
            size = len(request)
            self._requests_sent.value += 1
            self._bytes_sent.value += size
            return request

        error = "not waited for"
        response = b""
        try:
            response = await connection.call(encode)
            error = ""
        except (OSError, Malformed) as failure:
            error = str(failure)
            raise
        finally:
            if error:
                connection.close()
            if self._journal is not None:
                asked = len(query.names) if query.names is not None else ALL
                self._journal.metadata(asked, len(ids), asked_at, size, len(response), error, creates=query.creates)
        self._bytes_received.value += len(response)
        try:
            metadata = self._read(response, version, attempt.address)
        except (OSError, Malformed):
            connection.close()
            raise
        return _Found(connection, attempt.address, asked_at, metadata)

    def _read(self, response: bytes, version: int, address: HostPort | None) -> Metadata:
        """Raises ConnectionError where the broker does not know the cluster, or Malformed."""
        metadata = parse_metadata_response(response, version)
        if metadata.brokers and not metadata.error_code:
            return metadata
        # It is starting, or something has failed there. Kafka's own clients ignore such an answer, too.
        now = monotonic()
        if metadata.error_code == error_codes.REBOOTSTRAP_REQUIRED:  # nor do those that it told of (KIP-1102)
            self._ignorant.update(dict.fromkeys(self._addresses.learned, now))
        if address is not None:
            self._ignorant[address] = now
        raise ConnectionError(f"{address} does not know the brokers (error code {metadata.error_code})")

    def _answered(self, query: MetadataQuery, metadata: Metadata, asked_at: float) -> None:
        """Cache and cluster know it before anybody is told."""
        if self._journal is not None:
            self._journal.cluster_id = metadata.cluster_id or ""
        found = self._cache.store(
            metadata, query.names or (), asked_at, all_topics=query.names is None, creates=query.creates
        )
        now = monotonic()
        produced = {name for name in found if name in self._cluster.topics or self.requests.wanted_by_records(name)}
        topics = tuple(found[name].topic for name in produced)
        self._cluster.apply(metadata._replace(topics=topics), produced, now, self._cache.ages.max)
        self.requests.answered(query, metadata, found, asked_at, now)
        for name in produced:
            self._settle(name, now)
            if self._cluster.waits_for_leader(name):
                self.requests.retry_later(name, now)

    async def _connect(self, attempt: _Attempt, avoid: tuple[HostPort | None, ...]) -> UpstreamConnection:
        """A connection to any broker that answers: the one that stands, else known nodes, then the bootstrap servers.

        Others come before these, in this order: the one that was left last, those that took their time a while ago,
        those that did not know the cluster (in turn), those of `avoid`. To one that was left the connection stands.
        """
        if not avoid and self._connection is not None and not self._connection.closed:
            attempt.address = self._address
            return self._connection
        old = monotonic() - SLOW_S
        self._slow = {address: at for address, at in self._slow.items() if at > old}

        def last(address: HostPort) -> tuple[bool, float, bool, bool]:
            return address in avoid, self._ignorant.get(address, 0.0), address in self._slow, address == self._left

        error: Exception = ConnectionError("no broker is known")
        for address in sorted(self._addresses.of(None), key=last):
            attempt.address = address
            standing = self._standing.pop(address, None)
            if standing is not None and not standing[0].closed:
                self._left = None
                return standing[0]
            try:
                connection = await self._connector.open(*address)
            except (OSError, UnicodeError, Malformed) as failure:
                error = failure
                continue
            if connection.versions.get(METADATA, (0, -1))[1] >= LOWEST_VERSION:
                self._left = None
                return connection
            connection.close()
            error = ConnectionError(f"{address} offers no Metadata v{LOWEST_VERSION}: is it a Kafka broker?")
        raise ConnectionError(f"no broker answers: {error}") from error

    def _leave(self) -> None:
        """The next request goes to another broker, if there is one. The connection stands for this one's next turn."""
        self._left = self._address
        if self._address is not None and self._connection is not None:
            self._standing[self._address] = self._connection, monotonic()
        self._connection = None

    def leave_idle(self, now: float, max_idle: float) -> None:
        """Close connections to brokers that were left `max_idle` seconds ago, before they do."""
        for address, (connection, left_at) in list(self._standing.items()):
            if now - left_at > max_idle:
                connection.close()
                del self._standing[address]

    def close(self) -> None:
        """Leave all brokers. While `run` runs, one is chosen for the next request."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self.leave_idle(inf, 0.0)
