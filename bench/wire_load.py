"""A load that costs little: `python -m bench.wire_load '{…Load as JSON…}'`, a process of its own; prints an Outcome.

`connections` to one port, each with `depth` requests under way: an answer is followed by the next request at once. With
a `rate` requests are sent when they are due, by each connection in turn, unless all have `depth` under way.
Frames are made beforehand (wire_frames); answers are read in place, in their order, and must not refuse anything.
What happens in the first `warm_up` seconds is not counted; `pids` are the processes whose CPU time is. With `tls` the
connections speak it, and believe every certificate: that would be the load's CPU, not the proxy's.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import subprocess
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, process_time
from typing import cast

import msgspec
import uvloop

from bench.wire_frames import FRAMES, Kind, frames, refused
from tests.kit.ports import LOOPBACK

_PREFIX = 4
_TICK_S = 0.001


class Load(msgspec.Struct, frozen=True):
    port: int
    kind: Kind
    size: int
    connections: int
    depth: int
    seconds: float
    value_size: int = 512
    warm_up: float = 1.0
    pids: tuple[int, ...] = ()
    rate: float = 0.0
    """Requests a second, of all connections together; 0: as fast as they are answered."""
    tls: bool = False


class Outcome(msgspec.Struct, frozen=True):
    """Of the counted time. Latencies in ms; CPU in seconds, that of `pids` together and the load's own."""

    requests: int
    refused: int
    seconds: float
    cpu: float
    own_cpu: float
    p50: float
    p99: float

    @property
    def rate(self) -> float:
        return self.requests / self.seconds


class _Count:
    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.requests = 0
        self.refused = 0
        self.waits: list[float] = []


class _Connection(asyncio.BufferedProtocol):
    def __init__(self, load: Load, ready: list[bytes], count: _Count, ended: asyncio.Future[None]) -> None:
        self._load = load
        self._frames = ready
        self._count = count
        self._ended = ended
        self._next = 0
        self._sent: deque[float] = deque()
        self._buffer = bytearray(max(1 << 16, 4 * load.size))
        self._filled = 0
        self._transport: asyncio.Transport | None = None

    @property
    def idle(self) -> bool:
        return len(self._sent) < self._load.depth

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def send(self, requests: int) -> None:
        assert self._transport is not None
        first = self._next
        self._next = (first + requests) % FRAMES
        self._sent.extend([monotonic()] * requests)
        out = [self._frames[(first + number) % FRAMES] for number in range(requests)]
        self._transport.writelines(out)

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._buffer)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        buffer, filled = self._buffer, self._filled
        now = monotonic()
        pos = answers = 0
        while filled - pos >= _PREFIX:
            end = pos + _PREFIX + int.from_bytes(buffer[pos : pos + _PREFIX], "big")
            if end > filled:
                break
            self._count.refused += refused(self._load.kind, buffer, pos + _PREFIX)
            self._count.waits.append(now - self._sent.popleft())
            answers += 1
            pos = end
        if answers:
            buffer[: filled - pos] = buffer[pos:filled]
            self._filled = filled - pos
            self._count.requests += answers
            if not self._load.rate:
                self.send(answers)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._ended.done():
            self._ended.set_exception(exc or ConnectionError("the connection was closed"))


async def run(load: Load) -> Outcome:
    loop = asyncio.get_running_loop()
    ended = loop.create_future()
    count = _Count()
    ready = frames(load.kind, load.size, load.value_size)
    connections = []
    context = believing() if load.tls else None
    for _ in range(load.connections):
        _, connection = await loop.create_connection(
            lambda: _Connection(load, ready, count, ended), LOOPBACK, load.port, ssl=context
        )
        connections.append(connection)
    if load.rate:
        pace = loop.create_task(_paced(load.rate, connections))
        ended.add_done_callback(lambda _: pace.cancel())
    else:
        for connection in connections:
            connection.send(load.depth)
    await asyncio.wait([ended], timeout=load.warm_up)
    count.clear()
    began, cpu, own = monotonic(), cpu_seconds(load.pids), process_time()
    await asyncio.wait([ended], timeout=load.seconds)
    seconds, cpu, own = monotonic() - began, cpu_seconds(load.pids) - cpu, process_time() - own
    if ended.done():
        ended.result()
    ended.cancel()
    waits = sorted(count.waits) or [0.0]
    p50, p99 = (1000 * percentile(waits, share) for share in (0.5, 0.99))
    return Outcome(count.requests, count.refused, seconds, cpu, own, p50, p99)


async def _paced(rate: float, connections: Sequence[_Connection]) -> None:
    began, sent = monotonic(), 0
    while True:
        due = int((monotonic() - began) * rate)
        for number in range(sent, due):
            connection = connections[number % len(connections)]
            if connection.idle:
                connection.send(1)
        sent = due
        await asyncio.sleep(_TICK_S)


def believing() -> ssl.SSLContext:
    """For a client that takes any certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def percentile(ascending: Sequence[float], share: float) -> float:
    return ascending[int(share * (len(ascending) - 1))]


def cpu_seconds(pids: Iterable[int]) -> float:
    """User and system time of these processes so far, all threads."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])  # utime, stime; the state is field 0
    return ticks / os.sysconf("SC_CLK_TCK")


def offer(load: Load) -> Outcome:
    """The load from a process of its own. Raises RuntimeError where it breaks off or a record is refused."""
    ended = subprocess.run(_command(load), capture_output=True, stdin=subprocess.DEVNULL, timeout=60 + 3 * load.seconds)
    if ended.returncode:
        raise RuntimeError(f"{load} broke off:\n{ended.stderr.decode()}")
    outcome = msgspec.json.decode(ended.stdout, type=Outcome)
    if outcome.refused:
        raise RuntimeError(f"{load}: {outcome.refused} requests were refused")
    return outcome


@contextmanager
def background(load: Load) -> Iterator[None]:
    """The load while the caller does something else, whatever becomes of its requests."""
    process = subprocess.Popen(
        _command(load), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield
    finally:
        process.kill()
        process.wait()


def _command(load: Load) -> list[str]:
    return [sys.executable, "-m", "bench.wire_load", msgspec.json.encode(load).decode()]


if __name__ == "__main__":
    found = uvloop.run(run(msgspec.json.decode(sys.argv[1], type=Load)))
    print(msgspec.json.encode(found).decode())
