"""The least that a proxy in Python costs: `python -m bench.wire_relay BROKER_PORT PORT`, a process of its own.

Each connection leads to the broker, and bytes go on as they came. Nothing is read in them and nobody is held back, so
it is no proxy to use: it tells what the machine, uvloop and the system take, which targets in µs leave out.
"""

from __future__ import annotations

import argparse
import asyncio
from typing import cast

import uvloop

from tests.kit.ports import LOOPBACK


class Side(asyncio.Protocol):
    """One of two connections; what comes before the other one stands waits for it."""

    def __init__(self, other: Side | None = None) -> None:
        self.other = other
        self.transport: asyncio.Transport | None = None
        self._early: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        if self._early:
            self.transport.writelines(self._early)

    def data_received(self, data: bytes) -> None:
        assert self.other is not None
        self.other.write(data)

    def write(self, data: bytes) -> None:
        if self.transport is None:
            self._early.append(data)
        elif not self.transport.is_closing():
            self.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.close()


class Client(Side):
    """`other` is the broker's side, connected when the client's is there."""

    def __init__(self, broker: int, other: Side) -> None:
        super().__init__(other)
        other.other = self
        self._broker = broker

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._connecting = asyncio.create_task(self._connect())

    async def _connect(self) -> None:
        other = self.other
        assert other is not None
        await asyncio.get_running_loop().create_connection(lambda: other, LOOPBACK, self._broker)


async def relay(broker: int, port: int) -> None:
    server = await asyncio.get_running_loop().create_server(lambda: Client(broker, Side()), LOOPBACK, port)
    await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("broker", type=int)
    parser.add_argument("port", type=int)
    arguments = parser.parse_args()
    uvloop.run(relay(arguments.broker, arguments.port))
