"""A Collector that was told what there is, without a second of waiting: for tests of what is made of it."""

from __future__ import annotations

from forebay_proxy.console.collector import Collector
from forebay_proxy.console.source import Details
from forebay_proxy.metrics.clients_seen import SeenClient
from forebay_proxy.metrics.registry import MetricRegistry, Snapshot
from forebay_proxy.metrics.topics_seen import SeenTopic

MIB = 1 << 20


class FakeSource:
    """`stats` is what it shows; `topics` and `clients` are its details."""

    def __init__(self) -> None:
        self.stats = MetricRegistry()
        self.topics: list[SeenTopic] = []
        self.clients: list[SeenClient] = []

    def now(self) -> Snapshot:
        return self.stats.take(details=False)

    async def details(self) -> Details:
        return Details(list(self.topics), list(self.clients))


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


class Seen:
    """`step` lets a second pass, and looks."""

    def __init__(self, history_bytes: int = 16 * MIB) -> None:
        self.source = FakeSource()
        self.clock = Clock()
        self.collector = Collector(self.source, history_bytes, self.clock, self.clock)
        self.collector.look()

    def step(self, seconds: float = 1.0) -> None:
        self.clock.now += seconds
        self.collector.look()

    async def closely(self, seconds: float = 10.0) -> None:
        self.clock.now += seconds
        await self.collector.look_closely()
