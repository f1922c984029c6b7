"""Who has just changed topics, by a clock that is turned by hand."""

from __future__ import annotations

from forebay_policies.topic_changes import MOST, SETTLE_S, TopicChanges


class Stage:
    def __init__(self) -> None:
        self.now = 100.0
        self.changes = TopicChanges(lambda: self.now)


def test_a_change_settles_for_its_client_and_its_broker_only() -> None:
    stage = Stage()
    stage.changes.changed(1, "10.0.0.7")

    assert stage.changes.settle(1, "10.0.0.7")
    assert not stage.changes.settle(2, "10.0.0.7")
    assert not stage.changes.settle(None, "10.0.0.7")
    assert not stage.changes.settle(1, "10.0.0.8")


def test_it_has_settled_after_a_while() -> None:
    stage = Stage()
    stage.changes.changed(1, "10.0.0.7")
    stage.now += SETTLE_S / 2
    stage.changes.changed(1, "10.0.0.7")
    stage.now += SETTLE_S * 0.99
    assert stage.changes.settle(1, "10.0.0.7")

    stage.now += SETTLE_S * 0.02

    assert not stage.changes.settle(1, "10.0.0.7")
    assert not stage.changes.settle(1, "10.0.0.7")


def test_what_is_remembered_is_bounded() -> None:
    stage = Stage()
    for number in range(MOST):
        stage.changes.changed(1, str(number))
    stage.changes.changed(1, "0")  # the newest again
    stage.changes.changed(1, "one more")

    assert stage.changes.settle(1, "0")
    assert not stage.changes.settle(1, "1")
    assert stage.changes.settle(1, "2")
    assert stage.changes.settle(1, "one more")
