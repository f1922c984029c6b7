"""What a change is worth, and which five are shown."""

from __future__ import annotations

import pytest

from forebay_pipeline.advice.change import MOST, Change, Effect, ranked
from forebay_pipeline.advice.toml import TomlValue


def change(name: str, worth: float = 0.0, protects: bool = False, **settings: TomlValue) -> Change:
    return Change(name, name, "", Effect(crossing=-worth), "", settings, protects)


def names(*changes: Change) -> list[str]:
    return [one.name for one in ranked(changes)]


def test_what_is_saved_counts_and_what_grows_counts_against_it() -> None:
    """The example of change.py."""
    assert Effect(ms=0.9, of_ms=3.0, requests=-240, of_requests=400).worth == pytest.approx(0.3)
    assert Effect(ms=-5.0, of_ms=10.0, requests=40, of_requests=400).worth == pytest.approx(0.4)
    assert Effect(ms=-5.0, requests=-1.0).worth == 0
    assert Effect(blocked=-0.1, crossing=-0.2).worth == pytest.approx(0.3)


def test_the_most_worthwhile_is_first_and_promises_are_before_all() -> None:
    assert names(change("a", 0.1), change("b", 0.3), change("c", protects=True), change("d", 0.3)) == list("cbda")


def test_five_are_enough() -> None:
    assert len(names(*(change(f"c{number}", number) for number in range(9)))) == MOST == 5


def test_of_two_for_one_setting_the_better_stays() -> None:
    found = names(change("a", 0.1, linger=1), change("b", 0.2, linger=5, size=2), change("c", 0.05, size=1))
    assert found == ["b"]


def test_fewer_requests_are_less_cpu() -> None:
    assert Effect(requests=-1000).cores == pytest.approx(-0.12)
    assert Effect().cores is None
