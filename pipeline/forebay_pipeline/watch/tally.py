"""What is counted of a topic's minute, by each process that served it; counts of several processes can be added up.

The offsets of a partition are kept as one range and a number of records, so that a tally does not grow with its
records. Where others write to the partition, too, not every offset of the range is one of these records.
"""

from __future__ import annotations

import msgspec

from forebay_pipeline.audit.ledger import ACKNOWLEDGED, UNACKNOWLEDGED
from forebay_pipeline.jobs.histogram import bucket_of


class Offsets(msgspec.Struct):
    """So many acknowledged records of a partition, all of them within [first, end)."""

    first: int
    end: int
    records: int

    def add(self, other: Offsets) -> None:
        """Add others of the same partition."""
        self.first = min(self.first, other.first)
        self.end = max(self.end, other.end)
        self.records += other.records


class Tally(msgspec.Struct):
    """Records by what became of them; latencies and offsets are those of acknowledged ones."""

    cluster_id: str = ""
    """Empty if no gauge row has told it."""
    batches: int | None = None
    """Rows of batches, and of the ledger, that the process had written by its first, and by its last gauge row."""
    ledger: int = 0
    acknowledged: int = 0
    unacknowledged: int = 0
    """Their clients were told an error."""
    not_followed: int = 0
    """What their clients were told, or where they are, is not known: most were passed on as they came."""
    latencies: dict[int, int] = msgspec.field(default_factory=dict)
    """Bucket (jobs.histogram) → records; from a request's arrival to its answer."""
    offsets: dict[int, Offsets] = msgspec.field(default_factory=dict)
    """By partition."""

    def count(self, fate: str, partition: int, first: int, records: int, took_us: int) -> None:
        """Count records that travelled together; `fate` is one of audit.ledger's."""
        if fate == UNACKNOWLEDGED:
            self.unacknowledged += records
        elif fate != ACKNOWLEDGED:
            self.not_followed += records
        elif records:
            self.acknowledged += records
            bucket = bucket_of(took_us)
            self.latencies[bucket] = self.latencies.get(bucket, 0) + records
            self._claim(partition, Offsets(first, first + records, records))

    def gauge(self, cluster_id: str, batches: int, ledger: int) -> None:
        """Take what a gauge row tells of the process."""
        self.cluster_id = cluster_id or self.cluster_id
        self.batches = batches if self.batches is None else min(self.batches, batches)
        self.ledger = max(self.ledger, ledger)

    @property
    def keeps_no_ledger(self) -> bool:
        """It has sent batches for a while, and told nothing of what became of their records."""
        return bool(self.batches) and not self.ledger

    def add(self, other: Tally) -> None:
        """Add what another process counted."""
        self.acknowledged += other.acknowledged
        self.unacknowledged += other.unacknowledged
        self.not_followed += other.not_followed
        for bucket, records in other.latencies.items():
            self.latencies[bucket] = self.latencies.get(bucket, 0) + records
        for partition, offsets in other.offsets.items():
            self._claim(partition, offsets)

    def _claim(self, partition: int, offsets: Offsets) -> None:
        if known := self.offsets.get(partition):
            known.add(offsets)
        else:
            self.offsets[partition] = msgspec.structs.replace(offsets)
