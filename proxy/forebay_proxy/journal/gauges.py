"""The journal's gauge row: the state of a process, read from its metrics."""

from __future__ import annotations

from time import monotonic

from forebay_policies.journal_rows import GaugeRow
from forebay_proxy.journal.recorder import Journal
from forebay_proxy.metrics.registry import MetricRegistry


def gauge_row(journal: Journal, stats: MetricRegistry) -> GaugeRow:
    """The next row of the process that `journal` and `stats` belong to. KeyError until all gauges are registered."""

    def now(name: str, **labels: str) -> int:
        return int(stats.value(f"forebay_{name}", **labels))

    journal.gauge_rows += 1
    return GaugeRow(
        time_us=journal.time_us(monotonic()),
        worker=journal.worker,
        process=journal.process,
        started_us=journal.started_us,
        pool_bytes=now("buffer_memory_total_bytes"),
        pool_available_bytes=now("buffer_memory_available_bytes"),
        pool_waiters=now("buffer_memory_waiters"),
        queued_bytes=now("queued_bytes"),
        queued_batches=now("queued_batches"),
        queued_request_bytes=now("queued_request_bytes"),
        in_flight_requests=now("in_flight_requests"),
        client_connections=sum(now("open_connections", listener=kind) for kind in ("bootstrap", "node")),
        upstream_connections=now("upstream_connections"),
        pool_waits_total=now("pool_waits_total"),
        metadata_hits_total=now("metadata_topics_total", found="hit"),
        metadata_misses_total=now("metadata_topics_total", found="miss"),
        metadata_waits_total=now("metadata_requests_total", answered="after_asking"),
        rows_dropped_total=now("journal_rows_dropped_total"),
        seq=journal.gauge_rows,
        batch_rows_total=journal.batch_rows,
        choice_rows_total=journal.choice_rows,
        metadata_rows_total=journal.metadata_rows,
        ledger_rows_total=journal.ledger_rows,
        cluster_id=journal.cluster_id,
        same_rack_bytes_total=_rack_bytes(stats, "same"),
        other_rack_bytes_total=_rack_bytes(stats, "other"),
        unknown_rack_bytes_total=_rack_bytes(stats, "unknown"),
        observed_rows_total=journal.observed_rows,
        rack_rows_total=journal.rack_rows,
        files_before=journal.files_before if journal.gauge_rows == 1 else None,
    )


def _rack_bytes(stats: MetricRegistry, rack: str) -> int | None:
    """None where nothing is known of racks, so that nobody counts."""
    try:
        return int(stats.value("forebay_rack_bytes_total", rack=rack))
    except KeyError:
        return None
