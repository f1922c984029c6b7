"""Histograms of times with buckets 2 % wide: percentiles of them are within 2 %, the middles of buckets within 1 %.

Histograms of slices and brokers can be added up: an average of percentiles is no percentile, but a sum of counts is a
count. Times are in microseconds; the first bucket is 1 µs and less. 1,000 µs is in bucket 348, which is ln 1000 /
ln 1.02 rounded down and spans 984 to 1,003.
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
    """The bucket of a time."""
    return int(log(us) * _SCALE) if us > 1 else 0


def bucket_column(us: Column) -> Column:
    """The bucket of a time, in Spark."""
    return F.floor(F.log(F.greatest(us.cast("double"), F.lit(1.0))) * F.lit(_SCALE)).cast("int")


def middle_column(bucket: Column) -> Column:
    """The time in the middle of a bucket, whole microseconds, in Spark."""
    return F.round(F.pow(F.lit(GROWTH), bucket + 0.5)).cast("long")


def start_of(bucket: int) -> float:
    """The shortest time in a bucket."""
    return GROWTH**bucket


def percentile(counts: Mapping[int, int], share: float) -> float:
    """The time that a `share` of the counts does not exceed; 0.0 without counts.

    `counts` are by bucket, and taken to be spread evenly within it.
    """
    wanted = share * sum(counts.values())
    seen = 0
    for bucket in sorted(counts):
        if seen + counts[bucket] >= wanted and counts[bucket]:
            start = start_of(bucket)
            return start + (wanted - seen) / counts[bucket] * (start_of(bucket + 1) - start)
        seen += counts[bucket]
    return 0.0
