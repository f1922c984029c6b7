"""What is to be asked for again because of its age: topics a group at a time, the brokers, the list of all topics.

In: the cache, the topics that records go to, the time. Out: what is due, and when to look again. No I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Final, NamedTuple, Protocol

from forebay_policies.metadata_cache import MetadataCache

CHECK_EVERY_S: Final = 1.0
"""Between two looks at all ages; a quarter of the soft age where that is shorter."""


class ProducedTopic(Protocol):
    """A topic that records go to: when brokers last told of it, and when records last came."""

    updated_at: float
    used_at: float


class Due(NamedTuple):
    """What to refresh now: topics by name, the list of brokers, or all topics."""

    names: list[str]
    brokers: bool
    all_topics: bool


class RefreshSchedule:
    """Nothing is due before its soft age, and at most two groups of topics are at once.

    `produced` is a live view. `backoff` is in seconds, `group_size` in topics. All times are in seconds of the caller's
    clock.
    """

    def __init__(
        self,
        cache: MetadataCache,
        produced: Mapping[str, ProducedTopic],
        backoff: float,
        group_size: int,
    ) -> None:
        self.check_at = 0.0
        """When ages are to be looked at again."""
        self._cache = cache
        self._produced = produced
        self._backoff = backoff
        self._group_size = group_size
        self._brokers_told_at: float | None = None

    def brokers_told(self, now: float) -> None:
        """An answer came: the brokers stand in each."""
        self._brokers_told_at = now

    def check(self, now: float) -> Due:
        """What is due: a group of the cache's topics, and one of those that the cache had no room for."""
        for name, topic in self._produced.items():
            self._cache.touch(name, topic.used_at)
        self._cache.forget_idle(now)
        names = self._cache.due(now)
        # The pause gathers what is due at about the same time, and keeps groups apart.
        pause = self._backoff
        if len(names) < self._group_size:
            pause = max(pause, min(CHECK_EVERY_S, self._cache.ages.soft / 4))
        self.check_at = now + pause
        overdue = (name for name, topic in self._produced.items() if now - topic.updated_at >= self._cache.ages.max)
        names += islice(overdue, self._group_size)
        return Due(names, now >= self._brokers_due_at(now), self._cache.all_due(now))

    def next_check(self, now: float) -> float:
        """When something may be due. May be past."""
        return max(self.check_at, min(self._brokers_due_at(now), now + self._cache.next_due(now)))

    def postpone(self, names: list[str], now: float) -> None:
        """They are asked for now: whatever becomes of it, they are not due again for a soft age."""
        self._cache.postpone(names, now + self._cache.ages.soft)

    def _brokers_due_at(self, now: float) -> float:
        return self._brokers_told_at + self._cache.ages.soft if self._brokers_told_at is not None else now
