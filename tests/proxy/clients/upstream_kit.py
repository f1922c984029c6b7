"""A client connection without sockets: its life, its responses, and a gateway to brokers that the test plays."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any, cast

from forebay_codecs.primitives import Buffer
from forebay_policies.response_memory import ResponseMemory
from forebay_proxy.brokers.session import Session
from forebay_proxy.clients.client_identity import ClientIdentity
from forebay_proxy.clients.client_upstream import ClientUpstream, Departing
from forebay_proxy.clients.connection_life import ConnectionLife
from forebay_proxy.clients.opaque_connection import OpaqueConnection
from forebay_proxy.clients.response_orderer import ResponseOrderer
from forebay_proxy.logs import RateLimited, get_logger
from forebay_proxy.metrics.registry import MetricRegistry
from forebay_proxy.metrics.traffic import TrafficMetrics


class FakeTransport:
    def __init__(self) -> None:
        self.wrote: list[bytes] = []
        self.closed = self.aborted = False
        self.unsent = 0
        self.socket: socket.socket | None = None
        self.looked: Callable[[], None] = lambda: None  # at what its socket tells

    def writelines(self, buffers: list[Buffer]) -> None:
        self.wrote.append(b"".join(buffers))

    def get_extra_info(self, name: str) -> socket.socket | None:
        self.looked()
        return self.socket

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = self.aborted = True

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def get_write_buffer_size(self) -> int:
        return self.unsent


class FakeGateway:
    """Connects when the test says so; `connections` are (protocol, its transport), in order."""

    def __init__(self) -> None:
        self.may_connect = asyncio.Event()
        self.error: OSError | None = None
        self.connections: list[tuple[OpaqueConnection, FakeTransport]] = []
        self.taken = True
        self.responses = ResponseMemory()
        self.departing: set[Departing] = set()
        self.session: Session | None = None
        self.own_logins = False
        self.patience = 30.0

    async def connect(self, node_id: int | None, protocol: OpaqueConnection) -> Session | None:
        await self.may_connect.wait()
        if self.error is not None:
            raise self.error
        transport = FakeTransport()
        self.connections.append((protocol, transport))
        protocol.connection_made(cast(asyncio.Transport, transport))
        return self.session

    def takes(self, api_key: int, version: int) -> bool:
        return self.taken

    def translate(
        self, advertised_host: str, node_id: int, host: str, port: int, *, cached: bool = False
    ) -> tuple[str, int]:
        return advertised_host, 9000 + node_id

    def produce_answered(self, response: bytes, version: int) -> None: ...

    def topics_changed(self, node_id: int | None, client_host: str) -> None: ...

    def topics_settle(self, node_id: int | None, client_host: str) -> bool:
        return False


class Stage:
    def __init__(self) -> None:
        self.stats = MetricRegistry()
        self.out = b""
        self.takes = 0
        metrics, log = TrafficMetrics(self.stats), RateLimited(get_logger())
        self.gateway = FakeGateway()
        self.transport = FakeTransport()
        self.orderer = ResponseOrderer(self._write)
        self.life = ConnectionLife(self.orderer, metrics, log, self._take, lambda: None)
        self.life.begin(cast(asyncio.Transport, self.transport), "client:1")
        self.who = ClientIdentity(metrics, log)
        self.upstream = ClientUpstream(self.life, self.orderer, self.who, self.gateway, 3)
        self.upstream.advertised_host = "forebay"

    def _write(self, buffers: list[Buffer]) -> None:
        self.out += b"".join(buffers)

    def _take(self) -> None:
        self.takes += 1

    def count(self, *key: Any) -> float:
        name, *labels = key
        return self.stats.take().counters[name, tuple(labels)]
