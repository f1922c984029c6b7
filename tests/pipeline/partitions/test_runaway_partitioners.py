"""The detector over what Forebay's own partitioners do in KIP-794's scenario: one broker of three takes 20 ms."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from random import Random

import pytest

from forebay_pipeline.partitions.runaway_detector import Change, Event, Portion, Thresholds, TopicWatch
from forebay_policies.journal_rows import BatchRow
from tests.pipeline.replay.simulated import Journaled, settings, steady, world
from tests.pipeline.rows import START_US

WIDTH_US = 5_000_000
WINDOWS = 4
RECORDS_A_SECOND = 1000


def changes(rows: Iterable[BatchRow]) -> list[Change]:
    windows: dict[int, dict[int, list[BatchRow]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        windows[(row.time_us - START_US) // WIDTH_US][row.partition].append(row)
    watch = TopicWatch()
    found: list[Change] = []
    for number in range(WINDOWS):
        found += watch.window(START_US + number * WIDTH_US, _portions(windows[number]), Thresholds())
    return found


def _portions(window: dict[int, list[BatchRow]]) -> list[Portion]:
    return [
        Portion(
            partition,
            len(rows),
            sum(row.bytes for row in rows),
            sum(row.linger_us + row.upstream_us for row in rows),
        )
        for partition, rows in window.items()
    ]


def told(partitioner: str, *service_ms: float) -> list[Change]:
    made = Journaled(settings(partitioner=partitioner), world([0, 1, 2], *service_ms, turn_ms=0.15), Random(7))
    made.run(steady(RECORDS_A_SECOND, WINDOWS * WIDTH_US / 1e6))
    return changes(row for row in made.rows if isinstance(row, BatchRow))


def test_sticky_before_a_slow_broker_is_caught() -> None:
    (change,) = told("sticky", 20.5, 0.6, 0.6)
    assert (change.partition, change.event, change.since_us) == (0, Event.RUNAWAY, START_US)
    assert change.times_fair > 1.5


@pytest.mark.parametrize("partitioner", ["uniform", "adaptive", "expected_wait", "round_robin"])
def test_the_others_are_not(partitioner: str) -> None:
    assert told(partitioner, 20.5, 0.6, 0.6) == []


def test_nor_is_sticky_before_brokers_that_are_alike() -> None:
    assert told("sticky", 0.6, 0.6, 0.6) == []
