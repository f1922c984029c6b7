"""What people read of a replay."""

from __future__ import annotations

import msgspec

from forebay_pipeline.replay.results import Measured, Unmerged
from forebay_pipeline.replay.text import as_text
from tests.pipeline.replay.reports import report


def test_people_are_told_the_same() -> None:
    text = as_text(report(16))

    assert "Simulated with the present settings ÷ measured: average 0.99, p50 0.83, p99 0.98." in text
    assert "differ by more than" not in text
    assert "Recommended: partitioner=expected_wait" in text
    assert text.count("\n") > len(report(16).results)


def test_what_was_observed_is_compared_with_what_merging_would_make_of_it() -> None:
    before = Unmerged(12.0, 3.0, 40.0, batch_bytes=100, batch_records=1.0, requests=700, records=1000)
    text = as_text(msgspec.structs.replace(report(0), measured=None, unmerged=before))
    assert "Observed, unmerged: average 12.00, p50 3.00, p99 40.00; 1.0 records/batch, 700 requests." in text
    assert "100.0 times fewer requests, 10.0 times the records/batch." in text

    both = as_text(msgspec.structs.replace(report(0), unmerged=before))
    assert "Observed, unmerged" in both
    assert "times fewer" not in both, "some of what was replayed had been merged"
    assert "Measured of what was merged: average 8.10, p50 1.20, p99 20.50. What was only observed was" in both
    assert "÷ measured" not in both


def test_a_simulation_far_from_what_was_measured_is_said_to_be() -> None:
    measured = Measured(average_ms=8.1, p50_ms=2.0, p99_ms=20.5, records=1000)
    text = as_text(msgspec.structs.replace(report(0), measured=measured))

    assert "They differ by more than 25%" in text
