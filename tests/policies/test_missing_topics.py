"""Patience with topics that brokers do not know."""

from __future__ import annotations

import pytest

from forebay_policies import missing_topics
from forebay_policies.missing_topics import FORGOTTEN_S, LONGEST_S, TRIES, MissingTopics
from forebay_proxy.produce.handler import SHORTEST_WAIT

BACKOFF, MAX_BACKOFF = 0.1, 1.0


def missing(times: int, name: str = "a") -> MissingTopics:
    """It was missed so often, at 0."""
    topics = MissingTopics(BACKOFF, MAX_BACKOFF)
    for number in range(times):
        assert topics.missed(name, 0.0) is (number >= TRIES - 1)
    return topics


def test_what_nobody_has_missed_is_asked_for_at_once() -> None:
    assert missing(0).ask_at("a", 5.0) == 5.0
    assert missing(20).ask_at("b", 5.0) == 5.0


@pytest.mark.parametrize(
    ("times", "pause"),
    [(1, 0.1), (TRIES - 1, 0.1), (TRIES, 0.2), (TRIES + 1, 0.4), (TRIES + 2, LONGEST_S), (1000, LONGEST_S)],
)
def test_pauses_grow_once_records_are_refused(times: int, pause: float) -> None:
    assert missing(times).ask_at("a", 0.05) == pytest.approx(pause)


@pytest.mark.parametrize(
    ("backoff", "max_backoff", "longest"), [(0.25, 0.3, 0.3), (0.1, 60.0, LONGEST_S), (0.7, 60.0, 0.7), (2.0, 2.0, 2.0)]
)
def test_a_pause_is_never_longer_than_the_longest(backoff: float, max_backoff: float, longest: float) -> None:
    topics = MissingTopics(backoff, max_backoff)
    for _ in range(20):
        topics.missed("a", 0.0)
    assert topics.ask_at("a", 0.0) == longest


def test_records_that_wait_for_the_least_time_are_told_that_their_topic_is_unknown() -> None:
    assert missing(1000).ask_at("a", 0.0) <= SHORTEST_WAIT / 2


def test_what_turns_up_begins_anew() -> None:
    topics = missing(TRIES)
    topics.found("a")
    topics.found("a")
    assert topics.ask_at("a", 0.0) == 0.0
    assert not topics.missed("a", 0.0)


def test_so_does_what_nobody_has_missed_for_long() -> None:
    topics = missing(TRIES)
    assert topics.ask_at("a", FORGOTTEN_S - 0.1) < FORGOTTEN_S - 0.1
    assert topics.ask_at("a", FORGOTTEN_S) == FORGOTTEN_S
    assert not topics.missed("a", FORGOTTEN_S)
    assert topics.ask_at("a", FORGOTTEN_S) == FORGOTTEN_S + BACKOFF


def test_names_are_bounded_and_who_comes_beyond_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(missing_topics, "MAX_MISSING", 2)
    topics = MissingTopics(BACKOFF, MAX_BACKOFF)
    assert [topics.missed(name, 0.0) for name in ("a", "b", "a", "c")] == [False, False, False, True]
    assert [topics.ask_at(name, 0.0) > 0 for name in "abc"] == [True, False, True]


def test_those_missed_long_ago_take_nobodys_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(missing_topics, "MAX_MISSING", 2)
    topics = MissingTopics(BACKOFF, MAX_BACKOFF)
    for now, name in enumerate("abcdef"):
        assert not topics.missed(name, now * FORGOTTEN_S / 2)
    assert list(topics._missed) == ["e", "f"]
