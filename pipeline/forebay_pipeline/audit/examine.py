"""Runs all checks of an audit and counts what they find.

In: the ledger's parts, Ranges, and the topics' records (RECORD_COLUMNS). Out: Examined: totals, a line for each topic,
user and client, and examples; small, whatever the size of the topics.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import reduce
from typing import Final, NamedTuple

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from forebay_pipeline.audit import claims as audit_claims
from forebay_pipeline.audit import compaction
from forebay_pipeline.audit import copies as audit_copies
from forebay_pipeline.audit.ledger import ACKNOWLEDGED, NOT_FOLLOWED, UNACKNOWLEDGED
from forebay_pipeline.audit.ranges import RANGE_COLUMNS, Range
from forebay_pipeline.audit.result import (
    MAX_CLIENTS,
    MAX_FINDINGS,
    ClientLine,
    Counts,
    Finding,
    Kind,
    TopicLine,
)

_COUNTS: Final = Counts.__struct_fields__
_CLIENT: Final = ("topic", "principal", "client_id")


class Examined(NamedTuple):
    """What all checks found."""

    totals: Counts
    clients: list[ClientLine]
    clients_left_out: int
    topics: list[TopicLine]
    findings: list[Finding]
    uncompared: int = 0
    """Unclaimed records that may begin copies which were not looked for."""


@contextmanager
def keep(frame: DataFrame) -> Iterator[DataFrame]:
    """Keep what is computed of `frame` on disk while the context lasts: memory is for what is being computed."""
    frame.persist(StorageLevel.DISK_ONLY)
    try:
        yield frame
    finally:
        frame.unpersist()


def examine(
    parts: DataFrame,
    ranges: Sequence[Range],
    records: DataFrame,
    left: Callable[[], Sequence[Range]] | None = None,
    since: Callable[[], tuple[Sequence[Range], DataFrame]] | None = None,
) -> Examined:
    """Check the ledger's parts against the records of the ranges; records outside of them are ignored.

    `left` is asked once they are read, and tells what of the ranges is to be judged; so is `since`, where topics are
    compacted, and tells what was appended meanwhile: ranges and records, whose keys may be why others are gone.
    """
    table = parts.sparkSession.createDataFrame(list(ranges), RANGE_COLUMNS)
    claims = audit_claims.claims(parts, table)
    with ExitStack() as stack:

        def kept(frame: DataFrame) -> DataFrame:
            return stack.enter_context(keep(frame))

        matched = kept(audit_claims.match(audit_claims.content(records, table), claims))
        if left is not None:
            matched.count()  # reads them
            ranges = left()
            table = parts.sparkSession.createDataFrame(list(ranges), RANGE_COLUMNS)
            claims = audit_claims.claims(parts, table)
            begins = F.broadcast(table.select("place", "earliest"))
            matched = matched.join(begins, "place").where("offset >= earliest").drop("earliest")
        keyed = matched if any(each.compacted for each in ranges) else matched.limit(0)
        if since is not None and any(each.compacted for each in ranges):
            matched.count()
            more, appended = since()
            if more:
                of_more = parts.sparkSession.createDataFrame(list(more), RANGE_COLUMNS)
                later = kept(audit_claims.content(appended, of_more))
                keyed = keyed.unionByName(later, allowMissingColumns=True)
        judged = kept(audit_claims.verdicts(claims, matched, compaction.lost(claims, keyed)))
        found = {
            Kind.MISSING: audit_claims.missing(judged),
            Kind.TOPIC_GONE: audit_claims.topic_gone(judged),
            Kind.ALTERED: audit_claims.altered(judged),
            Kind.OVERLAPPING: audit_claims.overlapping(claims),
            Kind.OUT_OF_ORDER: audit_claims.out_of_order(parts),
        }
        unclaimed = audit_copies.unclaimed(matched, table)
        counts = _unclaimed(unclaimed)
        copies, uncompared = None, 0
        if counts:
            ids = F.broadcast(table.select("topic", "topic_id_now").distinct())
            # What was sent to a topic that was deleted since is not there twice.
            known = parts.join(ids, "topic").where(~audit_claims.is_former())
            copies = kept(audit_copies.judge(kept(audit_copies.find(unclaimed, known)), known, matched, table))
            found[Kind.DUPLICATED] = audit_copies.duplicated(copies)
            counts.subtract(_copied(copies))
            uncompared = audit_copies.uncompared(unclaimed, known)
        lines = kept(_lines(parts, judged, found, copies))
        totals, count = _totals(lines)
        clients = _clients(lines)
        return Examined(
            totals=totals,
            clients=clients,
            clients_left_out=count - len(clients),
            topics=_topics(ranges, counts),
            findings=[finding for kind in Kind if getattr(totals, kind) for finding in _examples(kind, found[kind])],
            uncompared=uncompared,
        )


def _lines(parts: DataFrame, judged: DataFrame, found: Mapping[Kind, DataFrame], copies: DataFrame | None) -> DataFrame:
    """A row for each of _CLIENT, with the fields of Counts."""
    fates = {
        name: F.when(F.col("fate") == name, F.col("records")) for name in (ACKNOWLEDGED, UNACKNOWLEDGED, NOT_FOLLOWED)
    }
    verdicts = {
        "present": F.col("present"),
        "expired": F.col("expired"),
        "compacted": F.col("compacted_away"),
        "not_judged": F.col("not_judged"),
    }
    counted = [
        parts.where("checked").select(*_CLIENT, *(count.alias(name) for name, count in fates.items())),
        judged.select(*_CLIENT, *(count.alias(name) for name, count in verdicts.items())),
        *(frame.select(*_CLIENT, F.col("records").alias(kind)) for kind, frame in found.items()),
    ]
    if copies is not None:
        unconfirmed = copies.where(~F.col("duplicated"))
        counted.append(unconfirmed.select(*_CLIENT, F.col("records").alias("unconfirmed")))
    together = reduce(lambda some, more: some.unionByName(more, allowMissingColumns=True), counted)
    sums = [
        (F.coalesce(F.sum(name), F.lit(0)) if name in together.columns else F.lit(0)).cast("bigint").alias(name)
        for name in _COUNTS
    ]
    return together.groupBy(*_CLIENT).agg(*sums)


def _totals(lines: DataFrame) -> tuple[Counts, int]:
    """The sums over all lines, and how many lines there are."""
    sums = (F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in _COUNTS)
    (found,) = lines.agg(F.count("*"), *sums).collect()
    count, *totals = found
    return Counts(**dict(zip(_COUNTS, totals, strict=True))), count


def _clients(lines: DataFrame) -> list[ClientLine]:
    findings = reduce(lambda some, more: some + more, (F.col(kind) for kind in Kind))
    shown = lines.orderBy(findings.desc(), F.desc("acknowledged"), *_CLIENT).limit(MAX_CLIENTS)
    return [ClientLine(**line.asDict()) for line in shown.collect()]


def _unclaimed(unclaimed: DataFrame) -> Counter[str]:
    """Topic → unclaimed records that no earlier audit has seen; 0 for a topic of whose unclaimed ones all were seen."""
    return Counter(dict(unclaimed.groupBy("topic").agg(F.count_if("fresh")).collect()))


def _copied(copies: DataFrame) -> dict[str, int]:
    """Topic → those among them that are copies."""
    return dict(copies.groupBy("topic").agg(F.sum("fresh_records")).collect())


def _topics(ranges: Sequence[Range], unclaimed: Counter[str]) -> list[TopicLine]:
    lines: dict[str, TopicLine] = {}
    for each in ranges:
        line = lines.setdefault(each.topic, TopicLine(each.topic, unclaimed[each.topic], 0))
        line.later += each.latest - each.end if not each.gone else 0
    return list(lines.values())


def _examples(kind: Kind, found: DataFrame) -> list[Finding]:
    shown = found.orderBy("topic", "partition", "first_offset").limit(MAX_FINDINGS)
    return [Finding(kind=kind, **row.asDict()) for row in shown.collect()]
