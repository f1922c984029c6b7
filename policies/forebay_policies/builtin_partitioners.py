"""The partitioners that come with Forebay, each for the records without a key of one topic.

uniform      KIP-794 without load: a random partition, until `partitioner.sticky.batch.size` bytes went to it.
adaptive     KIP-794: the same, but the random choice favours partitions with short queues.
sticky       KIP-480: a random partition, until a new batch is opened for it. Favours slow brokers.
round_robin  the next available partition for every run of records.

Partitions without a usable leader are left out; while no partition has one, all of them may be chosen, and the
records wait for whichever leader comes back. A sticky partition that loses its leader is left at once.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from typing import Final

from forebay_policies.partitioner import (
    BasePartitioner,
    Partitioner,
    PartitionerFactory,
    PartitionerOptions,
    Rng,
    TopicView,
)


def _position(available: Sequence[int], partition: int) -> int:
    """Where `partition` stands in `available`, or -1."""
    # With a leader for every partition, which is how it mostly is, partition n stands at n.
    if partition < len(available) and available[partition] == partition:
        return partition
    position = bisect_left(available, partition)
    return position if position < len(available) and available[position] == partition else -1


def _any_partition(topic: TopicView, rng: Rng) -> int:
    available = topic.available
    return available[rng.randrange(len(available))] if available else rng.randrange(topic.partition_count)


class _Stuck(BasePartitioner):
    """A current partition, and whether it may still be used."""

    __slots__ = ("_current", "_rng", "_seen")

    def __init__(self, rng: Rng) -> None:
        super().__init__()
        self._rng = rng
        self._current = -1
        # The `available` in which the current partition was last found: while it is the same object, no search.
        self._seen: Sequence[int] | None = None

    def _may_stay(self, topic: TopicView) -> bool:
        available = topic.available
        if available is self._seen:
            return True
        if not available:
            return 0 <= self._current < topic.partition_count
        if _position(available, self._current) < 0:
            return False
        self._seen = available
        return True

    def _switch_to(self, partition: int, topic: TopicView) -> None:
        self.switches += 1
        self._current = partition
        # An empty `available` proves nothing, however often it is the same object.
        self._seen = topic.available or None


class UniformPartitioner(_Stuck):
    """KIP-794: the bytes that went to a partition end its turn, whatever its batches do.

    With 16 KB: after 16 KB to partition 1 it switches to 42, after 16 KB to 42 it switches to 3. A run of
    records is not cut, so a turn takes up to one run more. The next partition may by chance be the same one.
    """

    __slots__ = ("_left", "_turn")

    def __init__(self, rng: Rng, sticky_batch_size: int) -> None:
        super().__init__(rng)
        self._turn = sticky_batch_size
        self._left = 0

    def partition(self, topic: TopicView, size: int, now: float) -> int:
        if self._left > 0 and (topic.available is self._seen or self._may_stay(topic)):
            self.sticky_hits += 1
        else:
            self._switch_to(self._next(topic, now), topic)
            self._left = self._turn
        self._left -= size
        return self._current

    def _next(self, topic: TopicView, now: float) -> int:
        return _any_partition(topic, self._rng)


class AdaptivePartitioner(UniformPartitioner):
    """KIP-794: the longer a partition's queue, the less likely its turn.

    Queues count in batches of `batch_size` bytes, rounded up, because an expandable batch hides how much it holds.
    A partition is as likely as its queue inverted, max + 1 - queue:

        queues      0  3  1
        weights     4  1  3
        cumulative  4  5  8     a number drawn from 0..7: below 4 partition 0, 4 partition 1, 5 to 7 partition 2

    Equal queues give equal weights: uniform. With an availability timeout, a partition whose ready batch has waited
    longer than that weighs nothing until its broker accepts a batch, unless that were true of all of them.
    """

    __slots__ = ("_availability_timeout_s", "_batch_size")

    def __init__(
        self,
        rng: Rng,
        sticky_batch_size: int,
        batch_size: int,
        availability_timeout_s: float,
    ) -> None:
        super().__init__(rng, sticky_batch_size)
        self._batch_size = max(1, batch_size)
        self._availability_timeout_s = availability_timeout_s

    def _next(self, topic: TopicView, now: float) -> int:
        loads = topic.loads()
        if not loads or not topic.available:
            return super()._next(topic, now)
        available = topic.available
        # Only loaded partitions are looked at; all others weigh `full`, and need no table.
        queues = self._queues(available, loads)
        shut = self._shut(topic, queues, now)
        full = 1 + max((queue for position, queue in queues if position not in shut), default=0)
        weights = [(position, 0 if position in shut else full - queue) for position, queue in queues]
        total = full * (len(available) - len(weights)) + sum(weight for _, weight in weights)
        return available[_drawn(self._rng.randrange(total), full, weights)]

    def _queues(self, available: Sequence[int], loads: Mapping[int, int]) -> list[tuple[int, int]]:
        """(position in `available`, queue length) of each loaded partition that is available, ascending."""
        size = self._batch_size
        return [
            (position, -(-load // size))
            for partition, load in sorted(loads.items())
            if (position := _position(available, partition)) >= 0
        ]

    def _shut(self, topic: TopicView, queues: list[tuple[int, int]], now: float) -> set[int]:
        """Positions of partitions whose broker has not accepted a batch for too long."""
        if self._availability_timeout_s <= 0:
            return set()
        available = topic.available
        earliest = now - self._availability_timeout_s
        shut = {
            position
            for position, _ in queues
            if (since := topic.ready_since(available[position])) is not None and since < earliest
        }
        return shut if len(shut) < len(available) else set()


def _drawn(number: int, full: int, weights: list[tuple[int, int]]) -> int:
    """The position on which `number` falls when all weights are laid out in order; those not listed weigh `full`."""
    start = 0
    for position, weight in weights:
        gap = (position - start) * full
        if number < gap:
            break
        number -= gap
        if number < weight:
            return position
        number -= weight
        start = position + 1
    return start + number // full


class StickyPartitioner(_Stuck):
    """KIP-480: stays until a new batch is opened for its partition, then takes a random other one.

    Slow brokers keep batches open for longer, so they get more: for comparison, and for those who want it.
    """

    __slots__ = ()

    def partition(self, topic: TopicView, size: int, now: float) -> int:
        if self._may_stay(topic):
            self.sticky_hits += 1
        else:
            self._switch_to(_any_partition(topic, self._rng), topic)
        return self._current

    def on_new_batch(self, topic: TopicView, partition: int) -> bool:
        # A batch elsewhere (records with a key, or of a turn before this one) is no reason to leave.
        if partition != self._current:
            return False
        available = topic.available
        here = _position(available, partition)
        if here < 0:
            following = _any_partition(topic, self._rng)
        elif len(available) == 1:
            return False
        else:
            other = self._rng.randrange(len(available) - 1)
            following = available[other + (other >= here)]
        self._switch_to(following, topic)
        return following != partition


class RoundRobinPartitioner(BasePartitioner):
    """The available partition after the last one chosen, by number; the first choice is random.

    Random, because every worker and every restart would otherwise begin with the same partition of every topic.
    """

    __slots__ = ("_last", "_rng")

    def __init__(self, rng: Rng) -> None:
        super().__init__()
        self._rng = rng
        self._last = -1

    def partition(self, topic: TopicView, size: int, now: float) -> int:
        available = topic.available
        self.switches += 1
        if self._last < 0:
            self._last = _any_partition(topic, self._rng)
        elif available:
            self._last = available[bisect_right(available, self._last) % len(available)]
        else:
            self._last = (self._last + 1) % topic.partition_count
        return self._last


def _uniform(options: PartitionerOptions) -> Partitioner:
    return UniformPartitioner(options.rng, options.sticky_batch_size or options.batch_size)


def _adaptive(options: PartitionerOptions) -> Partitioner:
    if not options.adaptive_enabled:
        return _uniform(options)
    turn = options.sticky_batch_size or options.batch_size
    return AdaptivePartitioner(options.rng, turn, options.batch_size, options.availability_timeout_s)


BUILT_IN: Final[Mapping[str, PartitionerFactory]] = {
    "adaptive": _adaptive,
    "uniform": _uniform,
    "sticky": lambda options: StickyPartitioner(options.rng),
    "round_robin": lambda options: RoundRobinPartitioner(options.rng),
}


def make_partitioner(
    name: str,
    *,
    rng: Rng,
    batch_size: int,
    sticky_batch_size: int = 0,
    adaptive_enabled: bool = True,
    availability_timeout_s: float = 0.0,
) -> Partitioner:
    """One topic's partitioner of that name; ValueError where none of the built-in ones has it."""
    factory = BUILT_IN.get(name)
    if factory is None:
        raise ValueError(f"unknown partitioner {name!r}; built in are {', '.join(sorted(BUILT_IN))}")
    return factory(
        PartitionerOptions(
            rng=rng,
            batch_size=batch_size,
            sticky_batch_size=sticky_batch_size,
            adaptive_enabled=adaptive_enabled,
            availability_timeout_s=availability_timeout_s,
        )
    )
