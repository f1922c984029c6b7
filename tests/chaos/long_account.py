"""A tally that may run for hours: exact for every record, and no larger than what is under way.

    account = LongAccount(spec, promise)    # a client's thread tells what it sent, and what it was told (as to a Tally)
    account.found(seq, record)              # the reader's thread tells what is there, in each partition's order
    findings = account.findings()           # once the client has ended and everything was read

Records are numbered by their client. Below `low` each is settled: its client was told of it, and where that was an
acknowledgement, it was found. Of those nothing is kept but the numbers of the ones that were refused and are not there;
what is found below `low` and is none of them is there twice. From `low` on each has an entry.

What must hold is what reconcile.py says of a short run, but for one thing: an idempotent client, too, may have as many
duplicates as it sent again. Brokers that are all killed while answers are lost, as in pairs of faults, know only the
last batch of each producer afterwards; Java then sends what it has away again in a new epoch, also directly.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from time import monotonic

from tests.chaos.reconcile import Findings
from tests.chaos.tally import Promise
from tests.kit.spec import Ack, ConsumedRecord, ProduceSpec

MOST_OPEN = 200_000
"""Entries of a client. More: it, or the reader, stands still, and nothing is bounded any more."""
_RECENT = 1000
_SHOWN = 5

Place = tuple[int, int]
"""Partition and offset."""


@dataclass(slots=True)
class _Open:
    """A record that is not settled. `told`: where it was acknowledged to be; `refused`: what the client was told."""

    told: Place | None = None
    refused: bool = False
    found: list[Place] = field(default_factory=list)
    sent_at: float = inf
    """When it was handed to the client; inf: not known."""
    acked_at: float = inf


class LongAccount:
    def __init__(self, spec: ProduceSpec, promise: Promise) -> None:
        self.spec = spec
        self.promise = promise
        self.sent = 0
        self.retried = 0
        """How many records the client itself sent again, each of which may be there once more."""
        self.acks = 0
        self.refusals = 0
        self.duplicated = 0
        self.longest_silence = 0.0
        """Seconds between two acknowledgements that followed each other."""
        self._lock = threading.Lock()
        self._low = 0
        self._open: dict[int, _Open] = {}
        self._absent: set[int] = set()
        """Below `low`: refused, and not there."""
        self._partition: dict[bytes, int] = {}
        """By key."""
        self._last: dict[bytes, tuple[int, int, float]] = {}
        """By key, of the last acknowledged one that is settled: its number, the offset where it is first, and when it
        was acknowledged."""
        self._acked_at: deque[float] = deque(maxlen=_RECENT)
        self._violations: list[str] = []

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def open(self) -> int:
        """How many records are not settled."""
        return len(self._open)

    # What the client's thread tells

    def sends(self, seq: int) -> None:
        with self._lock:
            self.sent = seq + 1
            if self.promise.by_broker:
                self._entry(seq).sent_at = monotonic()

    def acknowledged(self, ack: Ack) -> None:
        now = monotonic()
        with self._lock:
            if self._acked_at:
                self.longest_silence = max(self.longest_silence, now - self._acked_at[-1])
            self._acked_at.append(now)
            self.acks += 1
            entry = self._told(ack.seq)
            entry.told = (ack.partition, ack.offset)
            entry.acked_at = now
            self._settle()

    def refused(self, seq: int, error: str) -> None:
        with self._lock:
            self.refusals += 1
            self._told(seq).refused = True
            self._settle()

    def acked_since(self, moment: float) -> int:
        """Acknowledgements since then, as far as the latest thousand go."""
        return sum(at > moment for at in list(self._acked_at))

    def _told(self, seq: int) -> _Open:
        entry = self._entry(seq)
        if seq < self._low or entry.told is not None or entry.refused:
            self._violate(f"was told of record {seq} twice")
        return entry

    # What the reader's thread tells

    def found(self, seq: int, record: ConsumedRecord) -> None:
        """Of each partition in the order of its offsets."""
        place = (record.partition, record.offset)
        with self._lock:
            if (record.key, record.value) != (self.spec.key(seq), self.spec.value(seq)):
                self._violate(f"did not send {record}")
            if record.key is not None and self._partition.setdefault(record.key, place[0]) != place[0]:
                self._violate(f"{record.key!r} is in several partitions")
            if seq >= self._low:
                entry = self._entry(seq)
                entry.found.append(place)
                self.duplicated += len(entry.found) > 1
                self._settle()
            elif seq in self._absent:
                self._absent.remove(seq)
            else:
                self.duplicated += 1

    # Settling

    def _entry(self, seq: int) -> _Open:
        if len(self._open) > MOST_OPEN:
            raise AssertionError(
                f"{self.name} has {len(self._open)} records that are not settled, the first {self._low}"
            )
        return self._open.setdefault(seq, _Open())

    def _settle(self) -> None:
        while (entry := self._open.get(self._low)) is not None and self._is_settled(entry):
            del self._open[self._low]
            if not entry.refused:
                self._keep_order(self._low, entry)
            elif not entry.found:
                self._absent.add(self._low)
            self._low += 1

    def _keep_order(self, seq: int, entry: _Open) -> None:
        """Of what was refused the client waited for nothing: it may be there in any order."""
        key = self.spec.key(seq)
        if key is None or not self.promise.ordered:
            return
        first = min(offset for _, offset in entry.found)
        before = self._last.get(key)
        if before is not None and before[1] > first:
            if self.promise.by_broker and entry.sent_at < before[2]:
                return
            self._violate(f"{key!r} out of order: {before[0]} at {before[1]} was sent before {seq} at {first}")
        self._last[key] = (seq, first, entry.acked_at)

    def _is_settled(self, entry: _Open) -> bool:
        if entry.refused:
            return True
        if entry.told is None or not entry.found:
            return False
        return not self.promise.offsets or entry.told[1] < 0 or entry.told in entry.found

    def _violate(self, what: str) -> None:
        if len(self._violations) < _SHOWN:
            self._violations.append(what)

    # The end

    def findings(self) -> Findings:
        """Of the whole run, once nothing more comes. To be had once."""
        with self._lock:
            for seq, entry in sorted(self._open.items()):  # behind one of which the client was told nothing
                if entry.told is not None and entry.found:
                    self._keep_order(seq, entry)
            lost = [seq for seq, entry in self._open.items() if entry.told is not None and not entry.found]
            elsewhere = [
                f"was told {entry.told} of {seq}, which is at {entry.found}"
                for seq, entry in self._open.items()
                if entry.told is not None and entry.found and not self._is_settled(entry)
            ]
            violations = [*self._violations, *elsewhere[:_SHOWN]]
            if lost:
                violations.append(f"{len(lost)} acknowledged records are lost: {sorted(lost)[:_SHOWN]}")
            if self.duplicated > self.retried:
                violations.append(f"{self.duplicated} duplicates, {self.retried} allowed")
            return Findings(
                sent=self.sent,
                acknowledged=self.acks,
                refused=self.refusals,
                unknown=self.sent - self.acks - self.refusals,
                lost=len(lost),
                duplicated=self.duplicated,
                retried=self.retried,
                violations=[f"{self.name}: {violation}" for violation in violations],
            )


def account_of(record: ConsumedRecord, accounts: Mapping[str, LongAccount]) -> tuple[LongAccount, int] | None:
    """Whose record it is, by the name in its value, and its number; None: nobody's."""
    name, _, seq = (record.value or b"").rstrip(b".").decode().rpartition("-")
    account = accounts.get(name)
    return (account, int(seq)) if account is not None and seq.isdigit() else None
