"""Numbers as people read them: as the page writes them."""

from __future__ import annotations

import pytest

from forebay_proxy.commands import numbers


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0, "0"),
        (7, "7"),
        (7.25, "7.25"),
        (999, "999"),
        (999.6, "1.00 k"),
        (41_300, "41.3 k"),
        (2.5e9, "2.50 G"),
    ],
)
def test_counts(value: float | None, text: str) -> None:
    assert numbers.count(value) == text


@pytest.mark.parametrize(("value", "text"), [(None, "–"), (0, "0 B"), (12.4, "12 B"), (1_234_567, "1.23 MB")])
def test_sizes(value: float | None, text: str) -> None:
    assert numbers.size(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (0, "0 ms"), (0.000_45, "450 µs"), (0.0031, "3.10 ms"), (0.25, "250 ms"), (12.5, "12.5 s")],
)
def test_times(value: float | None, text: str) -> None:
    assert numbers.time(value) == text


def test_shares_and_words() -> None:
    assert (numbers.percent(0.254), numbers.percent(None)) == ("25.4 %", "–")
    assert (numbers.many(1, "client"), numbers.many(2_000, "client")) == ("1 client", "2,000 clients")
