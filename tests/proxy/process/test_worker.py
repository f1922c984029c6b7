"""What a worker does that nobody tells it, and what it is told. As a process: test_supervisor.py."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

import pytest

from forebay_proxy import __version__
from forebay_proxy.config.settings import HostPort, Settings
from forebay_proxy.inherited import Inherited
from forebay_proxy.metrics.registry import MetricRegistry
from forebay_proxy.process.control import Ask, Channel, Drain, Hello, Message, Report, StartFailed, encode
from forebay_proxy.process.lifecycle import FAILED, Stop
from forebay_proxy.process.worker import WorkerControl, work
from tests.kit.event_loop import in_loop, soon
from tests.proxy.process.fake_app import FakeApp


class Scene(NamedTuple):
    supervisor: Channel
    app: FakeApp
    stop: Stop

    async def says(self, question: Message) -> str | None:
        self.supervisor.send(question)
        report = await soon(self.supervisor.receive())
        assert isinstance(report, Report)
        return report.unready


@asynccontextmanager
async def worker() -> AsyncIterator[Scene]:
    ours, theirs = socket.socketpair()
    supervisor, channel = await Channel.over(ours), await Channel.over(theirs)
    stats, stop = MetricRegistry(), Stop()
    app = FakeApp(Settings(bootstrap_servers=(HostPort("b", 9092),)), stats, 0, Inherited())
    obeying = asyncio.create_task(WorkerControl(channel, app, stats, stop, theirs).obey())
    yield Scene(supervisor, app, stop)
    await supervisor.close()
    await soon(obeying)
    await channel.close()


@in_loop
async def test_once_a_part_of_it_has_failed_it_drains() -> None:
    async with worker() as scene:
        assert await scene.says(Ask(1)) == "no listener yet"
        assert not scene.stop.draining.is_set()
        scene.app._failed = "a part has failed"
        assert await scene.says(Ask(2)) == "draining"
        assert scene.stop.draining.is_set()


@pytest.mark.parametrize("succeeded", [True, False])
@in_loop
async def test_told_to_drain_it_knows_whether_others_take_its_place(*, succeeded: bool) -> None:
    async with worker() as scene:
        scene.supervisor.send(Drain(succeeded))
        assert await scene.says(Ask(1)) == "draining"
        assert scene.stop.succeeded is succeeded


HELLO = encode(Hello(0, Settings(bootstrap_servers=(HostPort("b", 9092),)), ""))


@pytest.mark.parametrize(
    ("hello", "told", "since"),
    [(HELLO, ("0.0.9",), "0.0.9"), (b"?", ("0.0.9",), "0.0.9"), (HELLO, (), "an earlier version")],
)
@in_loop
async def test_code_of_another_version_than_its_supervisor_serves_nobody(
    hello: bytes, told: tuple[str, ...], since: str
) -> None:
    """Also where the supervisor's first message means nothing to it, or it told no version, as those of before."""
    (ours, theirs), (sockets, others) = socket.socketpair(), socket.socketpair()
    with ours, sockets, others:
        ours.sendall(struct.pack(">I", len(hello)) + hello)
        assert await soon(work(theirs, sockets, *told)) == FAILED
        supervisor = await Channel.over(ours)
        why = f"{__version__} has been installed since {since} began to serve: forebay restart"
        assert await soon(supervisor.receive()) == StartFailed(why)
        assert await soon(supervisor.receive()) is None
        await supervisor.close()
