"""Turns: one partition for as many bytes as `partitioner.sticky.batch.size` says, then the next, drawn at random.

Partitions without a usable leader are left out; while no partition has one, all of them may be chosen, and the
records wait for whichever leader comes back. A sticky partition that loses its leader is left at once.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence

from forebay_policies.partitioner import BasePartitioner, Rng, TopicView


def position_of(available: Sequence[int], partition: int) -> int:
    """Where `partition` stands in `available`, or -1."""
    # With a leader for every partition, which is how it mostly is, partition n stands at n.
    if partition < len(available) and available[partition] == partition:
        return partition
    position = bisect_left(available, partition)
    return position if position < len(available) and available[position] == partition else -1


def any_partition(topic: TopicView, rng: Rng) -> int:
    available = topic.available
    return available[rng.randrange(len(available))] if available else rng.randrange(topic.partition_count)


class Stuck(BasePartitioner):
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
        if position_of(available, self._current) < 0:
            return False
        self._seen = available
        return True

    def _switch_to(self, partition: int, topic: TopicView) -> None:
        self.switches += 1
        self._current = partition
        # An empty `available` proves nothing, however often it is the same object.
        self._seen = topic.available or None
        if self.on_switch is not None:
            self.on_switch(topic, partition)


class UniformPartitioner(Stuck):
    """KIP-794: the bytes that went to a partition end its turn, whatever its batches do.

    With 16 KB: after 16 KB to partition 1 it switches to 42, after 16 KB to 42 it switches to 3. A run of
    records is not cut, so a turn takes up to one run more. The next partition may by chance be the same one.

    A turn that ends while a batch lingers goes on until the batch is ready, or until as many bytes again have gone
    (KAFKA-14156): else the rest of each turn, a few records, would wait out the linger, and hold up their clients'
    answers behind them.
    """

    __slots__ = ("_left", "_turn")

    def __init__(self, rng: Rng, sticky_batch_size: int) -> None:
        super().__init__(rng)
        self._turn = sticky_batch_size
        self._left = 0

    def partition(self, topic: TopicView, size: int, now: float) -> int:
        stays = self._left > 0 or (self._left > -self._turn and topic.lingers(self._current))
        if stays and (topic.available is self._seen or self._may_stay(topic)):
            self.sticky_hits += 1
        else:
            self._left = self._turn
            self._switch_to(self._next(topic, now), topic)
        self._left -= size
        return self._current

    def _next(self, topic: TopicView, now: float) -> int:
        """The partition of the next turn; may make `_left`, the bytes of the turn, fewer: −turn is one run only."""
        return any_partition(topic, self._rng)


def shut(topic: TopicView, loads: Mapping[int, int], availability_timeout_s: float, now: float) -> set[int]:
    """Partitions whose ready batch has waited for its broker for longer than the timeout; none, where all have."""
    if availability_timeout_s <= 0:
        return set()
    earliest = now - availability_timeout_s
    found = {
        partition
        for partition in loads
        if position_of(topic.available, partition) >= 0
        and (since := topic.ready_since(partition)) is not None
        and since < earliest
    }
    return found if len(found) < len(topic.available) else set()
