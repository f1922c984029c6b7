"""A broker that refuses is left alone for a while, longer each time, and by itself."""

from __future__ import annotations

from random import Random

import pytest

from forebay_proxy.brokers import refusals as module
from forebay_proxy.brokers.refusals import Refusals
from forebay_proxy.config.settings import HostPort

ONE, OTHER = HostPort("one", 9092), HostPort("other", 9092)


def test_pauses_grow_up_to_the_longest_and_are_each_brokers_own() -> None:
    refusals = Refusals(0.1, 1.0, Random(1))
    now = 0.0
    pauses = []
    for _ in range(8):
        refusals.refused(ONE, "no", now)
        began = now
        while refusals.now(ONE, now) is not None:
            now += 0.001
        assert refusals.now(OTHER, now) is None
        pauses.append(now - began)
    assert pauses[0] < 0.13
    assert 0.75 < pauses[-1] < 1.25


def test_what_is_told_is_news() -> None:
    refusals = Refusals(0.1, 1.0, Random(1))
    assert not refusals.accepted(ONE)
    assert [refusals.refused(ONE, why, 0.0) for why in ("a", "a", "b")] == [True, False, True]
    assert refusals.now(ONE, 0.0) == "b"
    assert refusals.accepted(ONE)
    assert refusals.now(ONE, 0.0) is None
    assert refusals.refused(ONE, "a", 0.0)


def test_a_sessions_renewal_is_refused_in_other_words_and_is_no_news() -> None:
    refusals = Refusals(0.1, 1.0, Random(1))
    words = "Authentication failed during {} due to invalid credentials with SASL mechanism PLAIN"
    told = [words.format(when) for when in ("authentication", "re-authentication", "authentication")]
    assert [refusals.refused(ONE, why, 0.0) for why in told] == [True, False, False]


def test_addresses_that_nobody_tries_are_forgotten() -> None:
    refusals = Refusals(0.1, 1.0, Random(1))
    refusals.refused(ONE, "no", 0.0)
    refusals.forget(5.0, 10.0)
    assert refusals.accepted(ONE)
    refusals.refused(ONE, "no", 0.0)
    refusals.forget(50.0, 10.0)
    assert not refusals.accepted(ONE)


def test_of_too_many_the_one_that_was_refused_longest_ago_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 2)
    refusals = Refusals(1.0, 1.0, Random(1))
    for whose in (ONE, OTHER, ONE, "alice"):
        refusals.refused(whose, "no", 0.0)
    assert [refusals.now(whose, 0.0) for whose in (ONE, OTHER, "alice")] == ["no", None, "no"]


def test_it_is_true_while_a_broker_refuses() -> None:
    refusals = Refusals(1.0, 1.0, Random(1))
    broker = HostPort("a", 1)
    assert not refusals
    refusals.refused(broker, "why", 0.0)
    assert refusals
    refusals.accepted(broker)
    assert not refusals
