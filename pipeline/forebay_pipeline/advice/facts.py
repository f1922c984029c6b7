"""What advice is made of: aggregates of a journal, of a size that does not grow with it.

`_us` are microseconds. Counts are of the span; a batch that was sent again counts again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from forebay_pipeline.advice.present import Present
from forebay_pipeline.partitions.summary import Percentiles, Summary
from forebay_pipeline.replay.results import ReplayReport

ENOUGH: Final = 1000
"""Batches, or requests, below which nothing is advised."""

LINGERS_MS: Final = (1, 2, 5, 10)
"""Values of linger.ms of which it is known how many batches they would leave."""

TOUCHED: Final = ("null_key", "keyed", "mixed")
"""Reasons (policies.eligibility.Reason) of batches that were merged."""

OBSERVED: Final = "observed"

FIRST_OF_KAFKA_4: Final = 3
"""The oldest version of Produce that it takes (KIP-896)."""


def length_s(first_us: int, last_us: int) -> float:
    """From the first row to the last, in seconds; one at least."""
    return max(1.0, (last_us - first_us) / 1e6)


class BatchUse(NamedTuple):
    """Batches that were sent to brokers."""

    batches: int = 0
    requests: int = 0
    """That carried them, about."""
    runs: int = 0
    """Client batches, or parts of such, merged in them."""
    records: int = 0
    bytes: int = 0
    movable_records: int = 0
    movable_bytes: int = 0
    full: int = 0
    """Batches that were sent because they were full."""
    full_linger_us: int = 0
    """How long these lingered, together."""
    latency_us: int = 0
    """Over records: linger and upstream together, added up."""
    lingering: Mapping[int, float] = {}
    """One of LINGERS_MS → batches, had each waited for so long."""

    @property
    def average_ms(self) -> float:
        """The average latency of a record, in the proxy and upstream."""
        return self.latency_us / 1000 / self.records if self.records else 0.0


class BrokerUse(NamedTuple):
    """Batches that were sent to one broker."""

    leader: int
    batches: int
    records: int
    movable_records: int
    latency_us: int
    """As BatchUse has it."""
    upstream_us: int
    """The median of how long a batch took there."""


class TopicUse(NamedTuple):
    """What was sent of one topic."""

    records: int
    bytes: int
    movable_bytes: int


class TopicRacks(NamedTuple):
    """Bytes of clients' batches of one topic, by whether the leader was in the client's rack."""

    topic: str
    """Empty: all topics beyond the first thousand of a process."""
    same_bytes: int
    other_bytes: int
    unknown_bytes: int


class Picked(NamedTuple):
    """A topic whose partitions a client seems to pick itself (policies.own_choices)."""

    topic: str
    used: int
    partitions: int


class ClientUse(NamedTuple):
    """Batches of one client, as it sent them."""

    client_id: str
    principal: str
    """As whom it was served; empty: as nobody in particular."""
    hosts: int
    """Addresses that it came from, about."""
    requests: int
    batches: int
    records: int
    errors: int
    """Batches of which it was told an error."""
    took_us: Percentiles | None
    """From receipt to answer, over its requests; None where the journal knows no answers."""
    versions: Sequence[int]
    """Of its Produce requests, ascending."""
    reasons: Mapping[str, int]
    """Reason (policies.eligibility.Reason) → batches."""
    picked: Sequence[Picked] = ()

    @property
    def too_old(self) -> bool:
        """Kafka 4 does not take what it sends."""
        return bool(self.versions) and self.versions[0] < FIRST_OF_KAFKA_4

    @property
    def merged(self) -> int:
        """Batches that were touched."""
        return sum(self.reasons.get(reason, 0) for reason in TOUCHED)


class TopicReason(NamedTuple):
    """Client batches of one topic that were treated alike."""

    topic: str
    """Empty: all further topics."""
    reason: str
    batches: int
    opens: int
    """Of those that were only observed: batches that they would have become."""


class Clients(NamedTuple):
    """What clients sent; of a journal without a ledger, what of it was only observed."""

    clients: Sequence[ClientUse] = ()
    """Most batches first."""
    left_out: int = 0
    """Further clients."""
    reasons: Sequence[TopicReason] = ()
    """Most batches first, of the largest of them; then those of all others together."""
    first_us: int = 0
    """Time of the first row about any client, which may be long before that of a batch to a broker."""
    last_us: int = 0
    missing_us: int = 0
    """Of the time between, days of which there are no rollups."""

    @property
    def seconds(self) -> float:
        """From the first row to the last, without what is missing; a second at least."""
        return length_s(self.first_us, self.last_us - self.missing_us)

    @property
    def total(self) -> int:
        """All batches."""
        return sum(one.batches for one in self.reasons)

    @property
    def touched(self) -> float:
        """The part of all batches that were touched; 1 where only a ledger could tell, and there is none."""
        touched = self.batches(*TOUCHED)
        return touched / self.total if touched else 1.0

    def batches(self, *reasons: str) -> int:
        """How many there were for these reasons."""
        return sum(one.batches for one in self.reasons if one.reason in reasons)


class Facts(NamedTuple):
    """All of it."""

    summary: Summary
    batches: BatchUse = BatchUse()
    brokers: Sequence[BrokerUse] = ()
    topics: Mapping[str, TopicUse] = {}
    topic_racks: Sequence[TopicRacks] = ()
    """Those of which most crossed first; none where no worker knew of racks."""
    clients: Clients = Clients()
    present: Present = Present()
    replay: ReplayReport | None = None
    price_per_gb: float | None = None

    @property
    def seconds(self) -> float:
        """From the first batch to the last, without what is missing; a second at least."""
        return max(1.0, self.summary.seconds)

    @property
    def requests_a_second(self) -> float:
        """That brokers got from batches."""
        return self.batches.requests / self.seconds

    @property
    def merge_ratio(self) -> float | None:
        """Client batches in one batch to a broker; None if too few tell."""
        use = self.batches
        return use.runs / use.batches if use.batches >= ENOUGH else None

    def simulated(self, setting: str) -> bool:
        """Whether a replay tried several values of it, and so knows more than any rule."""
        if self.replay is None:
            return False
        return len({result.settings.get(setting) for result in self.replay.results}) > 1
