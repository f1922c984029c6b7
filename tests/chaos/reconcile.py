"""What clients were told against what is really there.

In: the tallies of a load, and every record that the topic holds, read from the brokers themselves. Out: Findings,
whose `violations` are empty where all of this holds:

1. sent = acknowledged + refused + unknown, and no record was told of twice;
2. every acknowledged record is there (all send with acks=all): what is missing is *lost*;
3. every record is there once, but for as many copies as its client sent again by itself, an idempotent one's always,
   unless brokers have `forgotten` producers while their answers were lost;
4. a record is what its client sent: key, value; nothing is there that nobody sent;
5. keyed records stay: one partition a key, and there in the order in which the client sent them (those acknowledged:
   what was refused may have been appended later, by a broker that had been asleep; but see Promise.by_broker);
6. an offset that a client was told is the record's.

A topic whose partitions become more has keys in two places (`widened`): then 5 holds within each. Of a topic that was
deleted and made again only what was acknowledged from then on (`since`) has to be there.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from tests.chaos.tally import Tally
from tests.kit.spec import ConsumedRecord

_SHOWN = 5


@dataclass(slots=True)
class Findings:
    """Of one load. `violations` say what does not hold, each with the first examples."""

    sent: int = 0
    acknowledged: int = 0
    refused: int = 0
    unknown: int = 0
    lost: int = 0
    duplicated: int = 0
    retried: int = 0
    """Records that clients sent again: at least as many as are duplicated."""
    violations: list[str] = field(default_factory=list)

    def check(self, name: str) -> None:
        assert not self.violations, "\n".join([f"{name}:", *self.violations])


def reconcile(
    tallies: Sequence[Tally],
    found: Iterable[ConsumedRecord],
    *,
    widened: bool = False,
    forgotten: bool = False,
    since: float | None = None,
) -> Findings:
    findings = Findings()
    places = _places(found, {tally.name for tally in tallies}, findings)
    for tally in tallies:
        findings.sent += tally.sent
        findings.acknowledged += len(tally.acks)
        findings.refused += len(tally.failures)
        findings.unknown += tally.unknown
        findings.retried += tally.retried
        copies = places[tally.name]
        violations = [
            *_miscounted(tally),
            *_lost(tally, copies, findings, since),
            *_duplicated(tally, copies, findings, forgotten=forgotten),
            *_changed(tally, copies),
            *_moved(copies, widened),
            *_disordered(tally, copies),
            *_misplaced(tally, copies, since),
        ]
        findings.violations += [f"{tally.name}: {violation}" for violation in violations]
    return findings


Copies = dict[int, list[ConsumedRecord]]
"""Of one client's records, by their number."""


def _places(found: Iterable[ConsumedRecord], names: set[str], findings: Findings) -> dict[str, Copies]:
    places: dict[str, Copies] = defaultdict(lambda: defaultdict(list))
    for record in found:
        name, _, seq = (record.value or b"").rstrip(b".").decode().rpartition("-")
        if name in names and seq.isdigit():
            places[name][int(seq)].append(record)
        elif name != PROBE:
            findings.violations.append(f"nobody sent {record}")
    return places


PROBE = "probe"
"""The name of records that belong to no load: whether they can be written shows that the proxy works."""


def _miscounted(tally: Tally) -> Iterator[str]:
    yield from tally.contradictions[:_SHOWN]
    if tally.unknown < 0 or any(seq >= tally.sent for seq in (*tally.acks, *tally.failures)):
        yield f"was told of more records than the {tally.sent} it sent"


def _lost(tally: Tally, copies: Copies, findings: Findings, since: float | None) -> Iterator[str]:
    bound = [seq for seq in tally.acks if since is None or tally.acked_at[seq] >= since]
    lost = sorted(seq for seq in bound if seq not in copies)
    findings.lost += len(lost)
    if lost:
        yield f"{len(lost)} acknowledged records are lost: {[tally.acks[seq] for seq in lost[:_SHOWN]]}"


def _duplicated(tally: Tally, copies: Copies, findings: Findings, *, forgotten: bool) -> Iterator[str]:
    times = Counter({seq: len(records) - 1 for seq, records in copies.items() if len(records) > 1})
    findings.duplicated += times.total()
    allowed = 0 if tally.spec.idempotence and not forgotten else tally.retried
    if times.total() > allowed:
        examples = [[(copy.partition, copy.offset) for copy in copies[seq]] for seq in sorted(times)[:_SHOWN]]
        yield f"{times.total()} duplicates, {allowed} allowed: (partition, offset) of the first {examples}"


def _changed(tally: Tally, copies: Copies) -> Iterator[str]:
    for seq, records in copies.items():
        for record in records:
            if seq >= tally.sent or (record.key, record.value) != (tally.spec.key(seq), tally.spec.value(seq)):
                yield f"did not send {record}"
                return


def _moved(copies: Copies, widened: bool) -> Iterator[str]:
    partitions: dict[bytes, set[int]] = defaultdict(set)
    for record in (record for records in copies.values() for record in records):
        if record.key is not None:
            partitions[record.key].add(record.partition)
    moved = {key: places for key, places in partitions.items() if len(places) > 1}
    if moved and not widened:
        yield f"keys in several partitions: {moved}"


def _disordered(tally: Tally, copies: Copies) -> Iterator[str]:
    """A record that is there twice counts where it is first: its client had it away until it was told of the second."""
    if not tally.promise.ordered:
        return
    last: dict[tuple[bytes, int], tuple[int, ConsumedRecord]] = {}
    for seq in sorted(copies):
        first = min(copies[seq], key=lambda record: record.offset)
        if first.key is None or seq not in tally.acks:
            continue
        before = last.get((first.key, first.partition))
        if before is not None and before[1].offset > first.offset:
            if tally.promise.by_broker and tally.away_together(before[0], seq):
                continue
            yield f"{first.key!r} out of order: {before[1]} was sent before {first}"
            return
        last[first.key, first.partition] = seq, first


def _misplaced(tally: Tally, copies: Copies, since: float | None) -> Iterator[str]:
    if not tally.promise.offsets or since is not None:
        return
    for seq, ack in tally.acks.items():
        told = (ack.partition, ack.offset)
        if ack.offset >= 0 and seq in copies and told not in [(copy.partition, copy.offset) for copy in copies[seq]]:
            yield f"was told {ack}, but it is at {copies[seq]}"
            return
