"""Which folder a row goes to."""

import itertools

import pyarrow as pa
import pytest

from forebay_pipeline.journal.parquet_folders import in_folders
from forebay_pipeline.journal.schema import DAY
from tests.pipeline.rows import START_US

DAY_US = 86_400_000_000


def table(**columns: list[object]) -> pa.Table:
    types = {"time_us": pa.int64(), "topic": pa.string(), "number": pa.int64()}
    return pa.table({name: pa.array(values, types[name]) for name, values in columns.items()})


def test_rows_come_topic_by_topic_and_those_of_each_as_they_were() -> None:
    rows = table(time_us=[5, 4, 3, 2, 1], topic=["b", "a", None, "a", "b"], number=[0, 1, 2, 3, 4])
    found = in_folders(rows).to_pylist()
    assert sorted((row["topic"] or "", row["number"]) for row in found) == [
        ("", 2),
        ("a", 1),
        ("a", 3),
        ("b", 0),
        ("b", 4),
    ]
    assert [row["number"] for row in found if row["topic"] == "b"] == [0, 4]
    topics = [row["topic"] for row in found]
    assert sum(left != right for left, right in itertools.pairwise(topics)) == 2
    assert [row["time_us"] for row in found if row["number"] == 3] == [2]


@pytest.mark.parametrize(
    ("time_us", "day"),
    [
        (0, "1970-01-01"),
        (START_US, "2026-11-18"),
        (START_US // DAY_US * DAY_US - 1, "2026-11-17"),
        (253_402_300_800_000_000 - 1, "9999-12-31"),
        (None, None),
    ],
)
def test_a_day_is_that_of_utc(time_us: int | None, day: str | None) -> None:
    assert in_folders(table(time_us=[time_us, START_US], topic=["a", "a"]))[DAY].to_pylist() == [day, "2026-11-18"]


@pytest.mark.parametrize(
    ("topic", "folder"),
    [
        ("a.b-C_7", "a.b-C_7"),
        ("x" * 249, "x" * 249),
        ("x" * 250, "x" * 60 + "?"),
        ("é" * 200, "?" * 60 + "?"),
        ("a/b\0c", "a?b?c?"),
        ("orders\n", "orders??"),
        ("", ""),
        (None, None),
    ],
)
def test_a_topic_has_its_name_or_how_it_begins(topic: str | None, folder: str | None) -> None:
    assert in_folders(table(time_us=[0], topic=[topic]))["topic"].to_pylist() == [folder]


def test_what_has_no_topics_stays_in_its_order() -> None:
    rows = in_folders(table(time_us=[DAY_US, 0], number=[1, 2]))
    assert rows.to_pylist() == [
        {"time_us": DAY_US, "number": 1, DAY: "1970-01-02"},
        {"time_us": 0, "number": 2, DAY: "1970-01-01"},
    ]


def test_nothing_is_nothing() -> None:
    rows = in_folders(table(time_us=[], topic=[], number=[]))
    assert (rows.num_rows, rows.schema.names) == (0, ["time_us", "topic", "number", DAY])
