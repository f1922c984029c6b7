"""Requests whose time is up are answered soon after, each once, and looking stops when nobody waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from time import monotonic
from unittest.mock import patch

from structlog.testing import capture_logs

from forebay_codecs.error_codes import REQUEST_TIMED_OUT
from forebay_policies.throttling import Throttling
from forebay_proxy.logs import RateLimited, get_logger
from forebay_proxy.metrics.registry import MetricRegistry
from forebay_proxy.produce import deadlines
from forebay_proxy.produce.completion import JOURNAL, ProduceCompletion
from forebay_proxy.produce.deadlines import Deadlines
from tests.kit.event_loop import in_loop, until


class Watch:
    def __init__(self) -> None:
        self.sweeps = 0
        self.throttling = Throttling()
        self.stats = MetricRegistry()
        self.deadlines = Deadlines(self.stats, self.throttling, self.expired)
        self.done: list[ProduceCompletion] = []

    def expired(self, now: float) -> None:
        self.sweeps += 1

    def add(self, seconds: float, client_id: str = "client", client: Hashable = None) -> ProduceCompletion:
        completion = ProduceCompletion(7, 1, 1, 1000, monotonic() + seconds, self.answered, client, client_id)
        completion.add_topic("ponds")
        completion.add_partition(0)
        self.deadlines.add(completion)
        return completion

    def answered(self, completion: ProduceCompletion, frame: bytes | None) -> None:
        self.deadlines.remove(completion)
        self.done.append(completion)


@in_loop
async def test_only_those_whose_time_is_up_expire_and_what_they_held_is_freed() -> None:
    watch = Watch()
    early, late = watch.add(0), watch.add(60)
    await until(lambda: watch.sweeps)
    assert watch.done == [early]
    assert early.fates[0].error_code == REQUEST_TIMED_OUT
    assert len(watch.deadlines) == 1
    assert watch.stats.take().counters["forebay_errors_total", ("internal", "expired")] == 1
    watch.deadlines.remove(late)
    watch.deadlines.close()


@in_loop
async def test_of_the_journals_own_rows_nothing_is_counted_or_logged() -> None:
    watch = Watch()
    fresh = patch("forebay_proxy.produce.deadlines.log", RateLimited(get_logger()))
    with capture_logs() as logs, fresh:
        watch.add(0, client=JOURNAL)
        await until(lambda: watch.sweeps)
        assert logs == []
        watch.add(0, client=JOURNAL)
        watch.add(0)
        await until(lambda: len(watch.done) == 3)
    assert [line["requests"] for line in logs] == [1]
    assert watch.stats.take().counters["forebay_errors_total", ("internal", "expired")] == 1


@in_loop
async def test_time_for_which_a_client_is_throttled_does_not_count() -> None:
    watch = Watch()
    now = monotonic()
    watch.throttling.paused("greedy", 10.0, now - 10.0)
    before = watch.add(0, "greedy")
    after = watch.add(0, "greedy")
    after.paused = 10.0
    other = watch.add(0, "other")
    await until(lambda: watch.sweeps)
    assert watch.done == [after, other]
    assert before.deadline - now > 9.0
    assert before.paused == 10.0
    watch.deadlines.close()


@in_loop
async def test_looking_stops_when_nobody_waits_and_starts_again() -> None:
    watch = Watch()
    watch.deadlines.remove(watch.add(60))
    assert len(watch.deadlines) == 0
    await until(lambda: watch.deadlines._timer is None)
    assert (watch.sweeps, watch.done) == (0, [])
    watch.add(0)
    await until(lambda: len(watch.done) == 1)


class FakeLoop:
    """Counts the timers that would be pending."""

    def __init__(self) -> None:
        self.pending = 0

    def call_later(self, delay: float, callback: Callable[[], object]) -> asyncio.TimerHandle:
        assert delay == deadlines.INTERVAL
        self.pending += 1
        return asyncio.TimerHandle(delay, callback, (), asyncio.get_running_loop())


@in_loop
async def test_one_timer_is_enough_whoever_sends_more_when_answered() -> None:
    watch = Watch()
    loop = FakeLoop()
    watch.deadlines._loop = loop  # type: ignore[assignment]
    watch.add(0)

    def answered(completion: ProduceCompletion, frame: bytes | None) -> None:
        watch.deadlines.remove(completion)
        watch.add(0)

    for completion in list(watch.deadlines._live):
        completion._on_done = answered
    for _ in range(3):
        before = loop.pending
        watch.deadlines._sweep()
        assert loop.pending == before + 1
        for completion in list(watch.deadlines._live):
            completion._on_done = answered


@in_loop
async def test_a_broker_that_hangs_for_long_fills_no_log() -> None:
    watch = Watch()
    with capture_logs() as logs:
        for _ in range(20):
            watch.add(0)
            watch.deadlines._sweep()
    assert len(watch.done) == 20
    assert len(logs) < 10
    watch.deadlines.close()
