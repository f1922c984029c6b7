"""WithDefault: a foreign partitioner's answers, and when the default decides."""

from __future__ import annotations

from typing import Any

import pytest

from forebay_policies.partitioner import NO_OPINION, BasePartitioner, Partitioner, TopicView
from forebay_policies.with_default import WithDefault
from tests.policies.fakes import FakeTopic


class Says(BasePartitioner):
    """Gives its answers in turn, the last one for ever; notes what its hooks were told."""

    def __init__(self, *answers: Any, changes: bool = False) -> None:
        super().__init__()
        self._answers = list(answers)
        self._changes = changes
        self.told: list[tuple[Any, ...]] = []

    def partition(self, topic: TopicView, size: int, now: float) -> int:
        answer: int = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        return answer

    def on_new_batch(self, topic: TopicView, partition: int) -> bool:
        self.told.append(("new batch", partition))
        return self._changes

    def on_acknowledged(self, partition: int, seconds: float) -> None:
        self.told.append(("acknowledged", partition, seconds))


def asked(partitioner: Partitioner, times: int, topic: FakeTopic) -> list[int]:
    return [partitioner.partition(topic, 100, 0.0) for _ in range(times)]


def test_an_opinion_is_followed_and_no_opinion_falls_to_the_default() -> None:
    reports: list[str] = []
    partitioner = WithDefault(Says(0, NO_OPINION, 2, NO_OPINION), Says(1), reports.append)

    assert asked(partitioner, 4, FakeTopic(3)) == [0, 1, 2, 1]
    assert reports == []
    assert partitioner.choices() == {"sticky": 0, "switch": 0, "chosen": 2, "no_opinion": 2, "invalid": 0}


@pytest.mark.parametrize("answer", [3, -2, None, "1", 1.0, True])
def test_what_is_not_a_partition_falls_to_the_default_and_is_reported_once(answer: object) -> None:
    reports: list[str] = []
    partitioner = WithDefault(Says(answer), Says(1), reports.append)

    assert asked(partitioner, 5, FakeTopic(3)) == [1] * 5
    assert reports == [f"answered {answer!r} for topic 'topic'; allowed are -1 to 2"]
    assert partitioner.choices()["invalid"] == 5


def test_a_partition_that_a_topic_has_gained_is_an_opinion() -> None:
    topic = FakeTopic(3)
    partitioner = WithDefault(Says(3), Says(1), lambda message: None)

    assert asked(partitioner, 1, topic) == [1]
    topic.partition_count = 4
    assert asked(partitioner, 1, topic) == [3]


def test_hooks_reach_both() -> None:
    foreign, default = Says(0), Says(1)
    partitioner = WithDefault(foreign, default, lambda message: None)

    partitioner.on_new_batch(FakeTopic(3), 2)
    partitioner.on_acknowledged(2, 0.25)

    assert foreign.told == default.told == [("new batch", 2), ("acknowledged", 2, 0.25)]


@pytest.mark.parametrize("foreign_changes", [False, True])
def test_only_the_one_that_decided_may_have_the_question_put_again(*, foreign_changes: bool) -> None:
    topic = FakeTopic(3)
    foreign, default = Says(0, NO_OPINION, 0, changes=foreign_changes), Says(1, changes=not foreign_changes)
    partitioner = WithDefault(foreign, default, lambda message: None)

    assert partitioner.partition(topic, 100, 0.0) == 0
    assert partitioner.on_new_batch(topic, 0) is foreign_changes
    assert partitioner.partition(topic, 100, 0.0) == 1
    assert partitioner.on_new_batch(topic, 1) is not foreign_changes
    assert partitioner.partition(topic, 100, 0.0) == 0
    assert partitioner.on_new_batch(topic, 0) is foreign_changes
