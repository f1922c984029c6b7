"""A slot by itself: what it makes of reports that come late or never. With real processes: test_supervisor.py."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from typing import NoReturn

import msgspec
import pytest
import structlog

from forebay_proxy.config.settings import HostPort, Settings
from forebay_proxy.metrics.registry import MetricRegistry
from forebay_proxy.process import handed_sockets, worker_slot
from forebay_proxy.process.control import (
    Ask,
    Commit,
    Dump,
    Dumped,
    Message,
    Prepare,
    Prepared,
    Reload,
    Renewed,
    Report,
    Share,
    StartFailed,
)
from forebay_proxy.process.worker_slot import HUNG_S, MAX_UNANSWERED, MIN_PINGS_BEFORE_KILL, WorkerSlot
from forebay_proxy.security.renewals import Outcome
from tests.kit.event_loop import in_loop, soon, until

SETTINGS = Settings(bootstrap_servers=(HostPort("b", 9092),), listen=HostPort("127.0.0.1", 19092))


class Line:
    """The slot's end of a channel, to a worker that the test plays."""

    def __init__(self) -> None:
        self.sent: list[Message] = []

    def send(self, message: Message) -> None:
        self.sent.append(message)


class Scene:
    """A slot whose process runs, and a clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.line = Line()
        self.slot = WorkerSlot(0, SETTINGS, "", lambda: self.now)
        self.slot._channel = self.line  # type: ignore[assignment]
        self.stats = MetricRegistry(lambda: self.now)

    async def report(
        self,
        number: int,
        unready: str | None = None,
        details: bool = True,
        *,
        started: bool = True,
        leaving: bool = False,
    ) -> None:
        stats = self.stats.snapshot(details=details)
        await self.slot._hear(Report(number, started, unready, stats, details, leaving))


@in_loop
async def test_before_its_first_report_a_worker_is_starting_and_nobody_waits_for_an_answer() -> None:
    slot = WorkerSlot(3, SETTINGS, "", lambda: 0.0)
    assert (slot.unready, slot.running, slot.process_id, slot.silent_for()) == ("starting", False, None, 0.0)
    assert slot.ask() == 0
    assert await slot.fresh(0.0)


@in_loop
async def test_it_is_known_whether_a_report_is_an_earlier_one() -> None:
    scene = Scene()
    assert not await scene.slot.fresh(0.001)
    asking = asyncio.create_task(scene.slot.fresh(30.0))
    await asyncio.sleep(0)
    await scene.report(1)
    assert not asking.done(), "that answers the first question"
    await scene.report(2)
    assert await asking


@in_loop
async def test_one_that_has_served_is_away_while_nobody_can_meet_it() -> None:
    scene = Scene()
    await scene.report(0, "no broker yet", started=False)
    assert not scene.slot.away, "it is waited for: it is the first"
    await scene.report(1, "no broker yet")
    assert not scene.slot.away, "it takes connections, and cannot serve them"
    await scene.report(2)
    assert not scene.slot.away
    await scene.report(3, "draining", leaving=True)
    assert scene.slot.away
    await scene.report(4)
    await scene.slot.retire()
    assert scene.slot.away
    await scene.report(0, "no broker yet", started=False)
    assert scene.slot.away
    await scene.report(0, "no broker yet")
    assert not scene.slot.away


@in_loop
async def test_silence_counts_from_the_first_question_without_an_answer() -> None:
    scene = Scene()
    scene.slot.ask()
    scene.now = 3.0
    scene.slot.ask()
    assert scene.slot.silent_for() == 3.0
    await scene.report(1)
    scene.now = 5.0
    assert scene.slot.silent_for() == 2.0
    await scene.report(2)
    assert scene.slot.silent_for() == 0.0


@in_loop
async def test_a_worker_is_hung_when_it_was_silent_for_long_and_asked_often() -> None:
    scene = Scene()
    scene.slot.ask()
    scene.now = HUNG_S + 1
    assert not scene.slot.hung
    for _ in range(MIN_PINGS_BEFORE_KILL - 1):
        scene.slot.ask()
    assert scene.slot.hung
    await scene.report(MIN_PINGS_BEFORE_KILL)
    assert not scene.slot.hung


@in_loop
async def test_a_silent_worker_is_asked_only_so_often() -> None:
    scene = Scene()
    for _ in range(MAX_UNANSWERED + 5):
        scene.slot.ask()
    assert scene.line.sent == [Ask(number) for number in range(1, MAX_UNANSWERED + 1)]


@in_loop
async def test_a_process_that_reports_before_it_is_asked_is_asked_whatever_the_one_before_it_was() -> None:
    scene = Scene()
    for number in range(1, MAX_UNANSWERED + 1):
        scene.slot.ask()
        await scene.report(number)
    await scene.slot.retire()
    await scene.report(0)  # it serves
    scene.now = HUNG_S + 1
    assert scene.slot.silent_for() == 0.0
    for _ in range(MIN_PINGS_BEFORE_KILL):
        scene.slot.ask()
    assert scene.line.sent[-1] == Ask(MAX_UNANSWERED + MIN_PINGS_BEFORE_KILL)
    assert not scene.slot.hung
    scene.now += HUNG_S + 1
    assert scene.slot.hung


@in_loop
async def test_topics_and_clients_are_those_that_were_told_last() -> None:
    scene = Scene()
    scene.stats.topics.sent("ponds", 0, 5, 50)
    scene.stats.clients.connected("till-7", "10.0.0.1", None, None, 0.0)
    moved = scene.stats.counter("forebay_records_total", fate="moved")
    scene.slot.ask()
    await scene.report(1)
    moved.value = 7
    scene.stats.topics.sent("ponds", 0, 1, 10)
    scene.slot.ask(details=False)
    await scene.report(2, details=False)
    told = scene.slot.snapshot
    assert told.counters["forebay_records_total", ("moved",)] == 7
    assert ([topic.records for topic in told.topics], len(told.clients)) == ([5], 1)
    assert scene.line.sent == [Ask(1), Ask(2, details=False)]


@in_loop
async def test_what_a_dead_process_had_counted_is_taken_over_once() -> None:
    scene = Scene()
    scene.stats.counter("forebay_records_total", fate="moved").value = 7
    scene.slot.ask()
    await scene.report(1)
    assert (scene.slot.unready, scene.slot.served.is_set()) == (None, True)
    past = await scene.slot.retire()
    assert past.counters["forebay_records_total", ("moved",)] == 7
    assert (scene.slot.unready, scene.slot.snapshot.counters) == (worker_slot.NOT_HEARD_FROM, {})
    assert (await scene.slot.retire()).counters == {}


@in_loop
async def test_why_a_process_cannot_start_is_kept() -> None:
    scene = Scene()
    await scene.slot._hear(StartFailed("listen = 127.0.0.1:1: address already in use"))
    assert scene.slot.start_failure == "listen = 127.0.0.1:1: address already in use"
    assert not scene.slot.served.is_set()


@in_loop
async def test_what_a_worker_says_of_other_settings_is_of_those_only() -> None:
    scene = Scene()
    scene.slot._process = object()  # type: ignore[assignment]
    asked = asyncio.create_task(scene.slot.prepare(2, SETTINGS, 30.0))
    await asyncio.sleep(0)
    assert scene.line.sent == [Prepare(2, SETTINGS)]
    await scene.slot._hear(Prepared(2, "it cannot be"))
    assert await asked == "it cannot be"
    assert await scene.slot.prepare(3, SETTINGS, 0.01) == "no answer within 0.01 s"
    asked = asyncio.create_task(scene.slot.prepare(4, SETTINGS, 30.0))
    await asyncio.sleep(0)
    scene.slot._process = None  # it has died, and the next one begins with whatever is in force then
    await scene.slot.retire()
    assert await asked == ""


@in_loop
async def test_what_is_in_force_is_what_the_next_process_begins_with() -> None:
    scene = Scene()
    other = msgspec.structs.replace(SETTINGS, topics_include=("orders",))
    scene.slot.commit(2, other)
    assert scene.line.sent == [Commit(2, other)]
    assert scene.slot._hello.settings == other


@in_loop
async def test_what_came_of_a_renewal_is_what_the_worker_said_to_this_question() -> None:
    scene = Scene()
    assert await WorkerSlot(0, SETTINGS, "", lambda: 0.0).reload(30.0) == []
    scene.slot._process = object()  # type: ignore[assignment]
    asked = asyncio.create_task(scene.slot.reload(30.0))
    await asyncio.sleep(0)
    assert scene.line.sent == [Reload(1)]
    await scene.slot._hear(Renewed(1, [Outcome("brokers", "it is empty")]))
    assert await asked == [Outcome("brokers", "it is empty")]
    assert await scene.slot.reload(0.01) == [Outcome("certificates and secrets", "no answer within 0.01 s")]
    asked = asyncio.create_task(scene.slot.reload(30.0))
    await asyncio.sleep(0)
    scene.slot._process = None
    await scene.slot.retire()
    assert await asked == []


@in_loop
async def test_how_a_worker_stands_is_what_it_said_to_this_question() -> None:
    scene = Scene()
    assert await WorkerSlot(0, SETTINGS, "", lambda: 0.0).dump(30.0) == {"error": "not running"}
    scene.slot._process = object()  # type: ignore[assignment]
    asked = asyncio.create_task(scene.slot.dump(30.0))
    await asyncio.sleep(0)
    assert scene.line.sent == [Dump(1)]
    await scene.slot._hear(Dumped(1, b'{"queues": 5}'))
    assert await asked == {"queues": 5}
    assert await scene.slot.dump(0.01) == {"error": "no answer within 0.01 s"}
    asked = asyncio.create_task(scene.slot.dump(30.0))
    await asyncio.sleep(0)
    scene.slot._process = None
    await scene.slot.retire()
    assert await asked == {"error": "it has died"}


@in_loop
async def test_of_a_process_that_cannot_be_started_nothing_is_left_and_the_next_one_inherits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def fails(*_: object, **__: object) -> NoReturn:
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    with socket.create_server(("127.0.0.1", 0)) as inherited:
        slot = WorkerSlot(0, SETTINGS, "", lambda: 0.0, [inherited])
        monkeypatch.setattr(asyncio, "create_subprocess_exec", fails)
        before = os.listdir("/proc/self/fd")
        with pytest.raises(OSError, match="temporarily unavailable"):
            await slot.live()
        assert os.listdir("/proc/self/fd") == before
        assert (slot.running, slot.ask()) == (False, 0)
        assert inherited.fileno() >= 0
        slot.inherits(())
        assert inherited.fileno() < 0


@in_loop
async def test_sockets_are_handed_over_to_one_who_asks_after_the_other() -> None:
    scene, (ours, theirs) = Scene(), socket.socketpair()
    scene.slot._sockets = ours
    with theirs, socket.create_server(("127.0.0.1", 0)) as listening:
        asking = [asyncio.create_task(scene.slot.share(60.0)) for _ in range(2)]
        for asked, task in enumerate(asking, 1):
            await until(lambda asked=asked: len(scene.line.sent) >= asked)  # type: ignore[misc]
            assert scene.line.sent == [Share()] * asked
            handed_sockets.hand(theirs, [listening])
            found = await soon(task)
            assert [each.getsockname() for each in found] == [listening.getsockname()]
            handed_sockets.close(found)
    ours.close()


@in_loop
async def test_sockets_that_come_too_late_are_kept_by_nobody() -> None:
    scene, (ours, theirs) = Scene(), socket.socketpair()
    scene.slot._sockets = ours
    with theirs, socket.create_server(("127.0.0.1", 0)) as listening:
        assert await soon(scene.slot.share(0.01)) == []
        with pytest.raises(OSError, match="Broken pipe"):
            handed_sockets.hand(theirs, [listening])
    with structlog.testing.capture_logs() as logs:
        assert await soon(scene.slot.share(0.01)) == []
    assert [(line["log_level"], line["error"]) for line in logs] == [("warning", "it was late")]
    assert len(scene.line.sent) == 1
