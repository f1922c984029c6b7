"""Numbers over time in a fixed amount of memory.

A Ring holds `slots` rows of floats, one a tick; a tick is `step` seconds, counted since 1970. What was not told is NaN.
A Budget says how many bytes rings of one kind may take together: who asks when it is used up gets no ring.

    Ring(10, 3, 1): put(5, [1]), put(7, [2]) → rows(4, 7) = [nan] [1] [nan] [2]; put(8, …) takes the place of tick 5
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from typing import Final

OVERHEAD: Final = 200
"""Bytes of the objects around a ring's numbers, and of its key."""
_FLOAT: Final = 4


def size(slots: int, width: int) -> int:
    """Bytes that a ring takes."""
    return slots * width * _FLOAT + OVERHEAD


class Ring:
    """The last `slots` ticks of `width` numbers each."""

    __slots__ = ("_data", "_last", "slots", "step", "width")

    def __init__(self, step: int, slots: int, width: int) -> None:
        self.step = step
        self.slots = slots
        self.width = width
        self._data = array("f", [math.nan]) * (slots * width)
        self._last = -1

    @property
    def size(self) -> int:
        """Bytes."""
        return size(self.slots, self.width)

    @property
    def last(self) -> int:
        """The newest tick; −1: there is none."""
        return self._last

    def put(self, tick: int, values: Sequence[float]) -> None:
        """The row of `tick`. One before the last means that the clock was set back: what is known begins anew."""
        width = self.width
        if tick < self._last:
            self._data = array("f", [math.nan]) * len(self._data)
            self._last = -1
        missed = range(max(self._last + 1, tick - self.slots + 1), tick) if self._last >= 0 else ()
        for each in missed:
            at = each % self.slots * width
            self._data[at : at + width] = array("f", [math.nan]) * width
        at = tick % self.slots * width
        self._data[at : at + width] = array("f", values)
        self._last = tick

    def row(self, tick: int) -> Sequence[float]:
        """What was put at `tick`; NaN where nothing was, or it is too long ago."""
        if self._last < 0 or not self._last - self.slots < tick <= self._last:
            return [math.nan] * self.width
        at = tick % self.slots * self.width
        return self._data[at : at + self.width]

    def column(self, index: int, first: int, last: int) -> list[float]:
        """One of the numbers for each tick of [first, last]."""
        begin, end = max(first, self._last - self.slots + 1), min(last, self._last)
        if self._last < 0 or begin > end:
            return [math.nan] * (last + 1 - first)
        values = self._data[index :: self.width]
        at, until = begin % self.slots, end % self.slots
        found = values[at : until + 1] if at <= until else values[at:] + values[: until + 1]
        return [*[math.nan] * (begin - first), *found, *[math.nan] * (last - end)]


class Budget:
    """Bytes that rings of one kind may take."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.used = 0
        self.refused = 0
        """Rings that there was no room for, since the last `forgive`."""

    def ring(self, step: int, slots: int, width: int) -> Ring | None:
        """A new ring; None: there is no room for it."""
        wanted = size(slots, width)
        if self.used + wanted > self.most:
            self.refused += 1
            return None
        self.used += wanted
        return Ring(step, slots, width)

    def give_back(self, ring: Ring) -> None:
        """It is not used any more."""
        self.used -= ring.size

    def forgive(self) -> None:
        """Those that were refused will be asked for again, or are gone."""
        self.refused = 0
