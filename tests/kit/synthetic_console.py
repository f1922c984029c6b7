"""A Forebay's page without a Forebay: what many topics, partitions and clients would look like, made of a seed.

    with SyntheticConsole(topics=500, partitions=12, clients=1000) as console:
        … console.url …

It has a past, and goes on each second. Numbers are those of no machine; what reads them is the real thing.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from random import Random
from types import TracebackType
from typing import Self

from forebay_policies.eligibility import Reason
from forebay_proxy import __version__
from forebay_proxy.config.settings import HostPort
from forebay_proxy.console.api import Api, Told
from forebay_proxy.console.collector import Collector
from forebay_proxy.console.entry import Entry
from forebay_proxy.console.source import Details, OneProcess
from forebay_proxy.metrics.admin import Admin
from forebay_proxy.metrics.catalog import SIZES
from forebay_proxy.metrics.clients_seen import SeenClient
from forebay_proxy.metrics.exposition import expose
from forebay_proxy.metrics.instruments import Histogram
from forebay_proxy.metrics.own_hosts import OwnHosts
from forebay_proxy.metrics.registry import MetricRegistry, Snapshot
from forebay_proxy.metrics.topics_seen import TopicNow
from tests.kit.app import settings
from tests.kit.ports import LOOPBACK, free_port

MIB = 1 << 20
NAMES = ("orders", "payments", "shipments", "clicks", "stock-levels", "prices", "invoices", "sensor-readings")
SOFTWARE = (("apache-kafka-java", "2.8.2"), (None, None), ("librdkafka", "1.9.2"), ("apache-kafka-java", "3.9.1"))
PRODUCE_OLD, PRODUCE_NEW = 0 << 16 | 2, 0 << 16 | 9
_AT_LEAST_S = 0.05
"""Between two seconds, of which none is left out however late it is: watchers hear of each."""


class SyntheticSource:
    """`advance` lets seconds pass. The last broker is slow, and the third topic's first partition is hot."""

    def __init__(
        self, topics: int, partitions: int, clients: int, brokers: int, seed: int, names: Sequence[str]
    ) -> None:
        self.rng = Random(seed)
        self.stats = stats = MetricRegistry()
        self._source = OneProcess(stats)
        self.topics = [
            f"{NAMES[n % len(NAMES)]}{'' if n < len(NAMES) else f'-{n // len(NAMES)}'}" for n in range(topics)
        ]
        self._partitions = partitions
        self._nodes = range(1, brokers + 1)
        self._second = 0
        self.up = dict.fromkeys(self._nodes, 1)
        self._busy = dict.fromkeys(range(2), 0.0)
        """Seconds of CPU by worker."""
        self._clients = [self._client(number) for number in range(clients)]
        self._clients += [self._named(name) for name in names]
        leaders = [1 + index % brokers for index in range(partitions)]
        stats.topics_now = lambda: {name: TopicNow(leaders, {}, {}) for name in self.topics}
        stats.gauge_of_brokers("forebay_broker_up", lambda: self.up)
        stats.gauge_of_brokers(
            "forebay_broker_queued_bytes", lambda: {node: self.rng.randrange(90_000) * node for node in self._nodes}
        )
        stats.gauge_of_brokers(
            "forebay_broker_in_flight_requests", lambda: {node: self.rng.randrange(1, 6) for node in self._nodes}
        )
        stats.gauge("forebay_open_connections", lambda: 3 * clients, listener="node")
        stats.gauge("forebay_buffer_memory_total_bytes", lambda: 64 * MIB)
        stats.gauge("forebay_buffer_memory_available_bytes", lambda: (56 + 5 * math.sin(self._second / 90)) * MIB)
        stats.gauge("forebay_queued_bytes", lambda: 300_000)
        stats.gauge("forebay_buffer_memory_waiters", lambda: 0)
        for worker in range(2):
            stats.gauge("forebay_worker_resident_memory_bytes", lambda: 90 * MIB, worker=str(worker))
            busy = partial(self._busy.__getitem__, worker)
            stats.counter_from("forebay_worker_cpu_seconds_total", busy, worker=str(worker))

    def _named(self, name: str) -> SeenClient:
        client = self.stats.clients.connected(name, "10.9.9.9", name, name, time.time())
        client.requests[PRODUCE_NEW] = 1
        return client

    def _client(self, number: int) -> SeenClient:
        software, version = SOFTWARE[number % len(SOFTWARE)]
        client = self.stats.clients.connected(
            f"till-{number:04}", f"10.1.{number // 250}.{number % 250}", software, version, time.time()
        )
        client.requests[PRODUCE_OLD if number in (3, 5) else PRODUCE_NEW] = 1
        return client

    def advance(self) -> None:
        """One second."""
        self._second += 1
        rng, stats = self.rng, self.stats
        level = 1 + 0.25 * math.sin(self._second / 40) + rng.uniform(-0.06, 0.06)
        total = int(41_000 * level)
        stats.counter("forebay_records_total", fate="moved").value += int(total * 0.8)
        stats.counter("forebay_records_total", fate="untouched").value += total - int(total * 0.8)
        stats.counter("forebay_request_bytes_total", side="client").value += total * 240
        stats.counter("forebay_request_bytes_total", side="upstream").value += total * 205
        stats.counter("forebay_requests_total", api="Produce").value += total
        stats.counter("forebay_errors_total", side="upstream", kind="connection_lost").value += rng.random() < 0.05
        stats.counter("forebay_retries_total", reason="backoff").value += rng.random() < 0.1
        records, added = (
            stats.histogram("forebay_batch_records"),
            stats.histogram("forebay_added_latency_seconds", path="merged"),
        )
        for _ in range(60):
            _observe(records, rng.randrange(12, 30), max(1, total // 1260))
            added.observe(rng.lognormvariate(-7.7, 0.75))
        self._brokers(total)
        self._topics(total)
        for number, client in enumerate(self._clients):
            share = int(total / len(self._clients) * rng.uniform(0.5, 1.5))
            client.records += share
            reason = Reason.IDEMPOTENT if number % 4 == 3 else Reason.NULL_KEY
            client.batches[reason] = client.batches.get(reason, 0) + share
        stats.tick()

    def _brokers(self, total: int) -> None:
        rng, stats = self.rng, self.stats
        weights = [5.0] * (len(self._nodes) - 1) + [1.0]
        for node, weight in zip(self._nodes, weights, strict=True):
            own = int(total * weight / sum(weights))
            stats.counter("forebay_broker_records_total", node=str(node)).value += own
            stats.counter("forebay_broker_bytes_total", node=str(node)).value += own * 205
            latency = stats.histogram("forebay_broker_latency_seconds", node=str(node))
            for _ in range(20):
                latency.observe(rng.lognormvariate(-6.2 if weight > 1 else -3.4, 0.4))
        for worker in range(2):
            self._busy[worker] += rng.uniform(0.3, 0.5)
            lag = stats.histogram("forebay_event_loop_lag_seconds", worker=str(worker))
            for _ in range(10):
                lag.observe(rng.lognormvariate(-7.0, 0.8))

    def _topics(self, total: int) -> None:
        table, rng = self.stats.topics, self.rng
        slow = len(self._nodes)
        for place, name in enumerate(self.topics):
            of_topic = max(1, int(total / (place + 2) / 3))
            for index in range(self._partitions):
                share = of_topic / self._partitions * rng.uniform(0.7, 1.3)
                share *= 0.3 if 1 + index % slow == slow else 1.2
                if place == 2 and index == 0:
                    share *= 4
                table.sent(name, index, int(share), int(share * 205))

    def now(self) -> Snapshot:
        return self._source.now()

    async def details(self) -> Details:
        return await self._source.details()


def _observe(histogram: Histogram, value: float, times: int) -> None:
    """So many times the same."""
    histogram.observe(value)
    histogram.counts[bisect_left(SIZES, value)] += times - 1
    histogram.sum += value * (times - 1)


class _Past:
    """A clock that is told the time."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class SyntheticConsole:
    """Served in a thread of its own, from `past` seconds ago on."""

    def __init__(
        self,
        topics: int = 40,
        partitions: int = 12,
        clients: int = 60,
        brokers: int = 3,
        past: int = 300,
        seed: int = 7,
        names: Sequence[str] = (),
    ) -> None:
        """`names`: of further clients, of whom nothing is known but that."""
        self.source = SyntheticSource(topics, partitions, clients, brokers, seed, names)
        self.port = free_port()
        self.url = f"http://{LOOPBACK}:{self.port}"
        self.unready: str | None = None
        self._api: Api
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._end = asyncio.Event()
        self._clock = _Past(time.time() - past)
        self.seen = Collector(self.source, 16 * MIB, self._clock, self._clock)
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),), daemon=True)

    async def _serve(self) -> None:
        for up in (1, 0, 1):  # so that something has changed
            self._clock.now += 1
            self.source.up[2] = up
            self._step()
        self._clock.now += 1
        while self._clock.now < time.time():  # it takes a while itself
            self._step()
            if int(self._clock.now) % 10 == 0 or time.time() - self._clock.now < 1:
                await self.seen.look_closely()
            self._clock.now += 1
        await asyncio.sleep(self._clock.now - time.time())
        config = [{"name": "linger.ms", "value": 5, "default": -1, "origin": "--set", "description": "…", "unit": "ms"}]
        told = Told(config, lambda client, topic: {"text": f"topic {topic}: topics.include has *", "decisions": []})
        api = self._api = Api(self.seen, told, Entry(OwnHosts(LOOPBACK, ())), lambda: self.unready, 2, time.time)
        admin = Admin(self._metrics, self._nobody, lambda: self.unready, more=api)
        await admin.start(settings((), 1, admin=HostPort(LOOPBACK, self.port)))
        self._ready.set()
        number = 0
        while not self._end.is_set():
            self._step()
            number += 1
            if number % 10 == 0:
                await self.seen.look_closely()
            try:
                await asyncio.wait_for(self._end.wait(), max(_AT_LEAST_S, self._clock.now + 1 - time.time()))
            except TimeoutError:
                self._clock.now += 1
        await admin.stop()

    def _step(self) -> None:
        self.source.advance()
        self.seen.look()

    async def _metrics(self) -> tuple[bytes, str]:
        return expose(self.source.stats.take(), __version__)

    async def _nobody(self) -> list[SeenClient]:
        return []

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """Meanwhile it does nothing, and closes no connection."""
        over = threading.Event()
        self._loop.call_soon_threadsafe(over.wait)
        try:
            yield
        finally:
            over.set()

    @property
    def watching(self) -> int:
        """Streams that are open."""
        return self._api.watching

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(120), "the page is not served"
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(30)
        assert not self._thread.is_alive()
        self._loop.close()
