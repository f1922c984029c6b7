"""What a worker takes, by a clock that is turned by hand, and against what the system says of this process."""

from __future__ import annotations

import asyncio
import itertools
import os
from time import process_time

import pytest

from forebay_proxy.metrics.registry import MetricRegistry
from forebay_proxy.metrics.worker_vitals import EVERY_S, WorkerVitals
from tests.kit.event_loop import in_loop, until
from tests.kit.memory import resident

LAG = ("forebay_event_loop_lag_seconds", ("3",))


class Stage:
    def __init__(self) -> None:
        self.now = 100.0
        self.stats = MetricRegistry()
        self.vitals = WorkerVitals(self.stats, 3, lambda: self.now)


def test_a_loop_that_is_late_is_told_by_how_much() -> None:
    stage = Stage()
    stage.now += 0.25
    stage.vitals.looked(100.0)
    stage.vitals.looked(stage.now + 1)  # too early, as timers may be by a little
    found = stage.stats.take().histograms[LAG]
    assert sum(found.counts) == 2
    assert found.sum == pytest.approx(0.25)


@in_loop
async def test_it_looks_time_and_again() -> None:
    stats = MetricRegistry()
    punctual = (EVERY_S * ((call + 1) // 2) for call in itertools.count())  # asked before and after each pause
    looking = asyncio.create_task(WorkerVitals(stats, 3, lambda: next(punctual)).run())
    try:
        await until(lambda: sum(stats.take().histograms[LAG].counts) >= 3)
        assert stats.take().histograms[LAG].sum == pytest.approx(0.0), "lateness, not the time between two looks"
    finally:
        looking.cancel()


def test_cpu_and_memory_are_the_process_own() -> None:
    stage = Stage()
    before = process_time()
    assert before <= stage.stats.value("forebay_worker_cpu_seconds_total", worker="3") <= process_time()
    memory = stage.stats.value("forebay_worker_resident_memory_bytes", worker="3")
    assert memory == pytest.approx(resident(os.getpid()), rel=0.1)
