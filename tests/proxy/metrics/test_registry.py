"""Counting, merging, windows, percentiles, and what Prometheus is shown."""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Mapping

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from forebay_proxy.metrics.catalog import METRICS, SIZES, TIMES_S
from forebay_proxy.metrics.exposition import expose, families
from forebay_proxy.metrics.instruments import Histogram
from forebay_proxy.metrics.registry import WINDOW_S, MetricRegistry, Snapshot, decode, merge, percentile
from forebay_proxy.metrics.topics_seen import NamedTopics, TopicNow
from tests.kit.metrics import everything

LINGER = "forebay_batch_linger_time_seconds"


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def scrape(*snapshots: Snapshot) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """(sample name, labels) → value, as Prometheus would read it."""
    body, content_type = expose(merge(snapshots), "1.2.3")
    assert content_type.startswith("text/plain")
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
    }


def labels(**values: str) -> frozenset[tuple[str, str]]:
    return frozenset(values.items())


class TestNames:
    @pytest.mark.parametrize(
        ("name", "values"),
        [
            ("forebay_nothing_total", {}),
            ("forebay_records_total", {}),
            ("forebay_records_total", {"fate": "lost"}),
            ("forebay_records_total", {"outcome": "moved"}),
            ("forebay_records_total", {"fate": "moved", "topic": "a"}),
            (LINGER, {}),
        ],
    )
    def test_what_is_not_in_the_table_is_a_key_error_at_once(self, name: str, values: Mapping[str, str]) -> None:
        with pytest.raises(KeyError):
            MetricRegistry().counter(name, **values)

    def test_kinds_are_not_mixed_up(self) -> None:
        with pytest.raises(KeyError):
            MetricRegistry().histogram("forebay_queued_bytes")
        with pytest.raises(KeyError):
            MetricRegistry().gauge("forebay_pool_waits_total", lambda: 1)

    @pytest.mark.parametrize("name", METRICS)
    def test_the_table_keeps_prometheus_rules(self, name: str) -> None:
        metric = METRICS[name]
        assert name.startswith("forebay_")
        assert name.endswith("_total") == (metric.kind == "counter")
        assert bool(metric.buckets) == (metric.kind == "histogram")
        assert metric.help.endswith(".")
        assert math.prod(len(values) for values in metric.labels.values()) < 200

    def test_the_same_labels_are_the_same_counter(self) -> None:
        stats = MetricRegistry()
        first = stats.counter("forebay_errors_total", side="client", kind="protocol")
        assert stats.counter("forebay_errors_total", kind="protocol", side="client") is first
        assert stats.counter("forebay_errors_total", kind="protocol", side="upstream") is not first
        assert stats.histogram(LINGER) is stats.histogram(LINGER)


class TestBuckets:
    def test_bounds_grow_and_reach_from_microseconds_to_minutes(self) -> None:
        assert list(TIMES_S) == sorted(set(TIMES_S))
        assert TIMES_S[0] <= 1e-5
        assert TIMES_S[-1] >= 120
        assert SIZES[0] == 1
        assert SIZES[-1] >= 16_000_000

    def test_percentiles_worked_example(self) -> None:
        counts, bounds = [90, 9, 1, 0], (1.0, 2.0, 4.0)
        found = [percentile(counts, bounds, 3.5, share) for share in (0.5, 0.99, 0.999)]
        assert found == [1.0, 2.0, 3.5]
        assert percentile([0, 0], (1.0,), 0, 0.99) == 0
        assert percentile([0, 3], (1.0,), 7.0, 0.5) == 7.0

    @pytest.mark.parametrize("share", [0.5, 0.99, 0.999])
    def test_percentiles_are_at_most_one_step_above_the_truth(self, share: float) -> None:
        rng = random.Random(794)
        values = [rng.lognormvariate(0.5, 1.5) for _ in range(20_000)]
        histogram = Histogram(TIMES_S, now=0)
        for value in values:
            histogram.observe(value)
        truth = sorted(values)[math.ceil(share * len(values)) - 1]
        found = percentile(histogram.counts, TIMES_S, max(values), share)
        assert truth <= found <= truth * 2 ** (1 / 4) * 1.000001


class TestWindows:
    def test_what_is_older_than_two_windows_is_forgotten(self) -> None:
        clock = Clock()
        stats = MetricRegistry(clock)
        linger = stats.histogram(LINGER)
        seen = []
        linger.observe(50.0)
        for _ in range(4):
            clock.now += WINDOW_S
            seen.append(scrape(stats.take())[(f"{LINGER}_max", labels())])
        assert seen == [50.0, 0.0, 0.0, 0.0]

    def test_the_window_holds_the_last_one_and_the_present_one(self) -> None:
        clock = Clock()
        stats = MetricRegistry(clock)
        linger = stats.histogram(LINGER)
        linger.observe(50.0)
        clock.now += WINDOW_S
        stats.tick()
        linger.observe(2.0)
        clock.now += WINDOW_S - 1
        assert scrape(stats.take())[(f"{LINGER}_max", labels())] == 50.0
        clock.now += 1
        assert scrape(stats.take())[(f"{LINGER}_max", labels())] == 2.0

    def test_the_flush_rate_is_per_second_of_the_window(self) -> None:
        clock = Clock()
        stats = MetricRegistry(clock)
        linger = stats.histogram(LINGER)
        for _ in range(40):
            linger.observe(1.0)
        clock.now += 20
        assert scrape(stats.take())[("forebay_batch_flush_rate", labels())] == 2.0
        clock.now += 3 * WINDOW_S
        stats.tick()
        clock.now += WINDOW_S
        assert scrape(stats.take())[("forebay_batch_flush_rate", labels())] == 0.0

    def test_prometheus_own_histogram_never_forgets(self) -> None:
        clock = Clock()
        stats = MetricRegistry(clock)
        stats.histogram(LINGER).observe(50.0)
        clock.now += 10 * WINDOW_S
        stats.tick()
        clock.now += 10 * WINDOW_S
        found = scrape(stats.take())
        assert (found[(f"{LINGER}_count", labels())], found[(f"{LINGER}_sum", labels())]) == (1, 50.0)


class TestMerge:
    def test_counters_gauges_and_histograms_are_added_up(self) -> None:
        snapshots = []
        for worker in (1, 2):
            stats = MetricRegistry(Clock())
            stats.counter("forebay_records_total", fate="moved").value += 10 * worker
            stats.gauge("forebay_queued_bytes", functools.partial(float, 100 * worker))
            stats.histogram(LINGER).observe(float(worker))
            snapshots.append(decode(stats.snapshot()))
        found = scrape(*snapshots)
        assert found[("forebay_records_total", labels(fate="moved"))] == 30
        assert found[("forebay_queued_bytes", labels())] == 300
        assert found[(f"{LINGER}_count", labels())] == 2
        assert found[(f"{LINGER}_sum", labels())] == 3
        assert found[(f"{LINGER}_max", labels())] == 2

    def test_merging_leaves_its_parts_alone(self) -> None:
        stats = MetricRegistry(Clock())
        stats.histogram(LINGER).observe(1.0)
        snapshot = stats.take()
        merge([snapshot, snapshot])
        assert sum(snapshot.histograms[(LINGER, ())].counts) == 1

    def test_of_greatest_values_the_greatest_counts(self) -> None:
        first, second = Snapshot(gauges={("a_max", ()): 5.0}), Snapshot(gauges={("a_max", ()): 3.0})
        assert merge([first, second]).gauges == {("a_max", ()): 5.0}

    def test_of_a_dead_worker_only_what_it_counted_remains(self) -> None:
        clock = Clock()
        stats = MetricRegistry(clock)
        stats.counter("forebay_pool_waits_total").value += 4
        stats.gauge("forebay_queued_bytes", lambda: 100)
        stats.histogram(LINGER).observe(9.0)
        clock.now += 1
        found = scrape(stats.take().without_present())
        assert found[("forebay_pool_waits_total", labels())] == 4
        assert found[(f"{LINGER}_count", labels())] == 1
        assert found[(f"{LINGER}_max", labels())] == 0
        assert ("forebay_queued_bytes", labels()) not in found

    def test_several_readers_of_one_gauge_are_added_up(self) -> None:
        stats = MetricRegistry(Clock())
        stats.gauge("forebay_open_connections", lambda: 2, listener="node")
        stats.gauge("forebay_open_connections", lambda: 3, listener="node")
        assert scrape(stats.take())[("forebay_open_connections", labels(listener="node"))] == 5

    def test_a_broker_that_has_left_is_not_told_of(self) -> None:
        stats = MetricRegistry(Clock())
        up = {1: 1.0, 12: 0.0}
        stats.gauge_of_brokers("forebay_broker_up", lambda: up)
        assert scrape(stats.take())[("forebay_broker_up", labels(node="12"))] == 0
        del up[12]
        found = scrape(stats.take())
        assert found[("forebay_broker_up", labels(node="1"))] == 1
        assert ("forebay_broker_up", labels(node="12")) not in found

    def test_a_broker_is_up_if_all_workers_reach_it(self) -> None:
        workers = [MetricRegistry(Clock()) for _ in range(2)]
        for stats, up in zip(workers, (1.0, 0.0), strict=True):
            stats.gauge_of_brokers("forebay_broker_up", lambda up=up: {1: up})  # type: ignore[misc]
        assert scrape(*(stats.take() for stats in workers))[("forebay_broker_up", labels(node="1"))] == 0


class TestText:
    def test_a_histogram_is_cumulated_and_ends_with_infinity(self) -> None:
        stats = MetricRegistry(Clock())
        histogram = stats.histogram("forebay_batch_records")
        for value in (1, 3, 3, 10**9):
            histogram.observe(value)
        found = scrape(stats.take())
        bucket = "forebay_batch_records_bucket"
        counts = [found[(bucket, labels(le=bound))] for bound in ("1.0", "2.0", "4.0", "+Inf")]
        assert counts == [1, 1, 3, 4]

    def test_shown_bounds_count_what_the_hidden_ones_between_them_hold(self) -> None:
        stats = MetricRegistry(Clock())
        for value in TIMES_S:
            stats.histogram(LINGER).observe(value)
        found = scrape(stats.take())
        shown = {
            float(dict(sample)["le"]): count for (name, sample), count in found.items() if name == f"{LINGER}_bucket"
        }
        assert shown.pop(math.inf) == len(TIMES_S)
        assert shown == {bound: TIMES_S.index(bound) + 1 for bound in TIMES_S[::4]}

    def test_everything_in_the_table_is_text_that_prometheus_reads(self) -> None:
        names = {name for name, _ in scrape(everything().take())}
        for metric in METRICS.values():
            assert (metric.name if metric.kind != "histogram" else f"{metric.name}_count") in names
        for suffix in ("max", "p50", "p99", "p999"):
            assert f"{LINGER}_{suffix}" in names
            assert f"forebay_produce_latency_seconds_{suffix}" in names

    def test_a_metric_of_many_series_comes_in_pieces_and_says_once_what_it_is(self) -> None:
        stats = everything()
        for node in range(300):
            stats.counter("forebay_broker_records_total", node=str(node)).value += node
            stats.histogram("forebay_broker_latency_seconds", node=str(node)).observe(1.0)
        snapshot = stats.take()
        assert max(len(piece.samples) for piece in families(snapshot, "1.2.3")) < 150
        lines = expose(snapshot, "1.2.3")[0].decode().splitlines()
        said = [line.split()[2] for line in lines if line.startswith("# TYPE")]
        assert len(said) == len(set(said))
        assert len([line for line in lines if line.startswith("forebay_broker_records_total{")]) == 300

    def test_the_version_is_told(self) -> None:
        assert scrape(Snapshot())[("forebay_build_info", labels(version="1.2.3"))] == 1


def test_topics_are_named_in_metrics_where_it_is_asked_for() -> None:
    stats = MetricRegistry()
    stats.topics.sent("ponds", 0, 3, 30)
    snapshot = stats.take()
    assert b"ponds" not in expose(snapshot, "1.2.3")[0]
    body = expose(snapshot, "1.2.3", NamedTopics(1))[0].decode()
    assert 'forebay_topic_records_total{path="merged",topic="ponds"} 3.0' in body
    assert b"ponds" not in expose(snapshot, "1.2.3", NamedTopics(0))[0]


class TestParts:
    """Several that count alike, of which some end."""

    def test_counters_are_the_same_and_gauges_are_added_up(self) -> None:
        stats = MetricRegistry()
        parts = [stats.part(), stats.part()]
        for number, registry in enumerate((stats, *parts), 1):
            registry.counter("forebay_throttled_requests_total").value += 1
            registry.gauge("forebay_queued_bytes", lambda number=number: number)  # type: ignore[misc]
            registry.counter_from("forebay_producer_epoch_bumps_total", lambda: 10)
            registry.gauge_of_brokers("forebay_broker_queued_bytes", lambda: {1: 5})
            registry.gauge_of_brokers("forebay_broker_up", lambda number=number: {1: int(number != 2)})  # type: ignore[misc]
        now = stats.take()
        assert now.counters["forebay_throttled_requests_total", ()] == 3
        assert now.counters["forebay_producer_epoch_bumps_total", ()] == 30
        assert now.gauges["forebay_queued_bytes", ()] == stats.value("forebay_queued_bytes") == 6
        assert now.gauges["forebay_broker_queued_bytes", ("1",)] == 15
        assert now.gauges["forebay_broker_up", ("1",)] == 0, "one cannot reach it"

    def test_topics_are_counted_together_and_what_is_known_of_them_is_added_up(self) -> None:
        stats = MetricRegistry()
        parts = [stats.part(), stats.part()]
        for number, part in enumerate(parts, 1):
            part.topics.sent("ponds", 0, 3, 30)
            now = TopicNow([1, -1] if number == 1 else [1], {0: 10 * number}, {0: 0.5 * number})
            part.topics_now = lambda now=now: {"ponds": msgspec.structs.replace(now)}  # type: ignore[misc]
        (topic,) = stats.take().topics
        assert topic.partition_records == [6]
        assert (topic.leaders, topic.queued, topic.waits) == ([1, -1], {0: 30}, {0: 1.0})
        stats.end(parts[1])
        (topic,) = stats.take().topics
        assert topic.partition_records == [6]
        assert topic.queued == {0: 10}

    def test_what_has_ended_has_no_gauges_and_its_counts_stay(self) -> None:
        stats = MetricRegistry()
        part = stats.part()
        part.counter("forebay_throttled_requests_total").value += 1
        part.gauge("forebay_queued_bytes", lambda: 7)
        part.counter_from("forebay_producer_epoch_bumps_total", lambda: 10)
        stats.end(part)
        other = stats.part()
        other.counter_from("forebay_producer_epoch_bumps_total", lambda: 1)
        now = stats.take()
        assert now.counters["forebay_throttled_requests_total", ()] == 1
        assert now.counters["forebay_producer_epoch_bumps_total", ()] == 11
        assert stats.value("forebay_producer_epoch_bumps_total") == 11
        assert ("forebay_queued_bytes", ()) not in now.gauges
