"""The numbers of `partitions`, by hand."""

from __future__ import annotations

import pytest

from forebay_pipeline.errors import CannotRun
from forebay_pipeline.journal.span import Span
from forebay_pipeline.partitions import batches as partitions_batches
from forebay_pipeline.partitions.measures import Questions
from forebay_pipeline.partitions.summary import Fate, MetadataUse, Percentiles, RackUse, Reason
from forebay_policies.journal_rows import BatchRow, Row
from tests.pipeline.partitions.journal import QUESTIONS, SECOND, Journal
from tests.pipeline.rows import START_US, batch_row, gauge_row, metadata_row, write_lines

# KIP-794's own: batches, bytes, records of each partition.
KIP = {0: (1683, 25_953_200, 25_228), 1: (1713, 7_836_878, 4_622), 2: (1711, 7_546_212, 4_381)}


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
    assert summary.reasons == [Reason("linger", 5107, 41_336_290, 34_231)]
    assert summary.fates == [Fate("acknowledged", 0, 5107, 34_231)]
    # Without gauges and metadata requests nothing is made up.
    assert summary.metadata == MetadataUse(
        hits=0,
        misses=0,
        hit_rate=None,
        waits=0,
        requests=0,
        failed=0,
        took_us=None,
        request_bytes=0,
        response_bytes=0,
    )
    assert (summary.workers, summary.racks, summary.clusters) == ([], None, [])
    assert (summary.seconds_waited, summary.rows_dropped) == (None, 0)


def test_of_many_groups_those_with_the_most_bytes_are_told(journal: Journal) -> None:
    rows = [batch_row(partition=number, bytes=100 * (1 + number % 7)) for number in range(14)]
    found, left_out = partitions_batches.groups(journal.batches(*rows), QUESTIONS.by, 5600, 4)
    assert [one.key["partition"] for one in found] == [5, 6, 12, 13]
    assert left_out == 10


def test_percentiles_over_batches(journal: Journal) -> None:
    batches = journal.batches(*(batch_row(linger_us=number, upstream_us=10 * number) for number in range(1, 1001)))
    total = partitions_batches.total(batches)
    assert total is not None
    assert total.linger_us == Percentiles(500, 990, 999)
    [group], _ = partitions_batches.groups(batches, QUESTIONS.by, total.bytes, 1)
    assert group.upstream_us == Percentiles(5000, 9900, 9990)


def test_reasons_fates_and_errors(journal: Journal) -> None:
    rows = [
        *(batch_row(reason="full", records=3, bytes=30) for _ in range(2)),
        batch_row(reason="closed", records=5, bytes=50, fate="retried", error_code=6),
        batch_row(reason="full", records=5, bytes=50, fate="retried", error_code=6, tries=1),
        batch_row(reason="full", records=7, bytes=70, fate="retried", error_code=3),
    ]
    batches = journal.batches(*rows)
    assert partitions_batches.reasons(batches) == [Reason("full", 4, 180, 18), Reason("closed", 1, 50, 5)]
    assert partitions_batches.fates(batches) == [
        Fate("acknowledged", 0, 2, 6),
        Fate("retried", 6, 2, 10),
        Fate("retried", 3, 1, 7),
    ]
    total = partitions_batches.total(batches)
    assert total is not None
    assert total.failed == 3


def test_a_span_is_half_open(journal: Journal) -> None:
    """Of rows of all kinds. Of groups of one size the first is told."""
    times = [START_US + second * SECOND for second in range(5)]
    rows: list[Row] = []
    for second, time_us in enumerate(times):
        racks = {"same_rack_bytes_total": 0, "other_rack_bytes_total": 10**second, "unknown_rack_bytes_total": 0}
        rows += [
            batch_row(time_us=time_us, partition=second),
            gauge_row(time_us=time_us, process=f"p-{second}", cluster_id="ZBAYX"[second], **racks),
            metadata_row(time_us=time_us, request_bytes=10**second),
        ]
    summary = journal.summary(*rows, span=Span(times[1], times[3]), questions=Questions(max_rows=1))
    assert [one.key["partition"] for one in summary.groups] == [1]
    assert (summary.groups_left_out, summary.total.batches) == (1, 2)
    assert (summary.first_us, summary.last_us) == (times[1], times[2])
    assert summary.clusters == ["A", "B"]
    assert (summary.metadata.requests, summary.metadata.request_bytes) == (2, 110)
    assert [(one.worker, one.seconds) for one in summary.workers] == [(0, 2)]
    assert summary.racks == RackUse(0, 110, 0, times[1], times[2])


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
    with pytest.raises(CannotRun, match=r"There are no batches in .*/journal \(unreadable lines or files: 2\)\."):
        journal.summary(gauge_row())


@pytest.mark.whole
def test_what_cannot_be_read_is_counted(journal: Journal) -> None:
    write_lines(journal.folder, b"torn", name="torn")
    assert journal.summary(batch_row()).torn == 1
    assert journal.summary(batch_row(), span=Span(START_US, None)).torn == 1
