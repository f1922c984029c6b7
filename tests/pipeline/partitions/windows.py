"""Windows of traffic in which partitions are even, or one runs away."""

from __future__ import annotations

from forebay_policies.journal_rows import Row
from tests.pipeline.rows import START_US, batch_row

SECOND = 1_000_000
WIDTH = 10 * SECOND

EVEN = {0: (1000, 1500), 1: (1000, 1500), 2: (1000, 1500)}
"""Partition → bytes and upstream time of each of ten batches."""
AWAY = {0: (6000, 39_500), 1: (1000, 1500), 2: (1000, 1500)}


def window(number: int, given: dict[int, tuple[int, int]], topic: str = "t") -> list[Row]:
    return [
        batch_row(
            time_us=START_US + number * WIDTH + batch * SECOND,
            topic=topic,
            partition=partition,
            bytes=size,
            upstream_us=upstream_us,
        )
        for partition, (size, upstream_us) in given.items()
        for batch in range(10)
    ]
