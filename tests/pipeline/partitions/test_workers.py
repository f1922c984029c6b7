"""Totals, the metadata cache and memory, by hand."""

from __future__ import annotations

import msgspec
from pyspark.sql import SparkSession
from pyspark.testing import assertDataFrameEqual

from forebay_pipeline.journal.source import of_kind
from forebay_pipeline.partitions import workers
from forebay_pipeline.partitions.summary import MetadataUse, Percentiles, RackUse
from forebay_policies.journal_rows import GaugeRow, MetadataRow
from tests.pipeline.partitions.journal import SECOND, Journal
from tests.pipeline.report.known import known
from tests.pipeline.rows import START_US, gauge_row, metadata_row


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
            same_rack_bytes_total=0,
            other_rack_bytes_total=hits,
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
        (0, nine, nine + SECOND, nine + 600 * SECOND, 0, 120, 12, 0, 240, 0, 120, None),
        (0, nine + 603 * SECOND, nine + 604 * SECOND, nine + 900 * SECOND, 0, 40, 4, 0, 80, 0, 40, None),
        (1, nine - 3600 * SECOND, nine + SECOND, nine + 900 * SECOND, 0, 50, 5, 0, 100, 0, 50, None),
    ]
    assertDataFrameEqual(found, spark.createDataFrame(expected, found.schema))
    use = workers.metadata(gauges, of_kind(rows, MetadataRow))
    assert (use.hits, use.misses, use.hit_rate) == (210, 21, 210 / 231)


def test_what_crossed_racks(journal: Journal) -> None:
    def gauge(at_s: int, same: int | None, other: int | None, process: str = "p") -> GaugeRow:
        bytes_ = {"same_rack_bytes_total": same, "other_rack_bytes_total": other}
        time_us = START_US + at_s * SECOND
        return gauge_row(
            process=process, started_us=START_US, time_us=time_us, unknown_rack_bytes_total=same and 7, **bytes_
        )

    rows = [gauge(1, 0, 0), gauge(9, 40, 60), gauge(1, None, None, "knows none"), gauge(1, 100, 0, "q")]
    use = workers.racks(of_kind(journal(*rows), GaugeRow))
    assert use == RackUse(140, 60, 14, START_US + SECOND, START_US + 9 * SECOND)
    assert use.seconds == 8
    assert workers.racks(of_kind(journal(gauge(1, None, None)), GaugeRow)) is None


def test_metadata_requests(journal: Journal) -> None:
    rows = journal(
        metadata_row(took_us=1000, request_bytes=40, response_bytes=100),
        metadata_row(took_us=2000, request_bytes=40, response_bytes=0, error="timeout"),
        metadata_row(took_us=3000, request_bytes=50, response_bytes=900),
        gauge_row(metadata_hits_total=30, metadata_misses_total=10, metadata_waits_total=4),
    )
    assert workers.metadata(of_kind(rows, GaugeRow), of_kind(rows, MetadataRow)) == MetadataUse(
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


def test_pool_pressure(journal: Journal) -> None:
    """In worker 0's last second nobody waits when the gauge is read, but two did before."""

    def gauge(second: int, waiters: int, free: int, waits: int, **given: int) -> GaugeRow:
        return gauge_row(
            time_us=START_US + second * SECOND,
            pool_waiters=waiters,
            pool_bytes=1000,
            pool_available_bytes=free,
            pool_waits_total=waits,
            **given,
        )

    rows = journal(
        gauge(0, 0, 900, 0, queued_bytes=80, queued_batches=3, in_flight_requests=2),
        gauge(1, 2, 10, 2, queued_bytes=950, queued_batches=9, in_flight_requests=5, rows_dropped_total=4),
        gauge(2, 1, 20, 3, rows_dropped_total=4),
        gauge(3, 0, 1000, 3, rows_dropped_total=9),
        gauge(4, 0, 1000, 5, rows_dropped_total=9),
        gauge(0, 0, 700, 0, worker=1),
        gauge(1, 0, 600, 0, worker=1, rows_dropped_total=1),
    )
    first, second = found = workers.workers(of_kind(rows, GaugeRow))
    assert (first.starts, first.seconds, first.seconds_waited, first.pool_waits) == (1, 5, 3, 5)
    assert (first.pool_bytes, first.least_available_bytes) == (1000, 10)
    assert (first.most_queued_bytes, first.most_queued_batches, first.most_in_flight) == (950, 9, 5)
    assert (second.seconds, second.seconds_waited, second.least_available_bytes) == (2, 0, 600)
    summary = msgspec.structs.replace(known().summary, workers=found)
    assert summary.seconds_waited == 3 / 7
    assert (first.rows_dropped, second.rows_dropped, summary.rows_dropped) == (9, 1, 10)
