"""From two snapshots and the time between them: what happened meanwhile, as rows of history.

In: Snapshots, the older first. Out: one row for all of Forebay, and by broker and worker; rates per second. Percentiles
are those of the observations made in between; NaN where there were none.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from forebay_proxy.metrics.catalog import TIMES_S
from forebay_proxy.metrics.registry import HistogramData, Key, Snapshot, percentile

NOTHING = HistogramData([0] * (len(TIMES_S) + 1), 0.0, [], 0.0, 0.0)


class Rows(NamedTuple):
    """Rows as history.TOTALS, BROKER and WORKER name their numbers; the latter two by node id and worker's number."""

    totals: list[float]
    brokers: dict[str, list[float]]
    workers: dict[str, list[float]]


def measure(before: Snapshot, after: Snapshot, seconds: float) -> Rows:
    """What happened in these `seconds`."""

    def grown(wanted: Callable[[Key], bool]) -> float:
        more = sum(count - before.counters.get(key, 0) for key, count in after.counters.items() if wanted(key))
        return max(0.0, more) / seconds

    def rate(name: str, *labels: str) -> float:
        key = name, labels
        return max(0.0, after.counters.get(key, 0) - before.counters.get(key, 0)) / seconds

    def gauge(name: str, *labels: str) -> float:
        return after.gauges.get((name, labels), 0.0)

    def level(name: str) -> float:
        return sum(value for (own, _), value in after.gauges.items() if own == name)

    def observed(name: str, *labels: str) -> tuple[list[int], float]:
        new = after.histograms.get((name, labels), NOTHING)
        old = before.histograms.get((name, labels))
        if old is None:
            return new.counts, new.sum
        return [now - then for now, then in zip(new.counts, old.counts, strict=True)], new.sum - old.sum

    def times(share: float, name: str, *labels: str) -> float:
        counts, _ = observed(name, *labels)
        return percentile(counts, TIMES_S, TIMES_S[-1], share) if any(counts) else math.nan

    workers = sorted({labels[0] for name, labels in after.histograms if name == "forebay_event_loop_lag_seconds"})
    nodes = [labels[0] for name, labels in after.gauges if name == "forebay_broker_up"]
    lags = {worker: times(0.99, "forebay_event_loop_lag_seconds", worker) for worker in workers}
    batches, records = observed("forebay_batch_records")
    totals = {
        "bytes_in": rate("forebay_request_bytes_total", "client"),
        "bytes_out": rate("forebay_request_bytes_total", "upstream"),
        "records_in": grown(lambda key: key[0] == "forebay_records_total"),
        "records_out": max(0.0, records) / seconds,
        "batches_out": max(0, sum(batches)) / seconds,
        "requests_in": grown(lambda key: key[0] == "forebay_requests_total"),
        "added_p50": times(0.5, "forebay_added_latency_seconds", "merged"),
        "added_p99": times(0.99, "forebay_added_latency_seconds", "merged"),
        "produce_p99": times(0.99, "forebay_produce_latency_seconds"),
        "pool_used": gauge("forebay_buffer_memory_total_bytes") - gauge("forebay_buffer_memory_available_bytes"),
        "queued_bytes": gauge("forebay_queued_bytes"),
        "errors": grown(lambda key: key[0] == "forebay_errors_total"),
        "retries": grown(lambda key: key[0] == "forebay_retries_total"),
        "connections": level("forebay_open_connections"),
        "lag_p99": max((lag for lag in lags.values() if not math.isnan(lag)), default=math.nan),
        "observed_records": grown(lambda key: key[0] == "forebay_observed_records_total"),
        "observed_moved": rate("forebay_observed_records_total", "moved"),
        "observed_batches": rate("forebay_observed_batches_total", "client"),
        "observed_sent": rate("forebay_observed_batches_total", "upstream"),
    }
    brokers = {
        node: [
            rate("forebay_broker_records_total", node),
            rate("forebay_broker_bytes_total", node),
            gauge("forebay_broker_queued_bytes", node),
            gauge("forebay_broker_in_flight_requests", node),
            times(0.5, "forebay_broker_latency_seconds", node),
            times(0.99, "forebay_broker_latency_seconds", node),
            gauge("forebay_broker_up", node),
        ]
        for node in nodes
    }
    by_worker = {
        worker: [
            rate("forebay_worker_cpu_seconds_total", worker),
            gauge("forebay_worker_resident_memory_bytes", worker),
            lags[worker],
        ]
        for worker in workers
    }
    return Rows(list(totals.values()), brokers, by_worker)
