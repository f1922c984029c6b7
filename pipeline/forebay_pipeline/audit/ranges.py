"""Which offsets an audit has to read: arithmetic over partitions, on the driver.

In: what the ledger claims of each partition, what the partition has now, how far earlier audits came. Out: a Range for
each partition.

    the ledger claims        100 … 499
    audited before           up to 80, so the offsets in between are read as well
    the topic has             90 … 449
    read                      90 … 449       80 … 89 have expired, 450 … 499 are missing

Nothing after the last claimed offset is read: later records are in journal files that are not closed yet. Except in
compacted topics, where a later record of the same key is why an earlier one is gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple


class Ends(NamedTuple):
    """[earliest, latest): the offsets that a partition has now."""

    earliest: int
    latest: int


class TopicNow(NamedTuple):
    """What the brokers say of a topic now."""

    ends: Mapping[int, Ends]
    """By partition."""
    compacted: bool = False
    """Its cleanup.policy includes `compact`."""
    topic_id: str = ""
    """As in the ledger; empty if the brokers have none."""


class Claimed(NamedTuple):
    """[first, end): all offsets of a partition that the ledger claims are within it."""

    topic: str
    partition: int
    first: int
    end: int
    late: int | None = None
    """The first of those offsets that rows claim which are too late for what earlier audits have seen."""


class Range(NamedTuple):
    """[first, end) of a partition is to be read. `place` stands for topic and partition in joins, being shorter."""

    place: int
    topic: str
    partition: int
    earliest: int
    latest: int
    first: int
    end: int
    settled: int
    """Earlier audits have reported unclaimed records below this offset."""
    compacted: bool
    gone: bool
    """The topic no longer exists."""
    topic_id: str = ""
    keys_end: int = -1
    """Of a compacted topic, the end of the log: what follows `end` is read for its keys alone."""

    @property
    def last_end(self) -> int:
        """Before this offset all is read."""
        return max(self.end, self.keys_end)


RANGE_COLUMNS: Final = (
    "place int, topic string, partition bigint, earliest bigint, latest bigint, read_first bigint, read_end bigint, "
    "settled bigint, compacted boolean, gone boolean, topic_id_now string, "
    "keys_end bigint"
)

Audited = Mapping[str, Mapping[int, int]]
"""Topic → partition → the offset up to which it was audited."""


def ranges(claimed: Iterable[Claimed], topics: Mapping[str, TopicNow], audited: Audited) -> list[Range]:
    """A Range for each claimed partition, by topic and partition. `topics` are those that exist."""
    return [
        _range(place, claim, topics.get(claim.topic), audited.get(claim.topic, {}).get(claim.partition))
        for place, claim in enumerate(sorted(claimed))
    ]


def _range(place: int, claimed: Claimed, topic: TopicNow | None, audited: int | None) -> Range:
    # A partition that does not exist has lost everything.
    ends = topic.ends.get(claimed.partition, Ends(0, 0)) if topic is not None else Ends(0, 0)
    lowest = claimed.first if audited is None else min(claimed.first, audited)
    first = max(lowest, ends.earliest)
    return Range(
        place=place,
        topic=claimed.topic,
        partition=claimed.partition,
        earliest=ends.earliest,
        latest=ends.latest,
        first=first,
        end=max(first, min(claimed.end, ends.latest)),
        settled=lowest if audited is None else audited,
        compacted=topic is not None and topic.compacted,
        gone=topic is None,
        topic_id=topic.topic_id if topic is not None else "",
        keys_end=ends.latest if topic is not None and topic.compacted else -1,
    )


def begun_anew(audited: Audited, ids: Mapping[str, str], topics: Mapping[str, TopicNow]) -> dict[str, str]:
    """Topic → a sentence, for topics that have another id than when they were audited (`ids`, as far as that is known),
    or now end before the offset up to which they were."""
    sentences = {}
    for name, offsets in audited.items():
        now, then = topics.get(name), ids.get(name, "")
        if now is None:
            continue
        if then and now.topic_id and then != now.topic_id:
            sentences[name] = f"{name} was deleted and created again, so it is audited from the start."
            continue
        for partition, offset in sorted(offsets.items()):
            latest = now.ends.get(partition, Ends(0, 0)).latest
            if latest < offset:
                sentences[name] = _audited_once(name, partition, offset, f"which now ends at {latest}")
                break
    return sentences


def written_again(audited: Audited, claimed: Iterable[Claimed]) -> dict[str, str]:
    """Topic → a sentence, for topics of which late rows claim offsets that were audited: others were there then."""
    sentences: dict[str, str] = {}
    for each in sorted(claimed):
        offset = audited.get(each.topic, {}).get(each.partition, 0)
        if each.late is not None and each.late < offset:
            since = f"and offset {each.late} of it was acknowledged since"
            sentences.setdefault(each.topic, _audited_once(each.topic, each.partition, offset, since))
    return sentences


def _audited_once(topic: str, partition: int, offset: int, now: str) -> str:
    return (
        f"{topic} was audited up to offset {offset} of partition {partition}, {now}: it was deleted and created again, "
        "or its log was truncated, so it is audited from the start."
    )


def expired_meanwhile(before: Iterable[Range], topics: Mapping[str, TopicNow]) -> bool:
    """Whether retention has deleted records of the ranges since."""
    return any(
        each.earliest < topics[each.topic].ends.get(each.partition, Ends(0, 0)).earliest
        for each in before
        if each.topic in topics
    )


def grown(read: Iterable[Range], topics: Mapping[str, TopicNow]) -> list[Range]:
    """Of compacted topics, what was appended since the ranges were told: to be read for its keys alone."""
    found = []
    for each in read:
        latest = topics[each.topic].ends.get(each.partition, Ends(0, 0)).latest if each.topic in topics else 0
        if each.compacted and latest > each.last_end:
            found.append(each._replace(first=each.last_end, end=each.last_end, keys_end=latest))
    return found


def without_expired(read: Iterable[Range], topics: Mapping[str, TopicNow]) -> list[Range]:
    """The ranges without what retention has deleted since they were read."""
    return [_without_expired(each, topics.get(each.topic)) for each in read]


def _without_expired(read: Range, topic: TopicNow | None) -> Range:
    ends = topic.ends.get(read.partition) if topic is not None else None
    earliest = max(read.earliest, ends.earliest) if ends is not None else read.earliest
    first = max(read.first, earliest)
    return read._replace(earliest=earliest, first=first, end=max(first, read.end))
