"""An event loop whose network is memory and whose clock moves only when there is nothing to do.

    loop = MemoryLoop(); loop.accept = lambda host, port: BrokerProtocol() | None (refused)
    with loop.clock_of(modules): …

Connections are pairs of transports that hand bytes over in the next turn. A wait of minutes takes no time, and the same
input does the same thing every time. Listening sockets are closed at once: clients are connected by hand.
"""

from __future__ import annotations

import asyncio
import selectors
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Final

HIGH_WATER: Final = 64 * 1024


class _Selector(selectors.DefaultSelector):
    """Waiting is what moves the clock."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("nothing to do, and nothing to wait for")
        self.now += max(0.0, timeout)
        return super().select(0)


AnyProtocol = asyncio.Protocol | asyncio.BufferedProtocol


class _NoSocket:
    def fileno(self) -> int:
        raise OSError("nothing of the system is behind it")

    def setsockopt(self, level: int, option: int, value: int) -> None: ...


class MemoryTransport(asyncio.Transport):
    """One end of a connection: delivers in order what its peer wrote, in a later turn, unless reading is paused."""

    def __init__(self, loop: asyncio.AbstractEventLoop, protocol: AnyProtocol) -> None:
        super().__init__({"sockname": ("127.0.0.1", 9092), "peername": ("127.0.0.1", 40_000), "socket": _NoSocket()})
        self._loop = loop
        self._protocol = protocol
        self._peer: MemoryTransport | None = None
        self._arrived: list[bytes] = []
        self._size = 0
        self._reading = True
        self._scheduled = False
        self._closing = False
        self._ended = False
        self._paused = False

    def connect(self, peer: MemoryTransport) -> None:
        self._peer, peer._peer = peer, self
        for side in (self, peer):
            side._protocol.connection_made(side)

    # What the protocol asks of it

    def write(self, data: bytes | bytearray | memoryview) -> None:
        peer = self._peer
        if self._closing or peer is None or peer._ended:
            return
        peer._arrived.append(bytes(data))
        peer._size += len(data)
        peer._wake()
        if peer._size > HIGH_WATER and not self._paused:
            self._paused = True
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        self.write(b"".join(list_of_data))

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        self._wake()

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._loop.call_soon(self._end, None)

    def abort(self) -> None:
        self.close()

    def get_write_buffer_size(self) -> int:
        return self._peer._size if self._peer is not None else 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    # Handing over

    def _wake(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._deliver)

    def _deliver(self) -> None:
        self._scheduled = False
        while self._arrived and self._reading and not self._closing:
            data = self._arrived.pop(0)
            if isinstance(self._protocol, asyncio.BufferedProtocol):
                buffer = memoryview(self._protocol.get_buffer(-1))
                data, rest = data[: len(buffer)], data[len(buffer) :]
                buffer[: len(data)] = data
                if rest:
                    self._arrived.insert(0, rest)
                self._size -= len(data)
                self._protocol.buffer_updated(len(data))
            else:
                self._size -= len(data)
                self._protocol.data_received(data)
        peer = self._peer
        if self._closing:
            self._arrived.clear()
            self._size = 0
        if peer is not None and peer._paused and not self._size:
            peer._paused = False
            peer._protocol.resume_writing()
        if peer is not None and peer._ended and not self._arrived:
            self.close()

    def _end(self, error: Exception | None) -> None:
        self._ended = True
        self._protocol.connection_lost(error)
        if self._peer is not None:
            self._peer._reading = True
            self._peer._wake()


class _NoServer:
    """What stands for a listening socket."""

    def close(self) -> None: ...


class MemoryLoop(asyncio.SelectorEventLoop):
    """Opens no socket, never really waits, and does the same for the same input.

    `accept` stands for the network; `escaped` collects exceptions that nobody caught.
    """

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)
        self.accept: Callable[[str, int], asyncio.Protocol | None] = lambda host, port: None
        self.escaped: list[Mapping[str, Any]] = []
        self.set_exception_handler(lambda _, context: self.escaped.append(context))

    def time(self) -> float:
        return self._virtual.now

    async def getaddrinfo(self, host: Any, port: Any, **_: Any) -> Any:
        """Every name is an address."""
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (host, port))]

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:
        await asyncio.sleep(0)
        broker = self.accept(host, port)
        if broker is None:
            raise ConnectionRefusedError(f"{host}:{port}")
        return self.pair(protocol_factory(), broker)

    def pair(self, one: AnyProtocol, other: AnyProtocol) -> tuple[MemoryTransport, AnyProtocol]:
        transport = MemoryTransport(self, one)
        transport.connect(MemoryTransport(self, other))
        return transport, one

    async def create_server(self, protocol_factory: Any, *_: Any, sock: Any = None, **__: Any) -> Any:
        assert isinstance(sock, socket.socket)
        sock.close()
        return _NoServer()

    @contextmanager
    def clock_of(self, modules: Iterable[ModuleType]) -> Iterator[None]:
        """Modules that took `monotonic` by name read this loop's clock."""
        before = [(module, module.__dict__["monotonic"]) for module in modules if "monotonic" in module.__dict__]
        for module, _ in before:
            module.__dict__["monotonic"] = self.time
        try:
            yield
        finally:
            for module, clock in before:
                module.__dict__["monotonic"] = clock
