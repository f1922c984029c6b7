"""Buckets, in Python and in Spark alike, and percentiles of them."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from forebay_pipeline.jobs.histogram import bucket_column, bucket_of, middle_column, percentile, start_of

TIMES = [0, 1, 2, 3, 10, 999, 1000, 1003, 1004, 20_500, 123_456_789]


def test_a_time_is_in_its_bucket() -> None:
    assert bucket_of(1000) == 348
    for us in TIMES[2:]:
        assert start_of(bucket_of(us)) <= us * (1 + 1e-9) < start_of(bucket_of(us) + 1) * (1 + 2e-9)
    assert bucket_of(0) == bucket_of(-5) == bucket_of(1) == 0


def test_spark_counts_in_the_same_buckets(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(us,) for us in [-5, *TIMES]], "us long")
    found = rows.select(bucket_column(F.col("us")), middle_column(bucket_column(F.col("us")))).collect()

    assert [row[0] for row in found] == [bucket_of(us) for us in [-5, *TIMES]]
    assert [row[1] for row in found] == pytest.approx([1, 1, *TIMES[1:]], rel=0.011)


@pytest.mark.parametrize("share", [0.01, 0.5, 0.99, 0.999])
def test_percentiles_are_right_to_a_bucket(share: float) -> None:
    rng = Random(1)
    times = sorted(rng.lognormvariate(7, 1.5) for _ in range(20_000))
    counts = Counter(bucket_of(us) for us in times)

    assert percentile(counts, share) == pytest.approx(times[int(share * len(times))], rel=0.03)


def test_of_nothing_there_is_no_percentile() -> None:
    assert percentile({}, 0.5) == 0
    assert percentile({3: 0}, 0.5) == 0
