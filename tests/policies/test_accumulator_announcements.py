"""A sender is told of each partition that becomes ready for its broker: what nobody looks for never leaves."""

from __future__ import annotations

from forebay_policies.accumulator import NO_LEADER
from tests.policies.accumulator_kit import Bench
from tests.policies.batches import KEPT


def test_a_partition_is_announced_when_it_becomes_ready_and_not_for_what_joins_it() -> None:
    bench = Bench()
    bench.append(0, b"a")
    assert bench.announced == []

    bench.flush()
    bench.put(0, b"b")
    bench.put(0, b"c", lane=KEPT)
    bench.put(1, b"d")

    assert bench.announced == [1, 2]


def test_what_became_ready_while_another_was_away_is_announced_when_that_one_is_back() -> None:
    bench = Bench()
    bench.put(0, b"a")
    away = bench.drain_one(1)
    bench.put(0, b"b")
    assert bench.announced == [1]

    bench.complete(0, away)

    assert bench.announced == [1, 1]


def test_a_new_leader_is_told_of_what_waits() -> None:
    bench = Bench()
    bench.put(0, b"a")
    bench.lead(3, 2, 3)
    assert bench.announced == [1, 3]

    bench.lead(NO_LEADER, 2, 3)
    bench.lead(2, 2, 3)
    assert bench.announced == [1, 3, NO_LEADER, 2]


def test_what_waited_out_its_backoff_is_announced_to_the_leader_of_that_time() -> None:
    bench = Bench()
    bench.put(0, b"a")
    bench.back(0, bench.drain_one(1), paused=True)
    bench.lead(2, 2, 3)
    assert bench.announced == [1]

    bench.accumulator.resume(bench.queue(0), bench.now)

    assert bench.announced == [1, 2]


def test_a_move_is_announced_on_both_sides() -> None:
    """The batch to its new leader, and what it held up to the old one's successor."""
    bench = Bench()
    bench.put(0, b"a")
    away = bench.drain_one(1)
    bench.put(0, b"b", lane=KEPT)
    bench.lead(2, 2, 3)
    bench.announced.clear()

    bench.accumulator.move(away, bench.queue(0), bench.queue(2), bench.now)

    assert sorted(bench.announced) == [2, 3]


def test_a_partition_whose_only_ready_batch_moved_away_is_announced_again() -> None:
    bench = Bench()
    bench.put(0, b"a")
    bench.accumulator.move(bench.queue(0).batches[0], bench.queue(0), bench.queue(1), bench.now)
    assert not bench.accumulator.has_ready(1)
    bench.announced.clear()

    bench.put(0, b"b")

    assert bench.announced == [1]
    assert bench.send_all(1) == [[b"b"]]


def test_a_partition_that_was_emptied_is_no_longer_ready() -> None:
    bench = Bench()
    bench.put(0, b"a")
    [batch] = bench.queue(0).batches
    bench.accumulator.take_out(bench.queue(0), batch)
    bench.complete(0, batch)

    assert not bench.accumulator.has_ready(1)
    assert bench.topic.ready_since(0) is None
    bench.assert_empty()
