"""Whom clients are told of when a broker has left, by a clock of the test's own."""

from __future__ import annotations

import pytest

from forebay_codecs.metadata import Broker
from forebay_policies.departed_brokers import DepartedBrokers

ONE, TWO, THREE = (Broker("pond", 9090 + node, None) for node in (1, 2, 3))
BOTH = {1: ONE, 2: TWO}


def test_all_who_are_there() -> None:
    departed = DepartedBrokers(30)
    departed.request_began(2)
    assert departed.told_of(BOTH, 0) is BOTH
    assert departed.told_of({1: ONE, 2: THREE}, 1) == {1: ONE, 2: THREE}


def test_who_has_left_until_its_clients_have_their_answers() -> None:
    """The last one was written at 2 or before 3, where that is seen, and may never arrive: the client waits on."""
    departed = DepartedBrokers(30)
    departed.told_of(BOTH, 0)
    departed.request_began(2)
    departed.request_began(2)
    without = {1: ONE}
    assert departed.told_of(without, 1) == BOTH
    departed.request_ended(2)
    assert departed.told_of(without, 7) == BOTH
    departed.request_ended(2)
    assert departed.told_of(without, 8) == BOTH
    assert departed.told_of(without, 36.9) == BOTH
    assert departed.told_of(without, 37) == without
    departed.request_began(2)
    assert departed.told_of(without, 38) == without, "who asks there now knows better"


def test_who_has_left_and_nobody_waits_until_the_last_answers_have_arrived_or_are_waited_for_no_more() -> None:
    departed = DepartedBrokers(30)
    departed.told_of(BOTH, 0)
    departed.request_began(1)
    departed.request_began(2)
    departed.request_ended(2)
    assert departed.told_of({1: ONE}, 1) == BOTH
    assert departed.told_of({1: ONE}, 30.9) == BOTH
    assert departed.told_of({1: ONE}, 31) == {1: ONE}


@pytest.mark.parametrize(("patience", "produced"), [(30, False), (2, True), (2, False)])
def test_a_little_time_is_enough_where_nobody_produced_and_always_given(patience: float, *, produced: bool) -> None:
    departed = DepartedBrokers(patience)
    if produced:
        departed.request_began(2)
        departed.request_ended(2)
    departed.told_of(BOTH, 0)
    assert departed.told_of({1: ONE}, 1) == BOTH
    assert departed.told_of({1: ONE}, 5.9) == BOTH
    assert departed.told_of({1: ONE}, 6) == {1: ONE}


def test_other_processes_may_have_clients_that_wait() -> None:
    departed = DepartedBrokers(30, others=True)
    departed.told_of(BOTH, 0)
    assert departed.told_of({1: ONE}, 1) == BOTH
    assert departed.told_of({1: ONE}, 30.9) == BOTH
    assert departed.told_of({1: ONE}, 31) == {1: ONE}


def test_who_has_left_is_told_of_no_longer_than_clients_are_patient() -> None:
    departed = DepartedBrokers(30)
    departed.told_of(BOTH, 0)
    departed.request_began(2)
    assert departed.told_of({1: ONE}, 5) == BOTH
    assert departed.told_of({1: ONE}, 64.9) == BOTH
    assert departed.told_of({1: ONE}, 65) == {1: ONE}


def test_who_returns_is_there_where_it_is_now() -> None:
    departed = DepartedBrokers(30)
    departed.told_of(BOTH, 0)
    departed.request_began(2)
    assert departed.told_of({1: ONE}, 1) == BOTH
    assert departed.told_of({1: ONE, 2: THREE}, 2) == {1: ONE, 2: THREE}
