"""Skew and groups of batches, by hand."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.testing import assertDataFrameEqual

from forebay_pipeline.partitions import batches as partitions_batches
from forebay_pipeline.partitions.summary import TopicSkew
from tests.pipeline.partitions.journal import SECOND, Journal
from tests.pipeline.rows import START_US, batch_row


def test_skew_counts_partitions_that_got_nothing(spark: SparkSession, journal: Journal) -> None:
    sizes = {("few", 1): 1000, ("few", 3): 3000, ("even", 0): 500, ("even", 1): 500, ("single", 0): 7}
    batches = journal.batches(
        *(batch_row(topic=topic, partition=partition, bytes=size) for (topic, partition), size in sizes.items())
    )
    expected = [
        # 0 0 1000 3000: 2 · (3 · 1000 + 4 · 3000) / (4 · 4000) - 5/4 = 0.625
        TopicSkew("few", 4, 2, 4000, 3, 0.75, 3.0, 0.625),
        TopicSkew("even", 2, 2, 1000, 0, 0.5, 1.0, 0.0),
        TopicSkew("single", 1, 1, 7, 0, 1.0, 1.0, 0.0),
    ]
    found = partitions_batches.skew(partitions_batches.partition_bytes(batches))
    wanted = spark.createDataFrame(
        [tuple(getattr(one, name) for name in found.columns) for one in expected], found.schema
    )
    assertDataFrameEqual(found, wanted)
    assert partitions_batches.topics(batches, 2) == (expected[:2], 1)


def test_any_grouping(journal: Journal) -> None:
    hour = 3600 * SECOND
    rows = [
        batch_row(time_us=START_US, leader=1, worker=0, bytes=100, reason="full"),
        batch_row(time_us=START_US + 59 * SECOND, leader=1, worker=1, bytes=200, partition=1),
        batch_row(time_us=START_US + hour, leader=2, worker=1, bytes=300, topic="u"),
        batch_row(time_us=START_US + 30 * hour, leader=2, worker=1, bytes=400, topic="u"),
    ]
    batches = journal.batches(*rows)

    def keys(*by: str) -> dict[tuple[str | int, ...], tuple[int, float]]:
        found, left_out = partitions_batches.groups(batches, by, 1000, 100)
        assert left_out == 0
        return {tuple(one.key[name] for name in by): (one.batches, one.share) for one in found}

    assert keys("leader") == {(1,): (2, 0.3), (2,): (2, 0.7)}
    assert keys("reason") == {("full",): (1, 0.1), ("linger",): (3, 0.9)}
    assert keys("date") == {("2026-11-18",): (3, 0.6), ("2026-11-19",): (1, 0.4)}
    assert keys("hour") == {("2026-11-18T11",): (2, 0.3), ("2026-11-18T12",): (1, 0.3), ("2026-11-19T17",): (1, 0.4)}
    assert list(keys("minute")) == [
        ("2026-11-18T11:06",),
        ("2026-11-18T11:07",),
        ("2026-11-18T12:06",),
        ("2026-11-19T17:06",),
    ]
    # Shares are of what is alike in topic and time, where something else tells apart.
    assert keys("topic", "worker") == {("t", 0): (1, 100 / 300), ("t", 1): (1, 200 / 300), ("u", 1): (2, 1.0)}
    assert keys("topic", "date") == {
        ("t", "2026-11-18"): (2, 0.3),
        ("u", "2026-11-18"): (1, 0.3),
        ("u", "2026-11-19"): (1, 0.4),
    }
