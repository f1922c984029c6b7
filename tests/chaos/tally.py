"""What one client sent, and what it was told of each record: acknowledged, refused (an error), or unknown (nothing).

A client's own thread writes its tally, everybody may read it meanwhile. A record told twice, or one never sent, is the
client's (or the test's) fault and shows up in `contradictions`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from time import monotonic
from typing import Protocol

from tests.kit.spec import Ack, ProduceSpec


@dataclass(frozen=True, slots=True)
class Promise:
    """What a client's own settings make of the load that it carries.

    `ordered`: it never has two tries of a partition away that could overtake each other. `offsets`: the offsets that
    it is told are true or −1 (librdkafka and kafka-python count on from −1, so theirs say nothing).
    `by_broker`: it counts what it has away by broker, so that while a leader moves a partition may have a try at the
    former and one at the new leader, on two connections. Behind a record then are those that it sent once that one was
    acknowledged.
    """

    ordered: bool
    offsets: bool
    by_broker: bool = False


class Account(Protocol):
    """What a client's own thread tells of its records. `retried` as in a Tally."""

    sent: int
    retried: int

    @property
    def name(self) -> str: ...

    @property
    def spec(self) -> ProduceSpec: ...

    def sends(self, seq: int) -> None:
        """Record `seq`, the next, is handed to the client now."""

    def acknowledged(self, ack: Ack) -> None: ...

    def refused(self, seq: int, error: str) -> None: ...

    def acked_since(self, moment: float) -> int:
        """How many acknowledgements there were since then."""
        ...


@dataclass(slots=True)
class Tally:
    """`retried`: how many records the client itself sent again, each of which may be there once more."""

    spec: ProduceSpec
    promise: Promise
    sent: int = 0
    retried: int = 0
    acks: dict[int, Ack] = field(default_factory=dict)
    acked_at: dict[int, float] = field(default_factory=dict)
    """When each was acknowledged, by the monotonic clock; in that order."""
    sent_at: dict[int, float] = field(default_factory=dict)
    """When each was handed to the client, where that is known."""
    failures: dict[int, str] = field(default_factory=dict)
    contradictions: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def unknown(self) -> int:
        return self.sent - len(self.acks) - len(self.failures)

    def sends(self, seq: int) -> None:
        self.sent = seq + 1
        self.sent_at[seq] = monotonic()

    def away_together(self, earlier: int, later: int) -> bool:
        """Record `later` was sent before `earlier` was acknowledged."""
        return self.sent_at.get(later, inf) < self.acked_at[earlier]

    def acknowledged(self, ack: Ack) -> None:
        self._once(ack.seq)
        self.acks[ack.seq] = ack
        self.acked_at[ack.seq] = monotonic()

    def refused(self, seq: int, error: str) -> None:
        self._once(seq)
        self.failures[seq] = error

    def _once(self, seq: int) -> None:
        if seq in self.acks or seq in self.failures:
            self.contradictions.append(f"{self.name} was told of record {seq} twice")

    def acked_since(self, moment: float) -> int:
        return sum(at > moment for at in list(self.acked_at.values()))

    def longest_silence(self) -> float:
        """Seconds between two acknowledgements that followed each other."""
        times = list(self.acked_at.values())
        return max((later - at for at, later in pairwise(times)), default=0.0)

    def waits(self, begun: float, ended: float) -> list[float]:
        """Seconds that acknowledged records waited which were under way between `begun` and `ended`.

        Clients send at a steady rate, and catch up where they could not. So a record waits from when it was due, which
        the one tells that was acknowledged soonest after it.
        """
        acked = list(self.acked_at.items())
        first = min(at - seq / self.spec.rate for seq, at in acked)
        due = ((first + seq / self.spec.rate, at) for seq, at in acked)
        return [at - since for since, at in due if since <= ended and at >= begun]
