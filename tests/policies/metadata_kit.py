"""Metadata without sockets: waiters that remember what they were told, and brokers that answer when the test says so.

bench = Bench({"a": 1})
bench.want("a")
query = bench.next(now=1.0)
bench.answer(query, now=2.0)
assert bench.ready == ["a"]
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from random import Random

from forebay_codecs.error_codes import (
    NONE,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from forebay_codecs.metadata import NO_TOPIC_ID, Broker, Metadata, Partition, Topic
from forebay_policies.metadata_cache import NEVER, Ages, CachedTopic, MetadataCache
from forebay_policies.metadata_requests import MetadataQuery, MetadataRequests

SOFT, MAX, IDLE = 60.0, 300.0, 200.0
BACKOFF, MAX_BACKOFF = 0.1, 1.0
GROUP = 3


def topic_id(name: str) -> bytes:
    return name.encode().ljust(16, b"\1")


def topic(name: str, partitions: int) -> Topic:
    """Broker 0 leads all of them. No partitions: there is no such topic."""
    if not partitions:
        return Topic(UNKNOWN_TOPIC_OR_PARTITION, name, NO_TOPIC_ID, is_internal=False, partitions=())
    led = tuple(Partition(NONE, index, 0, 0, (0,), (0,)) for index in range(partitions))
    return Topic(NONE, name, topic_id(name), is_internal=False, partitions=led)


class FakeWaiter:
    """`told`: a name, (an id, its name or None), a list of all names, "brokers"."""

    def __init__(self) -> None:
        self.told: list[object] = []

    def topic_told(self, name: str, known: CachedTopic) -> None:
        assert known.name == name
        self.told.append(name)

    def id_told(self, topic_id: bytes, known: CachedTopic | None) -> None:
        self.told.append((topic_id, known.name if known is not None else None))

    def all_told(self, topics: list[CachedTopic]) -> None:
        self.told.append([known.name for known in topics])

    def brokers_told(self) -> None:
        self.told.append("brokers")


@dataclass
class Produced:
    """A topic that records go to."""

    updated_at: float
    used_at: float


class Bench:
    """A policy, its cache, and what the cluster would know. `there`: the partitions of each topic that exists.

    `may_create`: False: who asks for a creation is told TOPIC_AUTHORIZATION_FAILED.
    """

    def __init__(self, there: Mapping[str, int] | None = None, group: int = GROUP, max_topics: int = 1000) -> None:
        self.there = dict(there or {})
        self.may_create = True
        self.produced: dict[str, Produced] = {}
        self.causes: list[str] = []
        self.ready: list[str] = []
        self.cache = MetadataCache(Ages(SOFT, MAX, IDLE), max_topics, group, Random(1))
        self.requests = MetadataRequests(self.cache, self.produced, BACKOFF, MAX_BACKOFF, group, self.causes.append)

    def want(self, *names: str, now: float = 0.0) -> list[str]:
        """Returns those that the cache has."""
        found = [self.requests.want(name, lambda name=name: self.ready.append(name), now) for name in names]  # type: ignore[misc]
        return [known.name for known in found if known is not None]

    def ask(
        self,
        *names: str,
        fresh_since: float = NEVER,
        creates: bool = False,
        now: float = 0.0,
        by: FakeWaiter | None = None,
    ) -> FakeWaiter:
        waiter = by or FakeWaiter()
        for name in names:
            self.requests.ask_topic(name, fresh_since, waiter, now, creates=creates)
        return waiter

    def next(self, now: float) -> MetadataQuery:
        """There is something to ask for; it is sent at once."""
        query = self.requests.next_request(now)
        assert query is not None
        self.requests.sent(query, now)
        return query

    def answer(self, query: MetadataQuery, now: float, asked_at: float | None = None, also: Iterable[str] = ()) -> None:
        """As brokers do, and as the updater hands it back. `asked_at` is `now` unless told."""
        asked_at = now if asked_at is None else asked_at
        ids = {topic_id(name): name for name in self.there}
        # As brokers do: where one id is asked for, names are not looked at.
        names = [ids[id_] for id_ in query.ids if id_ in ids] or (self.there if query.names is None else query.names)
        topics = [topic(name, self.there.get(name, 0)) for name in dict.fromkeys(names)]
        if query.creates and not self.may_create:
            refused = TOPIC_AUTHORIZATION_FAILED
            topics = [told if told.partitions else told._replace(error_code=refused) for told in topics]
        unknown = [
            Topic(UNKNOWN_TOPIC_ID, None, id_, is_internal=False, partitions=()) for id_ in query.ids if id_ not in ids
        ]
        metadata = Metadata(0, {0: Broker("0.example", 9092, None)}, "c", 0, (*topics, *unknown), NONE)
        found = self.cache.store(
            metadata, query.names or (), asked_at, all_topics=query.names is None, creates=query.creates
        )
        told = [name for name in found if name in self.produced or self.requests.wanted_by_records(name)]
        for name in told:
            if found[name].topic.partitions:
                used_at = self.produced[name].used_at if name in self.produced else now
                self.produced[name] = Produced(now, used_at)
        self.requests.answered(query, metadata, found, asked_at, now)
        for name in told:
            self.requests.settle(name, now, usable=bool(found[name].topic.partitions))

    def started(self, now: float = 0.0) -> Bench:
        """Past the first request, for the brokers."""
        self.answer(self.next(now), now)
        assert self.requests.next_request(now) is None
        self.causes.clear()
        return self
