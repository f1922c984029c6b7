"""Which rows an audit reads, and which of them it checks."""

from __future__ import annotations

import pytest

from forebay_pipeline.audit.ledger import AROUND_US, AuditScope
from forebay_pipeline.audit.state import HORIZON_US, AuditState, ProcessMark
from forebay_pipeline.journal.span import Span

DAY_US = HORIZON_US
STATE = AuditState(processes={"a": ProcessMark(5 * DAY_US, []), "b": ProcessMark(3 * DAY_US, [])})


@pytest.mark.parametrize(
    ("scope", "checked"),
    [
        (AuditScope(), Span()),
        (AuditScope(Span(7, 9)), Span(7, 9)),
        (AuditScope(state=AuditState()), Span()),
        (AuditScope(Span(last=9 * DAY_US), state=STATE), Span(4 * DAY_US, 9 * DAY_US)),
        (AuditScope(Span(7, 9), state=STATE), Span(7, 9)),
    ],
    ids=["everything", "a span", "an empty state", "a state: a day before its newest row", "a span over a state"],
)
def test_what_is_checked(scope: AuditScope, checked: Span) -> None:
    assert scope.to_be_checked == checked


def test_a_span_that_begins_somewhere_does_not_carry_on() -> None:
    assert AuditScope(Span(first=7), state=STATE).before is None
    assert AuditScope(Span(last=7), state=STATE).before is STATE


def test_more_is_read_than_checked() -> None:
    assert AuditScope(Span(DAY_US, 2 * DAY_US)).around == Span(DAY_US - AROUND_US, 2 * DAY_US + AROUND_US)
    assert AuditScope().around == Span()
