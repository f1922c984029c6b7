"""Plots are told in words to whoever cannot see them."""

from __future__ import annotations

from forebay_pipeline.audit.result import Counts
from forebay_pipeline.report import plots
from forebay_pipeline.report.series import GaugePoint, SharesPoint, TopicShares
from tests.pipeline.report.known import known
from tests.pipeline.rows import START_US

WIDTH_US = 10_000_000


def test_shares_are_told_by_partition_and_others_together() -> None:
    points = [
        SharesPoint(START_US, {3: 0.5, 1: 0.25, None: 0.25}),
        SharesPoint(START_US + 2 * WIDTH_US, {3: 0.75, 1: 0.25}),
    ]
    made = plots.shares(4, TopicShares("t", [3, 1], points), WIDTH_US)
    assert (made.name, made.title) == ("shares-4", "Shares of t")
    # The bucket between them is empty.
    assert made.description == (
        "Of the bytes sent, over time: partition 3 0.0 to 75.0 %, partition 1 0.0 to 25.0 %, others 0.0 to 25.0 %."
    )


def test_memory_is_told_at_its_peak() -> None:
    points = [GaugePoint(START_US, 10, 300, 1000), GaugePoint(START_US + WIDTH_US, 20, 200, 1000)]
    assert plots.memory(points, WIDTH_US).description == (
        "At most 300 of 1,000 bytes of buffer.memory were held; at most 20 bytes waited for their broker."
    )


def test_an_audit_is_told_with_all_findings() -> None:
    told = plots.audit(Counts(acknowledged=1_000_000, present=999_999, missing=1)).description
    assert "present 999,999, missing 1, topic gone 0, altered 0," in told


def test_present_and_recommended_settings_may_be_the_same() -> None:
    report = known().facts.replay
    assert report is not None
    assert "18 settings. present: p99 " in plots.grid(report).description
    assert "; recommended: p99 " in plots.grid(report).description
