"""A topic's partitioner, whose choices stand in the journal: one row for each new one, none while a turn goes on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from forebay_policies.partitioner import Partitioner, TopicView
from forebay_proxy.journal import Journal


class Deciding(Partitioner, Protocol):
    """A partitioner that counts its choices; the built-in ones and WithDefault do."""

    @property
    def decisions(self) -> int:
        """Choices made anew so far, not counting those that stayed in a turn."""


class JournaledPartitioner:
    """See the module."""

    __slots__ = ("_journal", "_partitioner", "_told")

    def __init__(self, partitioner: Deciding, journal: Journal) -> None:
        self._partitioner = partitioner
        self._journal = journal
        self._told = 0

    def partition(self, topic: TopicView, size: int, now: float) -> int:
        chosen = self._partitioner.partition(topic, size, now)
        decisions = self._partitioner.decisions
        if decisions != self._told:  # perhaps made by on_new_batch, just before
            self._told = decisions
            self._journal.choice(topic, chosen, size, now)
        return chosen

    def on_new_batch(self, topic: TopicView, partition: int) -> bool:
        return self._partitioner.on_new_batch(topic, partition)

    def on_acknowledged(self, partition: int, seconds: float) -> None:
        self._partitioner.on_acknowledged(partition, seconds)

    def choices(self) -> Mapping[str, int]:
        return self._partitioner.choices()
