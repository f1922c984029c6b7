"""e. What Forebay adds to a request's time at a low rate: 500 requests/s, 1 KB and 16 KB, opaque and produced.

One connection each way, in turns: a request directly, a millisecond later the same through Forebay. So both meet the
same machine, and neither meets a queue. Blocking sockets in this process: nothing of an event loop is in the figures.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from time import perf_counter
from typing import Final

from bench.report import Section, Table
from bench.wire_frames import Kind, frames
from bench.wire_load import percentile
from bench.wired import codecs, forebay, sink
from tests.kit.ports import LOOPBACK

RATE: Final = 500
WARM_UP: Final = 0.1
"""Of a run's requests, not counted."""
TARGETS: Final[dict[Kind, float]] = {"opaque": 60, "produce": 250}
"""µs at p50."""
CASES: Final[Sequence[tuple[Kind, int, int]]] = (
    ("opaque", 1_024, 0),
    ("opaque", 16_384, 0),
    ("produce", 1_024, 900),
    ("produce", 16_384, 512),
)
"""Kind, bytes, bytes of a record's value."""


class Line:
    """A connection that sends a frame and waits for its answer."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection((LOOPBACK, port), 10)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, frame: bytes) -> float:
        """Seconds."""
        began = perf_counter()
        self._socket.sendall(frame)
        answer = self._socket.recv(1 << 16)
        while len(answer) < 4 + int.from_bytes(answer[:4], "big"):
            answer += self._socket.recv(1 << 16)
        return perf_counter() - began

    def close(self) -> None:
        self._socket.close()


def run(short: bool) -> Section:
    seconds = 2 if short else 20
    with sink() as broker, forebay(broker) as proxy:
        rows = [_row(kind, size, value, broker, proxy.node_port(0), seconds) for kind, size, value in CASES]
    what = (
        f"{RATE} requests/s each way for {seconds} s, one after the other on one connection each, directly and through "
        f"Forebay in turns; microseconds. The broker is a sink that answers at once. Codecs: {codecs()}."
    )
    head = ["", "direct p50", "p99", "through p50", "p99", "added p50", "added p99", "target (p50)"]
    return Section("e", "Added latency at a low rate", [what, Table(head, rows)])


def _row(kind: Kind, size: int, value: int, broker: int, proxy: int, seconds: int) -> list[object]:
    direct, through = in_turns(frames(kind, size, value), (broker, proxy), seconds * RATE)
    p50, p99 = ([percentile(waits, share) for waits in (direct, through)] for share in (0.5, 0.99))
    added = p50[1] - p50[0]
    target = f"< {TARGETS[kind]:.0f}: {'met' if added < TARGETS[kind] else 'missed'}"
    numbers = (p50[0], p99[0], p50[1], p99[1], added, p99[1] - p99[0])
    return [f"{kind}, {size // 1024} KB", *(f"{number:,.0f}" for number in numbers), target]


def in_turns(ready: Sequence[bytes], ports: Sequence[int], requests: int) -> list[list[float]]:
    """Microseconds of each request on each of the ports, ascending; RATE requests/s on each of them."""
    lines = [Line(port) for port in ports]
    waits: list[list[float]] = [[] for _ in ports]
    step = 1 / RATE / len(ports)
    due = perf_counter()
    for number in range(requests * len(ports)):
        due = max(due + step, perf_counter())
        time.sleep(max(0.0, due - perf_counter()))
        way = number % len(ports)
        waits[way].append(1e6 * lines[way].ask(ready[number // len(ports) % len(ready)]))
    for line in lines:
        line.close()
    return [sorted(found[int(WARM_UP * len(found)) :]) for found in waits]
