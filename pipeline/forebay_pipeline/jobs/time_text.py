"""Points in time and spans, as the jobs' sentences have them: UTC, to the second."""

from __future__ import annotations

import datetime

from forebay_pipeline.journal.span import Span


def instant(time_us: int) -> str:
    """Microseconds since 1970 → 2026-11-21T14:00:05Z"""
    return datetime.datetime.fromtimestamp(time_us // 1_000_000, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def within(span: Span) -> str:
    """To follow a noun: ` between … and …`, ` from … on` or ` before …`; empty for all time."""
    if span.first is not None and span.last is not None:
        return f" between {instant(span.first)} and {instant(span.last)}"
    if span.first is not None:
        return f" from {instant(span.first)} on"
    return f" before {instant(span.last)}" if span.last is not None else ""
