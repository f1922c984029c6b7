"""e. What Forebay adds to a request's time at a low rate: 500 requests/s, 1 KB and 16 KB, opaque and produced.

One connection each way, in turns: a request directly, a fraction of a millisecond later the same through a bare relay,
then through Forebay. So all meet the same machine, and none meets a queue. Blocking sockets in this process: nothing of
an event loop is in the figures. What the relay adds is what two more processes' waking costs on this machine.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Sequence
from random import Random
from time import perf_counter
from typing import Final, Self

from bench.report import Section, Table
from bench.wire_frames import Kind, frames
from bench.wire_load import percentile
from bench.wired import codecs, forebay, relay, sink
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

    def __init__(self, port: int, tls: ssl.SSLContext | None = None) -> None:
        self._socket = socket.create_connection((LOOPBACK, port), 10)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            self._socket = tls.wrap_socket(self._socket, server_hostname=LOOPBACK)

    def ask(self, frame: bytes) -> float:
        """Seconds. Raises OSError where no answer comes."""
        began = perf_counter()
        self._socket.sendall(frame)
        answer = b""
        while len(answer) < 4 or len(answer) < 4 + int.from_bytes(answer[:4], "big"):
            if not (more := self._socket.recv(1 << 16)):
                raise ConnectionError("the connection was closed before the answer")
            answer += more
        return perf_counter() - began

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def run(short: bool) -> Section:
    seconds = 2 if short else 20
    with sink() as broker, relay(broker) as (bare, _), forebay(broker) as proxy:
        ports = (broker, bare, proxy.node_port(0))
        rows = [_row(kind, size, value, ports, seconds) for kind, size, value in CASES]
    what = (
        f"{RATE} requests/s each way for {seconds} s, one after the other on one connection each, in any order, "
        "directly, through a bare relay that only passes bytes on (`bench/wire_relay.py`: what a hop costs on this "
        f"machine) and through Forebay; microseconds. The broker is a sink that answers at once. Codecs: {codecs()}."
    )
    head = [
        *("", "direct p50", "p99", "relay p50", "p99", "Forebay p50", "p99"),
        *("added by a relay p50", "by Forebay p50", "by Forebay p99", "target (p50)"),
    ]
    return Section("e", "Added latency at a low rate", [what, Table(head, rows)])


def _row(kind: Kind, size: int, value: int, ports: Sequence[int], seconds: int) -> list[object]:
    """`ports`: the broker's, the relay's, Forebay's."""
    found = in_turns(frames(kind, size, value), ports, seconds * RATE)
    p50, p99 = ([percentile(waits, share) for waits in found] for share in (0.5, 0.99))
    added = p50[2] - p50[0]
    target = f"< {TARGETS[kind]:.0f}: {'met' if added < TARGETS[kind] else 'missed'}"
    measured = [number for pair in zip(p50, p99, strict=True) for number in pair]
    numbers = (*measured, p50[1] - p50[0], added, p99[2] - p99[0])
    return [f"{kind}, {size // 1024} KB", *(f"{number:,.0f}" for number in numbers), target]


def in_turns(ready: Sequence[bytes], ports: Sequence[int], requests: int) -> list[list[float]]:
    """`over` new connections to each of the ports."""
    lines = [Line(port) for port in ports]
    found = over(lines, ready, requests)
    for line in lines:
        line.close()
    return found


def over(lines: Sequence[Line], ready: Sequence[bytes], requests: int) -> list[list[float]]:
    """Microseconds of each request on each of the lines, ascending; RATE requests/s on each of them.

    The lines come in another order each time: whoever is asked behind one that has used much cache pays for it.
    """
    waits: list[list[float]] = [[] for _ in lines]
    ways = list(range(len(lines)))
    rng = Random(1)
    step = 1 / RATE / len(lines)
    due = perf_counter()
    for number in range(requests):
        rng.shuffle(ways)
        for way in ways:
            due = max(due + step, perf_counter())
            time.sleep(max(0.0, due - perf_counter()))
            waits[way].append(1e6 * lines[way].ask(ready[number % len(ready)]))
    return [sorted(found[int(WARM_UP * len(found)) :]) for found in waits]
