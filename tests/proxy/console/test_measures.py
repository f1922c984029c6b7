"""Rates and percentiles of what happened between two moments, and of nothing else."""

from __future__ import annotations

import math

from forebay_proxy.console.history import BROKER, TOTALS, WORKER
from forebay_proxy.console.measures import Rows, measure
from forebay_proxy.metrics.registry import MetricRegistry, Snapshot
from tests.kit.metrics import everything


def of(rows: Rows) -> dict[str, float]:
    return dict(zip(TOTALS, rows.totals, strict=True))


def test_every_number_has_its_place() -> None:
    rows = measure(Snapshot(), everything().take(), 1.0)
    assert len(rows.totals) == len(TOTALS)
    assert {len(row) for row in rows.brokers.values()} == {len(BROKER)}
    assert {len(row) for row in rows.workers.values()} == {len(WORKER)}
    assert not any(math.isnan(value) for value in rows.totals)


def test_rates_are_of_the_time_between() -> None:
    stats = MetricRegistry()
    moved, kept = (stats.counter("forebay_records_total", fate=fate) for fate in ("moved", "kept"))
    batches = stats.histogram("forebay_batch_records")
    moved.value += 1000
    batches.observe(1000)
    before = stats.take()
    moved.value += 30
    kept.value += 10
    batches.observe(15)
    batches.observe(25)
    seen = of(measure(before, stats.take(), 2.0))
    assert (seen["records_in"], seen["records_out"], seen["batches_out"]) == (20, 20, 1)


def test_what_is_observed_is_told_beside_what_it_would_be() -> None:
    stats = MetricRegistry()
    moved, kept = (stats.counter("forebay_observed_records_total", fate=fate) for fate in ("moved", "kept"))
    came, sent = (stats.counter("forebay_observed_batches_total", side=side) for side in ("client", "upstream"))
    before = stats.take()
    moved.value += 6
    kept.value += 4
    came.value += 8
    sent.value += 2
    seen = of(measure(before, stats.take(), 2.0))
    assert (seen["observed_records"], seen["observed_moved"]) == (5, 3)
    assert (seen["observed_batches"], seen["observed_sent"]) == (4, 1)


def test_percentiles_are_of_the_time_between() -> None:
    stats = MetricRegistry()
    added = stats.histogram("forebay_added_latency_seconds", path="merged")
    for _ in range(1000):
        added.observe(5.0)
    before = stats.take()
    assert math.isnan(of(measure(before, stats.take(), 1.0))["added_p99"])
    added.observe(0.001)
    seen = of(measure(before, stats.take(), 1.0))
    assert 0.001 <= seen["added_p50"] <= 0.0012
    assert 0.001 <= seen["added_p99"] <= 0.0012


def test_brokers_and_workers_have_rows_of_their_own() -> None:
    stats = MetricRegistry()
    stats.gauge_of_brokers("forebay_broker_up", lambda: {1: 1, 2: 0})
    records = stats.counter("forebay_broker_records_total", node="2")
    lags = stats.histogram("forebay_event_loop_lag_seconds", worker="3")
    before = stats.take()
    records.value += 8
    lags.observe(0.1)
    rows = measure(before, stats.take(), 4.0)
    brokers = {node: dict(zip(BROKER, row, strict=True)) for node, row in rows.brokers.items()}
    assert {node: (row["records"], row["up"]) for node, row in brokers.items()} == {"1": (0, 1), "2": (2, 0)}
    assert math.isnan(brokers["2"]["latency_p99"])
    assert 0.1 <= rows.workers["3"][WORKER.index("lag_p99")] <= 0.12
    assert of(rows)["lag_p99"] == rows.workers["3"][WORKER.index("lag_p99")]


def test_a_worker_that_died_before_it_told_makes_no_rate_negative() -> None:
    stats = MetricRegistry()
    stats.counter("forebay_records_total", fate="moved").value += 5
    assert of(measure(stats.take(), MetricRegistry().take(), 1.0))["records_in"] == 0
