"""What is counted with on the hot path: a number, and a histogram with windows.

In: what happens, one call each. Out: plain attributes, which registry.py reads and adds up.
"""

from __future__ import annotations

import math

from mypy_extensions import i64


class Counter:
    """A number that only grows: `counter.value += n`."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0


class Histogram:
    """Counts observations by fixed buckets, since the start and over the last window.

    `bounds` are the buckets' upper bounds, ascending; all `now` are seconds of one clock.
    """

    __slots__ = (
        "_bounds",
        "_mark",
        "_mark_at",
        "before",
        "before_at",
        "counts",
        "max",
        "max_before",
        "sum",
    )

    def __init__(self, bounds: tuple[float, ...], now: float) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        """Observations per bucket, not cumulated; the last is for those beyond all bounds."""
        self.sum = 0.0
        self.max = -math.inf
        self.max_before = -math.inf
        # The counts when the previous window began, and when this one did.
        self.before, self.before_at = list(self.counts), now
        self._mark, self._mark_at = list(self.counts), now

    def observe(self, value: float) -> None:
        """Count a value, in the unit of the bounds. One that equals a bound counts in that bound's bucket."""
        bounds = self._bounds
        low: i64 = 0
        high: i64 = len(bounds)
        while low < high:  # bisect_left, which costs as much as all the rest when it is called from compiled code
            middle: i64 = (low + high) >> 1
            if bounds[middle] < value:
                low = middle + 1
            else:
                high = middle
        self.counts[low] += 1
        self.sum += value
        if value > self.max:
            self.max = value

    def turn(self, now: float) -> None:
        """Begin a new window."""
        self.before, self.before_at = self._mark, self._mark_at
        self._mark, self._mark_at = list(self.counts), now
        self.max_before, self.max = self.max, -math.inf
