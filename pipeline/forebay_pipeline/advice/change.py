"""A change that is advised, what it is worth, and which five to show.

A change is worth the relative savings that are expected of it, added up: of the average latency, of the requests that
brokers get, of the bytes that cross racks; what grows counts against it.

    setting                  latency       requests      worth
    linger.ms = 5            +0.9 of 3 ms  -60 % of 400  0.6 - 0.3 = 0.3
    partitioner              -5 of 10 ms   +10 %         0.5 - 0.1 = 0.4     first

What keeps a promise (`protects`) stands before what saves something. No two changes that are shown set the same
setting: the better one stays, so that all of them can be pasted into one file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from forebay_pipeline.advice.toml import TomlValue, as_toml

MOST: Final = 5

BROKER_CPU_S: Final = 0.00012
"""CPU of the brokers that a Produce request less saves them: 141 µs a record with one in each request against 21 with
62 (docs/performance.md, g)."""


class Effect(NamedTuple):
    """What is expected; None is not known, or not touched. Negative: less of it."""

    ms: float | None = None
    """Of the average latency of all records."""
    of_ms: float = 0.0
    """The average latency now."""
    requests: float | None = None
    """Produce requests a second that the brokers get."""
    of_requests: float = 0.0
    """So many a second now."""
    crossing: float | None = None
    """Bytes that cross racks, as a part of all bytes of which that is known."""
    blocked: float | None = None
    """Seconds in which a client waited for memory, as a part of all."""
    others: Sequence[str] = ()
    """Further effects, as sentences."""

    @property
    def cores(self) -> float | None:
        """CPU of the brokers, in cores."""
        return None if self.requests is None else self.requests * BROKER_CPU_S

    @property
    def worth(self) -> float:
        """The relative savings, added up."""
        found = -(self.crossing or 0.0) - (self.blocked or 0.0)
        if self.ms is not None and self.of_ms:
            found -= self.ms / self.of_ms
        if self.requests is not None and self.of_requests:
            found -= self.requests / self.of_requests
        return found


class Change(NamedTuple):
    """One change."""

    name: str
    """Of the rule; becomes part of ids: letters and dashes."""
    title: str
    """What to do, in a few words."""
    evidence: str
    """What in the journal speaks for it."""
    effect: Effect
    how: str
    """How the effect was computed, and what that leaves out."""
    settings: Mapping[str, TomlValue]
    """Name → value, to be pasted; empty: there is nothing to set in Forebay."""
    protects: bool = False
    """It keeps what a client relies on, whatever it costs."""

    @property
    def toml(self) -> str:
        """The settings as lines of forebay.toml."""
        return as_toml(self.settings)


def ranked(changes: Iterable[Change]) -> list[Change]:
    """The MOST changes that are worth most."""
    order = sorted(changes, key=lambda change: (not change.protects, -change.effect.worth, change.name))
    found: list[Change] = []
    taken: set[str] = set()
    for change in order:
        if taken.isdisjoint(change.settings):
            found.append(change)
            taken.update(change.settings)
    return found[:MOST]
