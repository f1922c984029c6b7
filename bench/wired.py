"""Forebay, or a bare relay, before a sink broker, each a process of its own: what the wire loads of e, f and h meet.

with sink() as broker, forebay(broker) as proxy:
    offer(Load(proxy.node_port(0), "produce", …, pids=(proxy.pid,)))

with certificates() as tls, sink(tls=tls) as broker, forebay_with_tls(broker, tls, **tls.toward_brokers) as proxy:
    offer(Load(proxy.tls_port + 1, "produce", …, tls=True))
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from forebay_codecs import records
from tests.kit.certificates import Authority
from tests.kit.forebay import ForebayProcess
from tests.kit.ports import LOOPBACK, accepts, free_port
from tests.kit.server import Server


class Tls(NamedTuple):
    """PEM files: the authority's certificate, and what it signed for LOOPBACK, with its key (ECDSA, P-256)."""

    authority: str
    keystore: str

    @property
    def toward_brokers(self) -> dict[str, str]:
        """Settings of a Forebay before a broker that has this certificate."""
        return {"security.protocol": "SSL", "ssl.truststore.location": self.authority}

    @property
    def toward_clients(self) -> dict[str, str]:
        """Settings of its listener with TLS."""
        return {"ssl.keystore.location": self.keystore}


@contextmanager
def certificates() -> Iterator[Tls]:
    """Made for this run."""
    with tempfile.TemporaryDirectory(prefix="certificates-") as folder:
        authority = Authority(Path(folder))
        yield Tls(str(authority.pem), str(authority.issue("keystore", LOOPBACK)))


@contextmanager
def sink(stall: bool = False, wide: int = 0, tls: Tls | None = None) -> Iterator[int]:
    """A broker of wire_sink, which may speak TLS; its port."""
    port = free_port()
    words = [str(port), "--wide", str(wide), *(["--stall"] if stall else [])]
    with _listening("wire_sink", port, [*words, *(["--keystore", tls.keystore] if tls else [])]):
        yield port


@contextmanager
def relay(broker: int, *under: str) -> Iterator[tuple[int, int]]:
    """A relay of wire_relay before the broker at that port, run by a command `under` if any; its port and its pid."""
    port = free_port()
    with _listening("wire_relay", port, [str(broker), str(port)], under) as server:
        yield port, server.pid


@contextmanager
def _listening(module: str, port: int, arguments: list[str], under: Sequence[str] = ()) -> Iterator[Server]:
    with tempfile.TemporaryDirectory() as directory:
        command = [*under, sys.executable, "-m", f"bench.{module}", *arguments]
        server = Server(module, command, Path(directory, "log"))
        try:
            server.wait_until(lambda: accepts(port), 200 if under else 20)
            yield server
        finally:
            server.kill()


def forebay(broker: int, *under: str, **settings: str) -> ForebayProcess:
    """Before the broker at that port. It runs the modules that this interpreter runs: see `codecs`.

    `linger_ms="5"` is `--set linger.ms=5`; a command `under` which it runs, if any.
    """
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return ForebayProcess(f"{LOOPBACK}:{broker}", [0], settings=named, under=under)


def forebay_of_workers(broker: int, workers: int) -> ForebayProcess:
    """The same, in so many worker processes behind the same ports."""
    return ForebayProcess(f"{LOOPBACK}:{broker}", [0], options=["--workers", str(workers)])


def forebay_with_tls(broker: int, tls: Tls, **settings: str) -> ForebayProcess:
    """The same with a second listener, that speaks TLS: broker 0 is on `tls_port` + 1."""
    return ForebayProcess(f"{LOOPBACK}:{broker}", [0], settings=settings, tls=tls.toward_clients)


def codecs() -> str:
    """How the codecs run here, and so in Forebay: numbers of the one say nothing of the other."""
    return "pure Python" if str(records.__file__).endswith(".py") else "compiled"
