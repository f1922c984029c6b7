"""The result of `partitions`: the content of its --output, and what `report` shows.

`_us` are microseconds, points in time since 1970. Shares and rates are fractions of 1, and None without anything to
compute them from. Counts are of what was sent: a batch that was sent again counts again.
"""

from __future__ import annotations

from typing import Final

import msgspec

from forebay_pipeline.partitions.runaway_windows import Episode

ACCURACY: Final = 10_000
"""Percentiles are within 1 / ACCURACY of the batches: p99 lies between p98.99 and p99.01."""


class Percentiles(msgspec.Struct, frozen=True):
    """Percentiles over batches."""

    p50_us: int
    p99_us: int
    p999_us: int


class Group(msgspec.Struct, frozen=True):
    """A row of KIP-794's table: the batches that have `key` in common."""

    key: dict[str, str | int]
    """Name → value of each key that was grouped by."""
    batches: int
    bytes: int
    records: int
    bytes_per_batch: float
    records_per_batch: float
    share: float
    """Of the bytes of the key's topic and time; of all bytes if the key has neither, or nothing else."""
    failed: int
    """Batches that were not acknowledged."""
    linger_us: Percentiles
    """From a batch's first record until it was sent."""
    upstream_us: Percentiles
    """From then until its fate was known."""


NOTHING: Final = Group({}, 0, 0, 0, 0.0, 0.0, 1.0, 0, Percentiles(0, 0, 0), Percentiles(0, 0, 0))
"""Of no batches."""


class TopicSkew(msgspec.Struct, frozen=True):
    """How evenly a topic's bytes are spread over its partitions: all up to the highest that got a batch."""

    topic: str
    partitions: int
    batches: int
    bytes: int
    largest: int
    """The partition with the most bytes."""
    largest_share: float
    max_to_mean: float
    """1 is even; the number of partitions: all in one."""
    gini: float
    """0 is even; close to 1: all in one of many."""


class Reason(msgspec.Struct, frozen=True):
    """How many batches were sent for one reason."""

    reason: str
    batches: int
    bytes: int
    records: int


class Fate(msgspec.Struct, frozen=True):
    """How many batches had one outcome."""

    fate: str
    error_code: int
    batches: int
    records: int


class MetadataUse(msgspec.Struct, frozen=True):
    """The metadata cache: topics that clients asked for, and requests to brokers."""

    hits: int
    misses: int
    hit_rate: float | None
    waits: int
    requests: int
    """To brokers."""
    failed: int
    """Requests to brokers without an answer."""
    took_us: Percentiles | None
    request_bytes: int
    response_bytes: int


class RackUse(msgspec.Struct, frozen=True):
    """Bytes of clients' batches, by whether the partition's leader was in the client's rack."""

    same_bytes: int
    other_bytes: int
    unknown_bytes: int
    first_us: int = 0
    """Time of the first gauge row: it counts whether anything is sent or not."""
    last_us: int = 0
    missing_us: int = 0
    """As Summary has it."""

    @property
    def seconds(self) -> float:
        """From the first gauge row to the last, without what is missing."""
        return (self.last_us - self.first_us - self.missing_us) / 1e6


class WorkerUse(msgspec.Struct, frozen=True):
    """Memory and queues of one worker, from its gauge rows, one a second."""

    worker: int
    starts: int
    seconds: int
    seconds_waited: int
    """Seconds in which a client waited for memory."""
    pool_waits: int
    pool_bytes: int
    least_available_bytes: int
    most_queued_bytes: int
    most_queued_batches: int
    most_in_flight: int
    rows_dropped: int


class Summary(msgspec.Struct, frozen=True):
    """All results of `partitions`, over the batches of one span."""

    journal: str
    first_us: int
    """Time of the first batch."""
    last_us: int
    by: list[str]
    total: Group
    groups: list[Group]
    groups_left_out: int
    """Groups with fewer bytes than those in `groups`."""
    topics: list[TopicSkew]
    """Most bytes first."""
    topics_left_out: int
    reasons: list[Reason]
    fates: list[Fate]
    runaways: list[Episode]
    runaway_changes_left_out: int
    metadata: MetadataUse
    workers: list[WorkerUse]
    racks: RackUse | None
    """None where no worker knew of racks."""
    torn: int
    """Unreadable lines and files of the journal, whatever their time."""
    clusters: list[str] = []
    """Ids of the clusters that its gauges tell of."""
    missing_us: int = 0
    """Of the time from the first batch to the last, days of which there are no rollups."""

    @property
    def seconds(self) -> float:
        """From the first batch to the last, without what is missing."""
        return (self.last_us - self.first_us - self.missing_us) / 1e6

    @property
    def seconds_waited(self) -> float | None:
        """The fraction of all workers' seconds in which a client waited for memory; None without gauge rows."""
        seconds = sum(worker.seconds for worker in self.workers)
        return sum(worker.seconds_waited for worker in self.workers) / seconds if seconds else None

    @property
    def rows_dropped(self) -> int:
        """Journal rows that the proxy dropped."""
        return sum(worker.rows_dropped for worker in self.workers)
