"""Spans, as a filter of rows and of their days."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from forebay_pipeline.journal.span import ALL_TIME, DAY_US, Span

ROWS = [
    ("batch", time_us, day) for time_us, day in ((5, "1970-01-01"), (DAY_US, "1970-01-02"), (DAY_US + 1, "1970-01-02"))
]


@pytest.mark.parametrize(
    ("span", "times"),
    [
        (ALL_TIME, [5, DAY_US, DAY_US + 1]),
        (Span(5, DAY_US), [5]),
        (Span(DAY_US), [DAY_US, DAY_US + 1]),
        (Span(last=DAY_US + 1), [5, DAY_US]),
    ],
)
def test_rows_of_a_span_and_what_could_not_be_read(spark: SparkSession, span: Span, times: list[int]) -> None:
    rows = spark.createDataFrame([*ROWS, ("_torn", None, None)], "kind string, time_us long, dt string")
    for found in (span.of(rows), span.of_days(rows)):
        assert [row.time_us for row in found.orderBy("time_us").collect()] == [None, *times]
