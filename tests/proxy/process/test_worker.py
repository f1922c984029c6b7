"""What a worker does that nobody tells it. As a process: test_supervisor.py."""

from __future__ import annotations

import asyncio
import socket

from forebay_proxy.config.settings import HostPort, Settings
from forebay_proxy.inherited import Inherited
from forebay_proxy.metrics.registry import MetricRegistry
from forebay_proxy.process.control import Ask, Channel, Message, Report
from forebay_proxy.process.lifecycle import Stop
from forebay_proxy.process.worker import WorkerControl
from tests.kit.event_loop import in_loop, soon
from tests.proxy.process.fake_app import FakeApp


@in_loop
async def test_once_a_part_of_it_has_failed_it_drains() -> None:
    ours, theirs = socket.socketpair()
    supervisor, channel = await Channel.over(ours), await Channel.over(theirs)
    stats, stop = MetricRegistry(), Stop()
    app = FakeApp(Settings(bootstrap_servers=(HostPort("b", 9092),)), stats, 0, Inherited())
    obeying = asyncio.create_task(WorkerControl(channel, app, stats, stop, theirs).obey())

    async def says(question: Message) -> str | None:
        supervisor.send(question)
        report = await soon(supervisor.receive())
        assert isinstance(report, Report)
        return report.unready

    assert await says(Ask(1)) == "no listener yet"
    assert not stop.draining.is_set()
    app._failed = "a part has failed"
    assert await says(Ask(2)) == "draining"
    assert stop.draining.is_set()
    await supervisor.close()
    await soon(obeying)
    await channel.close()
