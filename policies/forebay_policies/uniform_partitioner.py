"""Turns: one partition for `partitioner.sticky.batch.size` bytes, then the next, drawn at random.

Partitions without a usable leader are left out; while none has one, all of them may be chosen, and records wait for
whichever leader comes back. A sticky partition that loses its leader is left at once.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence

from forebay_policies.partitioner import BasePartitioner, Rng, TopicView


def position_of(available: Sequence[int], partition: int) -> int:
    """The index of `partition` in `available`, which is ascending; -1 if it is not there."""
    # Usually every partition has a leader, so that partition n is at n.
    if partition < len(available) and available[partition] == partition:
        return partition
    position = bisect_left(available, partition)
    return position if position < len(available) and available[position] == partition else -1


def any_partition(topic: TopicView, rng: Rng) -> int:
    """A random available partition; any partition of the topic if none is available."""
    available = topic.available
    return available[rng.randrange(len(available))] if available else rng.randrange(topic.partition_count)


class StickyState(BasePartitioner):
    """The state of a sticky choice: the current partition, kept only while it may be used."""

    __slots__ = ("_current", "_rng", "_seen")

    def __init__(self, rng: Rng) -> None:
        super().__init__()
        self._rng = rng
        self._current = -1
        # The `available` in which the current partition was last found: no search while it is the same object.
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


class UniformPartitioner(StickyState):
    """KIP-794: a partition's turn ends after `sticky_batch_size` bytes, whatever happens to its batches.

    With 16 KB: after 16 KB to partition 1 it switches to 42, after 16 KB to 42 it switches to 3. Runs of records are
    not cut, so a turn may take up to one run more. By chance the next partition may be the same one.

    A turn that is over while a batch lingers goes on until that batch is ready, or for as many bytes again
    (KAFKA-14156): otherwise the rest of each turn, a few records, would wait out the linger and delay their clients'
    responses.
    """

    __slots__ = ("_left", "_turn")

    def __init__(self, rng: Rng, sticky_batch_size: int) -> None:
        super().__init__(rng)
        self._turn = sticky_batch_size
        self._left = 0

    def partition(self, topic: TopicView, size: int, now: float) -> int:
        """The partition of the current turn, or of a new one."""
        stays = self._left > 0 or (self._left > -self._turn and topic.lingers(self._current))
        if stays and (topic.available is self._seen or self._may_stay(topic)):
            self.sticky_hits += 1
        else:
            self._left = self._turn
            self._switch_to(self._next(topic, now), topic)
        self._left -= size
        return self._current

    def _next(self, topic: TopicView, now: float) -> int:
        """The partition of the next turn. May reduce `_left`, the turn's bytes; −turn ends it after one run."""
        return any_partition(topic, self._rng)


def shut(topic: TopicView, loads: Mapping[int, int], availability_timeout_s: float, now: float) -> set[int]:
    """Available partitions whose ready batch has waited longer than the timeout for its broker; none if all have."""
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
