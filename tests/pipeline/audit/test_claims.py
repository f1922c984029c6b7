"""What records are by their CRCs, as the ledger's own description has it."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.testing import assertDataFrameEqual

from forebay_pipeline.audit.claims import content, match, part_crc, record_crc, record_xxh64
from forebay_pipeline.audit.ranges import RANGE_COLUMNS, Range
from forebay_pipeline.audit.topics import RECORD_COLUMNS
from tests.pipeline.rows import content_crcs

SHAPES: list[tuple[bytes | None, bytes | None]] = [
    (None, None),
    (None, b""),
    (b"", None),
    (b"", b""),
    (b"k", b"v"),
    (None, b"kv"),
    (b"kv", b""),
    (b"\x00\xff" * 300, b"\xff" * 70_000),
]


def test_a_records_checksums_tell_null_from_empty_and_key_from_value(spark: SparkSession) -> None:
    records = spark.createDataFrame([(*shape,) for shape in SHAPES], "key binary, value binary")
    expected = [content_crcs([shape])[1:] for shape in SHAPES]
    assert len(set(expected)) == len(SHAPES)
    found = records.select(record_crc().alias("crc"), record_xxh64().alias("xxh64"))
    assertDataFrameEqual(found, spark.createDataFrame(expected, "crc bigint, xxh64 bigint"))


def test_a_parts_crc_is_in_the_order_of_offsets(spark: SparkSession) -> None:
    backwards = reversed(list(enumerate(SHAPES)))
    records = spark.createDataFrame(
        [("t", 0, offset, *shape) for offset, shape in backwards], RECORD_COLUMNS
    ).withColumn("crc", record_crc())
    found = records.groupBy("topic").agg(part_crc(F.collect_list(F.struct("offset", "crc"))).alias("crc"))
    assertDataFrameEqual(found, spark.createDataFrame([("t", content_crcs(SHAPES)[0])], "topic string, crc bigint"))


def test_every_offset_that_is_claimed_or_there(spark: SparkSession) -> None:
    """2 … 7 is read; 3 … 5 is claimed, of which 4 is not there; 5 is claimed twice, one of these is not checked."""
    read = Range(
        place=9,
        topic="t",
        partition=1,
        earliest=0,
        latest=10,
        first=2,
        end=8,
        settled=0,
        compacted=False,
        gone=False,
    )
    ranges = spark.createDataFrame([read], RANGE_COLUMNS)
    records = spark.createDataFrame(
        [("t", 1, offset, None, b"") for offset in range(10) if offset != 4] + [("t", 0, 3, None, b"")], RECORD_COLUMNS
    )
    claims = spark.createDataFrame(
        [(9, 3, 6, 3, 77, True), (9, 5, 6, 5, 78, False), (9, 8, 8, 8, 79, True)],
        "place int, inside_first bigint, inside_end bigint, base_offset bigint, part bigint, checked boolean",
    )
    crc, xxh64 = content_crcs([(None, b"")])[1:]
    expected = spark.createDataFrame(
        [
            (9, 2, crc, xxh64, None, None, None, None),
            (9, 3, crc, xxh64, None, 3, 77, True),
            (9, 4, None, None, None, 3, 77, True),
            (9, 5, crc, xxh64, None, 3, 77, True),
            (9, 5, crc, xxh64, None, None, None, True),
            (9, 6, crc, xxh64, None, None, None, None),
            (9, 7, crc, xxh64, None, None, None, None),
        ],
        "place int, offset bigint, crc bigint, xxh64 bigint, key bigint, base_offset bigint, part bigint, "
        "claimed boolean",
    )
    assertDataFrameEqual(match(content(records, ranges), claims), expected)
