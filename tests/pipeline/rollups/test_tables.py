"""The tables of a day, by what they declare."""

from __future__ import annotations

from pyspark.sql import SparkSession

from forebay_pipeline.rollups.tables import HOUR_TIMES, RACKS, TABLES


def test_names_are_unique() -> None:
    assert len({table.name for table in TABLES}) == len(TABLES)
    assert all(len(table.columns) == len(table.keys) + len(table.values) for table in TABLES)


def test_schemas_are_sparks(spark: SparkSession) -> None:
    for table in TABLES:
        assert spark.createDataFrame([], table.schema).columns == list(table.columns)
    assert HOUR_TIMES.schema == "time_us bigint, measure string, bucket int, batches bigint"


def test_values_add_up_by_keys(spark: SparkSession) -> None:
    rows = spark.createDataFrame([("t", 1, 2, 3), ("u", 1, 0, 0), ("t", 10, 20, 30)], RACKS.schema)
    assert [tuple(row) for row in RACKS.summed(rows).orderBy("topic").collect()] == [("t", 11, 22, 33), ("u", 1, 0, 0)]
