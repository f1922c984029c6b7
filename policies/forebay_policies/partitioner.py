"""The contract between the accumulator and whatever chooses a partition for records without a key.

In: a TopicView (what is known of one topic now), the bytes to place, the time. Out: a partition, or NO_OPINION, which
leaves the choice to the default (KIP-794). A partitioner does no I/O and has no clock and no randomness of its own.
One instance serves one topic and is called once per run of null-key records of one client batch, which stays together.

How the accumulator places a run:

    partition = partitioner.partition(topic, size, now)
    if a new batch must be opened for it, and partitioner.on_new_batch(topic, partition):
        partition = partitioner.partition(topic, size, now)   # once more, and there it stays

The partitioners that come with Forebay are in builtin_partitioners.py; docs/partitioners.md shows how to add one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

NO_OPINION: Final = -1
"""What a partitioner answers to leave the choice to the default."""


class Rng(Protocol):
    """The part of random.Random that is needed; a Protocol, so that policies cannot reach the global generator."""

    def randrange(self, stop: int, /) -> int: ...


class TopicView(Protocol):
    """What a partitioner may know of its topic. Sizes in bytes, times in seconds on the clock of `now`."""

    @property
    def name(self) -> str: ...

    @property
    def partition_count(self) -> int:
        """At least 1."""

    @property
    def available(self) -> Sequence[int]:
        """The partitions that have a leader with a usable broker, ascending.

        Never changed in place: while it is the same object, nothing has changed. That spares the sticky path a search.
        """

    def loads(self) -> Mapping[int, int]:
        """Bytes queued and in flight per partition, only those that are not zero. To be read, not kept."""

    def ready_since(self, partition: int) -> float | None:
        """Since when the oldest batch that could be sent waits for its broker to accept it; None: none waits.

        Such a batch counts in `loads`, so only partitions named there need to be asked about.
        """

    def lingers(self, partition: int) -> bool:
        """Whether a batch of it is neither full nor due yet: further records would join it, not add to what waits."""


class Partitioner(Protocol):
    """Chooses partitions for one topic; may keep state between calls. BasePartitioner has defaults for the hooks."""

    def partition(self, topic: TopicView, size: int, now: float) -> int:
        """Where `size` bytes of records without a key go (they are accounted as going there), or NO_OPINION."""

    def on_new_batch(self, topic: TopicView, partition: int) -> bool:
        """Called right before a new batch is opened for `partition`, for records with or without a key (KIP-480).

        True: the choice has changed. Records without a key are then placed by asking `partition` once more, and the
        batch that this may open is not announced again. Records with a key stay where they are.
        """

    def on_acknowledged(self, partition: int, seconds: float) -> None:
        """A batch for `partition` was acknowledged, at the first try, `seconds` after its first record was appended."""

    def choices(self) -> Mapping[str, int]:
        """How often each kind of choice was made, for metrics. The kinds are few and fixed."""


OnSwitch = Callable[[TopicView, int], None]
"""Told a choice that was made anew, before anything goes there."""


class TellingPartitioner(Partitioner, Protocol):
    """One that tells its new choices: all that come with Forebay, and WithDefault."""

    on_switch: OnSwitch | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionerOptions:
    """What a partitioner is made from. Later fields are added here, so a factory takes this and nothing else.

    Sizes in bytes, the timeout in seconds (0: off), the share from 0 to 1. All but `rng` are the settings of the same
    names.
    """

    rng: Rng
    batch_size: int
    sticky_batch_size: int = 0
    adaptive_enabled: bool = True
    availability_timeout_s: float = 0.0
    min_share: float = 0.005


PartitionerFactory = Callable[[PartitionerOptions], Partitioner]
"""Makes the partitioner of one topic."""


class BasePartitioner:
    """Hooks that do nothing, and the two counters that every built-in keeps."""

    __slots__ = ("on_switch", "sticky_hits", "switches")

    def __init__(self) -> None:
        self.on_switch: OnSwitch | None = None
        self.sticky_hits = 0
        """Choices that stayed with the partition of the one before."""
        self.switches = 0
        """Choices that were made anew, the first one included."""

    def on_new_batch(self, topic: TopicView, partition: int) -> bool:
        return False

    def on_acknowledged(self, partition: int, seconds: float) -> None:
        return None

    def choices(self) -> Mapping[str, int]:
        return {"sticky": self.sticky_hits, "switch": self.switches}


class WithDefault:
    """A partitioner that is always of an opinion: where the given one has none, or a wrong one, the default decides.

    Wrong is whatever is not a partition of the topic. It is reported once, by a message, and counted every time.
    """

    __slots__ = ("_default", "_defaulted", "_partitioner", "_report", "chosen", "invalid", "no_opinions", "on_switch")

    def __init__(self, partitioner: Partitioner, default: Partitioner, report: Callable[[str], None]) -> None:
        self._partitioner = partitioner
        self._default = default
        self._report = report
        self._defaulted = False
        self.chosen = 0
        self.no_opinions = 0
        self.invalid = 0
        self.on_switch: OnSwitch | None = None
        """Told every choice: which of those of others are new is not known."""

    def partition(self, topic: TopicView, size: int, now: float) -> int:
        partition = self._decided(topic, size, now)
        if self.on_switch is not None:
            self.on_switch(topic, partition)
        return partition

    def _decided(self, topic: TopicView, size: int, now: float) -> int:
        answer = self._partitioner.partition(topic, size, now)
        # The answer comes from code that others wrote: its annotation is a hope.
        if type(answer) is int and 0 <= answer < topic.partition_count:
            self.chosen += 1
            self._defaulted = False
            return answer
        if type(answer) is int and answer == NO_OPINION:
            self.no_opinions += 1
        else:
            self.invalid += 1
            if self.invalid == 1:
                allowed = f"{NO_OPINION} to {topic.partition_count - 1}"
                self._report(f"answered {answer!r:.80} for topic {topic.name!r}; allowed are {allowed}")
        self._defaulted = True
        return self._default.partition(topic, size, now)

    def on_new_batch(self, topic: TopicView, partition: int) -> bool:
        changed = self._partitioner.on_new_batch(topic, partition)
        default_changed = self._default.on_new_batch(topic, partition)
        # Both are told, but only the one that decided may have the question put again: the other would count it twice.
        return default_changed if self._defaulted else changed

    def on_acknowledged(self, partition: int, seconds: float) -> None:
        self._partitioner.on_acknowledged(partition, seconds)
        self._default.on_acknowledged(partition, seconds)

    def choices(self) -> Mapping[str, int]:
        """`sticky` and `switch` are the default's; what it was left to decide is no_opinion + invalid."""
        own = {"chosen": self.chosen, "no_opinion": self.no_opinions, "invalid": self.invalid}
        return {**self._default.choices(), **own}
