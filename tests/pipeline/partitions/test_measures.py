"""The numbers of `partitions`, by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.testing import assertDataFrameEqual

from forebay_pipeline.errors import CannotRun
from forebay_pipeline.journal.source import ALL_TIME, JournalPlace, Span, of_kind, read_rows
from forebay_pipeline.partitions import batches as partitions_batches
from forebay_pipeline.partitions import workers
from forebay_pipeline.partitions.measures import Questions, kept_rows, summarize
from forebay_pipeline.partitions.runaway_detector import Thresholds
from forebay_pipeline.partitions.summary import Fate, MetadataUse, Percentiles, Reason, Summary, TopicSkew
from forebay_policies.journal_rows import BatchRow, GaugeRow, MetadataRow, Row
from tests.pipeline.rows import START_US, batch_row, gauge_row, metadata_row, write_journal, write_lines

SECOND = 1_000_000
QUESTIONS = Questions()

# KIP-794's own: batches, bytes, records of each partition.
KIP = {0: (1683, 25_953_200, 25_228), 1: (1713, 7_836_878, 4_622), 2: (1711, 7_546_212, 4_381)}


class Journal:
    """One with the rows that it is called with."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        # What other tests' commands leave behind is what a machine with more cores needs.
        spark.conf.set("spark.sql.shuffle.partitions", "2")
        self.folder = folder
        self._spark = spark
        self._place = JournalPlace(str(folder))

    def __call__(self, *rows: Row) -> DataFrame:
        write_journal(self.folder, rows)
        return read_rows(self._spark, self._place)

    def batches(self, *rows: Row) -> DataFrame:
        return of_kind(self(*rows), BatchRow)

    def summary(self, *rows: Row, span: Span = ALL_TIME, questions: Questions = QUESTIONS) -> Summary:
        write_journal(self.folder, rows)
        with kept_rows(self._spark, self._place, span) as found:
            return summarize(found, self._place, span, questions)


@pytest.fixture
def journal(spark: SparkSession, tmp_path: Path) -> Journal:
    return Journal(spark, tmp_path / "journal")


def spread(partition: int, batches: int, size: int, records: int) -> list[BatchRow]:
    """So many batches that together are so large."""
    return [
        batch_row(
            partition=partition,
            bytes=size // batches + (number < size % batches),
            records=records // batches + (number < records % batches),
        )
        for number in range(batches)
    ]


def test_the_kips_own_table(journal: Journal) -> None:
    summary = journal.summary(*(row for partition, numbers in KIP.items() for row in spread(partition, *numbers)))
    table = [
        (one.key["partition"], one.batches, one.bytes, one.records, one.bytes_per_batch, one.records_per_batch)
        for one in summary.groups
    ]
    assert [(*row[:4], round(row[4], 2), round(row[5], 2)) for row in table] == [
        (0, 1683, 25_953_200, 25_228, 15_420.80, 14.99),
        (1, 1713, 7_836_878, 4_622, 4_574.94, 2.70),
        (2, 1711, 7_546_212, 4_381, 4_410.41, 2.56),
    ]
    assert [round(one.share, 4) for one in summary.groups] == [0.6279, 0.1896, 0.1826]
    assert (summary.total.batches, summary.total.bytes, summary.total.records) == (5107, 41_336_290, 34_231)
    (skew,) = summary.topics
    assert (skew.partitions, skew.largest) == (3, 0)
    assert skew.max_to_mean == pytest.approx(3 * 25_953_200 / 41_336_290)
    # 2 · (1 · 7,546,212 + 2 · 7,836,878 + 3 · 25,953,200) / (3 · 41,336,290) - 4/3
    assert skew.gini == pytest.approx(0.29687, abs=0.00001)


def test_skew_counts_partitions_that_got_nothing(spark: SparkSession, journal: Journal) -> None:
    sizes = {("few", 1): 1000, ("few", 3): 3000, ("even", 0): 500, ("even", 1): 500, ("single", 0): 7}
    batches = journal.batches(
        *(batch_row(topic=topic, partition=partition, bytes=size) for (topic, partition), size in sizes.items())
    )
    expected = [
        # 0 0 1000 3000: 2 · (3 · 1000 + 4 · 3000) / (4 · 4000) - 5/4 = 0.625
        TopicSkew("few", 4, 2, 4000, 3, 0.75, 3.0, 0.625),
        TopicSkew("even", 2, 2, 1000, 0, 0.5, 1.0, 0.0),
        TopicSkew("single", 1, 1, 7, 0, 1.0, 1.0, 0.0),
    ]
    found = partitions_batches.skew(partitions_batches.partition_bytes(batches))
    wanted = spark.createDataFrame(
        [tuple(getattr(one, name) for name in found.columns) for one in expected], found.schema
    )
    assertDataFrameEqual(found, wanted)
    assert partitions_batches.topics(batches, 2) == (expected[:2], 1)


def test_any_grouping(journal: Journal) -> None:
    hour = 3600 * SECOND
    rows = [
        batch_row(time_us=START_US, leader=1, worker=0, bytes=100, reason="full"),
        batch_row(time_us=START_US + 59 * SECOND, leader=1, worker=1, bytes=200, partition=1),
        batch_row(time_us=START_US + hour, leader=2, worker=1, bytes=300, topic="u"),
        batch_row(time_us=START_US + 30 * hour, leader=2, worker=1, bytes=400, topic="u"),
    ]
    batches = journal.batches(*rows)

    def keys(*by: str) -> dict[tuple[str | int, ...], tuple[int, float]]:
        found, left_out = partitions_batches.groups(batches, by, 1000, 100)
        assert left_out == 0
        return {tuple(one.key[name] for name in by): (one.batches, one.share) for one in found}

    assert keys("leader") == {(1,): (2, 0.3), (2,): (2, 0.7)}
    assert keys("reason") == {("full",): (1, 0.1), ("linger",): (3, 0.9)}
    assert keys("date") == {("2026-11-18",): (3, 0.6), ("2026-11-19",): (1, 0.4)}
    assert keys("hour") == {("2026-11-18T11",): (2, 0.3), ("2026-11-18T12",): (1, 0.3), ("2026-11-19T17",): (1, 0.4)}
    assert list(keys("minute")) == [
        ("2026-11-18T11:06",),
        ("2026-11-18T11:07",),
        ("2026-11-18T12:06",),
        ("2026-11-19T17:06",),
    ]
    # Shares are of what is alike in topic and time, where something else tells apart.
    assert keys("topic", "worker") == {("t", 0): (1, 100 / 300), ("t", 1): (1, 200 / 300), ("u", 1): (2, 1.0)}
    assert keys("topic", "date") == {
        ("t", "2026-11-18"): (2, 0.3),
        ("u", "2026-11-18"): (1, 0.3),
        ("u", "2026-11-19"): (1, 0.4),
    }


def test_of_many_groups_those_with_the_most_bytes_are_told(journal: Journal) -> None:
    rows = [batch_row(partition=number, bytes=100 * (1 + number % 7)) for number in range(14)]
    summary = journal.summary(*rows, questions=Questions(most=4))
    assert [one.key["partition"] for one in summary.groups] == [5, 6, 12, 13]
    assert summary.groups_left_out == 10
    assert summary.total.batches == 14


def test_percentiles_over_batches(journal: Journal) -> None:
    rows = [batch_row(linger_us=number, upstream_us=10 * number) for number in range(1, 1001)]
    summary = journal.summary(*rows)
    assert summary.total.linger_us == Percentiles(500, 990, 999)
    assert summary.groups[0].upstream_us == Percentiles(5000, 9900, 9990)


def test_reasons_fates_and_errors(journal: Journal) -> None:
    rows = [
        *(batch_row(reason="full", records=3, bytes=30) for _ in range(2)),
        batch_row(reason="closed", records=5, bytes=50, fate="retried", error_code=6),
        batch_row(reason="full", records=5, bytes=50, fate="retried", error_code=6, tries=1),
        batch_row(reason="full", records=7, bytes=70, fate="retried", error_code=3),
    ]
    summary = journal.summary(*rows)
    assert summary.reasons == [Reason("full", 4, 180, 18), Reason("closed", 1, 50, 5)]
    assert summary.fates == [
        Fate("acknowledged", 0, 2, 6),
        Fate("retried", 6, 2, 10),
        Fate("retried", 3, 1, 7),
    ]
    assert summary.total.failed == 3


def test_totals_over_restarts(spark: SparkSession, journal: Journal) -> None:
    """The example of workers.py, and one process whose first second is not in the span."""
    nine = START_US

    def gauge(worker: int, started_s: int, at_s: int, hits: int) -> GaugeRow:
        return gauge_row(
            worker=worker,
            started_us=nine + started_s * SECOND,
            time_us=nine + at_s * SECOND,
            metadata_hits_total=hits,
            metadata_misses_total=hits // 10,
            rows_dropped_total=2 * hits,
        )

    # fmt: off
    rows = journal(
        gauge(0, 0, 1, 0), gauge(0, 0, 300, 60), gauge(0, 0, 600, 120),
        gauge(0, 603, 604, 7), gauge(0, 603, 900, 40),
        gauge(1, -3600, 1, 900), gauge(1, -3600, 900, 950),
    )
    # fmt: on
    gauges = of_kind(rows, GaugeRow)
    found = workers.counted(gauges)
    expected = [
        (0, nine, 0, 120, 12, 0, 240),
        (0, nine + 603 * SECOND, 0, 40, 4, 0, 80),
        (1, nine - 3600 * SECOND, 0, 50, 5, 0, 100),
    ]
    assertDataFrameEqual(found, spark.createDataFrame(expected, found.schema))
    use = workers.metadata(gauges, of_kind(rows, MetadataRow))
    assert (use.hits, use.misses, use.hit_rate) == (210, 21, 210 / 231)


def test_metadata_requests(journal: Journal) -> None:
    summary = journal.summary(
        batch_row(),
        metadata_row(took_us=1000, request_bytes=40, response_bytes=100),
        metadata_row(took_us=2000, request_bytes=40, response_bytes=0, error="timeout"),
        metadata_row(took_us=3000, request_bytes=50, response_bytes=900),
        gauge_row(metadata_hits_total=30, metadata_misses_total=10, metadata_waits_total=4),
    )
    assert summary.metadata == MetadataUse(
        hits=30,
        misses=10,
        hit_rate=0.75,
        waits=4,
        requests=3,
        failed=1,
        took_us=Percentiles(2000, 3000, 3000),
        request_bytes=130,
        response_bytes=1000,
    )


def test_without_gauges_and_requests_nothing_is_made_up(journal: Journal) -> None:
    summary = journal.summary(batch_row())
    assert summary.metadata == MetadataUse(0, 0, None, 0, 0, 0, None, 0, 0)
    assert summary.workers == []
    assert (summary.seconds_waited, summary.rows_dropped) == (None, 0)


def test_pool_pressure(journal: Journal) -> None:
    def gauge(second: int, waiters: int, free: int, waits: int, **given: int) -> GaugeRow:
        return gauge_row(
            time_us=START_US + second * SECOND,
            pool_waiters=waiters,
            pool_bytes=1000,
            pool_available_bytes=free,
            pool_waits_total=waits,
            **given,
        )

    summary = journal.summary(
        batch_row(),
        gauge(0, 0, 900, 0, queued_bytes=80, queued_batches=3, in_flight_requests=2),
        gauge(1, 2, 10, 2, queued_bytes=950, queued_batches=9, in_flight_requests=5, rows_dropped_total=4),
        gauge(2, 1, 20, 3, rows_dropped_total=4),
        gauge(3, 0, 1000, 3, rows_dropped_total=9),
        gauge(0, 0, 700, 0, worker=1),
        gauge(1, 0, 600, 0, worker=1, rows_dropped_total=1),
    )
    first, second = summary.workers
    assert (first.starts, first.seconds, first.seconds_waited, first.pool_waits) == (1, 4, 2, 3)
    assert (first.pool_bytes, first.least_available_bytes) == (1000, 10)
    assert (first.most_queued_bytes, first.most_queued_batches, first.most_in_flight) == (950, 9, 5)
    assert (second.seconds, second.seconds_waited, second.least_available_bytes) == (2, 0, 600)
    assert summary.seconds_waited == 2 / 6
    assert (first.rows_dropped, second.rows_dropped, summary.rows_dropped) == (9, 1, 10)


def minutes(partition_0: tuple[int, int, int], count: int, first: int = 0) -> list[BatchRow]:
    """`count` windows of ten seconds, in which partition 0 gets so many batches of so many bytes with such a wait."""
    batches, size, wait_us = partition_0
    of_0 = {"partition": 0, "bytes": size, "upstream_us": wait_us}
    return [
        batch_row(time_us=START_US + ((first + window) * 10 + number % 10) * SECOND, **given)
        for window in range(count)
        for given, times in ((of_0, batches), ({"partition": 1}, 10), ({"partition": 2}, 10))
        for number in range(times)
    ]


def test_runaways_of_a_span(journal: Journal) -> None:
    even, away = (10, 1000, 1500), (10, 6000, 39_500)
    rows = [*minutes(even, 4), *minutes(away, 5, 4), *minutes(even, 4, 9), *minutes(away, 3, 13)]
    first, second = journal.summary(*rows).runaways
    assert (first.topic, first.partition) == ("t", 0)
    assert (first.since_us, first.until_us) == (START_US + 40 * SECOND, START_US + 90 * SECOND)
    assert (first.share, first.times_fair) == (0.75, 2.25)
    assert (first.wait_us, first.others_wait_us) == (40_000, 2_000)
    assert (second.since_us, second.until_us) == (START_US + 130 * SECOND, None)
    limits = Questions(thresholds=Thresholds(share=2.3))
    assert journal.summary(*rows, questions=limits).runaways == []


def test_runaways_of_many_topics_are_not_mixed_up(journal: Journal) -> None:
    away, popular = minutes((10, 6000, 39_500), 4), minutes((30, 6000, 1500), 4)
    renamed = [
        batch_row(
            topic=f"{name}{number}",
            **{key: getattr(row, key) for key in ("time_us", "partition", "bytes", "upstream_us")},
        )
        for name, rows in (("away", away), ("popular", popular))
        for number in range(3)
        for row in rows
    ]
    assert [one.topic for one in journal.summary(*renamed).runaways] == ["away0", "away1", "away2"]


def test_a_span_is_half_open(journal: Journal) -> None:
    rows = [batch_row(time_us=START_US + second * SECOND, partition=second) for second in range(5)]
    summary = journal.summary(*rows, span=Span(START_US + SECOND, START_US + 3 * SECOND))
    assert [one.key["partition"] for one in summary.groups] == [1, 2]
    assert (summary.first_us, summary.last_us) == (START_US + SECOND, START_US + 2 * SECOND)


@pytest.mark.parametrize(
    ("span", "sentence"),
    [
        (Span(0, 60 * SECOND), "There are no batches between 1970-01-01T00:00:00Z and 1970-01-01T00:01:00Z in "),
        (Span(START_US + 1, None), "There are no batches from 2026-11-18T11:06:40Z on in "),
        (Span(None, START_US), "There are no batches before 2026-11-18T11:06:40Z in "),
    ],
)
def test_an_empty_span_is_one_sentence(journal: Journal, span: Span, sentence: str) -> None:
    with pytest.raises(CannotRun) as wrong:
        journal.summary(batch_row(), span=span)
    assert str(wrong.value) == f"{sentence}{journal.folder}."


def test_so_is_a_journal_that_holds_nothing_readable(journal: Journal) -> None:
    write_lines(journal.folder, b'{"kind": "batch"}\nnot json\n', name="foreign")
    with pytest.raises(
        CannotRun, match=r"There are no batches in .*/journal \(lines or files of it that cannot be read: 2\)\."
    ):
        journal.summary(gauge_row())


def test_what_cannot_be_read_is_counted(journal: Journal) -> None:
    write_lines(journal.folder, b"torn", name="torn")
    assert journal.summary(batch_row()).torn == 1
    assert journal.summary(batch_row(), span=Span(START_US, None)).torn == 1
