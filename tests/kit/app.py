"""The whole proxy in the test's event loop.

    async with running(cluster.bootstrap, linger_ms=60_000) as forebay:
        client = await forebay.client(node=0)

Pauses between tries are short, so that tests are, and batches leave without sequences, for tests that are not about
them; all else is as by default unless told.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import msgspec

from forebay_proxy.app import App
from forebay_proxy.config.kinds import ListenerAddress
from forebay_proxy.config.listeners import ListenerSettings
from forebay_proxy.config.settings import HostPort, Settings
from forebay_proxy.metrics.clients_seen import SeenClient
from forebay_proxy.metrics.registry import MetricRegistry
from forebay_proxy.metrics.topics_seen import SeenTopic
from tests.kit.event_loop import turns, until
from tests.kit.ports import LOOPBACK, free_run
from tests.kit.wire import WireClient

NODES = 6
"""Ports kept free for brokers 0 to 5."""

QUICK = {
    "retry_backoff_ms": 5,
    "retry_backoff_max_ms": 20,
    "reconnect_backoff_ms": 5,
    "reconnect_backoff_max_ms": 20,
    "enable_idempotence": False,
}


class Running:
    def __init__(self, app: App, stats: MetricRegistry, port: int) -> None:
        self.app = app
        self.port = port
        self._stats = stats
        self._clients: list[WireClient] = []

    def node_port(self, node: int) -> int:
        return self.port + 1 + node

    def change(self, **to: Any) -> None:
        """Other settings, as a reload puts them into force."""
        self.app.prepare(msgspec.structs.replace(self.app._shared.settings, **to))()

    async def client(self, node: int | None = None, tls: ssl.SSLContext | None = None) -> WireClient:
        """Connected to the listener of a node, or to the bootstrap listener; with `tls`, to those with TLS."""
        first = self.port if tls is None else self.port + 1 + NODES
        client = await WireClient.connect(first if node is None else first + 1 + node, tls)
        self._clients.append(client)
        return client

    def count(self, name: str, *labels: str) -> float:
        """A counter or gauge, `labels` in the order of the table."""
        now = self._stats.take()
        return now.counters[name, labels] if (name, labels) in now.counters else now.gauges[name, labels]

    def observed(self, name: str, *labels: str) -> tuple[int, float]:
        """Of a histogram: how many values, and their sum."""
        data = self._stats.take().histograms[name, labels]
        return sum(data.counts), data.sum

    def topics(self) -> dict[str, SeenTopic]:
        return {topic.name: topic for topic in self._stats.take().topics}

    def clients(self) -> list[SeenClient]:
        return self._stats.take().clients

    def close_clients(self) -> None:
        for client in self._clients:
            client.close()
        self._clients.clear()


def two_listeners(port: int, **tls: Any) -> dict[str, Any]:
    """Settings of a PLAINTEXT listener on `port` and, behind its brokers' ports, one with TLS that was told `tls`."""
    return {
        "listen": None,
        "listeners": (
            ListenerAddress("PLAINTEXT", LOOPBACK, port),
            ListenerAddress("SSL", LOOPBACK, port + 1 + NODES),
        ),
        "listener_name": {"ssl": ListenerSettings(**tls)},
    }


def one_port(port: int) -> dict[str, Any]:
    """Settings of a listener on `port` alone, for producers only."""
    return {
        "listen": None,
        "listeners": (ListenerAddress("PLAINTEXT", LOOPBACK, port),),
        "listener_name": {"plaintext": ListenerSettings(producers_only=True)},
    }


def settings(bootstrap: tuple[HostPort, ...], port: int, **changed: Any) -> Settings:
    return Settings(bootstrap_servers=bootstrap, **{"listen": HostPort(LOOPBACK, port), **QUICK, **changed})


@asynccontextmanager
async def running(
    bootstrap: tuple[HostPort, ...], *, tls: Any = None, producers_only: Any = False, **changed: Any
) -> AsyncIterator[Running]:
    """Started, and told of the cluster by a broker. With `tls`, settings of a listener, it has one with TLS, too.

    `producers_only`: its listener is one.
    """
    port = free_run(2 * (1 + NODES))
    if tls is not None:
        changed = {**two_listeners(port, **tls), **changed}
    if producers_only:
        changed = {**one_port(port), **changed}
    stats = MetricRegistry()
    app = App(settings(bootstrap, port, **changed), stats, rng=Random(1))
    forebay = Running(app, stats, port)
    await app.start()
    try:
        await until(lambda: app.ready() is None)
        await turns()
        yield forebay
    finally:
        app.abort()
        forebay.close_clients()
        await turns()
