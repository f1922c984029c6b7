"""What people read of a summary."""

from __future__ import annotations

from forebay_pipeline.partitions.text import as_text
from tests.pipeline.report.known import known


def test_terminals_fold_what_is_too_wide() -> None:
    summary = known().summary
    assert max(map(len, as_text(summary, 70).split("\n\n")[1].splitlines())) <= 70
    assert "… and 40 more" in as_text(summary, None)
