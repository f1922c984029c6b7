"""Sockets on their way from one process to another, over a pair of Unix sockets of their own.

    how many (4 bytes, big endian), then a byte for each AT_ONCE of them, with their descriptors (SCM_RIGHTS)

In: sockets. Out: the same, as others that the receiver owns: whoever hands them over keeps its own.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterable, Sequence
from typing import Final

AT_ONCE: Final = 200
"""Linux takes 253."""
_COUNT: Final = struct.Struct(">I")


def hand(over: socket.socket, sockets: Sequence[socket.socket]) -> None:
    """Never waits long: the other side reads, or there is room for a whole fleet's. Raises OSError."""
    over.sendall(_COUNT.pack(len(sockets)))
    for at in range(0, len(sockets), AT_ONCE):
        socket.send_fds(over, [b"."], [each.fileno() for each in sockets[at : at + AT_ONCE]])


def take(over: socket.socket) -> list[socket.socket]:
    """Wait for what is handed over next. Raises OSError, which TimeoutError is one of."""
    found: list[socket.socket] = []
    try:
        (count,) = _COUNT.unpack(_exactly(over, _COUNT.size))
        while len(found) < count:
            data, descriptors, _, _ = socket.recv_fds(over, 1, AT_ONCE)
            found += [_own(descriptor) for descriptor in descriptors]
            if not data or not descriptors:
                raise ConnectionError("the other side has left")
    except OSError:
        close(found)
        raise
    return found


def close(sockets: Iterable[socket.socket]) -> None:
    """All of them."""
    for each in sockets:
        each.close()


def _own(descriptor: int) -> socket.socket:
    os.set_inheritable(descriptor, False)  # noqa: FBT003 - it has no keyword
    return socket.socket(fileno=descriptor)


def _exactly(over: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = over.recv(size - len(data))
        if not more:
            raise ConnectionError("the other side has left")
        data += more
    return data
