"""Someone else's partitioner, which may answer anything, with one of ours behind it.

In: what a partitioner is asked. Out: always a partition of the topic.
Not compiled, as compiled code would refuse an answer of another type before it could be looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from forebay_policies.partitioner import NO_OPINION, OnSwitch, Partitioner, TopicView


class WithDefault:
    """Always returns a partition: if the given partitioner has no opinion, or a wrong one, the default decides.

    Anything that is not a partition of the topic is wrong. It is counted every time, and `report`ed once, in words.
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
        """Called with every choice, since which of the given partitioner's are new is not known."""

    def partition(self, topic: TopicView, size: int, now: float) -> int:
        """The given partitioner's choice, or the default's."""
        partition = self._decided(topic, size, now)
        if self.on_switch is not None:
            self.on_switch(topic, partition)
        return partition

    def _decided(self, topic: TopicView, size: int, now: float) -> int:
        answer = self._partitioner.partition(topic, size, now)
        # The answer comes from someone else's code, so its annotation proves nothing.
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
        """Tells both; the answer is that of the one that made the last choice."""
        changed = self._partitioner.on_new_batch(topic, partition)
        default_changed = self._default.on_new_batch(topic, partition)
        # Only the one that decided may be asked again: the other would count its choice twice.
        return default_changed if self._defaulted else changed

    def on_acknowledged(self, partition: int, seconds: float) -> None:
        """Tells both."""
        self._partitioner.on_acknowledged(partition, seconds)
        self._default.on_acknowledged(partition, seconds)

    def choices(self) -> Mapping[str, int]:
        """`sticky` and `switch` are the default's, which decided no_opinion + invalid times."""
        own = {"chosen": self.chosen, "no_opinion": self.no_opinions, "invalid": self.invalid}
        return {**self._default.choices(), **own}
