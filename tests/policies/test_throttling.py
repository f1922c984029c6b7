"""Who waits for a throttle time, how much of a wait it was, and when merging across client ids ends and comes back."""

from __future__ import annotations

import pytest

from forebay_policies.throttling import CLIENT_ID, LONGEST_QUIET_S, QUIET_S, Throttling

GREEDY = "greedy"


def test_until_a_broker_throttles_nothing_is_to_be_known() -> None:
    throttling = Throttling()

    assert not throttling.active
    assert not throttling.by_client(1)
    assert not throttling.muted(1, GREEDY, 0.0)
    assert throttling.pause(GREEDY, 0.0) == 0.0
    assert (throttling.waiting, throttling.apart) == (0, 0)


def test_one_client_id_waits_at_one_broker_until_its_throttle_time_is_over() -> None:
    throttling = Throttling()
    throttling.throttled(1, GREEDY, 5.0, 10.0)

    assert throttling.muted(1, GREEDY, 14.9)
    assert not throttling.muted(1, GREEDY, 15.0)
    assert not throttling.muted(2, GREEDY, 12.0)
    assert not throttling.muted(1, "other", 12.0)
    assert not throttling.muted(1, None, 12.0)


def test_a_shorter_throttle_time_does_not_end_a_longer_one() -> None:
    """Requests on several connections are answered at once, each with a time of its own."""
    throttling = Throttling()
    throttling.throttled(1, GREEDY, 5.0, 10.0)
    throttling.throttled(1, GREEDY, 0.5, 10.1)

    assert throttling.muted(1, GREEDY, 14.9)


def test_a_clients_throttle_times_add_up_and_those_that_overlap_count_once() -> None:
    throttling = Throttling()
    throttling.throttled(1, GREEDY, 4.0, 10.0)
    throttling.throttled(1, "other", 9.0, 10.0)
    assert [throttling.pause(GREEDY, now) for now in (10.0, 11.0)] == [0.0, 1.0]
    throttling.throttled(2, GREEDY, 4.0, 12.0)
    assert [throttling.pause(GREEDY, now) for now in (12.0, 15.0, 16.0, 19.0)] == [2.0, 5.0, 6.0, 6.0]
    throttling.paused(GREEDY, 1.0, 20.0)
    assert [throttling.pause(GREEDY, now) for now in (20.5, 30.0)] == [6.5, 7.0]


def test_the_first_throttle_time_ends_merging_at_that_broker() -> None:
    throttling = Throttling()

    assert throttling.throttled(1, CLIENT_ID, 0.3, 10.0)
    assert (throttling.by_client(1), throttling.by_client(2)) == (True, False)
    assert not throttling.throttled(1, GREEDY, 0.3, 11.0)
    assert throttling.active
    assert throttling.apart == 1


def test_merging_comes_back_when_the_broker_has_not_throttled_for_long_and_nobody_waits() -> None:
    throttling = Throttling()
    throttling.throttled(1, CLIENT_ID, 30.0, 0.0)
    throttling.throttled(2, CLIENT_ID, 1.0, 5.0)

    assert throttling.settle(30.0 + QUIET_S - 0.1) == [2]
    assert throttling.settle(30.0 + QUIET_S) == [1]
    assert not throttling.by_client(1)
    assert throttling.settle(1000.0) == []


def test_a_broker_that_throttles_again_soon_is_left_alone_for_longer_each_time() -> None:
    throttling = Throttling()
    now, quiet = 0.0, []
    throttling.throttled(1, CLIENT_ID, 0.0, now)
    for _ in range(8):
        merged_at = now
        while throttling.settle(merged_at) != [1]:
            merged_at += 1.0
        quiet.append(merged_at - now)
        now = merged_at + 2.0
        assert throttling.throttled(1, CLIENT_ID, 0.0, now)

    assert quiet == [60, 120, 240, 480, 960, 1920, 3600, LONGEST_QUIET_S]


def test_a_broker_that_was_merged_for_long_begins_anew() -> None:
    throttling = Throttling()
    throttling.throttled(1, CLIENT_ID, 0.0, 0.0)
    assert throttling.settle(QUIET_S) == [1]
    assert throttling.throttled(1, CLIENT_ID, 0.0, 3 * QUIET_S)

    assert throttling.settle(4 * QUIET_S) == [1]


def test_what_is_over_is_forgotten() -> None:
    throttling = Throttling(patience=120.0)
    throttling.throttled(1, GREEDY, 1.0, 0.0)
    for now in (2.0, 62.0):
        throttling.settle(now)
        assert throttling.waiting == 0
        assert throttling.pause(GREEDY, now) == 1.0, "a request that came before it may still wait"
    throttling.settle(121.0)
    assert throttling.pause(GREEDY, 121.0) == 1.0
    throttling.settle(200.0)

    assert throttling.pause(GREEDY, 200.0) == 0.0
    assert not throttling.active


@pytest.mark.parametrize("broker", [-1, 1])
def test_where_client_ids_are_never_merged_no_broker_ends_it(broker: int) -> None:
    throttling = Throttling(merges=False)

    assert throttling.active
    assert throttling.by_client(broker)
    assert not throttling.throttled(1, GREEDY, 1.0, 0.0)
    assert throttling.settle(1e6) == []
    assert throttling.by_client(broker)
    assert throttling.active
    assert throttling.apart == 0
