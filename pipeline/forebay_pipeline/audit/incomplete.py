"""What an audit could not see, in sentences: where there is one, it is not clean but incomplete.

By design are: what passed through untouched (its answer is the broker's, and is not read), and what retention deleted
before it was audited. All else should not be: dropped rows, torn lines, rows and files that are not there, a crash, a
proxy without a ledger, the journal of another cluster, a topic that lost what was audited of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from forebay_pipeline.audit.copies import MAX_VARIANTS
from forebay_pipeline.audit.losses import Gap, Losses
from forebay_pipeline.audit.result import Counts

_NAMED: Final = 5
"""Gaps or processes that a sentence names."""


def incomplete(
    totals: Counts,
    losses: Losses,
    *,
    deleted: int,
    unknown: Sequence[str],
    uncounted: int = 0,
    anew: Iterable[str] = (),
    uncompared: int = 0,
    unplaced: int = 0,
) -> Iterator[str]:
    """A sentence for each reason. `deleted`: ledger rows that were there at first, and were not audited; `unknown`:
    topics to be audited of which there is nothing, here or at the brokers; `uncounted`: rows that do not say how many
    records they are of; `anew`: a sentence for each topic that has lost what earlier audits found in it; `uncompared`:
    as in Examined; `unplaced`: as in Survey."""
    for each in anew:
        yield f"Gone since it was audited: {each}"
    if deleted:
        yield (
            f"Deleted while it was audited: {deleted:,} ledger rows. Records of those rows are not audited and count "
            "as unclaimed."
        )
    if unknown:
        yield (
            f"Nothing of topics that were asked for: {_named(unknown)}. No ledger row to be audited is of theirs, and "
            "brokers have none of that name: is it right?"
        )
    yield from _journal(losses)
    if untouched := totals.not_followed - unplaced:
        yield (
            f"Not followed, by design: {untouched:,} records of requests that passed through untouched "
            "(idempotent, transactional, excluded …). What their clients were told is not known."
        )
    if unplaced:
        yield (
            f"Not placed: {unplaced:,} records were acknowledged, but the broker did not say where they are, since it "
            "had them already when they were sent again. They count as not followed."
        )
    if uncounted:
        yield (
            f"Not counted: {uncounted:,} batches that passed through untouched, and of which the ledger does not tell "
            "how many records they had, being of an older Forebay, or what they were. None of that is audited."
        )
    if uncompared:
        yield (
            f"Not compared: {uncompared:,} records that nobody claims, with which more than {MAX_VARIANTS} different "
            "parts of requests begin. They may be duplicates of others than the longest of those."
        )
    if totals.not_judged:
        yield (
            f"Not judged: {totals.not_judged:,} acknowledged records are not in their topics, which are compacted. "
            "Whether a later record had their key, only a ledger with journal.ledger.keys can tell."
        )
    if totals.expired:
        yield (
            f"Expired, as retention allows: {totals.expired:,} acknowledged records. They are not lost, but "
            "not audited either."
        )


def _journal(losses: Losses) -> Iterator[str]:
    if losses.dropped:
        yield (
            f"Dropped: {losses.dropped:,} journal rows, by the proxy, because the disk was slow or full. Records of "
            "those rows are not audited and count as unclaimed."
        )
    if losses.torn:
        yield f"Unreadable: {losses.lines_torn:,} lines or files of the journal."
    if losses.gaps:
        gaps = _named([_gap(each) for each in losses.gaps])
        yield (
            f"Not there: {losses.missing:,} journal rows, by their numbers: {gaps}. They were dropped or torn, or "
            "their files are not there (yet)."
        )
    if losses.beginnings:
        yield (
            "Not there: the first rows of the time span of processes that had started before: "
            f"{_named(losses.beginnings)}."
        )
    if losses.vanished:
        yield f"Not there: all files of processes that others knew when they began: {_named(losses.vanished)}."
    if losses.ends:
        yield (
            f"Not there: the last rows of processes that are gone: {_named(losses.ends)}. They crashed, or their last "
            "files are not there."
        )
    if losses.unnumbered:
        yield (
            f"Not numbered: {losses.unnumbered:,} ledger rows, of an older Forebay. Whether others are missing, nobody "
            "can tell."
        )
    if losses.without_ledger:
        yield (
            "No ledger: processes that had records acknowledged and wrote no ledger row: "
            f"{_named(losses.without_ledger)}. None of that is audited: all proxies of a journal need "
            "journal.ledger=true."
        )
    if losses.only_others:
        yield (
            f"Nothing of cluster {losses.cluster_id}, which was asked: all processes in the journal are in front of "
            f"others: {_named(sorted(set(losses.others.values())))}."
        )


def _gap(gap: Gap) -> str:
    ranges = [f"{first:,}" if first == last else f"{first:,} to {last:,}" for first, last in gap.numbers]
    return f"{gap.process}, {gap.kind} {_named(ranges)}"


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return "; ".join(names[:_NAMED]) + more
