"""Times and spans in sentences."""

from __future__ import annotations

import pytest

from forebay_pipeline.jobs.time_text import instant, within
from forebay_pipeline.journal.span import Span
from tests.pipeline.rows import START_US


def test_an_instant_is_utc_to_the_second() -> None:
    assert instant(START_US + 1_999_999) == "2026-11-18T11:06:41Z"


@pytest.mark.parametrize(
    ("span", "words"),
    [
        (Span(), ""),
        (Span(0, 60_000_000), " between 1970-01-01T00:00:00Z and 1970-01-01T00:01:00Z"),
        (Span(START_US), " from 2026-11-18T11:06:40Z on"),
        (Span(None, START_US), " before 2026-11-18T11:06:40Z"),
    ],
)
def test_a_span_follows_a_noun(span: Span, words: str) -> None:
    assert within(span) == words
