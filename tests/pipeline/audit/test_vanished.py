"""Which files tell of a process of which there is nothing."""

from __future__ import annotations

import pytest

from forebay_pipeline.audit.ledger import AuditScope
from forebay_pipeline.audit.vanished import Life, vanished
from forebay_pipeline.journal.span import Span

SECOND = 1_000_000
FIRST, LAST, DUE = 1000 * SECOND, 2000 * SECOND, 1900 * SECOND
SCOPE = AuditScope(Span(FIRST, LAST), due_us=DUE)


def file(writer: str, second: int) -> str:
    return f"{writer}-0-{second * SECOND:x}"


def process(writer: str, second: int) -> str:
    return f"{writer}-{second * SECOND:x}"


def test_files_of_nobody_in_the_span() -> None:
    named = [file("a-1", second) for second in (999, 1000, 1899, 1900, 2000)]
    assert list(vanished([*named, "none", "not-a-ti-me"], {}, SCOPE)) == named[1:3]
    assert list(vanished(named, {}, AuditScope(due_us=DUE))) == named[:3]
    assert list(vanished(named, {}, AuditScope(Span(FIRST, LAST)))) == []


@pytest.mark.parametrize(
    ("writer", "life", "found"),
    [
        ("a-1", Life(1100 * SECOND, 1200 * SECOND, ended=False), True),
        ("a-1", Life(1600 * SECOND, 1700 * SECOND, ended=False), False),  # it came later
        ("a-1", Life(1100 * SECOND, 1200 * SECOND, ended=True), False),  # it had ended
        ("a-1", Life(1100 * SECOND, 1495 * SECOND, ended=True), True),
        ("a-1", Life(1505 * SECOND, 1700 * SECOND, ended=True), True),
        ("a", Life(0, LAST, ended=False), False),
        ("a-1-1", Life(0, LAST, ended=False), False),
    ],
)
def test_a_process_of_that_host_and_pid_that_lived_then(writer: str, life: Life, *, found: bool) -> None:
    """Ten seconds are allowed for: a clock that is set, rows on their way."""
    name = file("a-1", 1500)
    assert list(vanished([name], {process(writer, 1): life}, SCOPE)) == ([] if found else [name])
