"""Brokers without I/O or clock: what becomes of runs of records that a partitioner places, event by event.

As in Forebay, one batch of a partition is away at a time and the next one grows meanwhile; a broker takes one batch
after the other. Times in seconds from the start, sizes in bytes. All chance comes from the generators that are given.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from random import Random

from forebay_policies.partitioner import Partitioner
from tests.policies.fakes import FakeTopic

BATCH_MAX_SIZE = 262_144

Service = Callable[[int, int, float], float]
"""(broker, size of a batch, when it begins with it) → how long it takes."""


@dataclass
class Run:
    """Some records that came together at `at`, and when they were acknowledged. `connection` is their client's."""

    at: float
    size: int
    connection: int = 0
    partition: int = -1
    acknowledged_at: float = 0.0
    answered_at: float = 0.0
    """Not before the runs that came earlier on the connection: responses leave in request order."""


@dataclass
class _Queue:
    """A partition: runs that wait, and those in flight."""

    waiting: list[Run] = field(default_factory=list)
    away: list[Run] = field(default_factory=list)


class Brokers:
    """Partition i is on broker i modulo `brokers`."""

    def __init__(self, partitioner: Partitioner, partitions: int, brokers: int, service: Service) -> None:
        self._partitioner = partitioner
        self._brokers = brokers
        self._service = service
        self._topic = FakeTopic(partitions)
        self._queues = [_Queue() for _ in range(partitions)]
        self._free_at = [0.0] * brokers
        self._answers: list[tuple[float, int]] = []

    def offer(self, runs: Iterable[Run]) -> list[Run]:
        """Place all of them, in the order of their times, and wait for what becomes of them."""
        offered = []
        for run in runs:
            self._answer_until(run.at)
            self._place(run)
            offered.append(run)
        self._answer_until(float("inf"))
        answered_at: dict[int, float] = {}
        for run in offered:
            before = answered_at.get(run.connection, 0.0)
            run.answered_at = answered_at[run.connection] = max(before, run.acknowledged_at)
        return offered

    def _place(self, run: Run) -> None:
        partition = run.partition = self._partitioner.partition(self._topic, run.size, run.at)
        queue = self._queues[partition]
        queue.waiting.append(run)
        self._topic.load[partition] = self._topic.load.get(partition, 0) + run.size
        if queue.away:
            self._topic.waiting.setdefault(partition, run.at)
        else:
            self._send(partition, run.at)

    def _send(self, partition: int, now: float) -> None:
        queue = self._queues[partition]
        self._topic.waiting.pop(partition, None)
        if not queue.waiting:
            return
        size = 0
        while queue.waiting and (not queue.away or size + queue.waiting[0].size <= BATCH_MAX_SIZE):
            size += queue.waiting[0].size
            queue.away.append(queue.waiting.pop(0))
        if queue.waiting:
            self._topic.waiting[partition] = now
        broker = partition % self._brokers
        begins = max(now, self._free_at[broker])
        self._free_at[broker] = begins + self._service(broker, size, begins)
        heapq.heappush(self._answers, (self._free_at[broker], partition))

    def _answer_until(self, now: float) -> None:
        while self._answers and self._answers[0][0] <= now:
            at, partition = heapq.heappop(self._answers)
            queue = self._queues[partition]
            batch, queue.away = queue.away, []
            self._topic.load[partition] -= sum(run.size for run in batch)
            for run in batch:
                run.acknowledged_at = at
            self._partitioner.on_acknowledged(partition, at - batch[0].at)
            self._send(partition, at)


def steady(records: float, seconds: float, rng: Random, size: int = 512, connections: int = 1) -> Iterator[Run]:
    """That many records a second, at random times, each a run of its own."""
    at = rng.expovariate(records)
    while at < seconds:
        yield Run(at, size, rng.randrange(connections))
        at += rng.expovariate(records)


def shares(runs: Iterable[Run], brokers: int, window: float = 1.0) -> list[list[float]]:
    """What part of each window's records went to each broker; without the last window, which is not whole."""
    windows: dict[int, Counter[int]] = {}
    for run in runs:
        windows.setdefault(int(run.at / window), Counter())[run.partition % brokers] += 1
    counted = [windows[number] for number in sorted(windows)][:-1]
    return [[count[broker] / count.total() for broker in range(brokers)] for count in counted]
