"""A part of a matrix of cases for `make test`; the others are marked `whole`, which `make test-all` runs too.

    @pytest.mark.parametrize(("client", "codec", "acks"), part_of(product(CLIENTS, CODECS, ACKS), pairs))

With `pairs` each value of an argument meets each value of every other argument in one case of the part at least, as
far as it does in the whole matrix; with `values` each value is in one case at least.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from itertools import combinations
from typing import Any

import pytest

Case = tuple[Any, ...]
Features = Callable[[tuple[Hashable, ...]], Iterable[Hashable]]


def values(case: tuple[Hashable, ...]) -> Iterable[Hashable]:
    return enumerate(case)


def pairs(case: tuple[Hashable, ...]) -> Iterable[Hashable]:
    return combinations(enumerate(case), 2)


def choose(cases: Iterable[tuple[Hashable, ...]], features: Features) -> set[tuple[Hashable, ...]]:
    """Case by case the one that adds the most features, the first of those that add as many, until all are there."""
    left = list(cases)
    missing = {feature for case in left for feature in features(case)}
    chosen = set()
    while missing:
        best = max(left, key=lambda case: len(missing.intersection(features(case))))
        missing.difference_update(features(best))
        chosen.add(best)
    return chosen


def part_of(
    cases: Iterable[Case],
    features: Features,
    key: Callable[[Case], tuple[Hashable, ...]] = lambda case: case,
    name: Callable[[Case], str] | None = None,
) -> list[Any]:
    """All cases as pytest's parameters; `key` gives what counts as a case's values, `name` its id."""
    cases = list(cases)
    chosen = choose(map(key, cases), features)
    return [
        pytest.param(*case, id=name(case) if name else None, marks=() if key(case) in chosen else [pytest.mark.whole])
        for case in cases
    ]
