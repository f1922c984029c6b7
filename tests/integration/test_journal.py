"""The journal of a real Forebay before a real Kafka, read by the real pipeline: files, a topic, crash and restart."""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from forebay_pipeline.compact import await_compacted, compact
from forebay_pipeline.errors import CannotRun
from forebay_pipeline.journal.brokers import Brokers
from forebay_pipeline.journal.source import JournalPlace, of_kind, read_rows, torn
from forebay_pipeline.journal.span import Span
from forebay_pipeline.partitions.summary import Summary
from forebay_policies.journal_rows import BatchRow, GaugeRow, LedgerRow, MetadataRow, Row
from tests.integration.route import Route
from tests.kit.forebay import ForebayProcess
from tests.kit.java import JavaClient
from tests.kit.journal import decoded, of, rows_in
from tests.kit.ports import LOOPBACK, free_port
from tests.kit.spec import ProduceSpec
from tests.kit.waiting import wait_until
from tests.pipeline import rows as make
from tests.pipeline.command_line import run
from tests.pipeline.rollups import made_up

pytestmark = pytest.mark.integration

COUNT = 5_000
MINUTE_US = 60_000_000


def produce(bootstrap: str, topic: str) -> None:
    client = JavaClient("2.3.1")
    try:
        result = client.produce(bootstrap, ProduceSpec(topic, "journal", count=COUNT, keys="mixed", acks="all"))
        assert result.stats["acknowledged"] == COUNT
    finally:
        client.close()


def check(spark: SparkSession, place: JournalPlace, topic: str) -> None:
    """Every record is in the ledger and in a batch, once."""
    rows = read_rows(spark, place).cache()
    assert torn(rows).count() == 0
    ledger = of_kind(rows, LedgerRow)
    assert ledger.agg(F.sum("records"), F.sum("error_code")).first() == (COUNT, 0)
    parts = ledger.select(F.explode("parts").alias("part"))
    assert parts.agg(F.sum("part.records"), F.min("part.base_offset")).first() == (COUNT, 0)
    batches = of_kind(rows, BatchRow)
    assert batches.where("fate = 'acknowledged'").agg(F.sum("records")).first() == (COUNT,)
    assert {row.topic for row in batches.select("topic").distinct().collect()} == {topic}
    assert of_kind(rows, GaugeRow).count() >= 1
    assert of_kind(rows, MetadataRow).count() >= 1
    rows.unpersist()


def job(place: JournalPlace, name: str, *words: str) -> str:
    """What a job says of a journal in a topic."""
    return say(name, "--journal-topic", str(place.topic), "--bootstrap-servers", str(place.brokers), *words)


def say(name: str, *words: str) -> str:
    """What a job says that has nothing to complain of."""
    done = run(name, *words)
    assert (done.exit_code, done.stderr) == (0, "")
    return done.stdout


class InTopic(NamedTuple):
    """A journal in a topic, of the records in topic `of`."""

    place: JournalPlace
    of: str


@pytest.fixture(scope="module")
def in_topic(route: Route) -> InTopic:
    topic, journal = "journal-records", "journal-rows"
    route.cluster.create_topic(topic, 3)
    route.cluster.create_topic(journal, 2)
    settings = {"journal.topic": journal, "journal.ledger": "true"}
    with ForebayProcess(route.cluster.bootstrap, route.cluster.nodes, settings=settings) as forebay:
        produce(forebay.bootstrap, topic)
        assert forebay.metrics()["forebay_journal_rows_dropped_total"] == 0
    return InTopic(JournalPlace(topic=journal, brokers=Brokers(route.cluster.internal)), topic)


def test_files(spark: SparkSession, route: Route, tmp_path: Path) -> None:
    topic = "journal-files"
    route.cluster.create_topic(topic, 3)
    settings = {"journal.dir": str(tmp_path), "journal.ledger": "true", "workers": "2"}
    with ForebayProcess(route.cluster.bootstrap, route.cluster.nodes, settings=settings) as forebay:
        produce(forebay.bootstrap, topic)
    check(spark, JournalPlace(str(tmp_path)), topic)
    workers = of_kind(read_rows(spark, JournalPlace(str(tmp_path))), GaugeRow).select("worker").distinct()
    assert {row.worker for row in workers.collect()} == {0, 1}


@pytest.mark.whole
def test_what_a_killed_process_left_is_closed_by_the_next(spark: SparkSession, route: Route, tmp_path: Path) -> None:
    topic = "journal-killed"
    route.cluster.create_topic(topic, 3)
    settings = {"journal.dir": str(tmp_path), "journal.ledger": "true"}
    first = ForebayProcess(route.cluster.bootstrap, route.cluster.nodes, settings=settings).start()
    produce(first.bootstrap, topic)

    def unfinished() -> list[Path]:
        return list(tmp_path.glob(".*.inprogress"))

    def written() -> list[Row]:
        """In that file, and in the one before where the hour has just ended."""
        return [*rows_in(tmp_path), *decoded(b"".join(path.read_bytes() for path in unfinished()))]

    wait_until(lambda: sum(row.records for row in of(BatchRow, written())) == COUNT, 60, "every record has a row")
    first.kill()
    (left,) = unfinished()
    with left.open("ab") as file:
        file.write(b'{"kind":"batch","time_us":17')
    with ForebayProcess(route.cluster.bootstrap, route.cluster.nodes, settings=settings):
        pass
    assert not unfinished()
    rows = read_rows(spark, JournalPlace(str(tmp_path)))
    assert torn(rows).count() == 1
    assert of_kind(rows, BatchRow).agg(F.sum("records")).first() == (COUNT,)


@pytest.mark.whole  # test_secured_jobs.py compacts a topic, too
def test_a_topic(spark: SparkSession, in_topic: InTopic, tmp_path: Path) -> None:
    check(spark, in_topic.place, in_topic.of)
    output = str(tmp_path / "parquet")
    for _ in range(2):  # the second has nothing left to do
        compact(spark, in_topic.place, output).awaitTermination()
    check(spark, JournalPlace(output), in_topic.of)


def test_jobs_read_a_topic_as_well_as_files(spark: SparkSession, in_topic: InTopic, tmp_path: Path) -> None:
    """As a stream, and as a batch."""
    assert job(in_topic.place, "runaways", "--once") == ""
    summary = tmp_path / "partitions.json"
    job(in_topic.place, "partitions", "--output", str(summary))
    assert msgspec.json.decode(summary.read_bytes(), type=Summary).total.records == COUNT
    assert f"Clean: {COUNT:,} of {COUNT:,}" in job(in_topic.place, "audit", "--settle", "0", "--topic", in_topic.of)


@pytest.mark.whole
def test_so_do_the_others(spark: SparkSession, in_topic: InTopic, tmp_path: Path) -> None:
    assert "uniform" in job(in_topic.place, "replay", "--grid", "partitioner=uniform")
    page = tmp_path / "report.html"
    job(in_topic.place, "report", "--output", str(page))
    assert in_topic.of in page.read_text()


@pytest.mark.whole
def test_rollups_of_a_topic_are_those_of_files(spark: SparkSession, route: Route, tmp_path: Path) -> None:
    """But for lines that cannot be read: of a topic, those of later days count for each day before."""
    rows = list(made_up.rows(3))
    made_up.write(tmp_path / "journal", iter(rows))
    next((tmp_path / "journal").rglob("torn*")).unlink()
    at_any_time = {"message.timestamp.after.max.ms": str(2**63 - 1)}
    route.cluster.create_topic("journal-of-days", 2, config=at_any_time)
    with Producer({"bootstrap.servers": route.cluster.internal}) as producer:
        for row in sorted(rows, key=lambda row: row.time_us):
            producer.produce("journal-of-days", make.json_lines([row]).strip(), timestamp=row.time_us // 1000)
        assert producer.flush(20) == 0
    place = JournalPlace(topic="journal-of-days", brokers=Brokers(route.cluster.internal))

    def told(output: str) -> str:
        """A report of the rollups there."""
        page = tmp_path / "page.html"
        say("report", "--rollups", output, "--output", str(page))
        return page.read_text().replace(output, "")

    of_files, of_topic = str(tmp_path / "of-files"), str(tmp_path / "of-topic")
    days = say("rollup", "--journal", str(tmp_path / "journal"), "--output", of_files)
    assert job(place, "rollup", "--output", of_topic) == days
    assert job(place, "rollup", "--output", of_topic) == "Nothing to do: every finished day is rolled up.\n"
    assert told(of_topic) == told(of_files)


@pytest.mark.whole
def test_rows_that_expired_before_they_were_read(spark: SparkSession, route: Route, tmp_path: Path) -> None:
    journal = "journal-expired"
    route.cluster.create_topic(journal, 1)
    place = JournalPlace(topic=journal, brokers=Brokers(route.cluster.internal))
    output = str(tmp_path / "parquet")
    with Producer({"bootstrap.servers": route.cluster.internal}) as producer:
        for first in (0, 10):
            for number in range(first, first + 10):
                producer.produce(journal, make.json_lines([make.batch_row(partition=number)]).strip())
            assert producer.flush(20) == 0
            if not first:
                await_compacted(compact(spark, place, output))
    admin = AdminClient({"bootstrap.servers": route.cluster.internal})
    (deleted,) = admin.delete_records([TopicPartition(journal, 0, 15)]).values()
    deleted.result(20)
    with pytest.raises(CannotRun, match="expired before they were read"):
        await_compacted(compact(spark, place, output))
    await_compacted(compact(spark, place, output, skip_expired=True))
    partitions = [row.partition for row in of_kind(read_rows(spark, JournalPlace(output)), BatchRow).collect()]
    assert sorted(partitions) == [*range(10), *range(15, 20)]


def test_a_span_of_a_topic_is_read_from_its_beginning_on(spark: SparkSession, route: Route) -> None:
    """With an hour's margin: what is older is not even looked at, and so is not torn."""
    journal = "journal-of-hours"
    route.cluster.create_topic(journal, 1)
    place = JournalPlace(topic=journal, brokers=Brokers(route.cluster.internal))
    now_us = time.time_ns() // 1_000

    def row(minutes: int) -> bytes:
        """As old as that."""
        return make.json_lines([make.batch_row(time_us=now_us - minutes * MINUTE_US, partition=minutes)]).strip()

    with Producer({"bootstrap.servers": route.cluster.internal}) as producer:
        for minutes, line in ((180, b"no row"), (90, row(90)), (5, row(5))):
            producer.produce(journal, line, timestamp=(now_us - minutes * MINUTE_US) // 1_000)
        assert producer.flush(20) == 0

    def partitions(minutes: int) -> list[int]:
        """-1 for a torn row."""
        found = read_rows(spark, place, Span(now_us - minutes * MINUTE_US)).collect()
        return sorted(-1 if row.partition is None else row.partition for row in found)

    assert partitions(60) == [5]
    assert partitions(100) == [5, 90]
    assert partitions(200) == [-1, 5, 90]


def test_what_comes_to_a_topic_while_it_is_read_does_not_stand_in_for_what_expires(
    spark: SparkSession, route: Route
) -> None:
    """An audit reads rows twice, and counts how many are gone by the second time."""
    journal = "journal-that-moves"
    route.cluster.create_topic(journal, 2)
    bootstrap = route.cluster.internal
    with Producer({"bootstrap.servers": bootstrap}) as producer:

        def send(first: int, count: int) -> None:
            for number in range(first, first + count):
                line = make.json_lines([make.batch_row(partition=number)]).strip()
                producer.produce(journal, line, partition=number % 2)
            assert producer.flush(20) == 0

        send(0, 10)
        rows = read_rows(spark, JournalPlace(topic=journal, brokers=Brokers(bootstrap)))
        send(10, 4)
        assert sorted(row.partition for row in rows.collect()) == [*range(10)]
        admin = AdminClient({"bootstrap.servers": bootstrap})
        (deleted,) = admin.delete_records([TopicPartition(journal, 0, 2)]).values()
        deleted.result(20)
        assert sorted(row.partition for row in rows.collect()) == [1, 3, *range(4, 10)]
        (deleted,) = admin.delete_records([TopicPartition(journal, 0, 6)]).values()
        deleted.result(20)
        assert sorted(row.partition for row in rows.collect()) == [1, 3, 5, 7, 9], "all that there was of the other"


@pytest.mark.whole
def test_a_topic_or_brokers_that_are_not_there(spark: SparkSession, route: Route) -> None:
    with pytest.raises(CannotRun, match="There is no topic nothing at "):
        read_rows(spark, JournalPlace(topic="nothing", brokers=Brokers(route.cluster.internal)))
    with pytest.raises(CannotRun, match=f"No broker answers at {LOOPBACK}:"):
        read_rows(spark, JournalPlace(topic="nothing", brokers=Brokers(f"{LOOPBACK}:{free_port()}")))
