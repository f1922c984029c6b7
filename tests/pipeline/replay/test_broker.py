"""A simulated broker: what finds what under way."""

from __future__ import annotations

from random import Random

import pytest

from forebay_pipeline.replay.broker import Broker
from forebay_policies.dispatch_groups import DispatchGroup
from forebay_policies.throttling import CLIENT_ID
from tests.pipeline.replay.simulated import MS, takes

ACKS_1 = DispatchGroup(0, None, CLIENT_ID, suspect=False)
APART = DispatchGroup(0, None, CLIENT_ID, suspect=True)
ACKS_ALL = DispatchGroup(0, (0, 1), CLIENT_ID, suspect=False)


def broker(max_in_flight: int = 5) -> Broker:
    return Broker(0, takes(10, busy_ms=30, followers_ms=500), max_in_flight, Random(1))


def test_each_takes_the_time_of_what_it_finds_of_its_own_kind_of_acks() -> None:
    sent = broker()
    took = [sent.send(group, 1000) / MS for group in (ACKS_ALL, ACKS_1, APART, ACKS_ALL)]

    assert took == pytest.approx([500, 10, 30, 500])


def test_when_all_are_answered_the_next_is_by_itself_again() -> None:
    sent = broker(max_in_flight=1)
    sent.send(ACKS_1, 1000)
    assert not sent.in_flight.may_send(ACKS_1)
    sent.answered(ACKS_1)

    assert sent.in_flight.may_send(ACKS_1)
    assert sent.send(ACKS_1, 1000) / MS == pytest.approx(10)
