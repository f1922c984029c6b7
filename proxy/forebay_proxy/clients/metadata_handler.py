"""Answers clients' Metadata requests from the cache (KIP-526).

In: one Metadata frame of v0–v13. Out: False, where only the client's broker can answer (authorized operations; topics
that the client has just changed there): the caller then forwards the frame as it came. Else a response in the client's
version, with the proxy's addresses: at once where the cache may serve all that was asked for, later where brokers have
to be asked first. A client waits for its own topics only, and at most `request.timeout.ms`; what is not known by then
is LEADER_NOT_AVAILABLE, which every client asks for again.

A client that asks again, on the same connection, for exactly what it asked for before, in whatever order (franz-go's is
that of a map), wants news: it was told something that turned out wrong, or nothing. It is not answered from what it was
told before. A refresh once in a while costs nothing by that, since the cache has newer answers by then. Where some of
the answer was an error, or a partition had no leader, that may be why it asks: the rest is asked for again once it is
BESIDE_ERRORS_S old. What comes sooner than PIPELINED_S after the answer was sent before that answer was there
(librdkafka asks again and again while it waits), so the same answer will do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import Final, Protocol

from forebay_codecs import error_codes, one_broker
from forebay_codecs.metadata import NO_TOPIC_ID, Broker, Topic
from forebay_codecs.metadata_request import MetadataRequest
from forebay_codecs.metadata_response import assemble, encode_cluster, encode_topic
from forebay_policies.departed_brokers import DepartedBrokers
from forebay_policies.described_topic import DescribedTopic
from forebay_policies.eligibility import LONGEST_NAME
from forebay_policies.hold_reason import HoldReason
from forebay_policies.metadata_cache import NEVER, Brokers, CachedTopic, MetadataCache
from forebay_proxy.brokers.metadata_updater import MetadataUpdater
from forebay_proxy.metrics.registry import MetricRegistry
from forebay_proxy.produce.client import Client

PIPELINED_S: Final = 0.05
"""Less than any client's pause between an answer and its next try, more than a round trip within a site."""
BESIDE_ERRORS_S: Final = 1.0
"""Many topics of which one does not exist are asked for every tenth of a second: brokers tell of that one each time."""
QUESTIONS: Final = 32
"""A connection's last different ones, which are known when they are asked again: some clients ask topic by topic."""


class LastAnswer:
    """What a client was told last to one question: when first, and whether any of it was bad news."""

    __slots__ = ("at", "bad", "request_hash")

    def __init__(self, request_hash: int, at: float, *, bad: bool) -> None:
        self.request_hash = request_hash
        self.at = at
        self.bad = bad


class MetadataClient(Client, Protocol):
    """What the Metadata path needs of the connection that a request came on, beside what the produce path does."""

    told: tuple[LastAnswer, ...]
    """To its last QUESTIONS different questions, the latest last."""

    def reserve_answer(self) -> Callable[[bytes | None], None]:
        """Keep the response's place. Called with the frame, once; None: there is no answer, the client is closed."""

    @property
    def sees_one_broker(self) -> bool:
        """It knows of one broker, which stands for all."""

    @property
    def topics_settle(self) -> bool:
        """Topics that it has changed by its broker may not be known to others yet."""

    @property
    def over(self) -> bool:
        """The connection has ended: nothing is answered any more."""

    def room_for(self, size: int, ready: Callable[[], None]) -> bool:
        """Whether an answer of so many bytes may be given now. False: `ready` is called then, or once it has left."""

    def no_room(self) -> None:
        """There was none in time: its connection ends."""

    def translate(self, node_id: int, host: str, port: int, *, cached: bool = False) -> tuple[str, int] | None:
        """Where the client finds that broker; None: nowhere. `cached`: its own address is no news."""


class MetadataHandler:
    """Answers every Metadata request that is not the brokers' to answer, from the cache or after asking.

    `request_timeout` is in seconds.
    """

    def __init__(
        self,
        cache: MetadataCache,
        updater: MetadataUpdater,
        departed: DepartedBrokers,
        request_timeout: float,
        stats: MetricRegistry,
    ) -> None:
        self.cache = cache
        self.departed = departed
        self.requests = updater.requests
        self.loop = asyncio.get_running_loop()
        self.request_timeout = request_timeout
        self.answered = {
            how: stats.counter("forebay_metadata_requests_total", answered=how)
            for how in ("from_cache", "after_asking", "by_broker")
        }
        self.topics = {found: stats.counter("forebay_metadata_topics_total", found=found) for found in ("hit", "miss")}
        self.age = stats.histogram("forebay_metadata_age_seconds")
        stats.gauge("forebay_metadata_cached_topics", lambda: len(cache))

    def handle(self, client: MetadataClient, frame: bytes, request: MetadataRequest) -> bool:
        """Take a request, which `frame` holds without its size. False: only a broker can answer; forward the frame."""
        if request.authorized_operations or client.topics_settle:
            self.answered["by_broker"].value += 1
            return False
        PendingMetadata(self, client, request, _question(frame, request)).start()
        return True


class PendingMetadata:
    """One request until it is answered: once, at the latest after `request.timeout.ms`."""

    __slots__ = (
        "_answer",
        "_asked",
        "_client",
        "_everything",
        "_found",
        "_handler",
        "_hash",
        "_ids",
        "_missing",
        "_request",
        "_room",
        "_timer",
        "_told_at",
    )

    def __init__(
        self, handler: MetadataHandler, client: MetadataClient, request: MetadataRequest, request_hash: int
    ) -> None:
        self._handler = handler
        self._client = client
        self._request = request
        self._hash = request_hash
        self._answer = client.reserve_answer()
        self._found: dict[str, CachedTopic]
        self._ids: dict[bytes, CachedTopic | None] = {}
        """What is known of each; None: brokers told that there is no such topic."""
        self._everything: list[CachedTopic] | None = None
        self._missing = 0
        self._asked = False
        self._told_at: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._room: bool | None = None
        """For its answer, where that is large; False: it waits for some; None: nobody was asked."""

    def start(self) -> None:
        """Answer from the cache, or wait for what it may not serve."""
        handler, request = self._handler, self._request
        now = monotonic()
        since = sound_since = NEVER
        for told in self._client.told:
            if told.request_hash == self._hash:
                if now - told.at > PIPELINED_S:
                    since = told.at
                    sound_since = min(since, now - BESIDE_ERRORS_S) if told.bad else since
                else:
                    self._told_at = told.at
        missing: list[tuple[str, float]] = []
        missing_ids: list[bytes] = []
        self._found, others = handler.cache.find_sound(request.names, now, sound_since)
        for name in others:
            if len(name) > LONGEST_NAME:
                self._found[name] = _error(name, error_codes.INVALID_TOPIC_EXCEPTION, now)
                continue
            known = self._find(name, now, since, sound_since)
            if known is None:
                missing.append((name, since))
            else:
                self._found[name] = known
        for topic_id in request.ids:
            name_of = handler.cache.name_of(topic_id)
            known = self._find(name_of, now, since, sound_since) if name_of is not None else None
            if known is None or known.topic.topic_id != topic_id:
                missing_ids.append(topic_id)
            else:
                self._ids[topic_id] = known
        if request.all_topics:
            self._everything = handler.cache.everything(now, since)
        handler.topics["hit"].value += len(self._found) + len(self._ids) + len(self._everything or ())
        handler.topics["miss"].value += len(missing) + len(missing_ids)
        asks_all = request.all_topics and self._everything is None
        # Whatever is asked for brings the brokers with it. Who asks for them alone wants them anew as well.
        alone = not (request.names or request.ids or request.all_topics)
        asks_brokers = handler.cache.cluster(now, since if alone else NEVER) is None
        self._missing = len(missing) + len(missing_ids) + asks_all + asks_brokers
        if not self._missing:
            handler.answered["from_cache"].value += 1
            self._reply(now)
            return
        handler.answered["after_asking"].value += 1
        self._wait()
        for name, fresh_since in missing:
            handler.requests.ask_topic(name, fresh_since, self, now, creates=request.allow_auto_topic_creation)
        for topic_id in missing_ids:
            handler.requests.ask_id(topic_id, since, self)
        if asks_all:
            handler.requests.ask_all(since, self)
        if asks_brokers:
            handler.requests.ask_brokers(since if alone else NEVER, self)

    def _wait(self) -> None:
        """As for Produce, a connection has one request at a time to wait for."""
        if not self._asked:
            self._asked = True
            self._client.hold(HoldReason.PENDING_REQUEST)
            self._timer = self._handler.loop.call_later(self._handler.request_timeout, self._expired)

    def _find(self, name: str, now: float, since: float, sound_since: float) -> CachedTopic | None:
        """The topic, if this client may have it from the cache: newer than `since`, or `sound_since` if it is sound."""
        known = self._handler.cache.find(name, now, sound_since)
        if known is None or known.described.sound:
            return known
        if known.updated_at <= since or (self._would_create(known) and self._handler.requests.may_create(name, now)):
            return None
        return self._for_creator(name, known)

    def _would_create(self, known: CachedTopic) -> bool:
        unknown = known.topic.error_code == error_codes.UNKNOWN_TOPIC_OR_PARTITION
        return unknown and self._request.allow_auto_topic_creation

    def _for_creator(self, name: str, known: CachedTopic) -> CachedTopic:
        """Who would have a topic created and may not is told that, as by brokers, not that there is none."""
        if self._would_create(known) and self._handler.requests.creation_refused(name):
            return _error(name, error_codes.TOPIC_AUTHORIZATION_FAILED, known.updated_at)
        return known

    # What brokers told (metadata_waiters.MetadataWaiter)

    def topic_told(self, name: str, known: CachedTopic) -> None:
        self._found[name] = self._for_creator(name, known)
        self._one_less()

    def id_told(self, topic_id: bytes, known: CachedTopic | None) -> None:
        self._ids[topic_id] = known
        self._one_less()

    def all_told(self, topics: list[CachedTopic]) -> None:
        self._everything = topics
        self._one_less()

    def brokers_told(self) -> None:
        self._one_less()

    def _one_less(self) -> None:
        self._missing -= 1
        if not self._missing:
            self._reply(monotonic())

    def _expired(self) -> None:
        handler, request = self._handler, self._request
        self._timer = None
        if self._room is False:
            self._end_without_room()
            return
        handler.requests.drop(request.names, request.ids, self)
        if handler.cache.brokers is None or (request.all_topics and self._everything is None):
            self._end(None)
            return
        now = monotonic()
        for name in request.names:
            if name not in self._found:
                self._found[name] = _error(name, error_codes.LEADER_NOT_AVAILABLE, now)
        for topic_id in request.ids:
            if topic_id not in self._ids:
                self._ids[topic_id] = _error(None, error_codes.LEADER_NOT_AVAILABLE, now, topic_id)
        self._reply(now)

    # The answer

    def _reply(self, now: float) -> None:
        handler, request, cache = self._handler, self._request, self._handler.cache
        brokers = cache.brokers
        assert brokers is not None
        version = request.version
        topics = [*self._found.values(), *(known for known in self._ids.values() if known is not None)]
        if self._everything is not None:
            topics += self._everything
        one = self._client.sees_one_broker
        controller_id = brokers.controller_id
        if one:
            reachable, controller_id = one_broker.only_broker(self._client.translate), one_broker.NODE_ID
        else:
            reachable = self._reachable(brokers, now)
        ids = frozenset(reachable) if version == 0 else brokers.ids
        sections, oldest, bad = cache.serve(topics, version, now, ids, all_topics=request.all_topics, one_broker=one)
        for topic_id, of_id in self._ids.items():
            if of_id is None:
                unknown = Topic(error_codes.UNKNOWN_TOPIC_ID, None, topic_id, is_internal=False, partitions=())
                sections.append(encode_topic(unknown, version))
                bad = True
        cluster = encode_cluster(version, reachable, brokers.cluster_id, controller_id)
        if self._room is None:
            self._room = self._client.room_for(len(cluster) + sum(map(len, sections)), self._room_told)
            if not self._room:
                if self._asked and self._timer is None:  # its time is up
                    self._end_without_room()
                else:
                    self._wait()
                return
        handler.age.observe(now - oldest)
        self._remember(LastAnswer(self._hash, now if self._told_at is None else self._told_at, bad=bad))
        self._end(assemble(version, request.correlation_id, cluster, sections))

    def _remember(self, answer: LastAnswer) -> None:
        others = [told for told in self._client.told if told.request_hash != answer.request_hash]
        self._client.told = (*others[1 - QUESTIONS :], answer)

    def _room_told(self) -> None:
        if self._room is not False:  # its time was up
            return
        self._room = True
        if self._client.over:
            self._end(None)
        else:
            self._reply(monotonic())

    def _reachable(self, brokers: Brokers, now: float) -> dict[int, Broker]:
        """Those that have an address for the client, by node id, with that address."""
        reachable: dict[int, Broker] = {}
        for node_id, broker in self._handler.departed.told_of(brokers.there, now).items():
            address = self._client.translate(node_id, broker.host, broker.port, cached=True)
            if address is not None:
                reachable[node_id] = Broker(*address, broker.rack)
        return reachable

    def _end_without_room(self) -> None:
        self._client.no_room()
        self._end(None)

    def _end(self, frame: bytes | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._room = True
        self._answer(frame)
        if self._asked:
            self._client.release(HoldReason.PENDING_REQUEST)


def _question(frame: bytes, request: MetadataRequest) -> int:
    """The same for the same question of the same client."""
    if len(request.names) + len(request.ids) <= 1:
        return hash(frame[8:])  # behind api_key, version and correlation id
    topics = frozenset(request.names), frozenset(request.ids)
    return hash((request.client_id, topics, request.allow_auto_topic_creation))


def _error(name: str | None, code: int, now: float, topic_id: bytes = NO_TOPIC_ID) -> CachedTopic:
    topic = Topic(code, name, topic_id, is_internal=False, partitions=())
    return CachedTopic(name or "", DescribedTopic(topic), now, now)
