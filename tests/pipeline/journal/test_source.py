"""The journal as a DataFrame: files, what is wrong in them, Parquet, spans."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import zstandard
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.testing import assertDataFrameEqual

from forebay_pipeline.errors import CannotRun
from forebay_pipeline.journal.columns import day_of
from forebay_pipeline.journal.schema import columns_of
from forebay_pipeline.journal.source import JournalPlace, closed_files, days, of_kind, read_rows, reader, torn
from forebay_pipeline.journal.span import ALL_TIME, Span
from forebay_pipeline.journal.tables import Format, tables_in
from forebay_policies.journal_rows import (
    ROWS,
    VERSION,
    BatchRow,
    GaugeRow,
    LedgerRow,
    ObservedRow,
    RackRow,
    Row,
)
from tests.kit.spark import EITHER_TABLE
from tests.pipeline import rows as make
from tests.pipeline.files_read import files_read
from tests.pipeline.rows import START_US, json_lines, write_journal, write_lines

ONE_OF_EACH: list[Row] = [
    make.batch_row(topic="a", partition=3),
    make.choice_row(loaded_partitions=[1, 2], loads=[20, 30]),
    make.metadata_row(topics=-1),
    make.observed_row(codec=2),
    make.gauge_row(pool_waiters=2),
    make.rack_row(other_bytes=3),
    make.ledger_row([make.ledger_part([(None, b"x")]), make.ledger_part([(b"k", None)])]),
]


def as_dicts(spark: SparkSession, folder: Path, kind: type[msgspec.Struct]) -> list[dict[str, object]]:
    found = of_kind(read_rows(spark, JournalPlace(str(folder))), kind)
    assert found.columns == columns_of(kind)
    return [row.asDict(recursive=True) for row in found.collect()]


@pytest.mark.parametrize("kind", ROWS, ids=lambda kind: kind.__name__)
def test_every_kind_comes_back_as_it_was_written(
    spark: SparkSession, tmp_path: Path, kind: type[msgspec.Struct]
) -> None:
    write_journal(tmp_path, ONE_OF_EACH)
    (written,) = [msgspec.to_builtins(row) for row in ONE_OF_EACH if isinstance(row, kind)]
    assert as_dicts(spark, tmp_path, kind) == [written]


def test_a_torn_last_line_costs_that_line_only(spark: SparkSession, tmp_path: Path) -> None:
    lines = json_lines([make.batch_row(partition=number) for number in range(3)])
    write_lines(tmp_path, lines[:-40])
    found = read_rows(spark, JournalPlace(str(tmp_path)))
    assert [row.partition for row in of_kind(found, BatchRow).orderBy("partition").collect()] == [0, 1]
    (error,) = torn(found).collect()
    assert "torn line" in error.error
    assert "a.jsonl.zst" in error.error


def test_a_file_cut_in_the_middle_of_its_compressed_bytes_gives_what_it_holds(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = write_journal(
        tmp_path, [make.batch_row(partition=number % 7, load=number * 7919) for number in range(50_000)]
    )
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])
    found = read_rows(spark, JournalPlace(str(tmp_path)))
    assert 10_000 < of_kind(found, BatchRow).count() < 50_000
    assert [row.error.rpartition(": ")[2] for row in torn(found).collect()] == ["a torn line", "the file is cut off"]


def test_foreign_files_are_told_and_skipped(spark: SparkSession, tmp_path: Path) -> None:
    path = write_journal(tmp_path, [make.batch_row()])
    (path.parent / "b.jsonl.zst").write_bytes(b"this is no zstd")
    (path.parent / "notes.txt").write_text("mine")
    (path.parent / ".c.jsonl.zst").write_bytes(b"not finished")
    found = read_rows(spark, JournalPlace(str(tmp_path)))
    assert of_kind(found, BatchRow).count() == 1
    (error,) = torn(found).collect()
    assert "b.jsonl.zst" in error.error


def test_lines_that_are_no_rows_are_torn(spark: SparkSession, tmp_path: Path) -> None:
    """Each in a file of its own: it must be found whatever else there is."""
    good = json_lines([make.batch_row()])
    torn_lines = {
        "lacks-columns": b'{"kind":"batch","topic":"t"}',
        "lacks-a-kind": b'{"topic":"t"}',
        "array": b"[1,2]",
        "text": b'"text"',
        "binary": b"\x00\xff",
        "a-wrong-type": good.replace(b'"records":10', b'"records":"ten"').strip(),
    }
    for name, line in torn_lines.items():
        write_lines(tmp_path, good + line + b"\n" + good, name=name)
    found = read_rows(spark, JournalPlace(str(tmp_path)))
    assert of_kind(found, BatchRow).count() == 2 * len(torn_lines)
    told = sorted(row.error.partition(".jsonl.zst")[0].rpartition("/")[2] for row in torn(found).collect())
    assert told == sorted(torn_lines)


def test_rows_of_a_later_version_are_read_as_far_as_they_are_known(spark: SparkSession, tmp_path: Path) -> None:
    line, later = json_lines([make.batch_row()]), b'"v":%d' % (VERSION + 1)
    newer = line.replace(b'"v":%d' % VERSION, b'"later":{"a":[1]},%b' % later)
    assert newer != line
    write_lines(tmp_path, newer + b'{"kind":"moonphase","time_us":1,%b}\n' % later)
    found = read_rows(spark, JournalPlace(str(tmp_path)))
    (row,) = of_kind(found, BatchRow).collect()
    assert row.v == VERSION + 1
    assert torn(found).count() == 0


def test_columns_with_a_default_may_be_missing(spark: SparkSession, tmp_path: Path) -> None:
    older = json_lines([make.ledger_row([])]).replace(b'"error_code":0,', b"")
    write_lines(tmp_path, older)
    (row,) = of_kind(read_rows(spark, JournalPlace(str(tmp_path))), LedgerRow).collect()
    assert row.error_code is None
    assert row.parts == []


def test_rows_of_some_kinds_have_their_columns(spark: SparkSession, tmp_path: Path) -> None:
    journal, parquet = JournalPlace(str(tmp_path / "journal")), JournalPlace(str(tmp_path / "parquet"))
    write_lines(Path(str(journal)), json_lines(ONE_OF_EACH) + b'{"kind":"ledger","time_us":1')
    read_rows(spark, journal).write.partitionBy("kind", "topic").parquet(str(parquet))
    for place in (journal, parquet):
        found = read_rows(spark, place, kinds=(RackRow, BatchRow))
        assert set(found.columns) == {*columns_of(RackRow), *columns_of(BatchRow), "error"}
        assert sorted(row.kind for row in found.collect()) == ["_torn", "batch", "rack"]
        assertDataFrameEqual(of_kind(found, BatchRow), of_kind(read_rows(spark, place), BatchRow))
        assert found.columns == read_rows(spark, journal, Span(START_US * 2), kinds=(RackRow, BatchRow)).columns
        found = read_rows(spark, place, kinds=(RackRow, BatchRow), columns=("leader", "loads"))
        assert found.columns == ["kind", "time_us", "leader", "error"]
        assert read_rows(spark, place, columns=("loads",)).columns == ["kind", "time_us", "loads", "error"]


def test_what_comes_after_a_reader_was_made_is_not_read(spark: SparkSession, tmp_path: Path) -> None:
    write_journal(tmp_path, [make.batch_row(), make.gauge_row()])
    rows = reader(spark, JournalPlace(str(tmp_path)))
    write_journal(tmp_path, [make.batch_row(), make.gauge_row()], "later")
    assert [row.kind for row in rows().collect()] == ["batch", "gauge"]
    assert [row.kind for row in rows([GaugeRow], ["process"]).collect()] == ["gauge"]


def test_a_span_takes_its_first_and_not_its_last_moment(spark: SparkSession, tmp_path: Path) -> None:
    write_journal(tmp_path, [make.batch_row(time_us=START_US + second * 1_000_000) for second in range(5)])
    place = JournalPlace(str(tmp_path))
    span = Span(START_US + 1_000_000, START_US + 3_000_000)
    assert of_kind(read_rows(spark, place, span), BatchRow).count() == 2
    assert of_kind(read_rows(spark, place, ALL_TIME), BatchRow).count() == 5


def test_only_the_hours_of_the_span_are_read(spark: SparkSession, tmp_path: Path) -> None:
    hour_us = 3_600_000_000
    for hours in range(0, 10, 2):
        write_journal(tmp_path, [make.batch_row(time_us=START_US + hours * hour_us, partition=hours)], f"h{hours}")
    place = JournalPlace(str(tmp_path))
    found = read_rows(spark, place, Span(START_US + 2 * hour_us, START_US + 4 * hour_us + 1))
    assert sorted(row.partition for row in of_kind(found, BatchRow).collect()) == [2, 4]
    rows = read_rows(spark, place, Span(None, START_US + 3 * hour_us))
    assert sorted(row.partition for row in of_kind(rows, BatchRow).collect()) == [0, 2]
    assert read_rows(spark, place, Span(START_US + 100 * hour_us, None)).count() == 0


def test_no_journal(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(CannotRun, match="no such folder"):
        read_rows(spark, JournalPlace(str(tmp_path / "nowhere")))
    with pytest.raises(CannotRun, match="no closed files yet"):
        read_rows(spark, JournalPlace(str(tmp_path)))


def test_closed_files_of_a_span(spark: SparkSession, tmp_path: Path) -> None:
    hour_us = 3_600_000_000
    for hours in (-8, 0):
        path = write_journal(tmp_path, [make.batch_row(time_us=START_US + hours * hour_us)], f"h{hours}")
        (path.parent / ".open.jsonl.zst").touch()
        (path.parent / "notes.txt").touch()
    place = JournalPlace(str(tmp_path))
    assert sorted(closed_files(spark, place, ALL_TIME)) == ["h-8.jsonl.zst", "h0.jsonl.zst"]
    assert closed_files(spark, place, Span(START_US)) == ["h0.jsonl.zst"]
    assert closed_files(spark, place, Span(START_US + 100 * hour_us)) == []


def test_a_folder_may_be_given_with_its_scheme(spark: SparkSession, tmp_path: Path) -> None:
    write_journal(tmp_path, [make.batch_row()])
    assert read_rows(spark, JournalPlace(tmp_path.as_uri()), Span(START_US)).count() == 1
    nowhere = (tmp_path / "nowhere").as_uri()
    with pytest.raises(CannotRun, match=f"^There is no journal in {nowhere}: no such folder.$"):
        read_rows(spark, JournalPlace(nowhere))
    with pytest.raises(CannotRun, match=r'^Cannot read s3n://b/j: No FileSystem for scheme "s3n".$'):
        read_rows(spark, JournalPlace("s3n://b/j"))


def test_parquet_of_others_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(3).write.parquet(str(tmp_path / "kind=batch"))
    with pytest.raises(CannotRun, match=r"not written by `compact`: it lacks the columns "):
        read_rows(spark, JournalPlace(str(tmp_path)))


def test_a_span_of_days_may_go_beyond_those_that_dates_have(spark: SparkSession, tmp_path: Path) -> None:
    write_journal(tmp_path / "journal", [make.batch_row()])
    rows = read_rows(spark, JournalPlace(str(tmp_path / "journal"))).withColumn("dt", day_of("time_us").cast("string"))
    rows.write.partitionBy("kind", "dt", "topic").parquet(str(tmp_path / "parquet"))
    place, ages_us = JournalPlace(str(tmp_path / "parquet")), 10**18
    assert read_rows(spark, place, Span(None, ages_us)).count() == 1
    assert read_rows(spark, place, Span(-ages_us, START_US)).count() == 0


def test_what_an_earlier_version_compacted_lacks_the_columns_of_later_kinds(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_journal(tmp_path / "journal", [make.batch_row()])
    rows = read_rows(spark, JournalPlace(str(tmp_path / "journal")))
    later = {"null_key_records", "null_key_bytes", "chosen", "opens"}
    assert later.issubset(rows.columns)
    rows.drop(*later).write.partitionBy("kind", "topic").parquet(str(tmp_path / "parquet"))
    found = read_rows(spark, JournalPlace(str(tmp_path / "parquet")))
    assert of_kind(found, BatchRow).count() == 1
    assert of_kind(found, ObservedRow).count() == 0


@pytest.mark.whole  # test_compact.py reads an hour of Parquet so
@EITHER_TABLE
def test_an_hour_of_tables_is_read_without_their_other_days(
    spark: SparkSession, tmp_path: Path, table_format: Format
) -> None:
    """Of 90 days: of what is there, at most 2 % of the bytes; nor are tables of other kinds."""
    day_us = 86_400_000_000
    times = spark.range(180).select((F.col("id") * (day_us // 2) + (START_US - START_US % day_us)).alias("time_us"))
    rows = times.select(day_of("time_us").alias("dt"), F.lit("t").alias("topic"), "time_us").repartition(1, "dt")
    tables = tables_in(spark, str(tmp_path), table_format)
    tables.append("batch", rows, "q", 0)
    tables.append("rack", rows, "q", 0)
    place = JournalPlace(str(tmp_path), format=table_format)
    noon_us = START_US - START_US % day_us + 40 * day_us + day_us // 2
    everything = files_read(read_rows(spark, place))
    of_hour = files_read(of_kind(read_rows(spark, place, Span(noon_us, noon_us + 3_600_000_000)), BatchRow))
    assert (everything.files, [row.time_us for row in of_hour.rows]) == (180, [noon_us])
    assert of_hour.files == 1
    assert of_hour.size <= 0.02 * everything.size


def test_what_a_table_was_made_without_is_null(spark: SparkSession, tmp_path: Path) -> None:
    """Columns, and fields in them: as of tables of an earlier version."""
    parts = F.expr("array(named_struct('partition', 3L, 'records', 5L))").alias("parts")
    day = F.lit("2026-11-18").cast("date").alias("dt")
    rows = spark.range(1).select(day, F.lit(1).cast("long").alias("time_us"), parts)
    tables_in(spark, str(tmp_path), "delta").append("ledger", rows, "q", 0)
    place = JournalPlace(str(tmp_path), format="delta")
    (found,) = of_kind(read_rows(spark, place), LedgerRow).collect()
    assert (found.time_us, found.topic, found.parts[0].records, found.parts[0].crc) == (1, None, 5, None)
    assert days(spark, place) == ["2026-11-18"]


def test_a_file_larger_than_a_block(spark: SparkSession, tmp_path: Path) -> None:
    lines = json_lines([make.batch_row(partition=number) for number in range(30_000)])
    assert len(lines) > 8 << 20
    write_lines(tmp_path, lines)
    found = of_kind(read_rows(spark, JournalPlace(str(tmp_path))), BatchRow)
    assert found.selectExpr("sum(partition)", "count(*)").first() == (30_000 * 29_999 // 2, 30_000)


def test_several_frames_are_one_file(spark: SparkSession, tmp_path: Path) -> None:
    path = write_journal(tmp_path, [make.batch_row()])
    path.write_bytes(path.read_bytes() + zstandard.compress(json_lines([make.batch_row()])))
    assert of_kind(read_rows(spark, JournalPlace(str(tmp_path))), BatchRow).count() == 2


def test_files_that_are_left_out_are_not_even_opened(
    spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    kept = write_journal(tmp_path, [make.batch_row(partition=1)], "kept")
    out = write_journal(tmp_path, [make.batch_row(partition=number) for number in range(1000)], "out")
    limit = "spark.sql.sources.binaryFile.maxLength"  # Spark fails where it opens a longer one
    request.addfinalizer(lambda: spark.conf.unset(limit))
    spark.conf.set(limit, kept.stat().st_size)
    found = reader(spark, JournalPlace(str(tmp_path)), but=[out.name])()
    assert [row.partition for row in found.collect()] == [1]
    with pytest.raises(Py4JJavaError, match="exceeds the max length"):
        read_rows(spark, JournalPlace(str(tmp_path))).collect()
