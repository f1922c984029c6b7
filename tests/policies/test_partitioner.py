"""What others build their partitioners on."""

from __future__ import annotations

from forebay_policies.partitioner import BasePartitioner, Partitioner, TopicView
from tests.policies.fakes import FakeTopic


def test_the_base_has_hooks_that_do_nothing() -> None:
    class Least(BasePartitioner):
        def partition(self, topic: TopicView, size: int, now: float) -> int:
            return 0

    least: Partitioner = Least()
    assert least.on_new_batch(FakeTopic(1), 0) is False
    least.on_acknowledged(0, 0.1)
    assert least.choices() == {"sticky": 0, "switch": 0}
