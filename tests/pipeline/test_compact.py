"""Each row once in Parquet, also over restarts and crashes in between."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import msgspec
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StructType
from pyspark.testing import assertDataFrameEqual

from forebay_pipeline.compact import NARROW_ONLY, WRITERS, Compacted, await_compacted, compact
from forebay_pipeline.errors import COULD_NOT_RUN, CannotRun
from forebay_pipeline.journal.columns import day_of
from forebay_pipeline.journal.schema import SPARK_SCHEMA, UNKNOWN
from forebay_pipeline.journal.source import JournalPlace, read_rows, torn
from forebay_pipeline.journal.span import Span
from forebay_pipeline.journal.tables import Format
from tests.kit.spark import EITHER_TABLE
from tests.kit.waiting import wait_until
from tests.pipeline import command_line
from tests.pipeline import rows as make
from tests.pipeline.files_read import files_read
from tests.pipeline.rows import START_US, json_lines, write_journal, write_lines

HOUR_US = 3_600_000_000
DAY_US = 24 * HOUR_US


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    folder = tmp_path / "journal"
    folder.mkdir()
    return folder


def run(
    spark: SparkSession,
    journal: Path,
    output: Path,
    output_format: Format = "parquet",
    checkpoint: Path | None = None,
) -> Compacted:
    place, progress = JournalPlace(str(journal)), str(checkpoint) if checkpoint is not None else None
    query = compact(spark, place, str(output), progress, output_format=output_format)
    return await_compacted(query)


def forget_commit(output: Path) -> None:
    """The checkpoint as it is before the last batch is done."""
    last = max((output / "_checkpoint" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    last.unlink()
    (output / "_checkpoint" / "commits" / f".{last.name}.crc").unlink(missing_ok=True)


def test_rows_are_the_same_before_and_after(spark: SparkSession, journal: Path, tmp_path: Path) -> None:
    ledger = make.ledger_row([make.ledger_part([(None, b"x")])], topic="007")
    write_journal(journal, [make.batch_row(), make.gauge_row(), ledger, make.choice_row(), make.metadata_row()])
    write_journal(journal, [make.observed_row(topic="till")], "c")
    write_journal(journal, [make.batch_row(time_us=START_US + DAY_US, topic="a.b-c_d")], "b")
    output = tmp_path / "parquet"
    assert run(spark, journal, output) == (7, 0)
    assertDataFrameEqual(read_rows(spark, JournalPlace(str(output))), read_rows(spark, JournalPlace(str(journal))))
    assert (output / "kind=ledger" / "dt=2026-11-18" / "topic=007").is_dir()
    assert (output / "kind=batch" / "dt=2026-11-19" / "topic=a.b-c_d").is_dir()


def test_whatever_clients_call_a_topic_has_a_folder(spark: SparkSession, journal: Path, tmp_path: Path) -> None:
    """Some send to names that no topic has, and that a disk would not take."""
    longest = "x" * 249
    names = ["", longest, longest + "x", "é" * 200, "a/b\0c", "orders\n"]
    write_journal(journal, [make.ledger_row([], topic=name, number=n, error_code=17) for n, name in enumerate(names)])
    assert run(spark, journal, tmp_path / "parquet") == (6, 0)
    found = read_rows(spark, JournalPlace(str(tmp_path / "parquet"))).orderBy("number").collect()
    told = ["", longest, "x" * 60 + "?", "?" * 61, "a?b?c?", "orders??"]
    assert [row.topic for row in found] == told


def test_whatever_a_session_takes_a_timestamp_for(spark: SparkSession, journal: Path, tmp_path: Path) -> None:
    write_journal(journal, [make.batch_row()])
    spark.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
    try:
        assert run(spark, journal, tmp_path / "parquet") == (1, 0)
    finally:
        spark.conf.unset("spark.sql.timestampType")


@pytest.mark.parametrize("writers", [3, *(pytest.param(number, marks=pytest.mark.whole) for number in (0, 100))])
def test_a_task_writes_each_topic_into_one_file_however_many_it_may_have_open(
    spark: SparkSession, journal: Path, tmp_path: Path, writers: int
) -> None:
    write_journal(journal, [make.batch_row(time_us=START_US + n, topic=f"t{n % 10}") for n in range(100)])
    (name,) = WRITERS
    spark.conf.set(name, writers)
    try:
        assert run(spark, journal, tmp_path / "parquet") == (100, 0)
    finally:
        spark.conf.unset(name)
    assert len(list((tmp_path / "parquet").glob("kind=batch/dt=2026-11-18/topic=t*/*.parquet"))) == 10
    found = read_rows(spark, JournalPlace(str(tmp_path / "parquet")))
    assertDataFrameEqual(found, read_rows(spark, JournalPlace(str(journal))))


def test_what_handles_rows_of_all_kinds_is_not_compiled_in_one_piece(spark: SparkSession) -> None:
    def plan(schema: StructType) -> str:
        rows = spark.range(1).mapInArrow(lambda batches: batches, schema).withColumn("day", day_of("time_us"))
        return str(rows._jdf.queryExecution().executedPlan().treeString())

    used = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK", **NARROW_ONLY}
    before = {each: spark.conf.get(each) for each in used}
    try:
        for each, value in used.items():
            spark.conf.set(each, value)
        assert ") Project" not in plan(SPARK_SCHEMA)
        assert ") Project" in plan(StructType([SPARK_SCHEMA["time_us"]]))
    finally:
        for each, old in before.items():
            assert old is not None
            spark.conf.set(each, old)


def test_fields_of_a_later_version_are_kept_for_those_who_know_them(
    spark: SparkSession, journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In rows, in parts, and a kind of which nothing is known, beside a torn line and a row without any."""
    ledger = make.ledger_row([make.ledger_part([(b"k", b"x")])], topic_id="an id")
    lines = json_lines([make.batch_row(), ledger]).replace(b'"topic_id":"an id"', b'"topic_id":"an id","later":[1]')
    lines = lines.replace(b'"keys":null', b'"keys":null,"mood":"fair"')
    write_lines(journal, lines + b'{"kind":"moonphase","time_us":1,"phase":{"full":true}}\n{"kind":"ba')
    output = tmp_path / "parquet"
    assert run(spark, journal, output) == (3, 1)
    kept = {row.kind: row[UNKNOWN] for row in spark.read.parquet(str(output)).collect()}
    assert (kept["batch"], kept["moonphase"]) == (None, '{"phase":{"full":true}}')
    assert msgspec.json.decode(kept["ledger"]).keys() == {"later", "parts"}
    assert '"mood":"fair"' in kept["ledger"]
    assertDataFrameEqual(read_rows(spark, JournalPlace(str(output))), read_rows(spark, JournalPlace(str(journal))))


def test_what_was_unknown_when_it_was_compacted_is_a_column_now(
    spark: SparkSession, journal: Path, tmp_path: Path
) -> None:
    rows = spark.read.schema("kind string, time_us bigint, process string, topic string, _unknown string").json(
        spark.sparkContext.parallelize(
            [
                '{"kind":"batch","time_us":1,"process":"p","topic":"t","_unknown":"{\\"seq\\":7,\\"phase\\":1}"}',
                '{"kind":"batch","time_us":2,"process":"p","topic":"t"}',
            ]
        )
    )
    whole = rows.select(
        *(
            F.col(name) if name in rows.columns else F.lit(None).cast(SPARK_SCHEMA[name].dataType).alias(name)
            for name in SPARK_SCHEMA.names
            if name != "seq"
        ),
        "_unknown",
    )
    whole.write.partitionBy("kind", "topic").parquet(str(tmp_path / "parquet"))
    found = read_rows(spark, JournalPlace(str(tmp_path / "parquet"))).select("time_us", "seq").collect()
    assert {row.time_us: row.seq for row in found} == {1: 7, 2: None}


@EITHER_TABLE
def test_tables_have_the_same_rows(spark: SparkSession, journal: Path, tmp_path: Path, table_format: Format) -> None:
    """Of all kinds, of one that nobody knows yet, and torn lines; in a further run only what is new."""
    ledger = make.ledger_row([make.ledger_part([(b"k", b"x")])], topic="007")
    lines = json_lines([make.batch_row(), make.gauge_row(), ledger])
    write_lines(journal, lines + b'{"kind":"moonphase","time_us":1,"phase":{"full":true}}\n{"kind":"ba')
    output = tmp_path / "lake"
    assert run(spark, journal, output, table_format) == (4, 1)
    write_journal(journal, [make.batch_row(time_us=START_US + DAY_US, topic="a.b-c_d")], "b")
    assert run(spark, journal, output, table_format) == (1, 0)
    place = JournalPlace(str(output), format=table_format)
    assertDataFrameEqual(read_rows(spark, place), read_rows(spark, JournalPlace(str(journal))))
    found = read_rows(spark, place, Span(START_US + DAY_US))
    assert sorted(row.kind for row in found.select("kind").collect()) == ["_torn", "batch"]
    with pytest.raises(CannotRun, match=f"^{output} was written by `compact --format {table_format}`: give --format"):
        read_rows(spark, JournalPlace(str(output)))


@pytest.mark.whole  # journal/test_tables.py has that a batch is appended once
@EITHER_TABLE
def test_a_batch_that_was_written_but_not_committed_is_not_written_again(
    spark: SparkSession, journal: Path, tmp_path: Path, table_format: Format
) -> None:
    """A run that ended after the table's commit, and before the checkpoint's."""
    output = tmp_path / "lake"
    write_journal(journal, [make.batch_row(partition=1), make.batch_row(partition=2)])
    run(spark, journal, output, table_format)
    forget_commit(output)
    run(spark, journal, output, table_format)
    found = read_rows(spark, JournalPlace(str(output), format=table_format)).collect()
    assert sorted(row.partition for row in found) == [1, 2]


@pytest.mark.whole  # journal/test_table_writer.py has what is refused
@EITHER_TABLE
def test_rows_that_a_checkpoint_from_a_backup_would_leave_out_are_refused(
    spark: SparkSession, journal: Path, tmp_path: Path, table_format: Format
) -> None:
    """Its next batch has the number of one that the tables have, and other rows."""
    output, progress = tmp_path / "lake", tmp_path / "progress"
    for number in range(2):
        write_journal(journal, [make.batch_row(partition=number)], f"{number}")
        run(spark, journal, output, table_format, progress)
        shutil.copytree(progress, tmp_path / f"backup{number}")
    write_journal(journal, [make.batch_row(partition=2)], "c")
    with pytest.raises(CannotRun, match=f"^{output} has batches that the checkpoint {tmp_path}/backup0 does not know"):
        run(spark, journal, output, table_format, tmp_path / "backup0")
    assert run(spark, journal, output, table_format, tmp_path / "backup1").rows == 1
    found = read_rows(spark, JournalPlace(str(output), format=table_format)).collect()
    assert sorted(row.partition for row in found) == [0, 1, 2]


def test_a_further_run_takes_only_what_is_new(spark: SparkSession, journal: Path, tmp_path: Path) -> None:
    output = tmp_path / "parquet"
    write_journal(journal, [make.batch_row(), make.batch_row()])
    assert run(spark, journal, output).rows == 2
    assert run(spark, journal, output).rows == 0
    write_journal(journal, [make.batch_row()], "b")
    assert run(spark, journal, output).rows == 1
    assert read_rows(spark, JournalPlace(str(output))).count() == 3


def test_a_journal_that_was_moved_is_not_taken_again(spark: SparkSession, journal: Path, tmp_path: Path) -> None:
    output = tmp_path / "parquet"
    write_journal(journal, [make.batch_row(), make.batch_row()])
    run(spark, journal, output)
    moved = journal.rename(tmp_path / "moved")
    write_journal(moved, [make.batch_row()], "b")
    assert run(spark, moved, output).rows == 1
    assert read_rows(spark, JournalPlace(str(output))).count() == 3


def test_files_that_are_much_older_than_what_was_read_are_taken_too(
    spark: SparkSession, journal: Path, tmp_path: Path
) -> None:
    """Of a second host, copied with their times."""
    for days in (0, 300):
        at_us = START_US - days * DAY_US
        os.utime(write_journal(journal, [make.batch_row(time_us=at_us)], f"old{days}"), (at_us / 1e6, at_us / 1e6))
        assert run(spark, journal, tmp_path / "parquet").rows == 1


def test_what_a_crash_left_half_written_is_neither_lost_nor_doubled(
    spark: SparkSession, journal: Path, tmp_path: Path
) -> None:
    """A run that ended between writing and committing: the files are there, the commit is not."""
    output = tmp_path / "parquet"
    write_journal(journal, [make.batch_row()])
    run(spark, journal, output)
    write_journal(journal, [make.batch_row(partition=1), make.batch_row(partition=2)], "b")
    run(spark, journal, output)
    forget_commit(output)
    run(spark, journal, output)
    partitions = [row.partition for row in read_rows(spark, JournalPlace(str(output))).collect()]
    assert sorted(partitions) == [0, 1, 2]


def test_rows_that_another_checkpoint_would_leave_out_are_refused(
    spark: SparkSession, journal: Path, tmp_path: Path
) -> None:
    """Of a second journal, and of the same one once its checkpoint is lost."""
    output, second = tmp_path / "parquet", tmp_path / "second"
    write_journal(journal, [make.batch_row()])
    write_journal(second, [make.batch_row(partition=1)], "b")
    run(spark, journal, output)
    with pytest.raises(CannotRun, match=f"^{output} has batches .* the checkpoint {tmp_path}/other: "):
        run(spark, second, output, checkpoint=tmp_path / "other")
    assert not (tmp_path / "other").exists()
    assert (output / "_query").exists()
    (output / "_checkpoint").rename(tmp_path / "kept")
    with pytest.raises(CannotRun, match=f"^{output} has batches .* the checkpoint {output}/_checkpoint: "):
        run(spark, journal, output)
    write_journal(journal, [make.batch_row(partition=2)], "c")
    assert run(spark, journal, output, checkpoint=tmp_path / "kept").rows == 1
    partitions = [row.partition for row in read_rows(spark, JournalPlace(str(output))).collect()]
    assert sorted(partitions) == [0, 2]


def test_an_output_is_its_checkpoints_before_the_first_batch_is_written(
    spark: SparkSession, journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else one that was killed right after that batch would be refused by its own output."""
    output = tmp_path / "parquet"
    write_journal(journal, [make.batch_row()])
    with monkeypatch.context() as patch:
        patch.setattr(DataStreamWriter, "start", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            run(spark, journal, output)
    noted = (output / "_query").read_bytes()
    assert not (output / "_spark_metadata").exists()
    assert run(spark, journal, output).rows == 1
    assert (output / "_checkpoint" / "metadata").read_bytes() == noted == (output / "_query").read_bytes()


def test_days_that_are_left_are_read_when_the_oldest_are_deleted(
    spark: SparkSession, journal: Path, tmp_path: Path
) -> None:
    output = tmp_path / "parquet"
    for number in range(2):
        write_journal(journal, [make.batch_row(partition=number, time_us=START_US + number * DAY_US)], f"{number}")
        run(spark, journal, output)
    for day in output.glob("kind=*/dt=2026-11-18"):
        shutil.rmtree(day)
    found = read_rows(spark, JournalPlace(str(output)), Span(START_US + DAY_US))
    assert [row.partition for row in found.collect()] == [1]


def test_parquet_that_was_moved_or_copied_is_refused(spark: SparkSession, journal: Path, tmp_path: Path) -> None:
    """Spark would read the original's files, or none."""
    output, copy = tmp_path / "par quet", tmp_path / "copy"
    write_journal(journal, [make.batch_row()])
    run(spark, journal, output)
    shutil.copytree(output, copy)
    for refused in (
        lambda: read_rows(spark, JournalPlace(str(copy))),
        lambda: run(spark, journal, copy),
    ):
        with pytest.raises(CannotRun, match=f"^{copy} was moved or copied: .* names files in file:{output}. Give that"):
            refused()
    assert read_rows(spark, JournalPlace(f"file://{output}/")).count() == 1


def test_lines_that_could_not_be_read_are_counted_and_kept(spark: SparkSession, journal: Path, tmp_path: Path) -> None:
    write_lines(journal, json_lines([make.batch_row()]) + b'{"kind":"ba')
    output = tmp_path / "parquet"
    assert run(spark, journal, output) == (1, 1)
    assert torn(read_rows(spark, JournalPlace(str(output)))).count() == 1


@pytest.mark.parametrize(("days", "share"), [(15, 0.1), pytest.param(90, 0.02, marks=pytest.mark.whole)])
def test_an_hour_is_read_without_the_other_days(
    spark: SparkSession, journal: Path, tmp_path: Path, days: int, share: float
) -> None:
    """Of 90 days: of what is there, at most 2 % of the bytes."""
    for day in range(days):
        rows = [make.batch_row(time_us=START_US + day * DAY_US + hour * HOUR_US, partition=hour) for hour in (0, 3)]
        write_journal(journal, rows, f"day{day}")
    output = tmp_path / "parquet"
    run(spark, journal, output)
    place = JournalPlace(str(output))
    first_us = START_US + days // 2 * DAY_US
    hour = Span(first_us, first_us + HOUR_US)
    everything, found = files_read(read_rows(spark, place)), files_read(read_rows(spark, place, hour))
    assert (len(everything.rows), [row.partition for row in found.rows]) == (2 * days, [0])
    assert (everything.files, found.files) == (days, 1)
    assert found.size <= share * everything.size


def test_torn_lines_of_another_day_are_told(spark: SparkSession, journal: Path, tmp_path: Path) -> None:
    """When they were written is not known."""
    write_lines(journal, json_lines([make.batch_row()]) + b'{"kind":"ba')
    write_journal(journal, [make.batch_row(time_us=START_US + 5 * DAY_US)], "b")
    run(spark, journal, tmp_path / "parquet")
    rows = read_rows(spark, JournalPlace(str(tmp_path / "parquet")), Span(START_US + 4 * DAY_US))
    assert (rows.count(), torn(rows).count()) == (2, 1)


def test_days_are_those_of_utc(spark: SparkSession, journal: Path, tmp_path: Path) -> None:
    """Whatever time zone the session has: a span is looked for by them."""
    midnight_us = START_US - START_US % DAY_US
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        write_journal(journal, [make.batch_row(time_us=midnight_us - 1), make.batch_row(time_us=midnight_us)])
        run(spark, journal, tmp_path / "parquet")
        for span in (Span(midnight_us - 1, midnight_us), Span(midnight_us)):
            assert read_rows(spark, JournalPlace(str(tmp_path / "parquet")), span).count() == 1
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(before))
    assert len(list((tmp_path / "parquet" / "kind=batch").glob("dt=2026-11-1[78]"))) == 2


def test_a_file_that_retention_deleted_meanwhile_is_no_fault(
    spark: SparkSession, journal: Path, tmp_path: Path
) -> None:
    write_journal(journal, [make.batch_row()])
    output = tmp_path / "parquet"
    run(spark, journal, output)
    gone = write_journal(journal, [make.batch_row()], "b")
    write_journal(journal, [make.batch_row()], "c")
    run_before = read_rows(spark, JournalPlace(str(journal)))
    gone.unlink()
    assert run_before.count() == 2
    assert run(spark, journal, output).rows == 1


def has_found_nothing(query: StreamingQuery) -> bool:
    last = query.lastProgress
    return last is not None and last["numInputRows"] == 0


def test_it_may_go_on_for_ever(spark: SparkSession, journal: Path, tmp_path: Path) -> None:
    output, idle = tmp_path / "parquet", "spark.sql.streaming.noDataProgressEventInterval"
    write_journal(journal, [make.batch_row()])
    spark.conf.set(idle, "100")  # a trigger that finds nothing is told, too, with the number of the next one
    query = compact(spark, JournalPlace(str(journal)), str(output), every=1)
    spark.conf.unset(idle)
    try:
        query.processAllAvailable()
        wait_until(lambda: has_found_nothing(query), 60, "there is nothing more")
        write_journal(journal, [make.batch_row(), make.batch_row()], "b")
        query.processAllAvailable()
        assert query.isActive
    finally:
        query.stop()
    assert await_compacted(query) == (3, 0)
    assert read_rows(spark, JournalPlace(str(output))).count() == 3


def test_the_command(spark: SparkSession, journal: Path, tmp_path: Path) -> None:
    write_journal(journal, [make.batch_row(), make.batch_row()])
    done = command_line.run("compact", "--journal", journal, "--output", tmp_path / "parquet")
    assert (done.exit_code, done.stdout) == (0, f"2 rows written to {tmp_path}/parquet\n")


@pytest.mark.whole  # as test_runaways.py has it
def test_the_command_in_a_process_of_its_own(journal: Path, tmp_path: Path) -> None:
    write_journal(journal, [make.batch_row(), make.batch_row()])
    command = [sys.executable, "-m", "forebay_pipeline.cli", "compact", "--master", "local[1]"]
    command += ["--journal", str(journal), "--output", str(tmp_path / "parquet"), "--conf", "spark.ui.enabled=false"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, f"2 rows written to {tmp_path}/parquet\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--journal", "nowhere"], "There is no journal in nowhere: no such folder."),
        ([], "give either --journal or --journal-topic"),
        (["--journal-topic", "j"], "--journal-topic requires --bootstrap-servers"),
        (["--journal", ".", "--conf", "a"], "--conf a: must be KEY=VALUE"),
        (["--journal", ".", "--jars", "nowhere"], "There are no jars in nowhere."),
    ],
)
def test_what_it_cannot_do_is_one_sentence(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = command_line.run("compact", "--output", "parquet", *arguments)
    assert done.exit_code == COULD_NOT_RUN
    assert done.stderr.splitlines()[-1].endswith(said)
    assert "Traceback" not in done.stderr


def test_without_java(tmp_path: Path, journal: Path) -> None:
    write_journal(journal, [make.batch_row()])
    command = [
        sys.executable,
        "-m",
        "forebay_pipeline.cli",
        "compact",
        "--output",
        "parquet",
        "--journal",
        str(journal),
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path, env={"PATH": str(tmp_path)}
    )
    assert (done.returncode, done.stdout) == (COULD_NOT_RUN, "")
    assert done.stderr == (
        "forebay-pipeline: Spark needs Java 17 or newer: none was found in JAVA_HOME or on the PATH.\n"
    )


def test_the_checkpoint_is_json_that_others_can_read(spark: SparkSession, journal: Path, tmp_path: Path) -> None:
    write_journal(journal, [make.batch_row()])
    run(spark, journal, tmp_path / "parquet")
    log = (tmp_path / "parquet" / "_spark_metadata" / "0").read_text().splitlines()
    assert json.loads(log[1])["action"] == "add"
