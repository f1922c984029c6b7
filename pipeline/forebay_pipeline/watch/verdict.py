"""What is told of a topic's minute, and what of it is a finding: tallies against what the topic holds now.

In: tallies of processes, a TopicNow of each topic, or None if the brokers did not answer. Out: a Minute for each
cluster, topic, topic id and minute. Pure arithmetic; nothing is read from the topics.

    acknowledged    offsets 100 … 499, 400 records
    the topic has           150 … 449
    expired                 100 … 149, 50 records: retention, or somebody, deleted them before they were judged
    lost                    450 … 499, 50 records

Where others write to the partition, too, both are upper bounds: of records scattered over more offsets than there are
of them, all may be where the topic ends no more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from forebay_pipeline.audit.ranges import Ends, TopicNow
from forebay_pipeline.jobs.histogram import percentile
from forebay_pipeline.jobs.text_table import printable
from forebay_pipeline.jobs.time_text import instant
from forebay_pipeline.watch.tally import Tally


class Finding(StrEnum):
    """What is wrong with a minute."""

    LOST = "lost"
    """Records were acknowledged at offsets that the topic does not have yet, or no more."""
    DELETED = "deleted"
    """There is no such topic: all of them are gone with it."""
    MADE_AGAIN = "made_again"
    """The topic of that name is another one now, by its id; whether it has any of them is not known."""
    SLOW = "slow"
    """The 99th percentile of the latency exceeds the limit."""


class Minute(msgspec.Struct, frozen=True):
    """A topic in a minute: records, by what became of them, and latencies in milliseconds."""

    minute: str
    """When it began."""
    cluster_id: str
    topic: str
    topic_id: str
    acknowledged: int
    unacknowledged: int
    not_followed: int
    p50_ms: float | None
    """From a request's arrival to its answer, by record; None if none was acknowledged."""
    p99_ms: float | None
    lost: int | None
    """None if that was not checked: the brokers did not answer, or are of another cluster."""
    expired: int | None
    findings: list[Finding]


class Seen(NamedTuple):
    """A topic's minute: in order of time, and then by name."""

    minute_us: int
    cluster_id: str
    topic: str
    topic_id: str


def together(tallies: Iterable[tuple[str, str, str, int, Tally]]) -> dict[Seen, Tally]:
    """The tallies of all processes, added up by topic and minute, in order.

    In: (process, topic, topic_id, minute_us, tally). Tallies without a topic tell which cluster a process serves.
    """
    tallies = list(tallies)
    clusters = {process: tally.cluster_id for process, topic, _, _, tally in tallies if not topic and tally.cluster_id}
    found: dict[Seen, Tally] = {}
    for process, topic, topic_id, minute_us, tally in tallies:
        if topic:
            seen = Seen(minute_us, clusters.get(process, ""), topic, topic_id)
            found.setdefault(seen, Tally(seen.cluster_id)).add(tally)
    return dict(sorted(found.items()))


def judge(seen: Seen, tally: Tally, now: Mapping[str, TopicNow] | None, slow_ms: float | None) -> Minute:
    """`now` are the topics that exist in the minute's cluster; None if that is not known."""
    topic = None if now is None else now.get(seen.topic, _NO_TOPIC)
    p50_ms, p99_ms = (
        round(percentile(tally.latencies, share) / 1000, 3) if tally.latencies else None for share in (0.5, 0.99)
    )
    minute = Minute(
        minute=instant(seen.minute_us),
        cluster_id=seen.cluster_id,
        topic=seen.topic,
        topic_id=seen.topic_id,
        acknowledged=tally.acknowledged,
        unacknowledged=tally.unacknowledged,
        not_followed=tally.not_followed,
        p50_ms=p50_ms,
        p99_ms=p99_ms,
        lost=None if topic is None else _lost(tally, topic),
        expired=None if topic is None else _expired(tally, topic),
        findings=[],
    )
    return msgspec.structs.replace(minute, findings=list(_findings(minute, topic, slow_ms)))


_NO_TOPIC: Final = TopicNow({})
_NO_PARTITION: Final = Ends(0, 0)
"""Of one that does not exist, all is lost."""


def _lost(tally: Tally, topic: TopicNow) -> int:
    return sum(
        min(each.records, max(0, each.end - topic.ends.get(partition, _NO_PARTITION).latest))
        for partition, each in tally.offsets.items()
    )


def _expired(tally: Tally, topic: TopicNow) -> int:
    return sum(
        min(each.records, max(0, topic.ends.get(partition, _NO_PARTITION).earliest - each.first))
        for partition, each in tally.offsets.items()
    )


def _findings(minute: Minute, topic: TopicNow | None, slow_ms: float | None) -> Iterator[Finding]:
    if minute.lost:
        yield Finding.LOST
    if topic is not None and minute.acknowledged:
        if not topic.ends:
            yield Finding.DELETED
        elif topic.topic_id and minute.topic_id and topic.topic_id != minute.topic_id:
            yield Finding.MADE_AGAIN
    if slow_ms is not None and minute.p99_ms is not None and minute.p99_ms > slow_ms:
        yield Finding.SLOW


def sentence(minute: Minute) -> str:
    """A minute for people."""
    words = [f"{minute.acknowledged:,} records acknowledged"]
    if minute.p50_ms is not None and minute.p99_ms is not None:
        words[0] += f" (p50 {minute.p50_ms:,.1f} ms, p99 {minute.p99_ms:,.1f} ms)"
    if minute.unacknowledged:
        words.append(f"{minute.unacknowledged:,} answered with an error")
    if minute.not_followed:
        words.append(f"{minute.not_followed:,} not followed")
    if minute.expired:
        words.append(f"{minute.expired:,} expired")
    if minute.lost is None:
        words.append("loss not checked")
    elif minute.lost:
        words.append(f"{minute.lost:,} LOST")
    if Finding.DELETED in minute.findings:
        words.append("the topic was deleted")
    if Finding.MADE_AGAIN in minute.findings:
        words.append("the topic was made again")
    if Finding.SLOW in minute.findings:
        words.append("slow")
    return f"{minute.minute} {printable(minute.topic)}: {', '.join(words)}"
