"""An hour of what Forebay did: each second for all of it, brokers and workers, each 10 s for topics and clients, each
minute for partitions; bounded by `admin.history.bytes`.

In: rows by key, as the collector makes them. Out: columns over time. Each kind has a share of the bytes, so that many
clients take nothing from brokers. A key that is not told of for a whole ring's time is forgotten; one that there is no
room for has no history, and `missing` counts it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from forebay_proxy.console.rings import Budget, Ring, size

TOTALS: Final = (
    "bytes_in",
    "bytes_out",
    "records_in",
    "records_out",
    "batches_out",
    "requests_in",
    "added_p50",
    "added_p99",
    "produce_p99",
    "pool_used",
    "queued_bytes",
    "errors",
    "retries",
    "connections",
    "lag_p99",
    "observed_records",
    "observed_moved",
    "observed_batches",
    "observed_sent",
)
"""Rates are per second, times in seconds. bytes_in: of clients' requests, bytes_out: of requests to brokers. Of what is
only observed: records, those that would have moved, batches, and those that would have been sent instead."""
BROKER: Final = ("records", "bytes", "queued_bytes", "in_flight", "latency_p50", "latency_p99", "up")
WORKER: Final = ("cpu", "resident_bytes", "lag_p99")
TOPIC: Final = ("records", "bytes")
CLIENT: Final = ("records", "errors")

HOUR_S: Final = 3600

ALL: Final = "all"
"""The only key of `totals`."""


class Kind:
    """Rings of one shape by key. `width` 0: each key says its own."""

    def __init__(self, step: int, slots: int, width: int, most: int) -> None:
        self.step = step
        self.slots = slots
        self.width = width
        self.budget = Budget(most)
        self.rings: dict[str, Ring] = {}

    def put(self, key: str, second: int, values: Sequence[float]) -> None:
        """A row. One with more numbers than before begins anew: a topic was given partitions."""
        width = self.width or len(values)
        ring = self.rings.get(key)
        if ring is not None and ring.width != width:
            self.budget.give_back(self.rings.pop(key))
            ring = None
        if ring is None:
            ring = self.budget.ring(self.step, self.slots, width)
            if ring is None:
                return
            self.rings[key] = ring
        ring.put(second // self.step, values)

    def sweep(self, second: int) -> None:
        """Forget those of which the hour has passed."""
        oldest = second // self.step - self.slots
        for key in [key for key, ring in self.rings.items() if ring.last <= oldest]:
            self.budget.give_back(self.rings.pop(key))
        self.budget.forgive()


class History:
    """Holds at most `most` bytes."""

    def __init__(self, most: int) -> None:
        totals = size(HOUR_S, len(TOTALS))
        rest = max(0, most - totals)
        self.kinds: dict[str, Kind] = {
            "totals": Kind(1, HOUR_S, len(TOTALS), totals),
            "broker": Kind(1, HOUR_S, len(BROKER), rest * 30 // 100),
            "worker": Kind(1, HOUR_S, len(WORKER), rest * 10 // 100),
            "topic": Kind(10, HOUR_S // 10, len(TOPIC), rest * 15 // 100),
            "client": Kind(10, HOUR_S // 10, len(CLIENT), rest * 25 // 100),
            "partitions": Kind(60, HOUR_S // 60, 0, rest * 20 // 100),
        }

    @property
    def size(self) -> int:
        """Bytes in use."""
        return sum(kind.budget.used for kind in self.kinds.values())

    @property
    def missing(self) -> dict[str, int]:
        """How many rows found no place lately, by kind."""
        return {name: kind.budget.refused for name, kind in self.kinds.items() if kind.budget.refused}

    def put(self, kind: str, key: str, second: int, values: Sequence[float]) -> None:
        """What was measured in the step that holds `second`."""
        self.kinds[kind].put(key, second, values)

    def sweep(self, second: int) -> None:
        """Forget what is long gone; to be called now and then."""
        for kind in self.kinds.values():
            kind.sweep(second)

    def row(self, kind: str, key: str, second: int) -> Sequence[float]:
        """The row of that second; NaN where nothing is known."""
        ring = self.kinds[kind].rings.get(key)
        return ring.row(second // ring.step) if ring is not None else ()

    def keys(self, kind: str) -> Iterable[str]:
        """Of which there is a history."""
        return self.kinds[kind].rings

    def columns(
        self, kind: str, key: str, seconds: int, now: int, points: int
    ) -> tuple[list[int], Iterator[list[float | None]]]:
        """(times, one list for each number, made when it is asked for: an hour of one takes the loop a millisecond) of
        the last `seconds`, in at most `points` steps; None: nothing is known.

        Where several ticks are one point it is their mean, and the greatest of percentiles.
        """
        ring = self.kinds[kind].rings.get(key)
        if ring is None:
            return [], iter(())
        last = now // ring.step
        count = min(ring.slots, max(1, seconds // ring.step))
        each = math.ceil(count / max(1, points))
        first = (last - count) // each * each + each  # points stay where they are as time goes on
        times = [start * ring.step for start in range(first, last + 1, each)]
        return times, _thinned(ring, first, last, each, _PEAKS.get(kind, frozenset()))


_PEAKS: Final = {
    "totals": frozenset(TOTALS.index(name) for name in ("added_p50", "added_p99", "produce_p99", "lag_p99")),
    "broker": frozenset(BROKER.index(name) for name in ("latency_p50", "latency_p99")),
    "worker": frozenset({WORKER.index("lag_p99")}),
}


def _thinned(ring: Ring, first: int, last: int, each: int, peaks: frozenset[int]) -> Iterator[list[float | None]]:
    for index in range(ring.width):
        values = ring.column(index, first, last)
        peak = index in peaks
        yield [_point(values[at : at + each], peak) for at in range(0, len(values), each)]


def _point(values: list[float], peak: bool) -> float | None:  # noqa: FBT001 - called for each point
    total = sum(values)
    if math.isnan(total):
        values = [value for value in values if not math.isnan(value)]
        if not values:
            return None
        total = sum(values)
    return rounded(max(values) if peak else total / len(values))


def rounded(value: float) -> float:
    """Five digits: more than a screen shows, and short as JSON."""
    return float(f"{value:.5g}")
