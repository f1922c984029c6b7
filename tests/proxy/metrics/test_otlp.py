"""What a collector is sent is what /metrics says, and a collector that does not take it costs nobody anything."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterable

import pytest
import structlog
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.parser import text_string_to_metric_families

from forebay_proxy.metrics.exposition import expose, families
from forebay_proxy.metrics.otlp import OtlpExport
from forebay_proxy.metrics.registry import MetricRegistry
from tests.kit.event_loop import in_loop, until
from tests.kit.metrics import everything
from tests.kit.otlp_collector import Numbers, collecting, told
from tests.kit.ports import LOOPBACK, free_port

VERSION = "1.2.3"
COUNT = "forebay_otlp_exports_total"


def exporting(url: str, registry: MetricRegistry, stats: MetricRegistry) -> OtlpExport:
    async def counted() -> Iterable[Family]:
        return families(registry.take(), VERSION)

    return OtlpExport(url, 0.01, counted, stats, VERSION)


def outcomes(stats: MetricRegistry) -> tuple[float, ...]:
    return tuple(stats.value(COUNT, outcome=outcome) for outcome in ("accepted", "failed", "skipped"))


def exposed(registry: MetricRegistry) -> Numbers:
    text = expose(registry.take(), VERSION)[0].decode()
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@in_loop
async def test_the_numbers_are_those_of_metrics() -> None:
    registry = everything()
    stats = MetricRegistry()
    with collecting() as there:
        await exporting(there.url, registry, stats).export()
        await until(lambda: outcomes(stats) == (1, 0, 0))
        expected, got = exposed(registry), told(there.exports[0])
        assert len(got) > 300
        assert {key for key in expected if not is_a_rate(key)} == {key for key in got if not is_a_rate(key)}
        assert {key: got[key] for key in got if not is_a_rate(key)} == {
            key: expected[key] for key in expected if not is_a_rate(key)
        }
        (resource,) = there.exports[0].resource_metrics
        attributes = {it.key: it.value.string_value for it in resource.resource.attributes}
        assert (attributes["service.name"], attributes["service.version"]) == ("forebay", VERSION)
        assert attributes["service.instance.id"]
        kinds = {metric.name: metric for metric in resource.scope_metrics[0].metrics}
        assert kinds["forebay_records_total"].sum.is_monotonic
        assert kinds["forebay_added_latency_seconds"].unit == "s"
        assert kinds["forebay_queued_bytes"].unit == "By"


@in_loop
async def test_while_the_numbers_are_gathered_others_have_their_turn_and_each_metric_is_there_once() -> None:
    registry, stats = everything(), MetricRegistry()
    for node in range(200):
        registry.histogram("forebay_broker_latency_seconds", node=str(node)).observe(1.0)
    had = 0

    async def others() -> None:
        nonlocal had
        while True:
            had += 1
            await asyncio.sleep(0)

    with collecting() as there:
        turning = asyncio.create_task(others())
        await exporting(there.url, registry, stats).export()
        turning.cancel()
        await until(lambda: outcomes(stats) == (1, 0, 0))
        names = [it.name for it in there.exports[0].resource_metrics[0].scope_metrics[0].metrics]
        assert len(names) == len(set(names))
        expected, got = exposed(registry), told(there.exports[0])
    assert got.keys() == expected.keys()
    assert had > len(expected) // 400 > 10


def is_a_rate(key: tuple[str, frozenset[tuple[str, str]]]) -> bool:
    """Per second, by the clock of the moment."""
    return key[0] == "forebay_batch_flush_rate"


@in_loop
async def test_opentelemetrys_variables_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=secret")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=prod")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "edge-forebay")
    stats = MetricRegistry()
    with collecting() as there:
        await exporting(there.url, stats, stats).export()
        await until(lambda: there.exports)
        assert {name.lower(): value for name, value in there.headers[0].items()}["x-key"] == "secret"
        attributes = {it.key: it.value.string_value for it in there.exports[0].resource_metrics[0].resource.attributes}
        assert attributes["service.name"] == "edge-forebay"
        assert attributes["deployment.environment"] == "prod"
        await until(lambda: outcomes(stats)[0] == 1)


@in_loop
async def test_an_export_that_fails_is_counted_and_told_in_one_line() -> None:
    stats = MetricRegistry()
    with collecting() as there, structlog.testing.capture_logs() as logs:
        there.status = 400
        await exporting(there.url, stats, stats).export()
        await until(lambda: outcomes(stats) == (0, 1, 0))
    (line,) = logs
    assert (line["event"], line["log_level"]) == ("metrics were not exported", "warning")
    assert "400" in line["error"]


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ("Authorization: Bearer canary", "OTEL_EXPORTER_OTLP_HEADERS or _METRICS_HEADERS is no name=value"),
        ("authorization=Bearer%20canary%0A.", "header value: [hidden]"),
        ("authorization%0Acanary=x", "header name: [hidden]"),
    ],
)
@in_loop
async def test_no_header_gets_into_a_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, headers: str, said: str
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", headers)
    stats = MetricRegistry()
    with collecting() as there, structlog.testing.capture_logs() as logs:
        await exporting(there.url, stats, stats).export()
        await until(lambda: sum(outcomes(stats)) == 1)
    text = f"{caplog.text} {logs}"
    assert said in text
    assert "canary" not in text


@in_loop
async def test_while_a_collector_hangs_exports_are_left_out_and_nobody_waits() -> None:
    stats = MetricRegistry()
    with collecting() as there:
        there.answers.clear()
        export = exporting(there.url, stats, stats)
        running = asyncio.create_task(export.run())
        await until(lambda: there.exports and outcomes(stats)[2] >= 3)
        assert len(there.exports) == 1
        there.answers.set()
        await until(lambda: outcomes(stats)[0] >= 2)
        running.cancel()


@in_loop
async def test_where_nobody_listens_it_goes_on_trying(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    stats = MetricRegistry()
    export = exporting(f"http://{LOOPBACK}:{free_port()}/v1/metrics", stats, stats)
    with structlog.testing.capture_logs() as logs:
        await export.export()
        await until(lambda: outcomes(stats) == (0, 1, 0))
        await export.export()
        await until(lambda: outcomes(stats) == (0, 2, 0))
    assert {line["event"] for line in logs} == {"metrics were not exported"}


@in_loop
async def test_a_loop_that_has_ended_is_not_told() -> None:
    """A process that ends does not wait for its last export."""
    stats = MetricRegistry()
    with socket.socket() as silent:
        silent.bind((LOOPBACK, 0))
        silent.listen()
        await exporting(f"http://{LOOPBACK}:{silent.getsockname()[1]}/v1/metrics", stats, stats).export()
    sending = [thread.daemon for thread in threading.enumerate() if thread.name == "otlp export"]
    assert sending
    assert all(sending)
