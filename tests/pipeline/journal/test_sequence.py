"""Numbers that are there and numbers that are not."""

from __future__ import annotations

import random

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from forebay_pipeline.journal.sequence import BUCKET, Numbers, bitmap, bucket, count, missing, numbers, short, union

SEEN = [1, 2, 3, 5, 6, 7, 40_000, BUCKET, BUCKET + 1, *range(3 * BUCKET + 1, 5 * BUCKET + 2)]


@pytest.mark.whole
def test_what_spark_has_seen(spark: SparkSession) -> None:
    """Twice each; buckets in which all is there come without their bitmap."""
    rows = spark.createDataFrame([(number,) for number in [*SEEN, *SEEN, None]], "seq bigint")
    found = rows.groupBy(bucket(F.col("seq")).alias("bucket")).agg(short(bitmap(F.col("seq"))).alias("seen")).collect()
    seen = {each.bucket: each.seen for each in found if each.bucket is not None}
    assert [number for number, bits in seen.items() if bits is None] == [4, 5]
    assert union(every for number, bits in seen.items() for every in numbers(number, bits)) == [
        (1, 3),
        (5, 7),
        (BUCKET, BUCKET + 1),
        (40_000, 40_000),
        (3 * BUCKET + 1, 5 * BUCKET + 1),
    ]


@pytest.mark.parametrize("seed", range(50))
def test_bits_are_numbers(seed: int) -> None:
    rng = random.Random(seed)
    chosen = {number for number in range(BUCKET) if rng.random() < seed / 50}
    bits = bytes(sum((at * 8 + bit in chosen) << bit for bit in range(8)) for at in range(BUCKET // 8))
    found = numbers(3, bits)
    assert {number for first, last in found for number in range(first, last + 1)} == {
        2 * BUCKET + 1 + number for number in chosen
    }
    assert union(found) == found
    assert count(found) == len(chosen)


@pytest.mark.parametrize(
    ("seen", "lost"),
    [
        ([], [(3, 9)]),
        ([(1, 20)], []),
        ([(3, 9)], []),
        ([(1, 2), (10, 12)], [(3, 9)]),
        ([(1, 4), (7, 7), (9, 9)], [(5, 6), (8, 8)]),
        ([(4, 8)], [(3, 3), (9, 9)]),
    ],
)
def test_what_is_missing_of_3_to_9(seen: Numbers, lost: Numbers) -> None:
    assert missing(3, 9, seen) == lost


def test_where_nothing_is_expected_nothing_is_missing() -> None:
    assert missing(5, 4, []) == []
