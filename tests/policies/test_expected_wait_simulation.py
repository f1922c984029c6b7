"""expected_wait and simulated brokers: KIP-794's slow one, one that recovers, one that stalls, equals near saturation.

As measured on real ones, the slow broker takes 20.5 ms for each batch, the others 0.6; 2,048 records/s of 512 bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from statistics import fmean, pstdev, quantiles

import pytest

from forebay_policies.builtin_partitioners import make_partitioner
from tests.policies.simulated_brokers import Brokers, Run, Service, shares, steady

BATCH_SIZE = 16 * 1024
FAIR = 1 / 3
FAST = 0.0006
SLOW = 0.0205


def offered(
    name: str, runs: Iterable[Run], service: Service, partitions: int = 3, seed: int = 1, min_share: float = 0.005
) -> list[Run]:
    partitioner = make_partitioner(name, rng=Random(seed), batch_size=BATCH_SIZE, min_share=min_share)
    return Brokers(partitioner, partitions, 3, service).offer(runs)


def slow_until(seconds: float) -> Service:
    return lambda broker, size, now: SLOW if broker == 0 and now < seconds else FAST


def milliseconds(runs: Iterable[Run], *, answered: bool = False) -> tuple[float, float]:
    """Average and p99, to the acknowledgement, or to the answer in the order of the client's connection."""
    waits = [1000 * ((run.answered_at if answered else run.acknowledged_at) - run.at) for run in runs if run.at >= 2]
    return fmean(waits), quantiles(waits, n=100)[98]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_slow_broker_is_nearly_left_out(seed: int) -> None:
    def runs() -> Iterable[Run]:
        return steady(2048, 20, Random(10 + seed), connections=3)

    adaptive = offered("adaptive", runs(), slow_until(20), seed=seed)
    expected = offered("expected_wait", runs(), slow_until(20), seed=seed)

    average, p99 = milliseconds(expected)
    assert average < 1
    assert p99 < 2
    assert average < milliseconds(adaptive)[0] / 5
    # A client that waits for the slow one gets none of its later answers, either.
    assert milliseconds(expected, answered=True)[0] < milliseconds(adaptive, answered=True)[0] / 8
    assert milliseconds(expected, answered=True)[1] < milliseconds(adaptive, answered=True)[1] / 4
    assert fmean(share[0] for share in shares(expected, 3)[2:]) < 0.01


@pytest.mark.parametrize("records", [2000, 100])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_broker_that_became_fast_again_has_its_share_within_seconds(records: int, seed: int) -> None:
    runs = offered("expected_wait", steady(records, 40, Random(10 + seed)), slow_until(10), seed=seed)
    share = [each[0] for each in shares(runs, 3)]

    assert max(share[2:10]) < 0.1 * FAIR + 0.02  # of 100 records a window, one run more is much
    assert max(share[10:25]) > 0.8 * FAIR
    assert fmean(share[25:]) == pytest.approx(FAIR, rel=0.3)


def test_without_a_least_share_it_recovers_all_the_same() -> None:
    runs = offered("expected_wait", steady(500, 60, Random(1)), slow_until(10), min_share=0)
    assert fmean(each[0] for each in shares(runs, 3)[30:]) == pytest.approx(FAIR, rel=0.3)


@pytest.mark.parametrize("load", [0.8, 0.95, 1.02])
@pytest.mark.parametrize("partitions", [3, 12])
def test_equals_near_saturation_keep_their_shares(load: float, partitions: int) -> None:
    """Each broker takes 1 MB/s and 2 ms a batch, by chance more or less. Above 1 everything piles up, evenly."""
    capacity, size = 1_000_000, 2048

    def at_random(rng: Random) -> Service:
        return lambda broker, batch, now: rng.expovariate(1 / 0.002) + batch / capacity

    def spread(name: str) -> tuple[list[Run], list[float]]:
        load_offered = steady(load * 3 * capacity / size, 10, Random(5), size)
        runs = offered(name, load_offered, at_random(Random(6)), partitions)
        return runs, [share for window in shares(runs, 3)[2:] for share in window]

    runs, share = spread("expected_wait")
    uniform_runs, uniform_share = spread("uniform")
    assert min(share) > 0.75 * FAIR
    assert max(share) < 1.25 * FAIR
    assert pstdev(share) < pstdev(uniform_share)
    assert milliseconds(runs)[0] < milliseconds(uniform_runs)[0]


def test_a_broker_that_answers_nothing_is_left_at_once() -> None:
    """For 5 s. Its estimate stays, since nothing is measured; what waits for it tells."""

    def stalling(broker: int, size: int, now: float) -> float:
        return 11 - now if broker == 0 and 6 <= now < 11 else FAST

    runs = offered("expected_wait", steady(1000, 25, Random(1)), stalling)
    share = [each[0] for each in shares(runs, 3)]
    assert max(share[7:11]) < 0.02
    assert max(share[11:]) > 0.8 * FAIR, share


def test_after_an_idle_hour_nothing_is_forgotten_and_nothing_surges() -> None:
    seconds, hour = 10, 3600.0
    before = list(steady(1000, seconds, Random(1)))
    after = [Run(run.at + hour, run.size) for run in steady(1000, seconds, Random(2))]
    runs = offered("expected_wait", [*before, *after], slow_until(2 * hour))

    woken = [run for run in runs if run.at > hour]
    assert milliseconds(woken)[0] < 2
    assert sum(run.partition == 0 for run in woken) < 0.01 * len(woken)


def test_many_partitions_that_are_seldom_measured_are_told_apart() -> None:
    runs = offered("expected_wait", steady(2000, 20, Random(1)), slow_until(20), partitions=300)
    assert fmean(share[0] for share in shares(runs, 3)[10:]) < 0.02
