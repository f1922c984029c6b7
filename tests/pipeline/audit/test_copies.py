"""Which records that nobody claims are searched for copies, and what of them is told."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from forebay_pipeline.audit import copies as audit_copies
from forebay_pipeline.audit.copy_search import FOUND
from forebay_pipeline.audit.ledger import ACKNOWLEDGED

UNCLAIMED = "topic string, place int, offset bigint, crc bigint, xxh64 bigint, fresh boolean"


@pytest.mark.whole
def test_where_more_begin_so_than_are_compared_it_is_told(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three parts begin with record 7, the shortest of which is there once more; another record has its CRC. What an
    earlier audit has seen was told by that."""
    parts = parts_of(
        spark.createDataFrame(
            [(7, 70, 2), (7, 70, 3), (7, 70, 1), (8, 80, 1)], "first_crc int, first_xxh64 int, records int"
        ),
        F.when(F.col("records") == 1, F.crc32(F.unhex(F.lpad(F.hex("first_crc"), 8, "0")))).otherwise(F.col("records")),
    )
    unclaimed = spark.createDataFrame(
        [("t", 0, 10, 7, 70, True), ("t", 0, 20, 7, 71, True), ("t", 0, 30, 7, 70, False), ("t", 0, 40, 8, 80, True)],
        UNCLAIMED,
    )
    assert audit_copies.find(unclaimed, parts).count() == 3
    assert audit_copies.uncompared(unclaimed, parts) == 0
    monkeypatch.setattr(audit_copies, "MAX_VARIANTS", 2)
    assert [row.offset for row in audit_copies.find(unclaimed, parts).collect()] == [40]
    assert audit_copies.uncompared(unclaimed, parts) == 1


def test_partitions_in_which_no_copy_may_begin_are_not_searched(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one a record has the CRC of a part's first, of another none has; of the third all records are searched."""
    first = "first_crc int, first_xxh64 int, records int"
    parts = parts_of(spark.createDataFrame([(7, 70, 2)], first), F.col("records"))
    unclaimed = spark.createDataFrame(
        [("t", 0, 10, 7, 71, True), ("t", 1, 20, 8, 80, True), ("t", 2, 30, 7, 70, True), ("t", 2, 31, 9, 90, True)],
        UNCLAIMED,
    )

    def searched_in(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = [
                dict.fromkeys(FOUND.names, 0) | each for each in batch.select(["topic", "place", "offset"]).to_pylist()
            ]
            yield pa.RecordBatch.from_pylist(rows, schema=FOUND)

    monkeypatch.setattr(audit_copies, "search", searched_in)
    searched = audit_copies.find(unclaimed, parts).orderBy("offset").collect()
    assert [(row.place, row.offset) for row in searched] == [(2, 30), (2, 31)]


# At scale


def contents(spark: SparkSession, of: str, count: int) -> DataFrame:
    """So many records like no other: id, first_crc and first_xxh64 of each."""
    # Hashed, for a CRC is linear: of numbers in their order it has fewer twins than of contents at random.
    content = F.md5(F.concat(F.lit(of), F.col("id").cast("string")))
    return spark.range(count).select(
        "id", F.crc32(content).alias("first_crc"), F.xxhash64(content).alias("first_xxh64")
    )


def parts_of(sent: DataFrame, crc: Column) -> DataFrame:
    """Acknowledged parts: their first records and their sizes are `sent`."""
    return sent.select(
        "first_crc",
        "first_xxh64",
        "records",
        F.lit("t").alias("topic"),
        crc.alias("crc"),
        F.lit(ACKNOWLEDGED).alias("fate"),
        F.lit(True).alias("checked"),
        *(F.lit(0).alias(name) for name in ("partition", "base_offset", "time_us", "connection", "number")),
        *(F.lit("p").alias(name) for name in ("process", "client_id", "principal")),
    )


@pytest.mark.parametrize(
    "count", [1_000, pytest.param(10_000_000, marks=[pytest.mark.whole, pytest.mark.timeout(1800)])]
)
def test_records_of_others_are_no_copies_of_parts_of_one_record(spark: SparkSession, count: int) -> None:
    """Those that are copies are found; without XXH64, as in older ledgers, some of the others would be, by chance."""
    one = F.unhex(F.lpad(F.hex("first_crc"), 8, "0"))
    parts = parts_of(contents(spark, "ours ", count).withColumn("records", F.lit(1)), F.crc32(one))
    others = contents(spark, "theirs ", count).union(contents(spark, "ours ", 10).withColumn("id", F.col("id") + count))
    unclaimed = others.select(
        F.lit("t").alias("topic"),
        (F.col("id") % 8).cast("int").alias("place"),
        F.col("id").alias("offset"),
        F.col("first_crc").alias("crc"),
        F.col("first_xxh64").alias("xxh64"),
    )
    assert audit_copies.find(unclaimed, parts).count() == 10
    if count > 1_000_000:
        old = parts.withColumn("first_xxh64", F.lit(None).cast("long"))
        by_chance = count * count / 2**32
        assert 0.9 * by_chance < audit_copies.find(unclaimed, old).count() - 10 < 1.1 * by_chance
