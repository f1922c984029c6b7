"""HAProxy before several Forebays: a balancer of TCP connections, as most put one before proxies.

    with Haproxy({"127.0.0.1:9092": [Target("a", 19092, 9191), Target("b", 29092, 9291)]}) as balancer:
        …

Each address that it listens on has targets of its own. A target gets connections while its Forebay's /readyz answers
200, the one with the fewest first; connections that stand are left alone, until `hop` ends them.
"""

from __future__ import annotations

import shutil
import socket
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from tests.kit.paths import program
from tests.kit.ports import LOOPBACK, accepts
from tests.kit.server import Server, ServerFailed

_CHECK_MS = 200
_HEAD = """
global
  maxconn 4000
defaults
  mode tcp
  log stdout format raw daemon notice
  timeout connect 2s
  timeout client 350s
  timeout server 350s
  retries 3
  option redispatch
  option httpchk GET /readyz
"""


def _section(way: str) -> str:
    return way.replace(":", "_")


class Target(NamedTuple):
    """A Forebay's port, and that of its admin endpoint. It need not run yet."""

    name: str
    port: int
    admin_port: int


class Haproxy:
    """Listens on `ways`, host:port → targets, while it is entered. Some of them are on 127.0.0.1."""

    def __init__(self, ways: Mapping[str, Sequence[Target]]) -> None:
        self._ways = ways
        self._folder = Path(tempfile.mkdtemp(prefix="haproxy-"))
        self._server: Server | None = None

    def __enter__(self) -> Self:
        config = self._folder / "haproxy.cfg"
        admin = f"global\n  stats socket {self._folder / 'admin'} level admin\n"
        config.write_text(admin + _HEAD + "".join(map(self._listen, self._ways)))
        command = [str(program("haproxy")), "-db", "-f", str(config)]
        self._server = Server("haproxy", command, self._folder / "haproxy.log")
        ports = [int(port) for host, _, port in (way.rpartition(":") for way in self._ways) if host == LOOPBACK]
        self._server.wait_until(lambda: all(map(accepts, ports)), 10)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._server is not None:
            self._server.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def hop(self, to: str) -> None:
        """From now on all connections go to the targets of that name; those to others are ended."""
        for way, targets in self._ways.items():
            for target in targets:
                server = f"{_section(way)}/{target.name}"
                self._tell(f"set server {server} state {'ready' if target.name == to else 'maint'}")
            for target in targets:
                if target.name != to:
                    self._tell(f"shutdown sessions server {_section(way)}/{target.name}")

    def _tell(self, command: str) -> None:
        with socket.socket(socket.AF_UNIX) as admin:
            admin.connect(str(self._folder / "admin"))
            admin.sendall(f"{command}\n".encode())
            answer = b"".join(iter(lambda: admin.recv(4096), b"")).strip()
        if answer:  # what is not understood is answered; what is done is not
            raise ServerFailed(f"haproxy, {command}: {answer.decode()}")

    def _listen(self, way: str) -> str:
        lines = [f"listen {_section(way)}", f"  bind {way}", "  balance leastconn"]
        lines += [
            f"  server {name} {LOOPBACK}:{port} check port {admin} inter {_CHECK_MS}ms fall 1 rise 1"
            for name, port, admin in self._ways[way]
        ]
        return "\n".join([*lines, ""])
