"""Forebay, or a bare relay, before a sink broker, each a process of its own: what the wire loads of e, f and h meet.

with sink() as broker, forebay(broker) as proxy:
    offer(Load(proxy.node_port(0), "produce", …, pids=(proxy.pid,)))
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from forebay_codecs import records
from tests.kit.forebay import ForebayProcess
from tests.kit.ports import LOOPBACK, accepts, free_port
from tests.kit.server import Server


@contextmanager
def sink(stall: bool = False) -> Iterator[int]:
    """A broker of wire_sink; its port."""
    port = free_port()
    with _listening("wire_sink", port, [str(port), *(["--stall"] if stall else [])]):
        yield port


@contextmanager
def relay(broker: int) -> Iterator[tuple[int, int]]:
    """A relay of wire_relay before the broker at that port; its port and its pid."""
    port = free_port()
    with _listening("wire_relay", port, [str(broker), str(port)]) as server:
        yield port, server.pid


@contextmanager
def _listening(module: str, port: int, arguments: list[str]) -> Iterator[Server]:
    with tempfile.TemporaryDirectory() as directory:
        server = Server(module, [sys.executable, "-m", f"bench.{module}", *arguments], Path(directory, "log"))
        try:
            server.wait_until(lambda: accepts(port), 20)
            yield server
        finally:
            server.kill()


def forebay(broker: int, **settings: str) -> ForebayProcess:
    """Before the broker at that port. It runs the modules that this interpreter runs: see `codecs`."""
    return ForebayProcess(f"{LOOPBACK}:{broker}", [0], settings=settings)


def codecs() -> str:
    """How the codecs run here, and so in Forebay: numbers of the one say nothing of the other."""
    return "pure Python" if str(records.__file__).endswith(".py") else "compiled"
