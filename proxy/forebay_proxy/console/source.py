"""Where the numbers come from: this process, or its workers' reports.

Out: `now`, a snapshot without topics and clients, which is cheap enough for every second; `details`, those two, which
are many. Where this process is the one that passes records on, details are read in slices, between which its loop
serves clients.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, NamedTuple, Protocol

import msgspec

from forebay_proxy.metrics import clients_seen, topics_seen
from forebay_proxy.metrics.clients_seen import SeenClient
from forebay_proxy.metrics.registry import MetricRegistry, Snapshot, merge
from forebay_proxy.metrics.topics_seen import SeenTopic

SLICE: Final = 50
"""Topics or clients that are looked at before others have their turn: less than a millisecond."""


class Details(NamedTuple):
    """All topics and clients at one moment, or near it."""

    topics: list[SeenTopic]
    clients: list[SeenClient]


class Source(Protocol):
    """What the collector asks."""

    def now(self) -> Snapshot:
        """Everything but topics and clients."""

    async def details(self) -> Details:
        """These."""


class OneProcess:
    """Everything is in this process."""

    def __init__(self, stats: MetricRegistry) -> None:
        self._stats = stats

    def now(self) -> Snapshot:
        return self._stats.take(details=False)

    async def details(self) -> Details:
        stats = self._stats
        known = stats.current_topics()
        await asyncio.sleep(0)
        topics: list[SeenTopic] = []
        names = list(stats.topics.topics)
        for at in range(0, len(names), SLICE):
            topics += topics_seen.snapshot(stats.topics, known, names[at : at + SLICE])
            await asyncio.sleep(0)
        topics += topics_seen.others(stats.topics)
        return Details(topics, stats.current_clients())


class Workers:
    """Everything is in other processes. `reports` gives what each has told last, and what dead ones had counted;
    `refresh` has them tell of topics and clients, too, which they do not do each second."""

    def __init__(self, reports: Callable[[], Iterable[Snapshot]], refresh: Callable[[], Awaitable[object]]) -> None:
        self._reports = reports
        self._refresh = refresh
        self._names: frozenset[str] = frozenset()
        """Of the topics told last: they keep their places, since counts that come and go have no rates."""

    def now(self) -> Snapshot:
        return merge(msgspec.structs.replace(each, clients=[], topics=[]) for each in self._reports())

    async def details(self) -> Details:
        await self._refresh()
        reports = list(self._reports())
        topics = topics_seen.merge((each.topics for each in reports), self._names)
        self._names = frozenset(topic.name for topic in topics if topic.name != topics_seen.OTHERS)
        return Details(topics, clients_seen.merge(each.clients for each in reports))
