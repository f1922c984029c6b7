"""Asks brokers for metadata: one request in flight, the next one carries all that came meanwhile.

In: topics that produce requests need (`want`), that clients ask for (`ask_topic`, `ask_id`, `ask_all`, `ask_brokers`),
whose leaders turned out wrong (`invalidate`), and what the cache says is due. Out: MetadataCache.store and
Cluster.apply, and a call for each one that waited. A failed request is tried again with another broker, with backoff;
who waits is bounded by its own deadline.

Topics to be created go in requests of their own, since the permission stands in the request; a name once in
CREATE_AGAIN seconds, however many clients ask for it.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import islice
from random import Random
from time import monotonic
from typing import Protocol

from forebay_codecs.errors import Malformed
from forebay_codecs.metadata import METADATA, Metadata, parse_metadata_response
from forebay_codecs.metadata_request import ASK_BY_ID_FROM, MAX_VERSION, encode_metadata_request
from forebay_policies import retry
from forebay_policies.metadata_cache import NEVER, CachedTopic, MetadataCache
from forebay_proxy.brokers.cluster import Cluster
from forebay_proxy.brokers.upstream_connection import CLIENT_ID, UpstreamConnection, open_connection
from forebay_proxy.config.settings import Settings
from forebay_proxy.journal.recorder import Journal
from forebay_proxy.logs import get_logger
from forebay_proxy.metrics.registry import Stats

log = get_logger()

LOWEST_VERSION = 4
LOG_EVERY = 60
"""Failures between two lines in the log, about a second apart."""
ALL = -1
"""Topics that a journal's row says were asked for, where none was named."""

MOST_TOPICS = 10_000
"""In one request. Clients may name any number, and a broker closes the connection on a request above 100 MB."""
UNKNOWN_TOPIC_TRIES = 8
"""A topic that one broker has just created is not known to all at once: ask again before produce calls it unknown."""
LOOK_EVERY = 1.0
CREATE_AGAIN = 5.0
MOST_CREATED = 10_000
"""Names remembered for that."""


class Asker(Protocol):
    """A client's question. Each thing that it asked for is told once."""

    def topic_told(self, name: str, known: CachedTopic) -> None: ...

    def id_told(self, topic_id: bytes, known: CachedTopic | None) -> None:
        """None: there is no such topic."""

    def all_told(self, topics: list[CachedTopic]) -> None: ...

    def brokers_told(self) -> None: ...


class _Waiting:
    """Who waits for one thing: each with the time since when an answer will do."""

    __slots__ = ("_askers",)

    def __init__(self) -> None:
        self._askers: dict[Asker, float] = {}

    def __bool__(self) -> bool:
        return bool(self._askers)

    def add(self, since: float, asker: Asker) -> None:
        self._askers[asker] = since

    def drop(self, asker: Asker) -> None:
        self._askers.pop(asker, None)

    def take(self, asked_at: float) -> list[Asker]:
        """Those whom an answer to a request of `asked_at` serves."""
        served = [asker for asker, since in self._askers.items() if since < asked_at]
        for asker in served:
            del self._askers[asker]
        return served


class MetadataUpdater:
    """See the module. `run` is the task; everything else returns at once."""

    def __init__(
        self,
        cluster: Cluster,
        cache: MetadataCache,
        settings: Settings,
        stats: Stats,
        rng: Random,
        journal: Journal | None = None,
    ) -> None:
        self._cluster = cluster
        self._cache = cache
        self._settings = settings
        self._stats = stats
        self._rng = rng
        self._journal = journal
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._wanted: dict[str, None] = {}
        self._wanted_ids: dict[bytes, None] = {}
        self._wanted_new: dict[str, None] = {}
        self._want_all = False
        self._want_brokers = True
        self._look_at = 0.0
        """When to see again what is due."""
        self._asking: set[str] = set()
        self._waiting: dict[str, list[Callable[[], None]]] = {}
        self._tries: dict[str, int] = {}
        self._by_name: dict[str, _Waiting] = {}
        self._by_id: dict[bytes, _Waiting] = {}
        self._for_brokers = _Waiting()
        self._for_all = _Waiting()
        self._created: OrderedDict[str, float] = OrderedDict()
        self._connection: UpstreamConnection | None = None
        self._versions: dict[int, tuple[int, int]] = {}
        self._backoff = settings.retry_backoff_ms / 1000
        self._max_age = settings.metadata_max_age_ms / 1000
        self._max_idle = settings.metadata_max_idle_ms / 1000
        self._soft_age = min(self._max_age, settings.metadata_soft_age_ms / 1000)
        self._refreshes = {
            cause: stats.counter("forebay_metadata_refreshes_total", cause=cause)
            for cause in ("new_topic", "error", "connection", "max_age", "client")
        }
        self._failures = stats.counter("forebay_errors_total", side="upstream", kind="metadata")
        self._requests = stats.counter("forebay_metadata_upstream_requests_total")
        self._bytes = {
            way: stats.counter("forebay_metadata_upstream_bytes_total", direction=way)
            for way in ("request", "response")
        }

    # Produce

    def want(self, name: str, ready: Callable[[], None]) -> None:
        """A topic that is not known to the cluster; `ready` is called once it is, or is known not to exist."""
        self._waiting.setdefault(name, []).append(ready)
        known = self._cache.find(name, monotonic())
        if known is not None and not known.error:
            self._loop.call_soon(self._from_cache, known)
        else:
            self._ask((name,), "new_topic")

    def forget(self, name: str, ready: Callable[[], None]) -> None:
        """`ready` is not wanted any more."""
        waiting = self._waiting.get(name, [])
        if ready in waiting:
            waiting.remove(ready)

    def invalidate(self, names: Iterable[str], cause: str) -> None:
        """What is known of these topics (none: of the brokers) is wrong. `cause`: error, connection.

        Topics that no records go to are asked for when a client asks, or again if they are being asked for.
        """
        names = list(names)
        now = monotonic()
        for name in names:
            self._cache.invalidate(name, now)
        self._want_brokers = self._want_brokers or not names
        self._ask([name for name in names if name in self._cluster.topics or name in self._asking], cause)

    def leader_changed(self, name: str, partition: int, named: tuple[int, int] | None) -> None:
        """A broker refused records. Where it `named` its successor and the epoch (KIP-951), nobody is asked."""
        if named is None or not self._take_over(name, partition, *named):
            self.invalidate((name,), "error")

    def _take_over(self, name: str, partition: int, leader_id: int, leader_epoch: int) -> bool:
        """False where it is no news, or not known how to reach it."""
        if leader_id not in self._cluster.nodes:
            return False
        if not self._cache.new_leader(name, partition, leader_id, leader_epoch):
            return False
        self._cluster.set_leader(name, partition, leader_id, monotonic())
        return True

    def _from_cache(self, known: CachedTopic) -> None:
        if known.name not in self._waiting:
            return
        self._cluster.apply_topics((known.topic,), {known.name}, monotonic())
        self._settle(known.name)

    # Clients

    def ask_topic(self, name: str, since: float, creates: bool, asker: Asker) -> None:
        """A topic by name, as brokers tell of it when asked after `since`. `creates`: it may be created by that."""
        self._by_name.setdefault(name, _Waiting()).add(since, asker)
        if creates and self.may_create(name):
            self._created[name] = monotonic()
            self._created.move_to_end(name)
            if len(self._created) > MOST_CREATED:
                self._created.popitem(last=False)
            self._wanted_new[name] = None
            self._ask((), "client")
        elif since > NEVER or not (name in self._asking or name in self._wanted_new):
            self._ask((name,), "client")

    def may_create(self, name: str) -> bool:
        """Whether it is time to ask (again) for its creation."""
        return monotonic() - self._created.get(name, NEVER) >= CREATE_AGAIN

    def ask_id(self, topic_id: bytes, asker: Asker) -> None:
        self._by_id.setdefault(topic_id, _Waiting()).add(NEVER, asker)
        self._wanted_ids[topic_id] = None
        self._ask((), "client")

    def ask_all(self, since: float, asker: Asker) -> None:
        self._for_all.add(since, asker)
        self._want_all = True
        self._ask((), "client")

    def ask_brokers(self, since: float, asker: Asker) -> None:
        self._for_brokers.add(since, asker)
        self._want_brokers = True
        self._ask((), "client")

    def takes(self, api_key: int, version: int) -> bool:
        """Whether the broker that was last asked takes requests of that version; True where none has been."""
        lowest, highest = self._versions.get(api_key, (version, version))
        return lowest <= version <= highest

    def drop(self, names: Iterable[str], ids: Iterable[bytes], asker: Asker) -> None:
        """It waits no more. What nobody waits for is not asked for: brokers may be gone for long."""
        self._for_brokers.drop(asker)
        self._for_all.drop(asker)
        for name in names:
            waiting = self._by_name.get(name)
            if waiting is not None:
                waiting.drop(asker)
                if not waiting:
                    del self._by_name[name]
                    if not self._concerns_anybody(name):
                        self._wanted.pop(name, None)
                    if self._wanted_new.pop(name, name) is None:
                        del self._created[name]
        for topic_id in ids:
            by_id = self._by_id.get(topic_id)
            if by_id is not None:
                by_id.drop(asker)
                if not by_id:
                    del self._by_id[topic_id]
                    self._wanted_ids.pop(topic_id, None)

    def _concerns_anybody(self, name: str) -> bool:
        """A client or records wait for it, or it is known and to be refreshed."""
        return name in self._by_name or name in self._waiting or name in self._cluster.topics or self._cache.knows(name)

    def _ask(self, names: Iterable[str], cause: str) -> None:
        self._refreshes[cause].value += 1
        for name in names:
            self._wanted[name] = None
        self._wake.set()

    def _ask_again(self, name: str) -> None:
        """Soon, not at once: a topic without a leader must not be asked for in a circle."""
        self._loop.call_later(self._backoff, self._ask_now, name)

    def _ask_now(self, name: str) -> None:
        self._wanted[name] = None
        self._wake.set()

    # The task

    async def run(self) -> None:
        failures = 0
        most = self._settings.retry_backoff_max_ms / 1000
        while True:
            self._wake.clear()
            if monotonic() >= self._look_at:
                self._what_is_due(monotonic())
            try:
                await self._rounds()
                if failures:
                    log.info("metadata refreshed again", tries=failures)
                failures = 0
            except (OSError, UnicodeError, Malformed) as error:
                failures += 1
                self._failures.value += 1
                if failures % LOG_EVERY == 0 or failures & (failures - 1) == 0:  # 1 2 4 8 … then once a minute
                    log.warning("metadata refresh failed", error=str(error), tries=failures)
                self._drop_connection()
                await asyncio.sleep(retry.backoff(failures - 1, self._backoff, most, self._rng))
                continue
            if not self._pending():
                await self._wait_for_work()

    def _pending(self) -> bool:
        return bool(self._wanted or self._wanted_ids or self._wanted_new or self._want_all or self._want_brokers)

    async def _wait_for_work(self) -> None:
        """Until somebody wants something, or something is due."""
        now = monotonic()
        updated_at = self._cluster.updated_at
        pause = self._soft_age - (now - updated_at) if updated_at is not None else 0.0
        pause = min(pause, self._cache.next_due(now))
        with suppress(TimeoutError):
            async with asyncio.timeout(max(pause, self._look_at - now)):
                await self._wake.wait()

    def _what_is_due(self, now: float) -> None:
        """Puts it among what is wanted, a group at a time, though clients may keep asking for more."""
        for name, state in self._cluster.topics.items():
            self._cache.touch(name, state.used_at)
        self._cluster.forget_idle(now, self._max_idle)
        self._cache.forget_idle(now)
        names = self._cache.due(now)
        left_over = (name for name, state in self._cluster.topics.items() if now - state.updated_at >= self._max_age)
        for name in [*names, *islice(left_over, self._settings.metadata_refresh_group_size)]:
            self._wanted[name] = None
        updated_at = self._cluster.updated_at
        self._want_brokers = self._want_brokers or updated_at is None or now - updated_at >= self._soft_age
        self._want_all = self._want_all or self._cache.all_due(now)
        if names or self._want_brokers or self._want_all:
            self._refreshes["max_age"].value += 1
        # The pause gathers what is due at about the same time, and keeps groups apart.
        full = len(names) == self._settings.metadata_refresh_group_size
        self._look_at = now + (self._backoff if full else max(self._backoff, min(LOOK_EVERY, self._soft_age / 4)))

    async def _rounds(self) -> None:
        """A request for what is wanted by name, one for what may be created, one for everything."""
        if self._wanted or self._wanted_ids or self._want_brokers:
            names = list(islice(self._wanted, MOST_TOPICS))
            ids = list(islice(self._wanted_ids, MOST_TOPICS))
            self._wanted = dict.fromkeys(islice(self._wanted, MOST_TOPICS, None))
            self._wanted_ids = dict.fromkeys(islice(self._wanted_ids, MOST_TOPICS, None))
            self._want_brokers = False
            try:
                await self._round(sorted(names), ids, False)
            except BaseException:
                self._wanted.update(dict.fromkeys(filter(self._concerns_anybody, names)))
                self._wanted_ids.update(dict.fromkeys(topic_id for topic_id in ids if topic_id in self._by_id))
                self._want_brokers = True
                raise
        if self._wanted_new:
            names = list(islice(self._wanted_new, MOST_TOPICS))
            self._wanted_new = dict.fromkeys(islice(self._wanted_new, MOST_TOPICS, None))
            try:
                await self._round(sorted(names), [], True)
            except BaseException:
                self._wanted_new.update(dict.fromkeys(name for name in names if name in self._by_name))
                raise
        if self._want_all:
            self._want_all = False
            try:
                await self._round(None, [], False)
            except BaseException:
                self._want_all = True
                raise

    async def _round(self, names: list[str] | None, ids: list[bytes], creates: bool) -> None:
        connection = await self._connect()
        version = min(MAX_VERSION, connection.versions[METADATA][1])
        asked_ids = ids if version >= ASK_BY_ID_FROM else []
        asked_at = monotonic()
        self._asking = set(names or ())
        self._cache.postpone(self._asking, asked_at + self._soft_age)
        error = ""
        response = b""
        sent = self._bytes["request"].value
        try:
            response = await connection.call(
                lambda correlation_id: self._encoded(correlation_id, version, names, creates, asked_ids)
            )
        except (OSError, Malformed) as failure:
            error = str(failure)
            raise
        finally:
            self._asking = set()
            if self._journal is not None:
                asked = len(names) if names is not None else ALL
                sent = self._bytes["request"].value - sent
                self._journal.metadata(asked, len(asked_ids), creates, asked_at, sent, len(response), error)
        self._bytes["response"].value += len(response)
        metadata = parse_metadata_response(response, version)
        found = self._cache.store(metadata, names or (), asked_at, all_topics=names is None)
        now = monotonic()
        relevant = {name for name in found if name in self._cluster.topics or name in self._waiting}
        told = metadata._replace(topics=tuple([found[name].topic for name in relevant]))
        self._cluster.apply(told, relevant, now, self._max_age)
        self._tell(metadata, found, ids, asked_at, names is None)
        for name in relevant:
            self._settle(name)
            if self._cluster.waits_for_leader(name):
                self._ask_again(name)

    def _encoded(
        self, correlation_id: int, version: int, names: list[str] | None, creates: bool, ids: list[bytes]
    ) -> bytes:
        request = encode_metadata_request(
            correlation_id, CLIENT_ID, version, names, ids, allow_auto_topic_creation=creates
        )
        self._requests.value += 1
        self._bytes["request"].value += len(request)
        return request

    def _tell(
        self, metadata: Metadata, found: dict[str, CachedTopic], ids: list[bytes], asked_at: float, everything: bool
    ) -> None:
        """Tell clients. What they do then may ask for more."""
        for asker in self._for_brokers.take(asked_at):
            asker.brokers_told()
        self._want_brokers = self._want_brokers or bool(self._for_brokers)
        for name, known in found.items():
            waiting = self._by_name.get(name)
            if waiting is None:
                continue
            served = waiting.take(asked_at)
            if waiting:
                self._wanted[name] = None
            else:
                del self._by_name[name]
            for asker in served:
                asker.topic_told(name, known)
        by_id = {topic.topic_id: topic.name for topic in metadata.topics}
        for topic_id in ids:
            name_of = by_id.get(topic_id)
            for asker in self._by_id.pop(topic_id, _Waiting()).take(asked_at):
                asker.id_told(topic_id, found[name_of] if name_of is not None else None)
        if everything:
            for asker in self._for_all.take(asked_at):
                asker.all_told(list(found.values()))
            self._want_all = bool(self._for_all)

    def _settle(self, name: str) -> None:
        """Tell produce requests that wait for `name`, unless it may still turn up."""
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
                self._connection, self._versions = connection, connection.versions
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
