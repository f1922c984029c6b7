"""HTTP over a Unix socket.

In: the socket's path. Out: connections that the standard library's client speaks on.
"""

from __future__ import annotations

import http.client
import socket


class SocketConnection(http.client.HTTPConnection):
    """To whoever listens at `path`. Raises TimeoutError where it takes longer than so many seconds."""

    def __init__(self, path: str, *, connect_s: float, answer_s: float) -> None:
        super().__init__("localhost", timeout=answer_s)
        self._path = path
        self._connect_s = connect_s
        self._answer_s = answer_s

    def connect(self) -> None:
        """Before the first request, by itself."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self._connect_s)
        self.sock.connect(self._path)
        self.sock.settimeout(self._answer_s)
