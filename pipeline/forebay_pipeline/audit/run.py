"""An audit, from the journal's rows to its result and to the state from which the next one continues."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from forebay_pipeline.audit import ledger
from forebay_pipeline.audit.examine import Examined, examine, keep
from forebay_pipeline.audit.incomplete import incomplete
from forebay_pipeline.audit.ledger import AROUND_US, AuditScope
from forebay_pipeline.audit.losses import OF_ALL_KINDS, Losses, losses
from forebay_pipeline.audit.ranges import (
    Audited,
    Claimed,
    Range,
    begun_anew,
    expired_meanwhile,
    grown,
    ranges,
    without_expired,
    written_again,
)
from forebay_pipeline.audit.result import AuditResult, Counts
from forebay_pipeline.audit.state import AuditState, ProcessMark
from forebay_pipeline.audit.topics import Topics
from forebay_pipeline.errors import CannotRun
from forebay_pipeline.journal.source import ReadRows
from forebay_policies.journal_rows import LedgerRow

_TRIES: Final = 3
"""Retention may delete records while they are read; then the audit is tried again. The last time it is judged by what
is left afterwards: what expired meanwhile counts as expired, even where it was read in time."""


def audit(spark: SparkSession, journal: ReadRows, topics: Topics, scope: AuditScope) -> tuple[AuditResult, AuditState]:
    """Audit the journal's ledger against the topics; the result, and the state after it.

    It is read twice: the numbers of all rows, then those of the ledger. The state stays that of `scope` if some of
    these were deleted in between.

    Raises CannotRun if the ledger has no rows of the span, if all their records have expired, if the state is that of
    another cluster, or as `topics` does.
    """
    lost = losses(scope.around.of(journal(columns=OF_ALL_KINDS)), scope, topics.cluster_id)
    state = scope.state or AuditState()
    _check_cluster(state, lost)
    rows = scope.around.of(journal([LedgerRow]))
    ours = rows.where(~F.col("process").isin(list(lost.others))) if lost.others else rows
    with keep(ledger.parts(ours, scope, copied=lost.repeated > 0)) as parts:
        survey = ledger.survey(parts, scope.before)
        different, copies = ledger.rows_of(parts)
        deleted = max(0, lost.ledger_rows - different - copies)
        if survey is None:
            return _nothing_new(lost, deleted, scope, topics), _moved_on(state, lost, deleted, offsets=state.offsets)
        around = parts.where(F.col("time_us") >= survey.first_us - AROUND_US)
        examined, read, anew = _examined(spark, around, survey.claimed, scope.before or AuditState(), topics)
        marks = ledger.marks(parts) if scope.state is not None else {}
    if examined.totals.acknowledged and examined.totals.expired == examined.totals.acknowledged:
        raise CannotRun(
            f"All {examined.totals.expired:,} records that were acknowledged in that span have expired: "
            "there is nothing left to audit."
        )
    quiet, unknown = _unseen(scope, topics, survey.topics)
    result = AuditResult(
        first_us=survey.first_us,
        last_us=survey.last_us,
        rows=survey.rows,
        totals=examined.totals,
        clients=examined.clients,
        clients_left_out=examined.clients_left_out,
        topics=examined.topics,
        findings=examined.findings,
        rows_missing=lost.missing,
        rows_dropped=lost.dropped,
        lines_torn=lost.lines_torn,
        incomplete=list(
            incomplete(
                examined.totals,
                lost,
                deleted=deleted,
                unknown=unknown,
                uncounted=survey.uncounted,
                anew=anew.values(),
                uncompared=examined.uncompared,
                unplaced=survey.unplaced,
            )
        ),
        notes=[*_elsewhere(lost), *_copied(copies), *_quiet(quiet), *_notes(examined.totals)],
    )
    return result, _moved_on(
        state,
        lost,
        deleted,
        offsets=_offsets(state.offsets, anew, read),
        marks=marks,
        topic_ids=_ids(state.topic_ids, anew, read),
        seen=survey.topics,
    )


def _check_cluster(state: AuditState, lost: Losses) -> None:
    """What earlier audits found of a topic says nothing of the one of that name in another cluster."""
    before, now = state.cluster_id, lost.cluster_id
    if before and now and before != now:
        raise CannotRun(
            f"The state is that of cluster {before}, and the brokers that were asked are of cluster {now}: "
            "each cluster needs its own file, and one that was built anew a new one."
        )


def _examined(
    spark: SparkSession, parts: DataFrame, claimed: list[Claimed], before: AuditState, topics: Topics
) -> tuple[Examined, list[Range], dict[str, str]]:
    """What was found, the ranges that were read, and a sentence for each topic that is audited from the start."""
    names = {claim.topic for claim in claimed}
    audited = {name: offsets for name, offsets in before.offsets.items() if name in names}
    again = written_again(audited, claimed)
    for tries_left in reversed(range(_TRIES)):
        now = topics.now(names)
        anew = begun_anew(audited, before.topic_ids, now)
        told = {**again, **anew}
        read = ranges(claimed, now, {name: offsets for name, offsets in audited.items() if name not in told})
        # Rows audited before a topic was created again claim nothing of it now.
        claiming = parts.where(F.col("checked") | ~F.col("topic").isin(list(anew)))
        left = partial(_left, topics, names, read) if not tries_left else None
        since = partial(_since, spark, topics, names, read)
        examined = examine(claiming, read, topics.records(spark, read), left, since)
        if not examined.totals.missing or not expired_meanwhile(read, topics.now(names)):
            break
    return examined, read, told


def _left(topics: Topics, names: Collection[str], read: list[Range]) -> list[Range]:
    return without_expired(read, topics.now(names))


def _since(
    spark: SparkSession, topics: Topics, names: Collection[str], read: list[Range]
) -> tuple[list[Range], DataFrame]:
    more = grown(read, topics.now(names))
    return more, topics.records(spark, more)


def _nothing_new(lost: Losses, deleted: int, scope: AuditScope, topics: Topics) -> AuditResult:
    if scope.before is None or not scope.before.processes:
        unread = "".join(f" {note}" for note in _elsewhere(lost))
        unread += f" Unreadable lines or files: {lost.lines_torn:,}." if lost.torn else ""
        raise CannotRun(
            "The journal has no ledger rows in that span: was journal.ledger on? Without --to, those younger than "
            f"--settle are left to a later audit.{unread}"
        )
    quiet, unknown = _unseen(scope, topics)
    return AuditResult(
        first_us=None,
        last_us=None,
        rows=0,
        totals=Counts(),
        clients=[],
        clients_left_out=0,
        topics=[],
        findings=[],
        rows_missing=lost.missing,
        rows_dropped=lost.dropped,
        lines_torn=lost.lines_torn,
        incomplete=list(incomplete(Counts(), lost, deleted=deleted, unknown=unknown)),
        notes=["The ledger has no new rows since the last audit.", *_elsewhere(lost), *_quiet(quiet)],
    )


def _unseen(scope: AuditScope, topics: Topics, seen: Collection[str] = ()) -> tuple[list[str], list[str]]:
    """Of the topics that were asked for those that neither have rows to be checked, as `seen` do, nor ever had: such as
    brokers have, and such as they do not."""
    state = scope.state or AuditState()
    unseen = sorted({*scope.topics} - {*seen} - {*state.seen} - state.offsets.keys())
    if not unseen:
        return [], []
    told, untold = topics.told(unseen, policies=False)
    known = {*told, *untold}
    return [name for name in unseen if name in known], [name for name in unseen if name not in known]


def _quiet(topics: Sequence[str]) -> Iterator[str]:
    if topics:
        yield f"No ledger row to be audited is of these topics: {'; '.join(topics)}."


def _elsewhere(lost: Losses) -> Iterator[str]:
    if lost.others:
        clusters = ", ".join(sorted(set(lost.others.values())))
        yield f"{len(lost.others):,} processes in the journal are in front of other clusters, not audited: {clusters}."


def _copied(copies: int) -> Iterator[str]:
    if copies:
        yield (
            f"{copies:,} ledger rows are copies of others, and count once: a file is there under two names, or was "
            "compacted twice."
        )


def _notes(totals: Counts) -> Iterator[str]:
    if totals.topic_gone:
        yield f"{totals.topic_gone:,} acknowledged records were in topics that no longer exist, or were created again."
    if totals.unconfirmed:
        yield (
            f"{totals.unconfirmed:,} records are in their topics although their clients were answered with an error: "
            "a client that gave up on them does not know."
        )


def _moved_on(
    state: AuditState,
    lost: Losses,
    deleted: int,
    *,
    offsets: dict[str, dict[int, int]],
    marks: Mapping[str, ProcessMark] = MappingProxyType({}),
    topic_ids: Mapping[str, str] = MappingProxyType({}),
    seen: Collection[str] = (),
) -> AuditState:
    if deleted:
        return state
    return state.moved_on(
        marks=marks,
        offsets=offsets,
        dropped=lost.totals,
        followed=lost.followed,
        torn=lost.torn,
        vanished=lost.vanished,
        elsewhere=lost.elsewhere,
        cluster_id=lost.cluster_id,
        topic_ids=topic_ids,
        seen=seen,
    )


def _offsets(before: Audited, anew: Mapping[str, str], read: list[Range]) -> dict[str, dict[int, int]]:
    """Topic → partition → the offset up to which it is audited now."""
    offsets = {topic: dict(partitions) for topic, partitions in before.items() if topic not in anew}
    for each in read:
        if each.gone:
            offsets.pop(each.topic, None)
            continue
        partitions = offsets.setdefault(each.topic, {})
        partitions[each.partition] = max(partitions.get(each.partition, 0), each.end)
    return offsets


def _ids(before: Mapping[str, str], anew: Mapping[str, str], read: list[Range]) -> dict[str, str]:
    """Topic → the id that its offsets are of."""
    return {each.topic: each.topic_id if each.topic in anew else before.get(each.topic, each.topic_id) for each in read}
