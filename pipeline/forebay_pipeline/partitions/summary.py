"""What `partitions` finds out about a span, as a value: the contents of its --output, and what `report` shows.

Times end in `_us` and are microseconds, points in time since 1970; shares and rates are parts of 1; None where there is
nothing to tell them from. All was counted over what was sent: a batch that was sent again counts again.
"""

from __future__ import annotations

from typing import Final

import msgspec

from forebay_pipeline.partitions.runaway_windows import Episode

ACCURACY: Final = 10_000
"""Percentiles are approximate: p99 lies between p98.99 and p99.01, as all others within 1 / ACCURACY of the batches."""


class Percentiles(msgspec.Struct, frozen=True):
    """Of the batches."""

    p50_us: int
    p99_us: int
    p999_us: int


class Group(msgspec.Struct, frozen=True):
    """KIP-794's line: batches that are alike in what they were grouped by."""

    key: dict[str, str | int]
    batches: int
    bytes: int
    records: int
    bytes_per_batch: float
    records_per_batch: float
    share: float
    """Of the bytes of its topic and time, as far as they are in the key and something else is; else of all."""
    failed: int
    """Batches that were not acknowledged."""
    linger_us: Percentiles
    """From a batch's first record to its sending."""
    upstream_us: Percentiles
    """From there to its fate."""


class TopicSkew(msgspec.Struct, frozen=True):
    """How evenly a topic's bytes are spread over its partitions; those without a batch count, up to the highest."""

    topic: str
    partitions: int
    batches: int
    bytes: int
    largest: int
    """The partition with the most bytes."""
    largest_share: float
    max_to_mean: float
    """1: even. The number of partitions: everything in one."""
    gini: float
    """0: even. Towards 1: everything in one of many."""


class Reason(msgspec.Struct, frozen=True):
    reason: str
    batches: int
    bytes: int
    records: int


class Fate(msgspec.Struct, frozen=True):
    fate: str
    error_code: int
    batches: int
    records: int


class MetadataUse(msgspec.Struct, frozen=True):
    """Topics that clients asked for, and what it took to know them."""

    hits: int
    misses: int
    hit_rate: float | None
    waits: int
    requests: int
    """To brokers."""
    failed: int
    took_us: Percentiles | None
    request_bytes: int
    response_bytes: int


class WorkerUse(msgspec.Struct, frozen=True):
    """How one worker stood over its seconds: each is a gauge row."""

    worker: int
    starts: int
    seconds: int
    seconds_waited: int
    """In which a client waited for memory."""
    pool_waits: int
    pool_bytes: int
    least_available_bytes: int
    most_queued_bytes: int
    most_queued_batches: int
    most_in_flight: int
    rows_dropped: int


class Summary(msgspec.Struct, frozen=True):
    journal: str
    first_us: int
    """Of the batches' times."""
    last_us: int
    by: list[str]
    total: Group
    groups: list[Group]
    groups_left_out: int
    """Those with fewer bytes than all that are there."""
    topics: list[TopicSkew]
    """The one with the most bytes first."""
    topics_left_out: int
    reasons: list[Reason]
    fates: list[Fate]
    runaways: list[Episode]
    runaway_changes_left_out: int
    metadata: MetadataUse
    workers: list[WorkerUse]
    torn: int
    """Lines and files of the journal that could not be read, of any time."""

    @property
    def seconds_waited(self) -> float | None:
        """The part of all workers' seconds in which a client waited for memory."""
        seconds = sum(worker.seconds for worker in self.workers)
        return sum(worker.seconds_waited for worker in self.workers) / seconds if seconds else None

    @property
    def rows_dropped(self) -> int:
        return sum(worker.rows_dropped for worker in self.workers)
