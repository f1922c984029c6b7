"""What is given in one turn leaves in one write, at its end or at once."""

from __future__ import annotations

import asyncio
from typing import cast

from forebay_proxy.clients.response_writer import ResponseWriter
from forebay_proxy.metrics.registry import MetricRegistry
from forebay_proxy.metrics.traffic import TrafficMetrics
from tests.kit.event_loop import in_loop, turns
from tests.proxy.clients.upstream_kit import FakeTransport


class Writing:
    def __init__(self) -> None:
        self.stats = MetricRegistry()
        self.transport = FakeTransport()
        self.writes = 0
        self.writer = ResponseWriter(TrafficMetrics(self.stats), self.written)
        self.writer.transport = cast(asyncio.Transport, self.transport)

    def written(self) -> None:
        self.writes += 1

    @property
    def counted(self) -> float:
        return self.stats.counter("forebay_response_bytes_total", side="client").value


@in_loop
async def test_what_one_turn_has_to_say_leaves_in_one_write_at_its_end() -> None:
    writing = Writing()
    writing.writer.write([b"one ", b"two "])
    writing.writer.write([b"three"])
    assert (writing.transport.wrote, writing.writer.unsent) == ([], 13)
    await turns(1)
    assert (writing.transport.wrote, writing.writer.unsent) == ([b"one two three"], 0)
    assert (writing.writes, writing.counted) == (1, 13)


@in_loop
async def test_a_flush_does_not_wait_for_the_end_of_the_turn_and_leaves_nothing_to_it() -> None:
    writing = Writing()
    writing.writer.write([b"now"])
    writing.writer.flush()
    assert writing.transport.wrote == [b"now"]
    await turns(2)
    assert (writing.transport.wrote, writing.writes) == ([b"now"], 1)


@in_loop
async def test_a_transport_that_closes_takes_nothing_and_nothing_stays() -> None:
    writing = Writing()
    writing.transport.close()
    writing.writer.write([b"late"])
    await turns(1)
    assert (writing.transport.wrote, writing.writer.unsent, writing.writes, writing.counted) == ([], 0, 0, 0)
