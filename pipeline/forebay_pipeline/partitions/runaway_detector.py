"""Detects runaway partitions: those that get more because they are slow. Pure; the same for a span and for a stream.

In: a topic's windows in order, each with what every partition got and how long its batches waited. Out: a Change when a
partition begins to run away, and one when it recovers.

KIP-794 describes such a partition. Its three, with the waits that a slow broker causes:

    partition                       0          1          2
    bytes                  25,953,200  7,836,878  7,546,212     of 41,336,290; a third each would be fair
    times its fair share         1.88       0.57       0.55
    average wait                40 ms       2 ms       2 ms
    times the others'              20          1          1     of two others the faster one

In a window a partition strains its topic if

1. it is slow: its batches wait (linger and upstream) on average `wait` times as long as those of the topic's others;
2. it gets much: `share` times its fair share, which is the same for each partition;
3. it gets more than before: `rise` times what it got while it was not slow. If it was never anything else, as at the
   beginning of a journal, 1 and 2 suffice.

After `windows` of these in a row it is a runaway; after as many others in a row it has recovered. So a popular
partition is no runaway, because it is as fast as the others; nor is one whose broker is slow, because it gets no more;
nor is one that was always popular when its broker becomes slow.
"""

from __future__ import annotations

import enum
from bisect import bisect_left
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

MIN_WAIT_US: Final = 1000
"""Lower bound of the others' wait: between 0.4 and 0.8 ms it is the scheduler that makes the difference."""

SMOOTHING: Final = 0.2
"""Weight of a window in what a partition usually gets: the last ten make up nine tenths of it."""


class Thresholds(NamedTuple):
    """When a partition counts as a runaway; the module's docstring has the rule."""

    share: float = 1.5
    """KIP-794's runaway got 1.9 times its fair share; under `uniform`, a slow partition still gets just its share."""
    wait: float = 2.0
    rise: float = 1.2
    windows: int = 3
    """Consecutive ones: a single slow answer does not count."""
    batches: int = 20
    """A topic's windows with fewer are ignored: their shares are chance."""
    quiet_us: int = 600_000_000
    """After this long without a window that counts, a topic is forgotten with its runaways."""


class Event(enum.StrEnum):
    """What happened to a partition."""

    RUNAWAY = "runaway"
    RECOVERED = "recovered"
    QUIET = "quiet"
    """Its topic went quiet while it was a runaway."""


class Portion(NamedTuple):
    """What a partition got in a window."""

    partition: int
    batches: int
    bytes: int
    wait_us: int
    """Sum over its batches."""


class Change(msgspec.Struct, frozen=True):
    """A partition became a runaway, or ceased to be one."""

    partition: int
    event: Event
    since_us: int
    """Start of the first of the consecutive windows that decided it."""
    window_us: int
    """Start of the last of them; for QUIET, of the topic's last window."""
    share: float
    """Of the topic's bytes in that last window."""
    times_fair: float
    """The same as a multiple of its fair share."""
    wait_us: float
    """Average of its batches; 0 if it had none."""
    others_wait_us: float
    """What is usual among the topic's other partitions; 0 if they had no batches."""


class _Partition(msgspec.Struct, omit_defaults=True):
    """What is remembered of a partition from window to window."""

    usual: float | None = None
    """What it got while it was not slow, as a multiple of its fair share; smoothed."""
    runaway: bool = False
    against: int = 0
    """Consecutive windows that contradict `runaway`."""
    since_us: int = 0
    """Start of the first of those."""


class TopicWatch(msgspec.Struct, omit_defaults=True):
    """The detector's state for one topic: all that windows to come depend on. A Struct, so that it can be stored."""

    partitions: dict[int, _Partition] = {}
    count: int = 0
    """Number of partitions: the highest index seen, plus one."""
    last_us: int = 0
    """Start of the last window that counted; 0 if there was none."""

    def window(self, start_us: int, portions: Sequence[Portion], thresholds: Thresholds) -> list[Change]:
        """The changes that the window starting at `start_us` brings. Windows must come in order."""
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
        """When the topic will be forgotten unless another window comes, in microseconds since 1970."""
        return self.last_us + thresholds.quiet_us

    def quiet(self) -> list[Change]:
        """Forget the topic; a QUIET change for each of its runaways."""
        last = self.last_us
        changes = [
            Change(
                partition=number,
                event=Event.QUIET,
                since_us=last,
                window_us=last,
                share=0.0,
                times_fair=0.0,
                wait_us=0.0,
                others_wait_us=0.0,
            )
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
        slow = bool(others_wait) and wait >= thresholds.wait * max(others_wait, MIN_WAIT_US)
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
        return Change(
            partition=number,
            event=event,
            since_us=partition.since_us,
            window_us=start_us,
            share=share,
            times_fair=times_fair,
            wait_us=wait,
            others_wait_us=others_wait,
        )


class _Waits:
    """Average waits of partitions, and what is usual among the others: their median, the lower one of two.

    Of 40, 2 and 3 ms: the others of the first have 2; those of the second 3, those of the third 2. A mean would not do:
    a second slow partition would hide the first.
    """

    def __init__(self, portions: Sequence[Portion]) -> None:
        self._sorted = sorted(self.of(portion) for portion in portions if portion.batches)

    @staticmethod
    def of(portion: Portion) -> float:
        """In microseconds; 0 without batches."""
        return portion.wait_us / portion.batches if portion.batches else 0.0

    def of_others(self, portion: Portion) -> float:
        """In microseconds; 0 if no other partition had batches."""
        waits = self._sorted
        others = len(waits) - bool(portion.batches)
        if not others:
            return 0.0
        middle = (others - 1) // 2
        if portion.batches and bisect_left(waits, self.of(portion)) <= middle:
            middle += 1
        return waits[middle]
