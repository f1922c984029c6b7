"""What is sent of each topic and partition: two numbers each, added to once a batch.

In: batches that are sent, or go on untouched. Out: plain attributes, which topics_seen.py reads. Topics come from
clients and could be any number, so those beyond MAX_TOPICS are counted together, and those too long for Kafka with
them; names that only untouched batches bear, which nobody has looked up, fill half of the table at most.
"""

from __future__ import annotations

from typing import Final

from forebay_policies.eligibility import LONGEST_NAME

MAX_TOPICS: Final = 1000
MAX_PARTITIONS: Final = 20_000
"""Of all topics together; what is beyond counts for its topic only."""


class TopicCounts:
    """One topic, or many together: records and bytes of batches sent by Forebay, in all and by partition, and of those
    that went on untouched."""

    __slots__ = ("bytes", "partition_bytes", "partition_records", "records", "untouched_bytes", "untouched_records")

    def __init__(self) -> None:
        self.records = 0
        self.bytes = 0
        self.untouched_records = 0
        self.untouched_bytes = 0
        self.partition_records: list[int] = []
        self.partition_bytes: list[int] = []


class TopicTable:
    """The topics of one process; never more than MAX_TOPICS and MAX_PARTITIONS."""

    def __init__(self) -> None:
        self.topics: dict[str, TopicCounts] = {}
        self.others = TopicCounts()
        """All topics that found no place."""
        self._room = MAX_PARTITIONS

    def sent(self, topic: str, partition: int, records: int, size: int) -> None:
        """A batch of `records` and `size` bytes is sent to a broker."""
        counts = self.topics.get(topic)
        if counts is None:
            counts = self._new(topic, MAX_TOPICS)
        counts.records += records
        counts.bytes += size
        if partition >= len(counts.partition_records) and not self._grow(counts, partition):
            return
        counts.partition_records[partition] += records
        counts.partition_bytes[partition] += size

    def untouched(self, topic: str, records: int, size: int) -> None:
        """A client's batch goes on as it came."""
        counts = self.topics.get(topic)
        if counts is None:
            counts = self._new(topic, MAX_TOPICS // 2)
        counts.untouched_records += records
        counts.untouched_bytes += size

    def _new(self, topic: str, most: int) -> TopicCounts:
        if len(self.topics) >= most or len(topic) > LONGEST_NAME:
            return self.others
        counts = self.topics[topic] = TopicCounts()
        return counts

    def _grow(self, counts: TopicCounts, partition: int) -> bool:
        more = partition + 1 - len(counts.partition_records)
        if counts is self.others or more > self._room:
            return False
        self._room -= more
        counts.partition_records += [0] * more
        counts.partition_bytes += [0] * more
        return True
