"""A ring never takes more than it took at first, and says nothing of ticks it was not told of."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay_proxy.console.rings import Budget, Ring, size


def known(ring: Ring, ticks: range) -> dict[int, float]:
    rows = {tick: ring.row(tick)[0] for tick in ticks}
    return {tick: value for tick, value in rows.items() if not math.isnan(value)}


def test_what_was_missed_is_not_known() -> None:
    ring = Ring(step=1, slots=3, width=1)
    assert known(ring, range(10)) == {}
    ring.put(5, [1])
    ring.put(7, [2])
    assert known(ring, range(10)) == {5: 1, 7: 2}
    ring.put(8, [3])
    assert known(ring, range(10)) == {7: 2, 8: 3}


def test_a_long_silence_leaves_nothing_of_what_was_before() -> None:
    ring = Ring(1, 3, 2)
    ring.put(1, [1, 1])
    ring.put(1_000_000, [2, 3])
    assert known(ring, range(999_990, 1_000_010)) == {1_000_000: 2}
    assert ring.column(1, 1_000_000, 1_000_000) == [3]


def test_a_clock_that_was_set_back_begins_anew() -> None:
    ring = Ring(1, 3, 1)
    ring.put(1000, [1])
    ring.put(5, [2])
    assert known(ring, range(1100)) == {5: 2}


@given(st.lists(st.integers(1, 8), max_size=40))
@settings(deadline=None)
def test_it_holds_the_newest_ticks_as_a_list_would(gaps: list[int]) -> None:
    ring, told, tick = Ring(1, 5, 1), dict[int, float](), 0
    for gap in gaps:
        tick += gap
        ring.put(tick, [float(tick)])
        told[tick] = float(tick)
    expected = {at: value for at, value in told.items() if tick - 5 < at <= tick}
    assert known(ring, range(-5, tick + 10)) == expected
    for first, last in ((-5, tick + 10), (tick - 2, tick), (tick + 1, tick + 3)):
        column = dict(zip(range(first, last + 1), ring.column(0, first, last), strict=True))
        told_here = {at: value for at, value in column.items() if not math.isnan(value)}
        assert told_here == {at: value for at, value in expected.items() if first <= at <= last}


def test_a_budget_gives_no_more_than_it_has() -> None:
    budget = Budget(2 * size(10, 3))
    rings = [budget.ring(1, 10, 3) for _ in range(3)]
    assert [ring is not None for ring in rings] == [True, True, False]
    assert (budget.used, budget.refused) == (budget.most, 1)
    assert rings[0] is not None
    budget.give_back(rings[0])
    assert budget.ring(1, 10, 3) is not None


@pytest.mark.parametrize(("slots", "width"), [(3600, 15), (60, 12)])
def test_the_size_that_is_said_is_that_of_its_numbers(slots: int, width: int) -> None:
    ring = Ring(1, slots, width)
    assert 4 * slots * width <= ring.size <= 4 * slots * width + 500
