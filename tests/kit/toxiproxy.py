"""toxiproxy: a TCP proxy that adds what networks do. The server is Go's, driven through toxiproxy-python.

    with ToxiproxyServer() as toxiproxy:
        port = toxiproxy.proxy("broker-0", upstream_port=19092)
        toxiproxy.add_latency("broker-0", 20)
        toxiproxy.add("broker-0", "reset_peer", timeout=100)

Its latency delays the stream, it does not serialize: five requests in flight are all 20 ms late, not 100.
toxiproxy-python keeps the server's port in a class attribute, so that one server at a time can be driven.

All of its toxics are at hand (`add`). A toxic that drops bytes (timeout) closes the connections it was on when it is
removed, for what went missing would be a hole in the stream.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from toxiproxy import Toxiproxy  # type: ignore[import-untyped]

from tests.kit.paths import program
from tests.kit.ports import LOOPBACK, accepts, free_port
from tests.kit.server import Server

Stream = Literal["downstream", "upstream"]


class ToxiproxyServer:
    def __init__(self) -> None:
        self.port = free_port()
        self._api = Toxiproxy()
        self._server: Server | None = None

    def start(self) -> Self:
        log = Path(tempfile.mkdtemp(prefix="toxiproxy-")) / "toxiproxy.log"
        command = [str(program("toxiproxy-server")), "-host", LOOPBACK, "-port", str(self.port)]
        self._server = Server("toxiproxy", command, log)
        self._server.wait_until(lambda: accepts(self.port), 30)
        self._api.update_api_consumer(LOOPBACK, self.port)
        return self

    def proxy(self, name: str, upstream_port: int, listen: str = "") -> int:
        """Makes a proxy before a port of this machine; the port on which it listens, that of `listen` (host:port)."""
        address = listen or f"{LOOPBACK}:{free_port()}"
        self._api.create(upstream=f"{LOOPBACK}:{upstream_port}", name=name, listen=address)
        return int(address.rpartition(":")[2])

    def add_latency(self, name: str, milliseconds: int, jitter: int = 0) -> None:
        """What the upstream answers arrives that much later."""
        self.add(name, "latency", latency=milliseconds, jitter=jitter)

    def remove_latency(self, name: str) -> None:
        self.remove(name, "latency")

    def add(self, name: str, toxic: str, stream: Stream = "downstream", **attributes: int) -> None:
        """A toxic by toxiproxy's names, one of a kind and direction. `downstream`: what the upstream answers."""
        self._api.get_proxy(name).add_toxic(name=f"{toxic}-{stream}", type=toxic, stream=stream, attributes=attributes)

    def remove(self, name: str, toxic: str, stream: Stream = "downstream") -> None:
        self._api.get_proxy(name).destroy_toxic(f"{toxic}-{stream}")

    def cut(self, name: str) -> None:
        """Drops every connection and takes no new one, until `mend`."""
        self._api.get_proxy(name).disable()

    def mend(self, name: str) -> None:
        self._api.get_proxy(name).enable()

    def stop(self) -> None:
        if self._server is not None:
            self._server.terminate()
            shutil.rmtree(self._server.log.parent)
            self._server = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()
