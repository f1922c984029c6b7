"""toxiproxy: a TCP proxy that adds what networks do. The server is Go's, driven through toxiproxy-python.

    with ToxiproxyServer() as toxiproxy:
        port = toxiproxy.proxy("broker-0", upstream_port=19092)
        toxiproxy.add_latency("broker-0", 20)

Its latency delays the stream, it does not serialize: five requests in flight are all 20 ms late, not 100.
toxiproxy-python keeps the server's port in a class attribute, so that one server at a time can be driven.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from toxiproxy import Toxiproxy  # type: ignore[import-untyped]

from tests.kit.paths import program
from tests.kit.ports import LOOPBACK, accepts, free_port
from tests.kit.server import Server


class ToxiproxyServer:
    def __init__(self) -> None:
        self.port = free_port()
        self._ports: dict[str, int] = {}
        self._api = Toxiproxy()
        self._server: Server | None = None

    def start(self) -> Self:
        log = Path(tempfile.mkdtemp(prefix="toxiproxy-")) / "toxiproxy.log"
        command = [str(program("toxiproxy-server")), "-host", LOOPBACK, "-port", str(self.port)]
        self._server = Server("toxiproxy", command, log)
        self._server.wait_until(lambda: accepts(self.port), 10)
        self._api.update_api_consumer(LOOPBACK, self.port)
        return self

    def proxy(self, name: str, upstream_port: int) -> int:
        """Makes a proxy before a port of this machine; the port on which it listens."""
        port = free_port()
        self._api.create(upstream=f"{LOOPBACK}:{upstream_port}", name=name, listen=f"{LOOPBACK}:{port}")
        self._ports[name] = port
        return port

    def add_latency(self, name: str, milliseconds: int, jitter: int = 0) -> None:
        """What the upstream answers arrives that much later."""
        attributes = {"latency": milliseconds, "jitter": jitter}
        self._api.get_proxy(name).add_toxic(name="latency", type="latency", attributes=attributes)

    def remove_latency(self, name: str) -> None:
        self._api.get_proxy(name).destroy_toxic("latency")

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
