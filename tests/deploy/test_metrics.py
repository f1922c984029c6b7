"""Metrics as Prometheus's own tool judges them: names, units, types and help texts."""

from __future__ import annotations

import subprocess

from forebay_proxy.metrics.exposition import expose
from tests.kit.metrics import everything
from tests.kit.paths import program


def scrape() -> bytes:
    return expose(everything().take(), "1.2.3")[0]


def check(metrics: bytes) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([program("promtool"), "check", "metrics"], input=metrics, capture_output=True, timeout=60)


def test_prometheus_has_nothing_to_say_about_any_metric() -> None:
    checked = check(scrape())
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, b"")


def test_it_would_say_so() -> None:
    checked = check(scrape().replace(b"forebay_produce_latency_seconds", b"forebay_produce_latency_ms"))
    assert checked.returncode != 0
    assert b"forebay_produce_latency_ms" in checked.stdout + checked.stderr
