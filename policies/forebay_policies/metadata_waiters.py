"""Who waits for metadata, and for what.

In: clients' requests and records as they begin to wait or give up, answers of brokers. Out: calls to those who are
served. Clients wait for topics by name or id, for all topics, or for the brokers; records wait for topics that the
cluster does not know.

Each client says since when an answer will do (`fresh_since`): one that was told something wrong is served only by a
request that left after that. Times are in seconds of the caller's clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol

from forebay_codecs import error_codes
from forebay_codecs.metadata import Topic
from forebay_policies.described_topic import DescribedTopic
from forebay_policies.metadata_cache import CachedTopic


class MetadataWaiter(Protocol):
    """A client's request. It is told each thing that it waits for once, unless it is dropped before.

    While it is told, it may begin to wait for more.
    """

    def topic_told(self, name: str, known: CachedTopic) -> None:
        """What is known of the topic now; perhaps only an error (`known.error`)."""

    def id_told(self, topic_id: bytes, known: CachedTopic | None) -> None:
        """None: there is no such topic."""

    def all_told(self, topics: list[CachedTopic]) -> None:
        """All topics of the cluster. The list is the waiter's own."""

    def brokers_told(self) -> None:
        """The cache has the brokers."""


class WaiterGroup:
    """Those who wait for one thing. Nobody is taken twice."""

    __slots__ = ("_fresh_since",)

    def __init__(self) -> None:
        self._fresh_since: dict[MetadataWaiter, float] = {}

    def __bool__(self) -> bool:
        return bool(self._fresh_since)

    def __iter__(self) -> Iterator[MetadataWaiter]:
        return iter(self._fresh_since)

    def add(self, waiter: MetadataWaiter, fresh_since: float) -> None:
        """Wait for an answer to a request that left after `fresh_since`; a second call replaces the first."""
        self._fresh_since[waiter] = fresh_since

    def drop(self, waiter: MetadataWaiter) -> None:
        """Does nothing where it does not wait."""
        self._fresh_since.pop(waiter, None)

    def ask_again(self, since: float) -> bool:
        """Whether what any of them was told after `since` has not helped."""
        return any(fresh_since > since for fresh_since in self._fresh_since.values())

    def take(self, asked_at: float) -> list[MetadataWaiter]:
        """Removes and returns those whom an answer to a request of `asked_at` serves."""
        served = [waiter for waiter, fresh_since in self._fresh_since.items() if fresh_since < asked_at]
        for waiter in served:
            del self._fresh_since[waiter]
        return served


class ClientWaiters:
    """Clients' requests, by what they wait for. What nobody waits for has no entry."""

    def __init__(self) -> None:
        self.by_name: dict[str, WaiterGroup] = {}
        self.by_id: dict[bytes, WaiterGroup] = {}
        self.for_all = WaiterGroup()
        self.for_brokers = WaiterGroup()

    def add_name(self, name: str, waiter: MetadataWaiter, fresh_since: float) -> None:
        """Wait for a topic, as told in answer to a request that left after `fresh_since`."""
        self.by_name.setdefault(name, WaiterGroup()).add(waiter, fresh_since)

    def add_id(self, topic_id: bytes, waiter: MetadataWaiter, fresh_since: float) -> None:
        """As for a topic by its name."""
        self.by_id.setdefault(topic_id, WaiterGroup()).add(waiter, fresh_since)

    def waiting(self, name: str) -> Iterable[MetadataWaiter]:
        """Those who wait for the topic."""
        return self.by_name.get(name, ())

    def ask_again(self, names: Iterable[str] | None, ids: Iterable[bytes], since: float) -> bool:
        """Whether anybody asks again for what was told of `names` (None: of all topics) or `ids` after `since`."""
        if names is None:
            return self.for_all.ask_again(since)
        groups = [self.by_name[name] for name in names if name in self.by_name]
        groups += [self.by_id[topic_id] for topic_id in ids if topic_id in self.by_id]
        return any(group.ask_again(since) for group in groups)

    def drop(self, names: Iterable[str], ids: Iterable[bytes], waiter: MetadataWaiter) -> list[str]:
        """It waits for nothing any more. Returns those of `names` for which no other client waits."""
        self.for_all.drop(waiter)
        self.for_brokers.drop(waiter)
        alone = []
        for name in names:
            group = self.by_name.get(name)
            if group is not None:
                group.drop(waiter)
                if not group:
                    del self.by_name[name]
                    alone.append(name)
        for topic_id in ids:
            group = self.by_id.get(topic_id)
            if group is not None:
                group.drop(waiter)
                if not group:
                    del self.by_id[topic_id]
        return alone

    def tell_brokers(self, asked_at: float) -> None:
        """An answer, whatever it was for, to a request of `asked_at`: all answers have the brokers."""
        for waiter in self.for_brokers.take(asked_at):
            waiter.brokers_told()

    def tell_topics(self, found: Mapping[str, CachedTopic], asked_at: float) -> list[str]:
        """`found` is what an answer to a request of `asked_at` told. Returns names for which it came too early."""
        unserved = []
        for name, known in found.items():
            group = self.by_name.get(name)
            if group is None:
                continue
            served = group.take(asked_at)
            if group:
                unserved.append(name)
            else:
                del self.by_name[name]
            for waiter in served:
                waiter.topic_told(name, known)
        return unserved

    def tell_ids(
        self, ids: Iterable[bytes], topics: Iterable[Topic], found: Mapping[str, CachedTopic], asked_at: float
    ) -> None:
        """`topics` is the answer to a request for `ids`. Those not in it are told not to exist. Who is told too early
        waits on.

        One that the user may not see has no name there, but an error of its own (TOPIC_AUTHORIZATION_FAILED).
        """
        told = {topic.topic_id: topic for topic in topics}
        for topic_id in ids:
            topic = told.get(topic_id)
            group = self.by_id.get(topic_id)
            if group is None:
                continue
            served = group.take(asked_at)
            if not group:
                del self.by_id[topic_id]
            known: CachedTopic | None = None
            if topic is not None and topic.name is not None:
                known = found[topic.name]
            elif topic is not None and topic.error_code != error_codes.UNKNOWN_TOPIC_ID:
                known = CachedTopic("", DescribedTopic(topic), asked_at, asked_at)
            for waiter in served:
                waiter.id_told(topic_id, known)

    def tell_all(self, topics: list[CachedTopic], asked_at: float) -> None:
        """`topics` are all there are, told in answer to a request of `asked_at`."""
        for waiter in self.for_all.take(asked_at):
            waiter.all_told(list(topics))


class RecordWaiters:
    """Records that wait for topics, each with the function to call once its topic is known, or known not to exist."""

    def __init__(self) -> None:
        self._ready: dict[str, list[Callable[[], None]]] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._ready

    def waiting(self, name: str) -> Iterable[Callable[[], None]]:
        """Those that wait for the topic."""
        return self._ready.get(name, ())

    def add(self, name: str, ready: Callable[[], None]) -> None:
        """`call` will call `ready`, once for each `add`."""
        self._ready.setdefault(name, []).append(ready)

    def drop(self, name: str, ready: Callable[[], None]) -> None:
        """Does nothing where it does not wait."""
        waiting = self._ready.get(name, [])
        if ready in waiting:
            waiting.remove(ready)
            if not waiting:
                del self._ready[name]

    def call(self, name: str) -> None:
        """All who wait for the topic, each once."""
        for ready in self._ready.pop(name):
            ready()
