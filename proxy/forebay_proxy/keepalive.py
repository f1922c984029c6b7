"""Keepalive of TCP, on every connection to a client or broker.

In: a socket. Out: from FIRST_PROBE_S of silence on the system asks whether the other side is there. So balancers and
firewalls, which forget a connection that is silent for some minutes (350 s is common), hear of one that is idle.
"""

from __future__ import annotations

import contextlib
import socket
from typing import Final, Protocol

FIRST_PROBE_S: Final = 60
"""Linux's own are 7,200."""

# macOS has the same under another name.
_IDLE: Final[int] = getattr(socket, "TCP_KEEPIDLE", getattr(socket, "TCP_KEEPALIVE", 0))


class Socket(Protocol):
    """A socket, or what a transport gives in its place."""

    def setsockopt(self, level: int, option: int, value: int, /) -> None:
        """As of socket.socket."""


def keep_alive(connection: Socket) -> None:
    """Probe it when it is silent. Of a listening socket: whatever is accepted from now on (Linux inherits it)."""
    with contextlib.suppress(OSError):  # it is being closed
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if _IDLE:
            connection.setsockopt(socket.IPPROTO_TCP, _IDLE, FIRST_PROBE_S)
