"""The partitioners that come with Forebay, each for the records without a key of one topic.

uniform        KIP-794 without load: a random partition, until it has received `partitioner.sticky.batch.size` bytes.
adaptive       KIP-794: the same, but the random choice favours partitions with short queues.
expected_wait  the same, but it favours partitions whose records are acknowledged soon.
sticky         KIP-480: a random partition, until a new batch is opened for it. Favours slow brokers.
round_robin    the next available partition for every run of records.

uniform is in uniform_partitioner.py, expected_wait in expected_wait.py, the others are here.

Partitions without a usable leader are left out; while none has one, all of them may be chosen, and records wait for
whichever leader comes back. A sticky partition that loses its leader is left at once.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Final

from forebay_policies.expected_wait import ABANDONED_S, ExpectedWaitPartitioner
from forebay_policies.partitioner import (
    BasePartitioner,
    Partitioner,
    PartitionerFactory,
    PartitionerOptions,
    Rng,
    TopicView,
)
from forebay_policies.uniform_partitioner import StickyState, UniformPartitioner, any_partition, position_of, shut

MANY_QUEUES: Final = 16
"""Beyond so many a choice is drawn without laying out all weights, which takes 0.13 ms for a thousand, compiled."""
DRAWS: Final = 16
"""Before they are laid out after all. Each finds a partition as often as the average one weighs of what an empty one
does: rarely only where nearly all queues are about as long, and long."""


class AdaptivePartitioner(UniformPartitioner):
    """KIP-794: the longer a partition's queue, the less likely its turn.

    Queues count in batches of `batch_size` bytes, rounded up, because an expandable batch hides how much it holds.
    A partition is as likely as its queue inverted, max + 1 - queue:

        queues      0  3  1
        weights     4  1  3
        cumulative  4  5  8     a number drawn from 0..7: below 4 partition 0, 4 partition 1, 5 to 7 partition 2

    Equal queues give equal weights: uniform. With an availability timeout, a partition whose ready batch has waited
    longer weighs nothing until its broker takes a batch, unless that is true of all partitions.
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
        closed = shut(topic, loads, self._availability_timeout_s, now)
        if len(loads) > MANY_QUEUES and (partition := self._found(topic, loads, closed)) >= 0:
            return partition
        # Only loaded partitions are listed; all others weigh `full`.
        queues = self._queues(available, loads)
        full = 1
        for position, queue in queues:
            if queue >= full and available[position] not in closed:
                full = queue + 1
        total = full * len(available)
        weights = []
        for position, queue in queues:
            weight = 0 if available[position] in closed else full - queue
            weights.append((position, weight))
            total += weight - full
        return available[_drawn(self._rng.randrange(total), full, weights)]

    def _found(self, topic: TopicView, loads: Mapping[int, int], closed: set[int]) -> int:
        """A partition with the odds that its weight gives it; -1: none was found in DRAWS draws.

        Numbers are drawn as if each partition weighed `full`. One that falls on what a queue takes from that counts for
        nothing.
        """
        available, size = topic.available, self._batch_size
        if closed or len(available) < topic.partition_count:
            counted = (load for it, load in loads.items() if it not in closed and position_of(available, it) >= 0)
            longest = max(counted, default=0)
        else:
            longest = max(loads.values())
        full = 1 - -longest // size
        for _ in range(DRAWS):
            number = self._rng.randrange(full * len(available))
            partition = available[number // full]
            if partition not in closed and number % full < full - -(-loads.get(partition, 0) // size):
                return partition
        return -1

    def _queues(self, available: Sequence[int], loads: Mapping[int, int]) -> list[tuple[int, int]]:
        """(position in `available`, queue length) of each loaded partition that is available, ascending."""
        size = self._batch_size
        queues = []
        for partition, load in sorted(loads.items()):
            position = position_of(available, partition)
            if position >= 0:
                queues.append((position, -(-load // size)))
        return queues


def _drawn(number: int, full: int, weights: list[tuple[int, int]]) -> int:
    """The position on which `number` falls when all weights are laid end to end; those not listed weigh `full`."""
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


class StickyPartitioner(StickyState):
    """KIP-480: stays until a new batch is opened for its partition, then takes a random other one.

    Slow brokers keep batches open for longer, so they get more records. Here for comparison, and for those who want it.
    """

    __slots__ = ()

    def partition(self, topic: TopicView, size: int, now: float) -> int:
        """The current partition; another one only if its leader was lost."""
        if self._may_stay(topic):
            self.sticky_hits += 1
        else:
            self._switch_to(any_partition(topic, self._rng), topic)
        return self._current

    def on_new_batch(self, topic: TopicView, partition: int) -> bool:
        """Switch if the batch is for the current partition. True: the choice has changed."""
        # A batch elsewhere (records with a key, or of an earlier turn) is no reason to switch.
        if partition != self._current:
            return False
        available = topic.available
        here = position_of(available, partition)
        if here < 0:
            following = any_partition(topic, self._rng)
        elif len(available) == 1:
            return False
        else:
            other = self._rng.randrange(len(available) - 1)
            following = available[other + (other >= here)]
        self._switch_to(following, topic)
        return following != partition


class RoundRobinPartitioner(BasePartitioner):
    """Each choice is the next available partition by number; the first one is random.

    Otherwise every worker would begin with the same partition of every topic, and again after every restart.
    """

    __slots__ = ("_last", "_rng")

    def __init__(self, rng: Rng) -> None:
        super().__init__()
        self._rng = rng
        self._last = -1

    def partition(self, topic: TopicView, size: int, now: float) -> int:
        """The next available partition."""
        available = topic.available
        self.switches += 1
        if self._last < 0:
            self._last = any_partition(topic, self._rng)
        elif available:
            self._last = available[bisect_right(available, self._last) % len(available)]
        else:
            self._last = (self._last + 1) % topic.partition_count
        if self.on_switch is not None:
            self.on_switch(topic, self._last)
        return self._last


def _uniform(options: PartitionerOptions) -> Partitioner:
    return UniformPartitioner(options.rng, options.sticky_batch_size or options.batch_size)


def _adaptive(options: PartitionerOptions) -> Partitioner:
    if not options.adaptive_enabled:
        return _uniform(options)
    turn = options.sticky_batch_size or options.batch_size
    return AdaptivePartitioner(options.rng, turn, options.batch_size, options.availability_timeout_s)


def _expected_wait(options: PartitionerOptions) -> Partitioner:
    turn = options.sticky_batch_size or options.batch_size
    return ExpectedWaitPartitioner(
        options.rng, turn, options.batch_size, options.availability_timeout_s, options.min_share
    )


BUILT_IN: Final[Mapping[str, PartitionerFactory]] = {
    "adaptive": _adaptive,
    "expected_wait": _expected_wait,
    "uniform": _uniform,
    "sticky": lambda options: StickyPartitioner(options.rng),
    "round_robin": lambda options: RoundRobinPartitioner(options.rng),
}
"""By the name that `partitioner` takes in the configuration."""


def patience_s(name: str, options: PartitionerOptions) -> float:
    """How long a ready batch may wait for its broker before that partitioner leaves the partition; 0: as long as it
    likes, since it does not look."""
    if name == "expected_wait":
        return options.availability_timeout_s or ABANDONED_S
    return options.availability_timeout_s if name == "adaptive" and options.adaptive_enabled else 0.0


def make_partitioner(
    name: str,
    *,
    rng: Rng,
    batch_size: int,
    sticky_batch_size: int = 0,
    adaptive_enabled: bool = True,
    availability_timeout_s: float = 0.0,
    min_share: float = 0.005,
) -> Partitioner:
    """One topic's partitioner, from BUILT_IN by name; options as in PartitionerOptions. ValueError for other names."""
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
            min_share=min_share,
        )
    )
