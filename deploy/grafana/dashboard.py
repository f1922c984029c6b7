"""`python deploy/grafana/dashboard.py` writes forebay.json beside it: a dashboard made of the catalog of metrics.

Every metric of the catalog has a panel, whose text is the metric's help and whose unit is that of its name. What is
chosen by hand is SECTIONS: which metrics stand together, in which order, and what stands on the first screen.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.builders.prometheus import Dataquery
from grafana_foundation_sdk.builders.stat import Panel as Stat
from grafana_foundation_sdk.builders.timeseries import Panel as TimeSeries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard

from forebay_proxy.metrics.catalog import METRICS, Metric

TARGET: Final = Path(__file__).with_name("forebay.json")

SOURCE: Final = dashboard.DataSourceRef(type_val="prometheus", uid="${datasource}")
CHOSEN: Final = 'instance=~"$instance"'
WINDOW: Final = "$__rate_interval"
GRID: Final = 24

SECTIONS: Final[dict[str, tuple[str, ...]]] = {
    "Clients": (
        "open_connections",
        "connections_total",
        "requests_total",
        "request_bytes_total",
        "response_bytes_total",
        "produce_requests_total",
        "frames_refused_total",
        "requests_unread_total",
        "tls_handshakes",
        "tls_handshakes_total",
        "client_logins_total",
    ),
    "Records and batches": (
        "records_total",
        "batches_in_total",
        "batch_records",
        "batch_bytes",
        "batches_flushed_total",
        "batch_linger_time_seconds",
        "partitioner_choices_total",
        "rack_bytes_total",
        "idempotent_null_key_records_total",
        "records_converted_total",
        "records_stamped_total",
        "observed_records_total",
        "observed_batches_total",
        "observed_requests_total",
        "observed_batches_unread_total",
    ),
    "Brokers": (
        "broker_up",
        "brokers_without_port",
        "broker_records_total",
        "broker_bytes_total",
        "broker_queued_bytes",
        "broker_in_flight_requests",
        "broker_latency_seconds",
        "upstream_connections",
        "in_flight_requests",
    ),
    "Topics": ("topic_records_total", "topic_bytes_total"),
    "Errors and retries": (
        "errors_total",
        "retries_total",
        "producer_ids",
        "identities_without_producer_ids",
        "producer_epoch_bumps_total",
        "throttled_requests_total",
        "throttled_client_ids",
        "unmerged_brokers",
    ),
    "Memory and queues": (
        "buffer_memory_available_bytes",
        "buffer_memory_total_bytes",
        "buffer_memory_waiters",
        "pool_waits_total",
        "queued_bytes",
        "queued_batches",
        "queued_request_bytes",
        "gathered_response_bytes",
    ),
    "Latency": ("produce_latency_seconds", "added_latency_seconds", "event_loop_lag_seconds"),
    "Metadata": (
        "metadata_requests_total",
        "metadata_topics_total",
        "metadata_refreshes_total",
        "metadata_leaders_named_total",
        "metadata_upstream_requests_total",
        "metadata_upstream_bytes_total",
        "metadata_age_seconds",
        "metadata_cached_topics",
    ),
    "Processes": (
        "ready",
        "start_time_seconds",
        "workers",
        "worker_restarts_total",
        "worker_cpu_seconds_total",
        "worker_resident_memory_bytes",
        "tasks",
        "certificate_expiry_timestamp_seconds",
        "identities",
        "security_reloads_total",
        "security_last_reload_successful",
        "config_last_reload_successful",
        "config_generation",
    ),
    "Journal and exports": ("journal_rows_total", "journal_rows_dropped_total", "otlp_exports_total"),
}
"""Names without `forebay_`."""


class Query(NamedTuple):
    """PromQL, and what its lines are called."""

    expr: str
    legend: str = ""


class First(NamedTuple):
    """A figure of the first screen: one number for all chosen instances, and from where on it is a bad one."""

    title: str
    expr: str
    unit: str
    bad_from: float | None = None
    bad_below: float | None = None


def rate(name: str, labels: str = "") -> str:
    """A counter's growth a second."""
    return f"rate(forebay_{name}{{{labels}{CHOSEN}}}[{WINDOW}])"


def now(name: str) -> str:
    """A gauge."""
    return f"forebay_{name}{{{CHOSEN}}}"


EXPECTED: Final = f"count(last_over_time({now('ready')}[1d]) and on (job, instance) up) or count({now('ready')})"
"""How many instances there should be: a dead one has no number of its own, but Prometheus still looks for it (`up`)."""

FIRST_SCREEN: Final = (
    First("Instances ready", f"(sum({now('ready')}) or vector(0)) / ({EXPECTED})", "percentunit", bad_below=1),
    First("Brokers down", f"count(min by (node) ({now('broker_up')}) == 0) or vector(0)", "short", bad_from=1),
    First("Clients connected", f"sum({now('open_connections')})", "short"),
    First("Records in", f"sum({rate('records_total')})", "cps"),
    First("Batches out", f"sum({rate('batch_records_count')})", "cps"),
    First("Records a batch out", f"sum({rate('batch_records_sum')}) / sum({rate('batch_records_count')})", "short"),
    First("Produce latency, p99", f"max({now('produce_latency_seconds_p99')})", "s"),
    First("CPU, cores", f"sum({rate('worker_cpu_seconds_total')})", "short"),
    First("Loop lag, p99", f"max({now('event_loop_lag_seconds_p99')})", "s", bad_from=0.1),
    First(
        "Memory free",
        f"sum({now('buffer_memory_available_bytes')}) / sum({now('buffer_memory_total_bytes')})",
        "percentunit",
        bad_below=0.1,
    ),
    First("Records given up", "sum(" + rate("errors_total", 'kind=~"expired|outcome_unknown",') + ")", "cps", 0.001),
    First("Clients too old for the brokers", "sum(" + rate("errors_total", 'kind="too_old",') + ")", "cps", 0.001),
)


def queries(metric: Metric) -> Iterator[Query]:
    """What a metric's panel shows."""
    by = ", ".join(metric.labels)
    legend = " ".join(f"{{{{{label}}}}}" for label in metric.labels)
    grouped = f" by ({by})" if by else ""
    short = metric.name.removeprefix("forebay_")
    if metric.kind == "counter":
        yield Query(f"sum{grouped} ({rate(short)})", legend)
    elif metric.name.endswith("_timestamp_seconds"):
        yield Query(f"min{grouped} ({now(short)}) - time()", legend)
    elif metric.name.endswith("_start_time_seconds"):
        yield Query(f"time() - max{grouped} ({now(short)})", "youngest")
    elif metric.kind == "gauge":
        yield Query(f"{'min' if metric.least else 'sum'}{grouped} ({now(short)})", legend)
    elif metric.windowed:
        for suffix in ("p50", "p99", "max"):
            yield Query(f"max{grouped} ({now(f'{short}_{suffix}')})", f"{legend} {suffix}".strip())
    else:
        for share in (0.5, 0.99):
            within = ", ".join(("le", *metric.labels))
            per_bucket = f"sum by ({within}) ({rate(f'{short}_bucket')})"
            yield Query(f"histogram_quantile({share}, {per_bucket})", f"{legend} p{share * 100:.0f}".strip())


def unit(metric: Metric) -> str:
    """Grafana's name of the unit that the metric's name ends in."""
    name = metric.name.removesuffix("_total")
    counted = metric.kind == "counter"
    if name.endswith("_cpu_seconds"):
        return "percentunit"  # seconds a second
    if name.endswith("_seconds"):
        return "s"
    if name.endswith("_bytes"):
        return "binBps" if counted else "bytes"
    return "cps" if counted else "short"


def title(metric: Metric) -> str:
    """`forebay_broker_queued_bytes` → `Broker queued bytes`, `forebay_records_total` → `Records a second`."""
    words = metric.name.removeprefix("forebay_").replace("_", " ").replace("tls", "TLS")
    words = words.removesuffix("total") + "a second" if metric.kind == "counter" else words
    return words[0].upper() + words[1:]


def panel(metric: Metric) -> TimeSeries:
    """A metric over time."""
    made = TimeSeries().title(title(metric)).description(metric.help).unit(unit(metric))
    made = made.datasource(SOURCE).height(7).span(GRID // 3).min(0)
    for ref_id, query in zip("ABC", queries(metric), strict=False):
        target = Dataquery().ref_id(ref_id).expr(query.expr).legend_format(query.legend or title(metric))
        made = made.with_target(target)
    return made


def figure(first: First) -> Stat:
    """A number of the first screen, red where it is bad."""
    good, bad = "green", "red"
    steps: Sequence[dashboard.Threshold] = (dashboard.Threshold(color=good),)
    if first.bad_from is not None:
        steps = (dashboard.Threshold(color=good), dashboard.Threshold(value=first.bad_from, color=bad))
    elif first.bad_below is not None:
        steps = (dashboard.Threshold(color=bad), dashboard.Threshold(value=first.bad_below, color=good))
    limits = build.ThresholdsConfig().mode(dashboard.ThresholdsMode.ABSOLUTE).steps(list(steps))
    made = Stat().title(first.title).unit(first.unit).thresholds(limits).datasource(SOURCE).height(4).span(GRID // 6)
    return made.with_target(Dataquery().ref_id("A").expr(first.expr))


def forebay() -> dashboard.Dashboard:
    """The whole dashboard."""
    made = build.Dashboard("Forebay").uid("forebay").tags(["kafka", "forebay"]).time("now-1h", "now").refresh("30s")
    made = made.with_variable(build.DatasourceVariable("datasource").label("Data source").type("prometheus"))
    made = made.with_variable(
        build.QueryVariable("instance")
        .label("Instance")
        .datasource(SOURCE)
        .query("label_values(forebay_build_info, instance)")
        .refresh(dashboard.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .multi(multi=True)
        .include_all(include_all=True)
        .all_value(".*")
        .current(dashboard.VariableOption(text="All", value="$__all", selected=True))
    )
    for first in FIRST_SCREEN:
        made = made.with_panel(figure(first))
    for section, names in SECTIONS.items():
        made = made.with_row(build.Row(section))
        for name in names:
            made = made.with_panel(panel(METRICS[f"forebay_{name}"]))
    return made.build()


def text() -> str:
    """The dashboard as Grafana imports it."""
    return json.dumps(forebay(), cls=JSONEncoder, indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    TARGET.write_text(text())
