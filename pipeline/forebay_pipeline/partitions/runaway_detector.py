"""Whether a partition runs away: it is slow, and gets more for it. Pure; the same for a span and for a stream.

In: a topic's windows, one after the other: what each partition got in it, and how long its batches waited. Out: a
Change where a partition begins to run away, and one where that is over. Nothing is raised.

KIP-794 tells of such a partition. Of its three, with waits as a slow broker makes them:

    partition                       0          1          2
    bytes                  25,953,200  7,836,878  7,546,212     of 41,336,290, a third each would be fair
    times its fair share         1.88       0.57       0.55
    average wait                40 ms       2 ms       2 ms
    times the others'              20          1          1     of two others the faster one

In a window a partition strains its topic, where

1. it is slow: its batches wait (linger and upstream) on average `wait` times as long as the topic's others do;
2. it gets much: `share` times what would be fair, an equal part for each partition;
3. it gets more than before: `rise` times what it got while it was not slow. Where it never was otherwise, as at the
   beginning of a journal, 1 and 2 will do.

`windows` of these in a row, and it is a runaway; as many others in a row, and it has recovered. So a partition that is
merely popular is none, since it is as fast as the others; nor one whose broker is merely slow, since it gets no more;
nor one that always was popular, when its broker becomes slow.
"""

from __future__ import annotations

import enum
from bisect import bisect_left
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

LEAST_WAIT_US: Final = 1000
"""The others' wait counts as this at least: whether 0.4 or 0.8 ms is the scheduler's doing."""

SMOOTHING: Final = 0.2
"""Weight of a window in what a partition usually gets: the last ten make up nine tenths of it."""


class Thresholds(NamedTuple):
    share: float = 1.5
    """KIP-794's own runaway got 1.9 times its fair share; a partition that is slow under `uniform` gets its share."""
    wait: float = 2.0
    rise: float = 1.2
    windows: int = 3
    """In a row: one slow answer is none."""
    batches: int = 20
    """A topic's window with fewer is passed over: its shares are chance."""
    quiet_us: int = 600_000_000
    """A topic without such a window for so long is forgotten, its runaways as well."""


class Event(enum.StrEnum):
    RUNAWAY = "runaway"
    RECOVERED = "recovered"
    QUIET = "quiet"
    """It was a runaway when its topic went quiet."""


class Portion(NamedTuple):
    """What a partition got in a window."""

    partition: int
    batches: int
    bytes: int
    wait_us: int
    """Of its batches together."""


class Change(msgspec.Struct, frozen=True):
    partition: int
    event: Event
    since_us: int
    """Beginning of the first of the windows that tell it."""
    window_us: int
    """And of the last. Where the topic went quiet, of the last one that it had."""
    share: float
    """Of the topic's bytes in that last window."""
    times_fair: float
    wait_us: float
    """Average of its batches; 0 where it had none."""
    others_wait_us: float


class _Partition(msgspec.Struct, omit_defaults=True):
    usual: float | None = None
    """Times its fair share, while it was not slow; smoothed."""
    runaway: bool = False
    against: int = 0
    """Windows in a row that tell otherwise."""
    since_us: int = 0


class TopicWatch(msgspec.Struct, omit_defaults=True):
    """What has to be remembered of a topic from window to window. A Struct, so that it can be put away in between."""

    partitions: dict[int, _Partition] = {}
    count: int = 0
    """How many partitions there are: the highest number seen, plus one."""
    last_us: int = 0

    def window(self, start_us: int, portions: Sequence[Portion], thresholds: Thresholds) -> list[Change]:
        """The changes that a window brings which began at `start_us`, after all those before it."""
        changes = self.quiet() if self.quiet_at(thresholds) <= start_us else []
        total = sum(portion.bytes for portion in portions)
        if not total or sum(portion.batches for portion in portions) < thresholds.batches:
            return changes
        self.last_us = start_us
        self.count = max(self.count, 1 + max(portion.partition for portion in portions))
        waits = _Waits(portions)
        given = {portion.partition: portion for portion in portions}
        for number in sorted(self.partitions.keys() | given.keys()):
            portion = given.get(number, Portion(number, 0, 0, 0))
            share = portion.bytes / total
            change = self._judge(start_us, number, share, waits.of(portion), waits.of_others(portion), thresholds)
            if change is not None:
                changes.append(change)
        return changes

    def quiet_at(self, thresholds: Thresholds) -> int:
        """When it will be forgotten, unless there is another window."""
        return self.last_us + thresholds.quiet_us

    def quiet(self) -> list[Change]:
        """Forgets the topic."""
        last = self.last_us
        changes = [
            Change(number, Event.QUIET, last, last, 0.0, 0.0, 0.0, 0.0)
            for number, partition in sorted(self.partitions.items())
            if partition.runaway
        ]
        self.partitions, self.count, self.last_us = {}, 0, 0
        return changes

    def _judge(
        self, start_us: int, number: int, share: float, wait: float, others_wait: float, thresholds: Thresholds
    ) -> Change | None:
        partition = self.partitions.setdefault(number, _Partition())
        times_fair = share * self.count
        slow = bool(others_wait) and wait >= thresholds.wait * max(others_wait, LEAST_WAIT_US)
        strains = slow and times_fair >= max(thresholds.share, thresholds.rise * (partition.usual or 0.0))
        if wait and not slow:
            usual = times_fair if partition.usual is None else partition.usual
            partition.usual = usual + SMOOTHING * (times_fair - usual)
        if strains is partition.runaway:
            partition.against = 0
            return None
        if not partition.against:
            partition.since_us = start_us
        partition.against += 1
        if partition.against < thresholds.windows:
            return None
        partition.runaway, partition.against = strains, 0
        event = Event.RUNAWAY if strains else Event.RECOVERED
        return Change(number, event, partition.since_us, start_us, share, times_fair, wait, others_wait)


class _Waits:
    """Average waits of partitions, and what is usual among the others: the middle, the lower one of two.

    Of 40, 2 and 3 ms: 2 among the others of the first, 3 and 2 among those of the others. Averages would not do: a
    second slow partition would hide the first.
    """

    def __init__(self, portions: Sequence[Portion]) -> None:
        self._sorted = sorted(self.of(portion) for portion in portions if portion.batches)

    @staticmethod
    def of(portion: Portion) -> float:
        return portion.wait_us / portion.batches if portion.batches else 0.0

    def of_others(self, portion: Portion) -> float:
        """0 where there are none."""
        waits = self._sorted
        others = len(waits) - bool(portion.batches)
        if not others:
            return 0.0
        middle = (others - 1) // 2
        if portion.batches and bisect_left(waits, self.of(portion)) <= middle:
            middle += 1
        return waits[middle]
