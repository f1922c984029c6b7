"""HTTP over a Unix socket, to a server of the standard library."""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from forebay_proxy.commands.socket_http import SocketConnection


class _Told(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = f"{self.path} at {self.headers['Host']}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_request(self, *_: object) -> None:
        """Nowhere."""


@pytest.fixture
def path(tmp_path: Path) -> Iterator[str]:
    path = str(tmp_path / "s")
    with socketserver.ThreadingUnixStreamServer(path, _Told) as server:
        serving = threading.Thread(target=server.serve_forever, args=(0.01,))
        serving.start()
        yield path
        server.shutdown()
        serving.join()


def test_it_is_http(path: str) -> None:
    connection = SocketConnection(path, connect_s=10, answer_s=10)
    connection.request("GET", "/clients?a=b")
    assert connection.getresponse().read() == b"/clients?a=b at localhost"
    connection.close()


def test_who_does_not_answer_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(path)
        silent.listen()
        connection = SocketConnection(path, connect_s=10, answer_s=0.05)
        connection.request("GET", "/")
        with pytest.raises(TimeoutError):
            connection.getresponse()
        connection.close()


def test_nobody_is_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        SocketConnection(str(tmp_path / "s"), connect_s=10, answer_s=10).request("GET", "/")
