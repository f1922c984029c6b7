"""The detector alone: windows in, changes out."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pytest

from forebay_pipeline.partitions.runaway_detector import Change, Event, Portion, Thresholds, TopicWatch

SECOND = 1_000_000
WIDTH = 10 * SECOND

EVEN = {0: (100, 1000, 2), 1: (100, 1000, 2), 2: (100, 1000, 2)}
"""Partition → batches, KB, average wait in ms."""
RUNAWAY = {0: (50, 7400, 40), 1: (150, 1300, 2), 2: (150, 1300, 2)}
POPULAR = {0: (300, 7400, 2), 1: (150, 1300, 2), 2: (150, 1300, 2)}
SLOW = {0: (50, 1000, 40), 1: (100, 1000, 2), 2: (100, 1000, 2)}

Window = Mapping[int, tuple[int, float, float]]


class Topic:
    """Windows of ten seconds one after the other."""

    def __init__(self, **thresholds: float) -> None:
        self.watch = TopicWatch()
        self.thresholds = Thresholds(**thresholds)  # type: ignore[arg-type]
        self.windows = 100

    def __call__(self, window: Window, times: int = 1) -> list[tuple[int, Event]]:
        return [(change.partition, change.event) for change in self.changes(window, times)]

    def changes(self, window: Window, times: int = 1) -> list[Change]:
        found = []
        for _ in range(times):
            portions = [
                Portion(number, batches, round(1000 * size), round(1000 * wait * batches))
                for number, (batches, size, wait) in window.items()
            ]
            found += self.watch.window(self.windows * WIDTH, portions, self.thresholds)
            self.windows += 1
        return found


def test_a_slow_partition_that_gets_more_runs_away_after_three_windows() -> None:
    topic = Topic()
    assert topic(EVEN, 5) == []
    assert topic(RUNAWAY, 2) == []
    (change,) = topic.changes(RUNAWAY)
    assert change == Change(
        partition=0,
        event=Event.RUNAWAY,
        since_us=105 * WIDTH,
        window_us=107 * WIDTH,
        share=0.74,
        times_fair=pytest.approx(2.22),  # type: ignore[arg-type]
        wait_us=40_000,
        others_wait_us=2_000,
    )
    assert topic(RUNAWAY, 20) == []


def test_it_has_recovered_after_as_many_others() -> None:
    topic = Topic()
    assert topic(RUNAWAY, 3) == [(0, Event.RUNAWAY)]
    assert topic(EVEN, 2) == []
    (change,) = topic.changes(EVEN)
    assert (change.event, change.since_us, change.window_us) == (Event.RECOVERED, 103 * WIDTH, 105 * WIDTH)
    assert change.times_fair == pytest.approx(1.0)
    assert topic(EVEN, 5) == []


def test_windows_have_to_be_in_a_row() -> None:
    topic = Topic()
    for _ in range(4):
        assert topic(RUNAWAY, 2) == []
        assert topic(EVEN) == []
    assert topic(RUNAWAY, 3) == [(0, Event.RUNAWAY)]
    for _ in range(4):
        assert topic(EVEN, 2) == []
        assert topic(RUNAWAY) == []


@pytest.mark.parametrize("window", [EVEN, POPULAR, SLOW], ids=["even", "popular", "slow"])
def test_neither_a_popular_nor_a_slow_partition_is_one(window: Window) -> None:
    assert Topic()(window, 50) == []


def test_nor_is_one_that_was_always_popular_when_its_broker_becomes_slow() -> None:
    topic = Topic()
    assert topic(POPULAR, 20) == []
    assert topic(RUNAWAY, 50) == []


def test_but_one_that_was_popular_and_gets_still_more() -> None:
    topic = Topic()
    assert topic({0: (300, 5000, 2), 1: (150, 2500, 2), 2: (150, 2500, 2)}, 20) == []
    # 74 % is 1.48 × the 50 % that it used to get.
    assert topic(RUNAWAY, 3) == [(0, Event.RUNAWAY)]


def test_one_that_is_slow_from_the_beginning_is_judged_without_a_before() -> None:
    assert Topic()(RUNAWAY, 3) == [(0, Event.RUNAWAY)]


def test_the_broker_is_slow_first_and_shares_follow() -> None:
    topic = Topic()
    assert topic(EVEN, 5) == []
    assert topic(SLOW, 5) == []
    assert topic({0: (50, 1400, 40), 1: (100, 1000, 2), 2: (100, 1000, 2)}, 5) == []
    assert topic(RUNAWAY, 3) == [(0, Event.RUNAWAY)]


def test_kip_794s_own_numbers() -> None:
    kip: Window = {0: (1683, 25953.2, 40), 1: (1713, 7836.878, 2), 2: (1711, 7546.212, 2)}
    (change,) = Topic().changes(kip, 3)
    assert change.partition == 0
    assert change.times_fair == pytest.approx(1.8836, abs=0.0001)


def test_two_partitions_on_one_slow_broker_do_not_hide_each_other() -> None:
    window = {0: (50, 3800, 40), 1: (50, 3800, 38), 2: (150, 600, 2), 3: (150, 600, 2), 4: (150, 600, 3)}
    assert Topic()(window, 3) == [(0, Event.RUNAWAY), (1, Event.RUNAWAY)]


def test_waits_below_a_millisecond_do_not_make_a_difference() -> None:
    window = {0: (50, 7400, 1.9), 1: (150, 1300, 0.2), 2: (150, 1300, 0.2)}
    assert Topic()(window, 10) == []
    assert Topic()({**window, 0: (50, 7400, 2.1)}, 3) == [(0, Event.RUNAWAY)]


def test_a_topic_of_one_partition_has_none() -> None:
    assert Topic()({0: (50, 7400, 400)}, 10) == []


def test_partitions_that_get_nothing_count_for_what_is_fair() -> None:
    topic = Topic()
    assert topic({0: (100, 1000, 2), 1: (100, 1000, 2), 5: (100, 1000, 2)}, 5) == []
    # Of six partitions a sixth each is fair: 40 % is 2.4 times as much, though of two it would be less than half.
    assert topic({0: (100, 400, 40), 1: (100, 600, 2)}, 3) == [(0, Event.RUNAWAY)]


def test_one_that_gets_nothing_any_more_has_recovered() -> None:
    topic = Topic()
    assert topic(RUNAWAY, 3) == [(0, Event.RUNAWAY)]
    (change,) = topic.changes({1: (150, 1300, 2), 2: (150, 1300, 2)}, 3)
    assert (change.event, change.share, change.wait_us, change.others_wait_us) == (Event.RECOVERED, 0.0, 0.0, 2_000)


def test_windows_with_few_batches_are_passed_over() -> None:
    topic = Topic()
    few: Window = {0: (5, 740, 40), 1: (7, 130, 2), 2: (7, 130, 2)}
    assert topic(few, 10) == []
    assert topic(RUNAWAY, 2) == []
    assert topic({0: (6, 10, 2), 1: (6, 10, 2), 2: (7, 10, 2)}) == []
    assert topic(RUNAWAY) == [(0, Event.RUNAWAY)]


def test_a_topic_that_was_quiet_begins_anew() -> None:
    topic = Topic()
    topic(POPULAR, 10)
    topic(RUNAWAY, 10)
    topic(EVEN, 3)
    topic.windows += 61
    # What it used to get is forgotten.
    assert topic(RUNAWAY, 3) == [(0, Event.RUNAWAY)]
    topic.windows += 61
    (change,) = topic.changes(EVEN)
    assert (change.event, change.since_us) == (Event.QUIET, (topic.windows - 63) * WIDTH)


def test_thresholds_are_where_they_are_told() -> None:
    window: Window = {0: (50, 6000, 20), 1: (150, 2000, 10), 2: (150, 2000, 10)}
    assert Topic(share=1.79, wait=1.99, windows=1)(window) == [(0, Event.RUNAWAY)]
    assert Topic(share=1.81, wait=1.99, windows=1)(window) == []
    assert Topic(share=1.79, wait=2.01, windows=1)(window) == []


def test_what_is_remembered_can_be_put_away_between_any_two_windows() -> None:
    windows = [EVEN] * 4 + [RUNAWAY] * 5 + [EVEN] * 5 + [SLOW] * 2 + [RUNAWAY] * 4
    whole, parted = Topic(), Topic()
    expected, found = [], []
    for window in windows:
        expected += whole.changes(window)
        parted.watch = msgspec.json.decode(msgspec.json.encode(parted.watch), type=TopicWatch)
        found += parted.changes(window)
    assert len(expected) == 3
    assert found == expected
