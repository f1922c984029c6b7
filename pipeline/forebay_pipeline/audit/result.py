"""What an audit says: how many records of which topic and client, the findings themselves, and what it could not see.

All numbers are of records, unless their name says otherwise. The JSON of `--output` is an AuditResult.
"""

from __future__ import annotations

import enum
from typing import Final

import msgspec

from forebay_pipeline.errors import CLEAN, FINDINGS

MOST_FINDINGS: Final = 100
"""Examples shown of each kind. Whoever has more needs no more."""
MOST_CLIENTS: Final = 1000
"""Lines, those with findings first. Some clients make up a new id whenever they start."""


class Kind(enum.StrEnum):
    """What makes an audit end with FINDINGS. Each is the name of a count, too."""

    MISSING = "missing"
    TOPIC_GONE = "topic_gone"
    ALTERED = "altered"
    DUPLICATED = "duplicated"
    OVERLAPPING = "overlapping"
    OUT_OF_ORDER = "out_of_order"


class Counts(msgspec.Struct, kw_only=True):
    acknowledged: int = 0
    """To the client, and by a broker, which told where they are."""
    present: int = 0
    missing: int = 0
    """Acknowledged, but not in the topic, which should still have them."""
    expired: int = 0
    """Acknowledged, but below the earliest offset: retention's doing, or somebody's who deleted records."""
    compacted: int = 0
    """Acknowledged, but not in the topic, which keeps the last record of a key only."""
    topic_gone: int = 0
    """Acknowledged, in a topic that does not exist any more."""
    altered: int = 0
    """In parts that are there whole, with other keys or values than were received."""
    duplicated: int = 0
    """Beyond those acknowledged, with the same content."""
    overlapping: int = 0
    """At places that were told twice."""
    out_of_order: int = 0
    """In parts before ones that the same connection had sent earlier."""
    unacknowledged: int = 0
    """Answered with an error: not looked for."""
    unconfirmed: int = 0
    """Answered with an error, but in the topic; and nowhere else, as far as is known here."""
    not_followed: int = 0
    """Passed on untouched: what became of them is not known here."""

    @property
    def findings(self) -> int:
        return sum(getattr(self, kind) for kind in Kind)


class ClientLine(Counts, kw_only=True):
    """What one client sent to one topic."""

    topic: str
    client_id: str


class TopicLine(msgspec.Struct):
    topic: str
    unclaimed: int
    """In the ranges read, but in nobody's books: of producers that do not use the proxy, or untouched."""
    later: int
    """Offsets after the last one that was audited."""


class Finding(msgspec.Struct):
    kind: Kind
    topic: str
    partition: int
    first_offset: int
    last_offset: int
    records: int
    client_id: str
    process: str
    """Which process of the proxy wrote it down; connection and request number are its own."""
    connection: int
    number: int
    time_us: int
    """When the client was answered."""
    note: str


class AuditResult(msgspec.Struct, kw_only=True):
    first_us: int | None
    """Of the rows audited; None where there were none."""
    last_us: int | None
    rows: int
    """Client requests times partitions, as in the ledger."""
    totals: Counts
    clients: list[ClientLine]
    clients_left_out: int
    """Beyond MOST_CLIENTS; in the totals they are."""
    topics: list[TopicLine]
    findings: list[Finding]
    """At most MOST_FINDINGS of each kind."""
    rows_dropped: int
    """By the proxy, in this time."""
    lines_torn: int
    """Lines or files of the journal that could not be read, of whatever time."""
    notes: list[str]

    @property
    def exit_code(self) -> int:
        return FINDINGS if self.totals.findings else CLEAN
