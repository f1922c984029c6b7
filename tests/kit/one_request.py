"""One request to the broker behind a port of this machine, on a connection of its own, without any client library."""

from __future__ import annotations

import socket

from tests.kit.ports import LOOPBACK

_SECONDS = 30


def ask(port: int, request: bytes) -> bytes:
    """The response to a request, both without their sizes; empty where the broker closes. Raises OSError."""
    with socket.create_connection((LOOPBACK, port), _SECONDS) as connection, connection.makefile("rb") as answers:
        connection.sendall(len(request).to_bytes(4, "big") + request)
        return answers.read(int.from_bytes(answers.read(4), "big"))
