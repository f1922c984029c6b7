"""Counting by itself; what becomes of the counts is test_registry's."""

from __future__ import annotations

from forebay_proxy.metrics.instruments import Counter, Histogram


def test_a_counter_begins_with_nothing() -> None:
    counter = Counter()
    counter.value += 12
    assert counter.value == 12


def test_a_bound_belongs_to_its_bucket() -> None:
    histogram = Histogram((1.0, 2.0, 4.0), now=0)
    for value in (0, 1, 1.5, 2, 4, 4.1, 1e9):
        histogram.observe(value)
    assert histogram.counts == [2, 2, 1, 2]
    assert (histogram.sum, histogram.max) == (1e9 + 12.6, 1e9)


def test_a_new_window_keeps_the_counts_and_forgets_the_greatest() -> None:
    histogram = Histogram((1.0, 2.0), now=0)
    histogram.observe(1.5)
    histogram.turn(30.0)
    histogram.observe(0.5)
    assert (histogram.counts, histogram.before, histogram.before_at) == ([1, 1, 0], [0, 0, 0], 0)
    assert (histogram.max, histogram.max_before) == (0.5, 1.5)
    histogram.turn(60.0)
    assert (histogram.before, histogram.before_at) == ([0, 1, 0], 30.0)
