"""Which rows go to which table, in which columns and order, and how a batch is named."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from forebay_pipeline.errors import CannotRun
from forebay_pipeline.journal import table_writer
from forebay_pipeline.journal.schema import DAY, SPARK_SCHEMA, UNKNOWN, columns_of
from forebay_pipeline.journal.source import JournalPlace, read_rows
from forebay_pipeline.journal.table_writer import TableWriter, order
from forebay_pipeline.storage import Storage
from forebay_policies.journal_rows import BatchRow, GaugeRow
from tests.pipeline import rows as make
from tests.pipeline.rows import json_lines, write_lines


class Appended:
    """Instead of tables: what they are given."""

    def __init__(self) -> None:
        self.rows: dict[str, list[Any]] = {}
        self.columns: dict[str, list[str]] = {}
        self.batches: set[tuple[str, int]] = set()

    def last(self, name: str, query: str) -> int:
        return 6 if (name, query) == ("gauge", "the query") else -1

    def append(self, name: str, rows: DataFrame, query: str, batch: int) -> None:
        self.rows[name] = rows.collect()
        self.columns[name] = rows.columns
        self.batches.add((query, batch))


@pytest.fixture
def appended(spark: SparkSession, tmp_path: Path) -> Appended:
    """A batch of two kinds, one that nobody knows, and a torn line."""
    lines = json_lines([make.batch_row(topic="b"), make.batch_row(topic="a"), make.gauge_row()])
    write_lines(tmp_path / "journal", lines + b'{"kind":"moonphase","time_us":1}\n{"kind":"ba')
    rows = read_rows(spark, JournalPlace(str(tmp_path / "journal"))).withColumn(UNKNOWN, F.lit(None).cast("string"))
    (tmp_path / "checkpoint" / "offsets").mkdir(parents=True)
    (tmp_path / "checkpoint" / "offsets" / "6").touch()
    (tmp_path / "checkpoint" / "metadata").write_text('{"id":"the query"}')
    tables = Appended()
    writer = TableWriter(
        tables,  # type: ignore[arg-type]
        Storage(spark),
        str(tmp_path / "lake"),
        str(tmp_path / "checkpoint"),
    )
    writer.batch(rows, 7)
    return tables


def test_each_kind_has_a_table_with_its_own_columns(appended: Appended) -> None:
    assert {name: len(rows) for name, rows in appended.rows.items()} == {"batch": 2, "gauge": 1, "other": 2}
    assert appended.columns["batch"] == [DAY, *columns_of(BatchRow)[1:], UNKNOWN]
    assert appended.columns["gauge"] == [DAY, *columns_of(GaugeRow)[1:], UNKNOWN]
    assert appended.columns["other"] == [DAY, *SPARK_SCHEMA.names, UNKNOWN]


def test_rows_are_sorted_and_have_their_day(appended: Appended) -> None:
    assert [(row.topic, str(row.dt)) for row in appended.rows["batch"]] == [("a", "2026-11-18"), ("b", "2026-11-18")]
    assert {row.kind: str(row.dt) for row in appended.rows["other"]} == {"_torn": "None", "moonphase": "1970-01-01"}


def test_the_batch_is_named_by_the_checkpoint(appended: Appended) -> None:
    assert appended.batches == {("the query", 7)}


def test_a_checkpoint_that_is_behind_any_of_its_tables_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """What it reads next would have the number of a batch that they have."""
    tables: Any = Appended()
    (tmp_path / "offsets").mkdir()
    (tmp_path / "metadata").write_text('{"id":"the query"}')
    for begun, allowed in ((None, False), (5, False), (6, True), (10, True)):
        if begun is not None:
            (tmp_path / "offsets" / f"{begun}").touch()
        refused = pytest.raises(CannotRun, match=f"^lake has batches that the checkpoint {tmp_path} does not know, ")
        with contextlib.nullcontext() if allowed else refused:
            TableWriter(tables, Storage(spark), "lake", str(tmp_path))
    (tmp_path / "metadata").write_text('{"id":"another"}')
    shutil.rmtree(tmp_path / "offsets")  # as if it had ended before its first batch
    TableWriter(tables, Storage(spark), "lake", str(tmp_path))


def test_large_batches_become_several_files_none_of_which_has_all_topics(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_writer, "_ROWS_A_FILE", 5)
    found: list[list[str]] = []

    class Files(Appended):
        def append(self, name: str, rows: DataFrame, query: str, batch: int) -> None:
            found.extend(rows.rdd.mapPartitions(lambda part: [[row.topic for row in part]]).collect())

    lines = json_lines(make.batch_row(topic=f"t{number % 10}") for number in range(20))
    write_lines(tmp_path, lines)
    rows = read_rows(spark, JournalPlace(str(tmp_path))).withColumn(UNKNOWN, F.lit(None).cast("string"))
    (tmp_path / "metadata").write_text('{"id":"q"}')
    TableWriter(Files(), Storage(spark), str(tmp_path / "lake"), str(tmp_path)).batch(rows, 0)  # type: ignore[arg-type]
    assert 2 < len(found) <= 4
    assert all(part == sorted(part) and len(set(part)) < 6 for part in found)


def test_what_has_no_topic_is_sorted_by_time() -> None:
    assert order(columns_of(BatchRow)) == ["topic", "time_us"]
    assert order(columns_of(GaugeRow)) == ["time_us"]
