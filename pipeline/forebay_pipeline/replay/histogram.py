"""Times in buckets 2 % wide: those of slices and brokers add up, and percentiles of the sum are right to 1 %.

Averages of percentiles are not percentiles; sums of counts are counts. Times are in microseconds; one and less is the
first bucket. 1,000 µs is in bucket 348, ln 1000 / ln 1.02 rounded down, which goes from 984 to 1,003.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import log
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

GROWTH: Final = 1.02
_SCALE: Final = 1 / log(GROWTH)


def bucket_of(us: float) -> int:
    return int(log(us) * _SCALE) if us > 1 else 0


def bucket_column(us: Column) -> Column:
    """The same in Spark."""
    return F.floor(F.log(F.greatest(us.cast("double"), F.lit(1.0))) * F.lit(_SCALE)).cast("int")


def start_of(bucket: int) -> float:
    """Where it begins; it ends where the next one does."""
    return GROWTH**bucket


def percentile(counts: Mapping[int, int], share: float) -> float:
    """The time that `share` of all that was counted do not exceed; evenly spread within a bucket. 0.0 of nothing."""
    wanted = share * sum(counts.values())
    seen = 0
    for bucket in sorted(counts):
        if seen + counts[bucket] >= wanted and counts[bucket]:
            start = start_of(bucket)
            return start + (wanted - seen) / counts[bucket] * (start_of(bucket + 1) - start)
        seen += counts[bucket]
    return 0.0
