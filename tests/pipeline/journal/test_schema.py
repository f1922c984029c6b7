"""The journal's schema, beside the rows that it is derived from."""

from __future__ import annotations

import msgspec
from pyspark.sql import SparkSession
from pyspark.testing import assertDataFrameEqual

from forebay_pipeline.journal.schema import SPARK_SCHEMA, columns_of
from forebay_pipeline.journal.source import of_kind
from forebay_policies.journal_rows import ROWS, BatchRow, ChoiceRow, GaugeRow, LedgerRow, MetadataRow, ObservedRow


def test_the_schema_is_the_rows(spark: SparkSession) -> None:
    assert SPARK_SCHEMA["parts"].dataType.simpleString() == (
        "array<struct<partition:bigint,base_offset:bigint,records:bigint,bytes:bigint,movable:boolean,crc:bigint,"
        "first_crc:bigint,first_xxh64:bigint,keys:array<bigint>,tombstones:array<bigint>>>"
    )
    names = {field.encode_name for row in ROWS for field in msgspec.structs.fields(row)}
    assert set(SPARK_SCHEMA.names) == names | {"kind"}
    empty = spark.createDataFrame([], SPARK_SCHEMA)
    for row in (BatchRow, ChoiceRow, MetadataRow, GaugeRow, LedgerRow, ObservedRow):
        assertDataFrameEqual(of_kind(empty, row), empty.select(columns_of(row)))
