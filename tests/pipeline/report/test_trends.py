"""What has changed between the beginning and the end of the time."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from forebay_pipeline.report.series import Series, TimePoint
from forebay_pipeline.report.trends import LEAST, Trend, trends
from tests.pipeline.report.known import known

SERIES = known().series


def series(count: int, records: Callable[[int], int], left_out: frozenset[int] = frozenset()) -> Series:
    """So many buckets of 20 s, all else being steady."""
    steady = SERIES.times[0]._replace(batches=10, failed=0)
    times: list[TimePoint] = [
        steady._replace(time_us=number * SERIES.width_us, records=records(number))
        for number in range(count)
        if number not in left_out
    ]
    return SERIES._replace(times=times, gauges=[])


def by_name(found: Series) -> dict[str, Trend]:
    return {one.name: one for one in trends(found)}


def test_the_example() -> None:
    """Ten records a second are 200 in a bucket; the first and the last bucket do not count."""
    sent = [0, 9, 10, 11, 12, *[12] * 8, 13, 15, 16, 30, 0]
    found = by_name(series(len(sent), lambda number: 20 * sent[number]))
    rate = found["Records a second"]
    assert (rate.first, rate.last, rate.clear, rate.verdict) == (10.5, 15.5, True, "rose")
    assert rate.change == pytest.approx(0.476, abs=0.001)
    assert {one.verdict for name, one in found.items() if name != "Records a second"} == {"steady"}


def test_what_overlaps_or_is_small_is_steady() -> None:
    noisy = by_name(series(42, lambda number: 1000 * (1 + number % 2 * 4) + 20 * number))["Records a second"]
    assert (noisy.clear, noisy.verdict) == (False, "steady")
    small = by_name(series(42, lambda number: 10_000 + 40 * number))["Records a second"]
    assert (small.clear, small.verdict) == (False, "steady")


def test_times_without_batches_count_as_none_sent() -> None:
    late = frozenset(range(30, 41))
    rate = by_name(series(42, lambda _: 2000, late))["Records a second"]
    assert (rate.first, rate.last, rate.verdict, rate.change) == (100, 0, "fell", -1)


def test_of_what_is_missing_nothing_is_known() -> None:
    """Not even that nothing was sent."""
    late = frozenset(range(30, 41))
    found = series(42, lambda _: 2000, late)
    missing = frozenset(number * SERIES.width_us for number in late)
    rate = by_name(found._replace(missing=missing))["Records a second"]
    assert (rate.first, rate.last, rate.verdict) == (100, 100, "steady")


def test_what_was_not_there_at_first_has_no_relative_change() -> None:
    rate = by_name(series(42, lambda number: 2000, frozenset(range(1, 12))))["Records a second"]
    assert (rate.first, rate.last, rate.verdict, rate.change) == (0, 100, "rose", None)


def test_a_short_time_has_no_trends() -> None:
    assert list(trends(series(LEAST - 1, lambda _: 1))) == []
    assert list(trends(series(0, lambda _: 1))) == []
    assert by_name(series(LEAST, lambda _: 1))
    assert "Memory held" in {one.name for one in trends(SERIES)}
