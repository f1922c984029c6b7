"""A topic as brokers describe it, and what follows from that alone: sections of responses, leaders, who can be reached.

In: topics of Metadata responses. Out: DescribedTopic, one for all equal descriptions where several caches share a
DescribedTopics. What identities see of a topic is mostly the same; only whether they see it is each one's own.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

from forebay_codecs.metadata import Topic, printable_id
from forebay_codecs.metadata_response import LAYOUTS, encode_topic
from forebay_codecs.one_broker import NODE_ID, of_topic
from forebay_policies.accumulator import NO_LEADER

MAX_PARTITIONS: Final = 200_000
"""Of one topic; a whole cluster has fewer. Its leaders stand in a tuple as long as the highest number says."""
NO_IDS: Final[frozenset[int]] = frozenset()


class Placement(NamedTuple):
    """By partition the node ids of its leader, NO_LEADER where there is none, and of its replicas; all leaders."""

    leaders: tuple[int, ...]
    replicas: tuple[tuple[int, ...], ...]
    nodes: frozenset[int]


NOWHERE: Final = Placement((), (), NO_IDS)


class Available(NamedTuple):
    """Partitions whose leader can be reached, ascending; the same by their leader's rack, "" where it is not known."""

    partitions: Sequence[int]
    racks: Mapping[str, Sequence[int]]


def available(leaders: Sequence[int], up: AbstractSet[tuple[int, str]]) -> Available:
    """Of partitions with these `leaders`. `up`: node id and rack of each leader that can be reached."""
    racks = dict(up)
    found = [index for index, leader in enumerate(leaders) if leader in racks]
    if not found:
        return Available((), {})
    if not any(racks.values()):
        return Available(found, {"": found})
    by_rack: dict[str, list[int]] = {}
    for index in found:
        by_rack.setdefault(racks[leaders[index]], []).append(index)
    return Available(found, by_rack)


class DescribedTopic:
    """Immutable; caches what it derives from the description."""

    __slots__ = ("_available", "_ids", "_placement", "_sections", "_up", "printable_id", "sound", "topic")

    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        self.printable_id = printable_id(topic.topic_id)
        self.sound = not topic.error_code and all(partition.leader_id >= 0 for partition in topic.partitions)
        """There is no error, and each partition has a leader."""
        self._sections: dict[int, bytes] = {}
        self._ids: frozenset[int] = NO_IDS
        """For which brokers the section of v0 was encoded."""
        self._placement: Placement | None = None
        self._up: AbstractSet[tuple[int, str]] = frozenset()
        self._available: Available | None = None

    def section(self, version: int, ids: frozenset[int], *, one_broker: bool = False) -> bytes:
        """The topic's section in a response of `version`, encoded once per layout; `one_broker` stands for all.

        `ids`: all brokers', on which v0 depends.
        """
        layout = LAYOUTS[version]
        if one_broker:
            return self._on_one_broker(version, ~layout)
        section = self._sections.get(layout)
        if section is None or (layout == 0 and self._ids != ids):
            section = self._sections[layout] = encode_topic(self.topic, version, ids)
            if layout == 0:
                self._ids = ids
        return section

    def _on_one_broker(self, version: int, layout: int) -> bytes:
        section = self._sections.get(layout)
        if section is None:
            section = self._sections[layout] = encode_topic(of_topic(self.topic), version, (NODE_ID,))
        return section

    @property
    def placement(self) -> Placement:
        """NOWHERE for a topic without partitions; those of impossible numbers are left out."""
        if self._placement is None:
            self._placement = self._place()
        return self._placement

    def _place(self) -> Placement:
        partitions = [found for found in self.topic.partitions if 0 <= found.partition_index < MAX_PARTITIONS]
        if not partitions:
            return NOWHERE
        count = 1 + max([partition.partition_index for partition in partitions])
        leaders = [NO_LEADER] * count
        replicas: list[tuple[int, ...]] = [()] * count
        for partition in partitions:
            leaders[partition.partition_index] = partition.leader_id
            replicas[partition.partition_index] = partition.replicas
        return Placement(tuple(leaders), tuple(replicas), frozenset(leaders))

    def available(self, up: AbstractSet[tuple[int, str]]) -> Available:
        """The partitions whose leader is `up`; the same object while that is the same."""
        if self._available is None or self._up != up:
            self._up = up
            self._available = available(self.placement.leaders, up)
        return self._available


class DescribedTopics:
    """Has one description for equal topics, of the `most` that were described last; with 0 each has its own."""

    def __init__(self, most: int = 0) -> None:
        self._most = most
        self._known: OrderedDict[Topic, DescribedTopic] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def of(self, topic: Topic) -> DescribedTopic:
        """`topic`, or one that is equal to it."""
        if not self._most:
            return DescribedTopic(topic)
        known = self._known.get(topic)
        if known is None:
            known = self._known[topic] = DescribedTopic(topic)
            if len(self._known) > self._most:
                self._known.popitem(last=False)
        else:
            self._known.move_to_end(topic)
        return known

    def clear(self) -> None:
        """Nobody shares anything any more; whoever has a description keeps it."""
        self._known.clear()
