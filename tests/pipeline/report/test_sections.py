"""What stands on the page, without the page."""

from __future__ import annotations

import msgspec
import pytest

from forebay_pipeline.report.sections import MAX_ROWS, Known, headlines, sections, size
from tests.pipeline.report.known import known


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (25_953_200, "26.0 MB"), (1e9, "1.0 GB"), (5e15, "5,000.0 TB")],
)
def test_sizes_have_units(count: float, text: str) -> None:
    assert size(count) == text


def test_bad_numbers_are_marked() -> None:
    assert {line.name for line in headlines(known()) if line.bad} == {
        "Not acknowledged",
        "Runaways",
        "Waits for memory",
        "Audit",
    }


def test_without_audit_and_replay_nothing_is_said_of_them() -> None:
    everything = known()
    bare = Known(everything.summary, everything.series)
    assert [section.name for section in sections(bare)] == ["partitions", "times", "batches", "memory"]
    assert [section.name for section in sections(everything)][4:] == ["audit", "replay"]
    assert {line.name for line in headlines(everything)} - {line.name for line in headlines(bare)} == {
        "Audit",
        "Replay",
    }


def test_long_tables_are_cut_and_say_so() -> None:
    everything = known()
    groups = everything.summary.groups * 10
    summary = msgspec.structs.replace(everything.summary, groups=groups)
    first, *_ = sections(everything._replace(summary=summary))
    (batches,) = (table for table in first.tables if table.title == "Batches")
    assert len(batches.rows) == MAX_ROWS
    assert batches.left_out == summary.groups_left_out + len(groups) - MAX_ROWS
