"""How sure a replay is, from blocks whose spread is known."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from statistics import mean

import pytest

from forebay_pipeline.jobs.histogram import bucket_of, percentile
from forebay_pipeline.replay.intervals import LEAST_BLOCKS, RESAMPLES, Block, Draw, certainty, draws, intervals


def block(ms: float, records: int = 100, requests: int = 10) -> Block:
    return Block(records, round(records * ms * 1000), requests, {bucket_of(ms * 1000): records})


def test_alike_blocks_leave_no_doubt() -> None:
    (drawn,) = draws([[block(5.0)] * 10], 1000, 1) or []
    found = intervals(drawn)
    assert (found.average_ms.low, found.average_ms.high) == (5.0, 5.0)
    assert found.p50_ms.low == pytest.approx(found.p50_ms.high)
    assert found.p50_ms.high < found.p99_ms.low == pytest.approx(5.0, rel=0.02)
    assert (found.requests.low, found.requests.high) == (100, 100)


def test_the_percentiles_of_all_blocks_are_those_of_each_draw_of_alike_ones() -> None:
    """Wherever in a bucket they are."""
    buckets = {bucket_of(5000): 480, bucket_of(5200): 505, bucket_of(20_000): 15}
    (drawn,) = draws([[Block(1000, 5_000_000, 10, buckets)] * 10], 1000, 1) or []
    found = intervals(drawn)
    for share, interval in ((0.5, found.p50_ms), (0.99, found.p99_ms)):
        assert (interval.low, interval.high) == pytest.approx((percentile(buckets, share) / 1000,) * 2)


def test_one_block_in_ten_is_slow() -> None:
    """Its records are between none and three tenths of a draw, so p99 is nearly always theirs, and p50 never."""
    (drawn,) = draws([[*[block(5.0)] * 9, block(95.0)]], 1000, 1) or []
    found = intervals(drawn)
    assert found.average_ms.low == pytest.approx(5.0)
    assert 28 <= found.average_ms.high <= 45
    assert found.p50_ms.high < 6
    assert found.p99_ms.low < 6
    assert found.p99_ms.high > 90


def test_of_a_hundred_samples_some_95_have_the_truth_in_their_interval() -> None:
    rng = Random(7)
    held = 0
    for seed in range(100):
        (drawn,) = draws([[block(rng.lognormvariate(1, 0.3)) for _ in range(40)]], 1000, seed) or []
        found = intervals(drawn).average_ms
        held += found.low <= 2.718281828 * 2.718281828 ** (0.3**2 / 2) <= found.high
    assert 87 <= held <= 99


def test_blocks_with_more_records_count_for_more() -> None:
    (drawn,) = draws([[*[block(1.0, 10)] * 10, *[block(9.0, 990)] * 10]], 1000, 1) or []
    assert mean(draw.average_ms for draw in drawn) == pytest.approx(8.92, abs=0.1)


def test_few_blocks_tell_nothing() -> None:
    assert draws([[block(1.0)] * (LEAST_BLOCKS - 1)], 1000, 1) is None


def test_a_block_without_records_takes_part() -> None:
    (drawn,) = draws([[*[block(1.0)] * 9, Block(0, 0, 0, {})]], 1000, 1) or []
    assert intervals(drawn).average_ms.high == pytest.approx(1.0)
    (none,) = draws([[Block(0, 0, 0, {})] * 9], 0, 1) or []
    assert intervals(none).p99_ms.high == 0


def test_how_often_the_same_is_recommended() -> None:
    """The second is better in nine of ten blocks by a little, and in the tenth worse by much."""
    steady, wild = [block(5.0)] * 10, [*[block(4.0)] * 9, block(12.0)]
    drawn = draws([steady, wild], 1000, 1)
    assert drawn is not None
    assert [len(each) for each in drawn] == [RESAMPLES] * 2

    def choose(each: Sequence[Draw]) -> int:
        return int(each[1].average_ms < each[0].average_ms)

    sure = certainty(drawn, 1, choose)
    assert 0.5 < sure < 0.95
    assert certainty(drawn, 0, choose) == pytest.approx(1 - sure)
