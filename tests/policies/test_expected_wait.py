"""expected_wait: exact shares, by numbers laid evenly over all that can be drawn; turns; what fades and is tried."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay_policies.expected_wait import CANDIDATES, GRAIN_S, LONGEST_TURN_S, MEMORY_S, ExpectedWaitPartitioner
from forebay_policies.partitioner import Rng
from tests.policies.fakes import FakeTopic, Recording, Scripted, asked

BATCH_SIZE = 16 * 1024
DRAWS = 2_000
PRECISION = 2.1 / DRAWS
MIN_SHARE = 0.005
LONG_AGO = 1_000.0


class Even:
    """A generator whose numbers lie evenly over each range, ascending: shares come out exact to 1 / draws."""

    def __init__(self, draws: int) -> None:
        self._draws = draws
        self._drawn = 0

    def randrange(self, stop: int, /) -> int:
        self._drawn += 1
        return (2 * self._drawn - 1) * stop // (2 * self._draws)


def expected_wait(
    rng: Rng,
    *,
    turn: int = 1,
    min_share: float = MIN_SHARE,
    timeout: float = 0.0,
    waits: Mapping[int, float] | None = None,
) -> ExpectedWaitPartitioner:
    """With a turn of one byte each call shows one choice. `waits`, in seconds, were measured at time 0."""
    partitioner = ExpectedWaitPartitioner(rng, turn, BATCH_SIZE, timeout, min_share)
    for partition, seconds in (waits or {}).items():
        partitioner.on_acknowledged(partition, seconds)
    return partitioner


def shares(
    topic: FakeTopic, waits: Mapping[int, float], min_share: float = MIN_SHARE, timeout: float = 0.0, now: float = 0.0
) -> list[float]:
    """How likely each partition is."""
    partitioner = expected_wait(Even(DRAWS), min_share=min_share, timeout=timeout, waits=waits)
    chosen = Counter(asked(partitioner, topic, DRAWS, now=now))
    return [chosen[partition] / DRAWS for partition in range(topic.partition_count)]


def exactly(expected: list[float]) -> object:
    return pytest.approx(expected, abs=PRECISION)


# shares


def test_the_worked_example() -> None:
    topic = FakeTopic(3, loads={2: BATCH_SIZE})
    assert shares(topic, {0: 0.020, 1: 0.002, 2: 0.002}, min_share=0) == exactly([0.0079, 0.7937, 0.1984])
    assert shares(topic, {0: 0.020, 1: 0.002, 2: 0.002}) == exactly([0.0128, 0.7867, 0.2004])


def test_a_wait_twice_as_long_is_a_quarter_as_likely() -> None:
    assert shares(FakeTopic(2), {0: 0.004, 1: 0.002}, min_share=0) == exactly([0.2, 0.8])


def test_what_is_queued_and_away_lengthens_the_wait_at_once() -> None:
    """By a batch.size once more, so a quarter; half a batch counts as half."""
    waits = {0: 0.002, 1: 0.002}
    assert shares(FakeTopic(2, loads={0: BATCH_SIZE}), waits, min_share=0) == exactly([0.2, 0.8])
    assert shares(FakeTopic(2, loads={0: BATCH_SIZE // 2}), waits, min_share=0) == exactly([4 / 13, 9 / 13])


def test_a_batch_that_has_waited_for_longer_than_expected_is_the_better_estimate() -> None:
    topic = FakeTopic(2, loads={0: 1})
    topic.waiting = {0: 100.0}
    waits = {0: 0.002, 1: 0.002}
    at = 100.0
    partitioner_shares = [shares(topic, waits, min_share=0, now=at + waited)[0] for waited in (0.001, 0.004, 0.02)]
    assert partitioner_shares == exactly([0.5, 0.2, 0.0099])


def test_waits_below_a_millisecond_are_all_alike() -> None:
    assert GRAIN_S == 0.001
    assert shares(FakeTopic(3), {0: 0.0002, 1: 0.0009, 2: 0.001}) == exactly([1 / 3] * 3)


def test_before_anything_is_measured_all_are_alike() -> None:
    assert shares(FakeTopic(4), {}) == exactly([0.25] * 4)


def test_a_partition_that_was_never_measured_is_credited_with_what_records_meet() -> None:
    """Two at 2 ms and one at 40: a record meets (2/2 + 1/40) / (2/4 + 1/1600) = 2.05 ms."""
    found = shares(FakeTopic(4), {0: 0.040, 1: 0.002, 2: 0.002}, min_share=0)
    usual = (2 / 2 + 1 / 40) / (2 / 4 + 1 / 1600)
    weights = [1 / wait**2 for wait in (40, 2, 2, usual)]
    assert found == exactly([weight / sum(weights) for weight in weights])


def test_partitions_without_a_leader_get_nothing() -> None:
    found = shares(FakeTopic(4, available=(1, 3)), dict.fromkeys(range(4), 0.002))
    assert found == exactly([0, 0.5, 0, 0.5])


def test_partitions_whose_batch_waits_for_longer_than_the_timeout_get_nothing() -> None:
    topic = FakeTopic(3, loads={0: 1, 1: 1})
    topic.waiting = {0: 100.0, 1: 104.0}
    waits = dict.fromkeys(range(3), 0.002)

    assert shares(topic, waits, timeout=5.0, now=106.0)[0] == 0
    assert shares(topic, waits, timeout=5.0, now=110.0) == [0, 0, 1]
    assert shares(topic, waits, timeout=0.0, now=110.0)[0] == pytest.approx(MIN_SHARE, abs=PRECISION)


waits_and_loads = st.integers(1, 12).flatmap(
    lambda count: st.tuples(
        st.lists(st.sampled_from([0.0001, 0.001, 0.002, 0.005, 0.02, 0.5]), min_size=count, max_size=count),
        st.lists(st.sampled_from([0, 0, 1, 5_000, BATCH_SIZE, 9 * BATCH_SIZE]), min_size=count, max_size=count),
    )
)


@settings(deadline=None)
@given(waits_and_loads)
def test_a_floor_for_all_the_same_for_equals_and_more_for_those_that_answer_sooner(
    case: tuple[list[float], list[int]],
) -> None:
    waits, loads = case
    found = shares(FakeTopic(len(waits), loads=dict(enumerate(loads))), dict(enumerate(waits)))
    known = list(zip(waits, loads, found, strict=True))
    for wait, load, share in known:
        assert share >= MIN_SHARE - 2 / DRAWS
        for other_wait, other_load, other_share in known:
            if wait >= other_wait and load >= other_load:
                assert share <= other_share + 2 / DRAWS


def test_with_many_partitions_the_least_shares_are_a_tenth_together() -> None:
    count = 50
    found = shares(FakeTopic(count), {partition: 0.002 if partition else 50.0 for partition in range(count)})
    assert found[0] == pytest.approx(0.1 / count, abs=PRECISION)


def test_of_more_partitions_than_candidates_neighbours_are_drawn_all_alike() -> None:
    count = 2 * CANDIDATES
    asking = Recording()
    expected_wait(asking).partition(FakeTopic(count), 1, 0.0)
    waits = {partition: 0.5 if partition % 3 == 0 else 0.002 for partition in range(count)}
    choices = 10_000
    chosen = Counter(asked(expected_wait(Random(3), waits=waits), FakeTopic(count), choices))

    slow = sum(times for partition, times in chosen.items() if partition % 3 == 0)
    assert slow < 0.1 * choices
    assert set(chosen) >= {partition for partition in range(count) if partition % 3}
    ends = chosen[1] + chosen[2] + chosen[count - 1]
    assert ends == pytest.approx(3 * choices / (count * 2 / 3), rel=0.4)
    assert asking.stops[1:] in ([], [count])


# turns


def test_a_turn_ends_after_the_sticky_bytes() -> None:
    half = 1 << 29
    partitioner = expected_wait(Scripted([half, 0]), turn=BATCH_SIZE, waits=dict.fromkeys(range(3), 0.002))
    assert asked(partitioner, FakeTopic(3), 17, size=1024) == [1] * 16 + [0]
    assert (partitioner.switches, partitioner.sticky_hits) == (2, 15)


def test_a_turn_ends_after_a_while() -> None:
    half = 1 << 29
    partitioner = expected_wait(Scripted([half, 0]), turn=BATCH_SIZE, waits=dict.fromkeys(range(3), 0.002))
    topic = FakeTopic(3)
    times = [0.0, LONGEST_TURN_S - 0.001, LONGEST_TURN_S]
    assert [partitioner.partition(topic, 1, now) for now in times] == [1, 1, 0]


def test_a_turn_that_comes_from_the_least_share_is_one_run() -> None:
    half = 1 << 29
    partitioner = expected_wait(Scripted([0, half]), turn=BATCH_SIZE, waits={0: 0.5, 1: 0.002, 2: 0.002})
    assert asked(partitioner, FakeTopic(3), 4, size=512) == [0, 1, 1, 1]


def test_a_turn_that_no_measurement_backs_is_one_run() -> None:
    half = 1 << 29
    partitioner = expected_wait(Scripted([half] * 9), turn=BATCH_SIZE)
    topic = FakeTopic(3)
    asked(partitioner, topic, 3, size=512)
    assert (partitioner.switches, partitioner.sticky_hits) == (3, 0)

    partitioner.on_acknowledged(1, 0.002)
    asked(partitioner, topic, 3, size=512)
    assert (partitioner.switches, partitioner.sticky_hits) == (4, 2)


def test_a_partition_that_loses_its_leader_is_left_at_once() -> None:
    topic = FakeTopic(3)
    half = 1 << 29
    partitioner = expected_wait(Scripted([half, 0]), turn=BATCH_SIZE, min_share=0, waits=dict.fromkeys(range(3), 0.002))
    assert partitioner.partition(topic, 1, 0.0) == 1
    topic.available = (0, 2)
    assert asked(partitioner, topic, 2) == [0, 0]


# what is known fades


def test_the_smoothed_wait_moves_by_a_tenth_with_each_measurement() -> None:
    """Of its ratio: 2 ms, then 2,048 ms, is 2 · 1024^0.1 = 4 ms. Against 8 ms that is four times as likely."""
    partitioner = expected_wait(Even(DRAWS), min_share=0, waits={0: 0.002, 1: 0.008})
    partitioner.on_acknowledged(0, 0.002 * 2**10)
    chosen = Counter(asked(partitioner, FakeTopic(2), DRAWS))
    assert chosen[0] / DRAWS == pytest.approx(0.8, abs=PRECISION)


def test_after_a_gap_the_newest_measurement_is_nearly_all() -> None:
    """After 3 s the 20 ms weigh 5 %: 20^0.05 · 2^0.95 = 2 · 10^(e^-3) = 2.24 ms."""
    topic = FakeTopic(2)
    partitioner = expected_wait(Even(DRAWS + 1), min_share=0, waits={0: 0.020, 1: 0.002})
    partitioner.partition(topic, 1, 3.0)
    partitioner.on_acknowledged(0, 0.002)
    partitioner.on_acknowledged(1, 0.002)
    chosen = Counter(asked(partitioner, topic, DRAWS, now=3.0))
    assert chosen[0] / DRAWS == pytest.approx(2**2 / (2**2 + 2.243**2), abs=PRECISION)


class Pointed:
    """A generator that gives the number at `fraction` of each range."""

    def __init__(self) -> None:
        self.fraction = 0.5

    def randrange(self, stop: int, /) -> int:
        return int(self.fraction * stop)


def test_a_shunned_partition_becomes_likelier_with_time_and_choices_together() -> None:
    """Only partition 1 is measured any more. At first 0 has a share of (2 / 500)²; at last it is credited with 2 ms."""
    topic = FakeTopic(2)

    def choice_after(seconds: float, choices: int, share: float) -> int:
        pointed = Pointed()
        partitioner = expected_wait(pointed, min_share=0, waits={0: 0.5, 1: 0.002})
        for number in range(choices):
            partitioner.partition(topic, 1, seconds * number / choices)
            partitioner.on_acknowledged(1, 0.002)
        pointed.fraction = share
        return partitioner.partition(topic, 1, seconds)

    def share_after(seconds: float, choices: int) -> float:
        share = 1.0
        for step in range(1, 13):  # partition 0's numbers come first: their end is searched for
            share += (1 if choice_after(seconds, choices, share) == 0 else -1) / 2**step
        return share

    assert share_after(0.0, 400) < 0.001
    assert share_after(40 * MEMORY_S, 1) < 0.001
    shares_then = [share_after(memories * MEMORY_S, 400) for memories in (0.2, 1, 2, 40)]
    assert shares_then == sorted(shares_then)
    assert shares_then[0] < 0.001
    assert shares_then[-1] == pytest.approx(0.5, abs=0.005)


def test_a_trial_ends_with_its_run_though_a_batch_lingers() -> None:
    """A slow partition is not to get a turn because the batch that tries it lingers."""
    topic = FakeTopic(2)
    topic.lingering = {0, 1}
    first_of_all_trials, last_of_all_shares = 0, (1 << 30) - 1
    partitioner = expected_wait(
        Scripted([first_of_all_trials, last_of_all_shares]), turn=BATCH_SIZE, waits={0: 0.020, 1: 0.002}
    )

    assert asked(partitioner, topic, 3, 100) == [0, 1, 1]


def test_a_turn_that_lasts_too_long_goes_on_while_a_batch_lingers_and_ends_after_twice_its_bytes() -> None:
    topic = FakeTopic(2)
    topic.lingering = {1}
    last = (1 << 30) - 1
    partitioner = expected_wait(Scripted([last, 0]), turn=1000, waits={0: 0.002, 1: 0.002})

    late = 2 * LONGEST_TURN_S
    assert partitioner.partition(topic, 100, 0.0) == 1
    assert asked(partitioner, topic, 10, 100, late) == [1] * 10
    assert partitioner.partition(topic, 100, late) == 0
