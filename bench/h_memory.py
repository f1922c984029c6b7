"""h. Memory: what an idle connection costs, and what is held before a broker that takes requests and never answers."""

from __future__ import annotations

import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from time import monotonic, sleep
from typing import Final

from bench.report import Section, Table
from bench.wire_frames import Kind, frames
from bench.wire_load import Load, background
from bench.wired import codecs, forebay, sink
from tests.kit.memory import resident
from tests.kit.ports import LOOPBACK

IDLE: Final = 2_000
CLIENTS: Final = 400
DEPTH: Final = 8
SIZE: Final = 16_384
TIMEOUT_MS: Final = 5_000
"""Clients are answered REQUEST_TIMED_OUT after it and send again: so they keep producing."""
MB: Final = 1 << 20
_ASKS: Final[dict[str, Kind]] = {"one Produce request": "produce", "one opaque request": "opaque"}


def run(short: bool) -> Section:
    idle, seconds = (200, 20.0) if short else (IDLE, 600.0)
    return Section(
        "h",
        "Memory",
        [
            f"Resident memory of Forebay (one worker, codecs {codecs()}) before and after {idle:,} connections that "
            "have done what stands there and are idle now.",
            Table(["", "before", "after", "KB a connection"], [_idle(does, idle) for does in ("nothing", *_ASKS)]),
            _stalled(seconds, 32 * MB if not short else 16 * MB),
        ],
    )


def _idle(does: str, connections: int) -> list[object]:
    """The opaque request opens a connection of the client's own to its broker; that one stays, too."""
    with sink() as broker, forebay(broker) as proxy, ExitStack() as clients:
        _one_each(clients, proxy.node_port(0), does, 10)  # what the first ones bring with them is not the connections'
        before = resident(proxy.pid)
        _one_each(clients, proxy.node_port(0), does, connections)
        after = resident(proxy.pid)
    return [does, f"{before / MB:.1f} MB", f"{after / MB:.1f} MB", f"{(after - before) / connections / 1024:.1f}"]


def _one_each(clients: ExitStack, port: int, does: str, connections: int) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    sockets = [clients.enter_context(socket.create_connection((LOOPBACK, port), 20)) for _ in range(connections)]
    if does in _ASKS:
        ready = frames(_ASKS[does], SIZE)
        for number, client in enumerate(sockets):
            client.sendall(ready[number % len(ready)])
            client.recv(1 << 16)


def _stalled(seconds: float, buffer_memory: int) -> str:
    with sink(stall=True) as broker, _forebay(broker, buffer_memory) as (port, pid):
        before = resident(pid)
        load = Load(port, "produce", SIZE, CLIENTS, DEPTH, seconds, warm_up=0)
        seen = []
        with background(load):
            until = monotonic() + seconds
            while monotonic() < until:
                seen.append(resident(pid))
                sleep(seconds / 200)
    third = len(seen) // 3
    grown = max(seen) - before - buffer_memory
    parts = (seen[:third], seen[third : 2 * third], seen[2 * third :])
    return (
        f"A stalled broker: {CLIENTS} clients keep {DEPTH} requests of 16 KB each under way for {seconds:.0f} s, "
        f"{CLIENTS * DEPTH * SIZE // MB} MB together, and are answered REQUEST_TIMED_OUT every "
        f"{TIMEOUT_MS // 1000} s. buffer.memory {buffer_memory // MB} MB; resident before {before / MB:.1f} MB, at "
        f"most {max(seen) / MB:.1f} MB: buffer.memory and {grown / MB:.1f} MB, which is "
        f"{grown / CLIENTS / 1024:.0f} KB a client (what it sent and the kernel gave in one read waits with it). "
        "At most in each third of the time: " + ", ".join(f"{max(part) / MB:.1f} MB" for part in parts) + "."
    )


@contextmanager
def _forebay(broker: int, buffer_memory: int) -> Iterator[tuple[int, int]]:
    settings = {
        "buffer.memory": str(buffer_memory),
        "request.timeout.ms": str(TIMEOUT_MS),
        "shutdown.timeout.ms": "1000",
    }
    proxy = forebay(broker, **settings).start()
    try:
        yield proxy.node_port(0), proxy.pid
    finally:
        proxy.kill()  # before a broker that never answers there is no clean end
