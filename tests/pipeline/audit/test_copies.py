"""The search for copies among records that nobody claims, beside one that remembers everything."""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from forebay_pipeline.audit import copies as audit_copies
from forebay_pipeline.audit.copies import Copy, Run, Variants
from forebay_pipeline.audit.ledger import ACKNOWLEDGED


def crc_of(crcs: Sequence[int]) -> int:
    return zlib.crc32(b"".join(crc.to_bytes(4, "big") for crc in crcs))


def variants_of(parts: Sequence[Sequence[int]]) -> dict[int, Variants]:
    """By first record, the longest first."""
    found: dict[int, list[tuple[int, int, bool, int]]] = {}
    for part in sorted(parts, key=len, reverse=True):
        found.setdefault(part[0], []).append((len(part), crc_of(part), False, 0))
    return dict(found)


def searched(records: Sequence[int], parts: Sequence[Sequence[int]]) -> list[Copy]:
    run, variants = Run(0, 100), variants_of(parts)
    copies = [copy for crc in records for copy in run.add(crc, variants.get(crc))]
    return copies + run.close()


def remembered(records: Sequence[int], parts: Sequence[Sequence[int]], at: int = 0) -> int:
    """How many records copies can explain at most: every way is tried."""
    if at >= len(records):
        return 0
    fitting = [len(part) for part in parts if list(records[at : at + len(part)]) == list(part)]
    return max(
        remembered(records, parts, at + 1), *(size + remembered(records, parts, at + size) for size in fitting), 0
    )


@pytest.mark.parametrize("seed", range(300))
def test_it_explains_what_trying_everything_explains(seed: int) -> None:
    rng = random.Random(seed)
    parts = [[rng.randrange(4) for _ in range(rng.randint(1, 4))] for _ in range(rng.randint(1, 4))]
    records = [rng.randrange(4) for _ in range(rng.randint(0, 6))]
    for _ in range(rng.randint(0, 3)):
        records += rng.choice(parts)
    copies = searched(records, parts)
    assert sum(copy.records for copy in copies) == remembered(records, parts)
    check(copies, records, parts)


@pytest.mark.parametrize("seed", range(50))
def test_where_too_many_overlap_a_record_still_belongs_to_one(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_copies, "MAX_OVERLAPPING", 3)
    rng = random.Random(seed)
    parts = [[1] * rng.randint(1, 5) for _ in range(3)]
    records = [1] * 30
    check(searched(records, parts), records, parts)


def check(copies: Sequence[Copy], records: Sequence[int], parts: Sequence[Sequence[int]]) -> None:
    """They are what they are said to be, one after the other."""
    end = 100
    for copy in copies:
        assert copy.offset >= end
        end = copy.end
        content = records[copy.offset - 100 : end - 100]
        assert content in parts
        assert (copy.records, copy.crc) == (len(content), crc_of(content))


def test_the_longest_is_not_always_the_one() -> None:
    """As where librdkafka sent a and b c, was told nothing of either, and sent a b and c d."""
    found = searched([1, 2, 3], [[1], [2, 3], [1, 2], [3, 4]])
    assert found == [Copy(100, 1, crc_of([1])), Copy(101, 2, crc_of([2, 3]))]


def test_a_copy_is_told_when_the_next_one_may_begin() -> None:
    run, variants = Run(0, 7), variants_of([[1, 2, 3]])
    told = [run.add(crc, variants.get(crc)) for crc in (1, 2, 3, 4, 1, 2, 3)]
    assert told == [[], [], [], [], [], [], [Copy(7, 3, crc_of([1, 2, 3]))]]
    assert run.close() == [Copy(11, 3, crc_of([1, 2, 3]))]


def test_a_copy_that_is_cut_short_is_none() -> None:
    assert searched([1, 2], [[1, 2, 3]]) == []


def test_refused_parts_are_the_likelier_ones() -> None:
    """1 and 2 were refused, and are there; 1 2 was acknowledged elsewhere."""
    whole, one, two = crc_of([1, 2]), crc_of([1]), crc_of([2])
    run = Run(0, 0)
    told = run.add(1, [(2, whole, False, 0), (1, one, True, 0)]) + run.add(2, [(1, two, True, 0)])
    assert told + run.close() == [Copy(0, 1, one, refused=True), Copy(1, 1, two, refused=True)]


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
    found = audit_copies._FOUND

    def searched_in(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = [
                dict.fromkeys(found.names, 0) | each for each in batch.select(["topic", "place", "offset"]).to_pylist()
            ]
            yield pa.RecordBatch.from_pylist(rows, schema=found)

    monkeypatch.setattr(audit_copies, "_search", searched_in)
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
