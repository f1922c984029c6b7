"""The contract between the accumulator and whatever chooses a partition for records without a key.

In: a TopicView (the current state of one topic), the bytes to place, the time. Out: a partition, or NO_OPINION, which
leaves the choice to the default (KIP-794). A partitioner does no I/O and has no clock or randomness of its own.
One instance serves one topic and is called once per run of null-key records of a client batch, which stay together.

How the accumulator places a run:

    partition = partitioner.partition(topic, size, now)
    if a new batch must be opened for it, and partitioner.on_new_batch(topic, partition):
        partition = partitioner.partition(topic, size, now)   # once more; this is final

The partitioners that come with Forebay are in builtin_partitioners.py; docs/partitioners.md shows how to add one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from mypy_extensions import mypyc_attr

NO_OPINION: Final = -1
"""Returned by a partitioner to leave the choice to the default."""


class Rng(Protocol):
    """The part of random.Random that partitioners use; a Protocol, so that they cannot reach the global generator."""

    def randrange(self, stop: int, /) -> int:
        """A random number from 0 to stop − 1."""


class TopicView(Protocol):
    """What a partitioner may know about its topic. Sizes in bytes, times in seconds on the clock of `now`."""

    @property
    def name(self) -> str:
        """The topic's name."""

    @property
    def partition_count(self) -> int:
        """At least 1."""

    @property
    def available(self) -> Sequence[int]:
        """The partitions whose leader is a usable broker, ascending.

        Never modified in place: the same object means that nothing has changed, which spares the sticky path a search.
        """

    @property
    def racks(self) -> Mapping[str, Sequence[int]]:
        """Rack → those of `available` whose leader is there, ascending; under "" those of which it is not known.

        A rack without any is not listed. As with `available`, the same objects mean that nothing has changed.
        """

    def loads(self) -> Mapping[int, int]:
        """Partition → bytes queued and in flight, where there are any. To be read, not kept."""

    def ready_since(self, partition: int) -> float | None:
        """Since when the partition's oldest ready batch has waited for its broker to take it; None: there is none.

        Such a batch counts in `loads`, so only partitions listed there need be asked about.
        """

    def lingers(self, partition: int) -> bool:
        """Whether the partition has a batch that is neither full nor due yet, which more records would join."""


class Partitioner(Protocol):
    """Chooses partitions for one topic; may keep state between calls. BasePartitioner has default hooks."""

    def partition(self, topic: TopicView, size: int, now: float) -> int:
        """The partition for `size` bytes of records without a key, or NO_OPINION. They are taken to go there."""

    def on_new_batch(self, topic: TopicView, partition: int) -> bool:
        """Called right before a new batch is opened for `partition`, for records with or without a key (KIP-480).

        True: the choice has changed. Records without a key are then placed by asking `partition` once more, and the
        batch that this may open is not announced again. Records with a key stay where they are.
        """

    def on_acknowledged(self, partition: int, seconds: float) -> None:
        """A batch for `partition` was acknowledged, at the first try, `seconds` after its first record was appended.

        Not told of one whose client was throttled by the broker meanwhile."""

    def choices(self) -> Mapping[str, int]:
        """How often each kind of choice was made, for metrics. Kinds must be few and fixed."""


OnSwitch = Callable[[TopicView, int], None]
"""Called with each new choice, before any records go there."""


class TellingPartitioner(Partitioner, Protocol):
    """A partitioner that reports its new choices: every built-in one, and with_default.WithDefault."""

    on_switch: OnSwitch | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionerOptions:
    """What a partitioner is made from. New options become fields here, so that factories keep their signature.

    Sizes in bytes, the timeout in seconds (0: off), the share from 0 to 1. All but `rng` are the `partitioner.*` and
    `batch.size` settings of those names.
    """

    rng: Rng
    batch_size: int
    sticky_batch_size: int = 0
    adaptive_enabled: bool = True
    availability_timeout_s: float = 0.0
    min_share: float = 0.005


PartitionerFactory = Callable[[PartitionerOptions], Partitioner]
"""Makes the partitioner of one topic."""


@mypyc_attr(allow_interpreted_subclasses=True)
class BasePartitioner:
    """Default hooks, which do nothing, and the two counters that every built-in partitioner keeps."""

    __slots__ = ("on_switch", "sticky_hits", "switches")

    def __init__(self) -> None:
        self.on_switch: OnSwitch | None = None
        self.sticky_hits = 0
        """Choices that stayed with the previous partition."""
        self.switches = 0
        """New choices, the first one included."""

    def on_new_batch(self, topic: TopicView, partition: int) -> bool:
        """Keeps the choice."""
        return False

    def on_acknowledged(self, partition: int, seconds: float) -> None:
        """Ignores it."""

    def choices(self) -> Mapping[str, int]:
        """`sticky_hits` and `switches`."""
        return {"sticky": self.sticky_hits, "switch": self.switches}
