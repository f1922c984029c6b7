"""How much counters have grown in the last minutes, as Prometheus's `increase` would say it.

In: the counters, look by look. Out: growth over as many seconds as are asked for, KEPT_S at most. What was counted
before the first look counts as new: whoever looks begins with Forebay. Bounded: a step each STEP_S, of TROUBLE alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final

from forebay_proxy.metrics.registry import Key

TROUBLE: Final = frozenset({"forebay_errors_total", "forebay_journal_rows_dropped_total"})
"""The counters that are looked at."""
STEP_S: Final = 10.0
KEPT_S: Final = 900.0


class Lately:
    """Times are in seconds; only differences count."""

    def __init__(self) -> None:
        self._steps: deque[tuple[float, Mapping[Key, float]]] = deque()
        """The first is KEPT_S old, or older, where there is one."""
        self._now = 0.0
        self._newest: Mapping[Key, float] = {}

    def note(self, counters: Mapping[Key, float], now: float) -> None:
        """A look at all of them."""
        self._now, self._newest = now, {key: count for key, count in counters.items() if key[0] in TROUBLE}
        if not self._steps or now - self._steps[-1][0] >= STEP_S:
            self._steps.append((now, self._newest))
        while len(self._steps) > 1 and now - self._steps[1][0] >= KEPT_S:
            self._steps.popleft()

    def grown(self, seconds: float, name: str, *labels: str) -> float:
        """By how much that counter, one of TROUBLE, has grown in the last `seconds`, or up to STEP_S more."""
        key = name, labels
        before = next((counters for at, counters in reversed(self._steps) if self._now - at >= seconds), {})
        return max(0.0, self._newest.get(key, 0.0) - before.get(key, 0.0))
