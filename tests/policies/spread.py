"""Whether counts are spread as chance would spread them."""

from __future__ import annotations

import math
from collections import Counter


def chi_square(observed: Counter[int], expected: dict[int, float]) -> float:
    assert set(observed) <= set(expected)
    return sum((observed[key] - mean) ** 2 / mean for key, mean in expected.items())


def p_value(statistic: float, degrees: int) -> float:
    """P(chi-square >= statistic); for even degrees of freedom 2k it is exp(-x/2) * sum((x/2)^i / i!, i < k)."""
    assert degrees % 2 == 0
    half = statistic / 2
    term = total = 1.0
    for i in range(1, degrees // 2):
        term *= half / i
        total += term
    return math.exp(-half) * total


def assert_spread(observed: Counter[int], expected: dict[int, float]) -> None:
    """Neither further from the expected counts, nor closer to them, than chance explains in 2 of 10,000 cases."""
    assert 1e-4 < p_value(chi_square(observed, expected), len(expected) - 1) < 1 - 1e-4
