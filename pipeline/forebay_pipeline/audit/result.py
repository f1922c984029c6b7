"""The result of an audit: counts by topic, user and client, the findings, and what the audit could not see.

Numbers count records unless their name says otherwise. The JSON of `--output` is an AuditResult.
"""

from __future__ import annotations

import enum
from typing import Final

import msgspec

from forebay_pipeline.errors import CLEAN, FINDINGS, INCOMPLETE

MAX_FINDINGS: Final = 100
"""Examples of each kind; more would not tell more."""
MAX_CLIENTS: Final = 1000
"""Lines, those with findings first. Some clients use a new id whenever they start."""


class Kind(enum.StrEnum):
    """What makes an audit end with FINDINGS; each is also the name of a field of Counts."""

    MISSING = "missing"
    TOPIC_GONE = "topic_gone"
    ALTERED = "altered"
    DUPLICATED = "duplicated"
    OVERLAPPING = "overlapping"
    OUT_OF_ORDER = "out_of_order"


class Counts(msgspec.Struct, kw_only=True):
    """How many records became what."""

    acknowledged: int = 0
    """Acknowledged to the client, and by a broker that said where they are."""
    present: int = 0
    """Acknowledged, and at their offsets."""
    missing: int = 0
    """Acknowledged, but not in the topic, which should still have them."""
    expired: int = 0
    """Acknowledged, but below the earliest offset: deleted by retention or by somebody."""
    compacted: int = 0
    """Acknowledged, but not in the topic, which keeps only the last record of each key: a later one has theirs."""
    not_judged: int = 0
    """Acknowledged, but not in the topic, which keeps only the last record of each key; theirs is not in the ledger."""
    topic_gone: int = 0
    """Acknowledged, in a topic that no longer exists."""
    altered: int = 0
    """In parts of which all is present, or the first record, but with other keys or values than were received."""
    duplicated: int = 0
    """Present in addition to acknowledged ones with the same content."""
    overlapping: int = 0
    """At offsets that two parts claim."""
    out_of_order: int = 0
    """In parts that precede what the same connection had sent earlier."""
    unacknowledged: int = 0
    """Answered with an error; not looked for."""
    unconfirmed: int = 0
    """Answered with an error, but in the topic, and not sent again as far as the ledger tells."""
    not_followed: int = 0
    """Passed on untouched, so what became of them is not known; or acknowledged by a broker that did not say where they
    are."""

    @property
    def findings(self) -> int:
        """Records with a finding of any Kind."""
        return sum(getattr(self, kind) for kind in Kind)


class ClientLine(Counts, kw_only=True):
    """What became of one client's records in one topic: of all that call themselves so, and are served as one user."""

    topic: str
    client_id: str
    principal: str = ""
    """As Kafka writes it, `User:alice`; empty where clients are served as nobody in particular."""


class TopicLine(msgspec.Struct):
    """What a topic has besides what the ledger claims."""

    topic: str
    unclaimed: int
    """In the ranges read, but claimed by no part: from producers that bypass the proxy, or passed on untouched."""
    later: int
    """Offsets after the last one that was audited."""


class Finding(msgspec.Struct):
    """Consecutive records with a problem, and the request that sent them; offsets are inclusive."""

    kind: Kind
    topic: str
    partition: int
    first_offset: int
    last_offset: int
    records: int
    client_id: str
    process: str
    """The proxy's process; numbers of connections and requests are its own."""
    connection: int
    number: int
    time_us: int
    """When the client was answered."""
    note: str
    principal: str = ""
    """As in ClientLine."""


class AuditResult(msgspec.Struct, kw_only=True):
    """All that one audit found."""

    first_us: int | None
    """Time of the first row audited; None if there were none."""
    last_us: int | None
    rows: int
    """Ledger rows: one for each request and partition."""
    totals: Counts
    clients: list[ClientLine]
    clients_left_out: int
    """Lines beyond MAX_CLIENTS; the totals include them."""
    topics: list[TopicLine]
    findings: list[Finding]
    """At most MAX_FINDINGS of each kind."""
    rows_missing: int = 0
    """Journal rows that were written and are not there, whatever their kind; dropped and torn ones are among them."""
    rows_dropped: int
    """Journal rows that the proxy dropped in this time."""
    lines_torn: int
    """Unreadable lines and files of the journal, whatever their time."""
    incomplete: list[str] = []
    """Sentences for people about what was not there, or was not followed: of that, the audit says nothing."""
    notes: list[str]
    """Sentences for people about what is no finding."""

    @property
    def exit_code(self) -> int:
        """FINDINGS; INCOMPLETE, where none were found and not all was looked at; or CLEAN."""
        if self.totals.findings:
            return FINDINGS
        return INCOMPLETE if self.incomplete else CLEAN


def has_users(result: AuditResult) -> bool:
    """Whether any client was served as somebody: then users are a column."""
    return any(line.principal for line in result.clients)
