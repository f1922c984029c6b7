"""The file for Prometheus, as its own tool judges it, and by what it counts."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from forebay_pipeline.storage import Storage
from forebay_pipeline.watch.exposition import TextFile
from forebay_pipeline.watch.verdict import Finding
from tests.kit.paths import program
from tests.pipeline.watch.made_up import minute

T = 'cluster_id="c",topic="t",topic_id="i"'


class File:
    """The file, and its samples."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.path = folder / "collector" / "forebay.prom"
        self.late = 0
        self.text = TextFile(
            Storage(spark), str(self.path), lambda: {"late_rows_total": ("Rows that came late.", self.late)}
        )

    def samples(self) -> dict[str, float]:
        """`name{labels}`, without `forebay_watch_` → value."""
        lines = (line.rpartition(" ") for line in self.path.read_text().splitlines() if not line.startswith("#"))
        return {name.removeprefix("forebay_watch_"): float(value) for name, _, value in lines}


@pytest.fixture
def file(spark: SparkSession, tmp_path: Path) -> File:
    return File(spark, tmp_path)


def test_records_are_counted_and_latencies_are_those_of_the_last_minute(file: File) -> None:
    file.text.tell(0, [minute(lost=3, findings=[Finding.LOST]), minute(minute="2026-11-18T11:09:00Z", lost=None)])
    file.late = 5
    file.text.tell(1, [minute(minute="2026-11-18T11:10:00Z", unacknowledged=7, p50_ms=2.5, p99_ms=4_000.0, lost=2)])
    samples = file.samples()
    assert samples[f"acknowledged_records_total{{{T}}}"] == 1_200
    assert samples[f"unacknowledged_records_total{{{T}}}"] == 7
    assert samples[f"lost_records_total{{{T}}}"] == 5
    assert samples[f"unchecked_total{{{T}}}"] == 1
    assert samples[f'findings_total{{{T},finding="lost"}}'] == 1
    assert samples[f'findings_total{{{T},finding="made_again"}}'] == 0
    assert samples[f"latency_p50_seconds{{{T}}}"] == 0.0025
    assert samples[f"latency_p99_seconds{{{T}}}"] == 4
    assert samples["late_rows_total"] == 5
    assert [path.name for path in file.path.parent.iterdir()] == ["forebay.prom"]


def test_a_topic_that_was_made_again_and_one_of_another_cluster_are_others(file: File) -> None:
    file.text.tell(0, [minute(), minute(topic_id="j", acknowledged=1), minute(cluster_id="d", acknowledged=2)])
    samples = file.samples()
    counted = {name: value for name, value in samples.items() if name.startswith("acknowledged")}
    assert sorted(counted.values()) == [1, 2, 400]


def test_topics_that_are_quiet_for_an_hour_are_left_out(file: File) -> None:
    file.text.tell(0, [minute(topic="quiet"), minute(minute="2026-11-18T12:07:00Z")])
    assert any('topic="quiet"' in name for name in file.samples())
    file.text.tell(1, [])
    assert any('topic="quiet"' in name for name in file.samples())
    file.text.tell(2, [minute(minute="2026-11-18T12:08:00Z")])
    assert not any('topic="quiet"' in name for name in file.samples())


def test_nothing_was_acknowledged(file: File) -> None:
    file.text.tell(0, [minute(acknowledged=0, p50_ms=None, p99_ms=None)])
    assert f"latency_p50_seconds{{{T}}}" not in file.samples()


def check(metrics: bytes) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([program("promtool"), "check", "metrics"], input=metrics, capture_output=True, timeout=60)


def test_prometheus_has_nothing_to_say_about_any_metric(file: File) -> None:
    file.text.tell(0, [minute(findings=list(Finding)), minute(topic='a"b\\c\nd')])
    checked = check(file.path.read_bytes())
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, b"")
    spoiled = check(file.path.read_bytes().replace(b"_records_total", b"_records"))
    assert spoiled.returncode != 0
