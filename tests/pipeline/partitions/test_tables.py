"""A summary in tables and sentences."""

from __future__ import annotations

import msgspec
import pytest

from forebay_pipeline.partitions import tables
from forebay_pipeline.partitions.summary import MetadataUse, Summary
from tests.pipeline.report.known import known


@pytest.fixture(scope="module")
def summary() -> Summary:
    return known().summary


def test_integers_get_separators_and_text_stays() -> None:
    made = tables.table("T", ["a", "b", "c"], [(1234, "1234", 0.5)], left_out=2)
    assert made == tables.Table("T", ["a", "b", "c"], [["1,234", "1234", "0.5"]], 2)


def test_a_column_of_numbers_is_numeric() -> None:
    made = tables.table("T", ["name", "count", "some"], [("1 a", 7, ""), ("b", 1234, "2.5")])
    assert made.numeric() == [False, True, True]


def test_each_table_has_a_cell_for_each_column(summary: Summary) -> None:
    makers = (
        tables.sizes,
        tables.times,
        tables.skew,
        tables.runaways,
        tables.reasons,
        tables.fates,
        tables.workers,
    )
    for make in makers:
        made = make(summary)
        assert made.rows
        assert {len(row) for row in made.rows} == {len(made.header)}, made.title


def test_what_was_left_out_is_told(summary: Summary) -> None:
    assert (tables.sizes(summary).left_out, tables.skew(summary).left_out) == (40, 0)


def test_a_runaway_that_has_not_recovered_is_ongoing(summary: Summary) -> None:
    assert [row[3] for row in tables.runaways(summary).rows] == ["2026-11-18T11:43:20Z", "ongoing"]


def test_metadata_that_nobody_asked_for_is_not_told(summary: Summary) -> None:
    use = summary.metadata
    assert tables.metadata(summary).startswith("Metadata: 98.8 % of 99,200 topic lookups were cached; ")
    nothing = MetadataUse(**{**msgspec.structs.asdict(use), "hit_rate": None})
    assert tables.metadata(msgspec.structs.replace(summary, metadata=nothing)) == ""


def test_what_is_incomplete_is_told(summary: Summary) -> None:
    assert list(tables.warnings(summary)) == [
        "Journal rows dropped because the disk or the topic was slow or full: 24.",
        "Unreadable lines or files in the journal: 1.",
    ]
    assert list(tables.warnings(msgspec.structs.replace(summary, workers=[], torn=0))) == []
    (told,) = tables.warnings(msgspec.structs.replace(summary, workers=[], torn=0, clusters=["A", "B"]))
    assert told.startswith("The journal is of 2 clusters (A, B): ")


def test_errors_have_kafkas_names() -> None:
    assert (tables.error_name(0), tables.error_name(6)) == ("NONE", "NOT_LEADER_OR_FOLLOWER")
    assert tables.error_name(9999) == "9999"


def test_numbers_for_people() -> None:
    assert (tables.percent(0.628), tables.ms(1_234_567)) == ("62.8", "1,234.6")
    assert [tables.rate(each) for each in (1234.5, 10, 9.96, 0.0412, 0)] == ["1,234", "10", "10", "0.041", "0"]
