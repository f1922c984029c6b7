"""Which clients look as if they pick partitions themselves, by where their records without a key go.

In: a client's batches that hold such records, by topic, partition and size, and the time. Out: of how many partitions
it has used few or many, and whether chance explains that. A guess from outside: on the wire, a partition that an
application picked looks the same as one that a partitioner did.

A partitioner stays on a partition for a while, and what comes meanwhile is one choice: KIP-794's for batch.size bytes,
16 KB, or twice that; librdkafka's for 10 ms; that of Kafka 0.8's producer for ten minutes. So a *turn* lasts TURN_S
(OLD_TURN_S for message sets) and TURN_BYTES at least, and only one choice is counted in each.

If partitions were chosen at random, n turns would have kept to d of p partitions with a probability of C(p, d) · (d/p)ⁿ
at most:

    p    d   turns
    12   2   10      66 · (2/12)^10 = 1.1e-6     not yet
    12   2   11      66 · (2/12)^11 = 1.8e-7     below CHANCE: it looks as if it picks them
    3    1   14       3 ·  (1/3)^14 = 6.3e-7     likewise
    12   7   …       more than half of them: nobody says that these are few

Partitioners that avoid slow brokers, or partitions without a leader, leave out some, but not half of all.
"""

from __future__ import annotations

from math import comb
from typing import Final

import msgspec

# By default, software that chooses partitions for null-key records itself is left alone. These have ids of their own:
#   Kafka Connect's source tasks, and so MirrorMaker 2's MirrorSourceConnector: connector-producer-<connector>-<task>;
#   Kafka Streams: <application.id>-<uuid>-StreamThread-<n>-producer;
#   MirrorMaker 2's own producer of offset syncs: <source>-><target>|<task>|offset-syncs-source-producer (or -target-).
# MirrorMaker 1 has none (it is producer-1 unless its producer.config says otherwise) and chooses a partition only
# through a message handler; the last two patterns catch the ids that people give it.
CHOOSE_PARTITIONS_THEMSELVES: Final = (
    "connector-producer-*",
    "*-StreamThread-*",
    "*|offset-syncs-*-producer",
    "*[Mm]irror[Mm]aker*",
    "*[Mm]irror-[Mm]aker*",
)

TURN_S: Final = 30.0
OLD_TURN_S: Final = 660.0
"""Kafka 0.8's producer takes another partition with each topic.metadata.refresh.interval.ms, 600,000."""
TURN_BYTES: Final = 32 * 1024
CHANCE: Final = 1e-6
"""Of a thousand clients with ten topics each, one in a hundred Forebays then names one that it should not."""

PLACES: Final = 256
"""The partitions of larger topics are told apart by as many groups of neighbours: partition 500 of 1,000 is in 128."""
MAX_TOPICS: Final = 16
"""Of one client; the first ones count."""


class TopicChoices(msgspec.Struct, array_like=True):
    """Where one client's records without a key have gone in a topic of so many `partitions`.

    `places`: those that were used, while they are few; `wide`: they are not, and will not be again. `began` and `size`
    are of the present turn, and of one process: seconds of its clock, bytes.
    """

    partitions: int
    turns: int = 0
    places: list[int] = []
    wide: bool = False
    began: float = 0.0
    size: int = 0

    def noted(self, partition: int, size: int, now: float, *, old: bool) -> None:
        """A batch with `size` bytes of such records; `old`: a message set."""
        if self.wide:
            return
        self._uses(partition * self._of // self.partitions)
        self.size += size
        if self.size >= TURN_BYTES and now - self.began >= (OLD_TURN_S if old else TURN_S):
            self.turns += 1
            self.began, self.size = now, 0

    @property
    def _of(self) -> int:
        return min(self.partitions, PLACES)

    def _uses(self, place: int) -> None:
        if place not in self.places:
            self.places.append(place)
            if 2 * len(self.places) > self._of:
                self.wide = True
                self.places.clear()

    @property
    def picked(self) -> bool:
        """It looks as if the client picks partitions itself."""
        few, of = len(self.places), self._of
        return not self.wide and few > 0 and comb(of, few) * (few / of) ** self.turns < CHANCE

    def add(self, other: TopicChoices) -> None:
        """What another process has seen of the same client: its connections may be spread over several."""
        if self.partitions != other.partitions:
            return
        self.turns += other.turns
        if other.wide:
            self.wide = True
            self.places.clear()
        for place in other.places:
            if not self.wide:
                self._uses(place)

    def copy(self) -> TopicChoices:
        """The same, to be added to."""
        return msgspec.structs.replace(self, places=list(self.places))


Choices = dict[str, TopicChoices]
"""One client's, by topic; MAX_TOPICS at most."""


def note(choices: Choices, topic: str, partitions: int, partition: int, size: int, now: float, *, old: bool) -> None:
    """A batch of the client whose `choices` these are holds `size` bytes of records without a key.

    The topic has several `partitions`; where it has got more, all begins anew.
    """
    known = choices.get(topic)
    if not 0 <= partition < partitions or (known is None and len(choices) >= MAX_TOPICS):
        return
    if known is None or known.partitions != partitions:
        known = choices[topic] = TopicChoices(partitions, places=[], began=now)
    known.noted(partition, size, now, old=old)


def add_all(choices: Choices, others: Choices) -> None:
    """What another process has seen of the same client."""
    for topic, other in others.items():
        if topic in choices:
            choices[topic].add(other)
        elif len(choices) < MAX_TOPICS:
            choices[topic] = other.copy()


def picked(choices: Choices) -> list[str]:
    """Topics whose partitions the client seems to pick itself, in alphabetical order."""
    return sorted(topic for topic, each in choices.items() if each.picked)
