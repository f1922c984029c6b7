"""How sure a replay is: 95 % intervals, and how often other traffic of the same kind would have led to the same advice.

In: for each variant and each block (slices in a row) what was simulated. Out: Intervals and a certainty.

Blocks are drawn again, with repetition, as many as there are, RESAMPLES times (a block bootstrap), and the same ones
for each variant. Between the 2.5th and the 97.5th percentile of what these come to lies the interval. It says how much
depends on which slices were replayed, not how far a simulation is from reality.

    blocks' averages 4, 6, 5, 9 ms, as many records in each   draws 4 4 9 5, 6 5 5 9, …   averages 5.5, 6.25, …
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from forebay_pipeline.jobs.histogram import GROWTH, start_of

RESAMPLES: Final = 400
MOST_BLOCKS: Final = 60
LEAST_BLOCKS: Final = 8
"""Fewer say nothing about how different they are."""
_ENDS: Final = (2.5, 97.5)


class Interval(msgspec.Struct, frozen=True):
    """From `low` to `high`, with a probability of 95 %."""

    low: float
    high: float


class Intervals(msgspec.Struct, frozen=True):
    """Of one variant."""

    average_ms: Interval
    p50_ms: Interval
    p99_ms: Interval
    requests: Interval


class Block(NamedTuple):
    """What was simulated of one variant in one block."""

    records: int
    latency_us: int
    requests: int
    buckets: Mapping[int, int]
    """Bucket of the latency (histogram) → records."""


class Draw(NamedTuple):
    """What one variant comes to in one draw."""

    average_ms: float
    p50_ms: float
    p99_ms: float
    requests: float


Blocks = Sequence[Block]
Draws = Sequence[Draw]


def draws(variants: Sequence[Blocks], records: int, seed: int) -> list[Draws] | None:
    """For each variant RESAMPLES Draws, the same ones for all; None if there are too few blocks.

    All variants have the same number of blocks, in the same order. Requests are for so many `records`.
    """
    count = len(variants[0])
    if count < LEAST_BLOCKS:
        return None
    rng = np.random.default_rng(seed)
    taken = rng.multinomial(count, [1 / count] * count, size=RESAMPLES).astype(float)
    return [_drawn(blocks, taken, records) for blocks in variants]


def _drawn(blocks: Blocks, taken: NDArray[np.float64], records: int) -> Draws:
    names = sorted({bucket for block in blocks for bucket in block.buckets})
    place = {bucket: number for number, bucket in enumerate(names)}
    counts = np.zeros((len(blocks), len(names)))
    for row, block in enumerate(blocks):
        for bucket, number in block.buckets.items():
            counts[row, place[bucket]] = number
    sums = taken @ np.array([[block.records, block.latency_us, block.requests] for block in blocks], dtype=float)
    drawn = np.maximum(sums[:, 0], 1.0)
    starts_ms = np.array([start_of(bucket) / 1000 for bucket in names])
    levels = [_percentile(taken @ counts, starts_ms, share) for share in (0.5, 0.99)]
    columns = (sums[:, 1] / drawn / 1000, *levels, sums[:, 2] / drawn * records)
    return [Draw(*map(float, row)) for row in zip(*columns, strict=True)]


def _percentile(counts: NDArray[np.float64], starts_ms: NDArray[np.float64], share: float) -> NDArray[np.float64]:
    """For each draw, a row of `counts`, what histogram.percentile finds."""
    if not starts_ms.size:
        return np.zeros(len(counts))
    reached = np.cumsum(counts, axis=1)
    wanted = share * reached[:, -1]
    draw, bucket = np.arange(len(counts)), (reached < wanted[:, None]).sum(axis=1)
    within = counts[draw, bucket]
    part = 1 - (reached[draw, bucket] - wanted) / np.maximum(within, 1)
    found: NDArray[np.float64] = np.where(within > 0, starts_ms[bucket] * (1 + part * (GROWTH - 1)), 0)
    return found


def intervals(of: Draws) -> Intervals:
    """Of one variant's draws."""
    ends = np.percentile(np.array(of), _ENDS, axis=0)
    return Intervals(*(Interval(float(low), float(high)) for low, high in ends.T))


def certainty(of: Sequence[Draws], chosen: int, choose: Callable[[Sequence[Draw]], int]) -> float:
    """The part of the draws in which `choose` says the same: the variant of that index."""
    same = sum(choose(each) == chosen for each in zip(*of, strict=True))
    return same / len(of[0])
