"""File descriptors: as many as the system allows, and no more clients than they are enough for.

In: how many clients may connect. Out: how many may, with the limit raised as far as it goes. Each client takes up to
two descriptors, its own connection and one to its broker; an eighth of all, and RESERVED at least, are kept for
brokers, listeners and the admin endpoint, so that no number of clients takes these. A broker that is slow has some
twenty, and more where client ids or users are kept apart: an eighth of 4,096 is enough for 20 such brokers.
"""

from __future__ import annotations

import array
import asyncio
import fcntl
import os
import resource
import select
import socket
import struct
import termios
from contextlib import suppress
from typing import Final

from forebay_proxy.clients.tls_session import RECORD_HEADER, is_farewell
from forebay_proxy.clients.tls_transport import TlsTransport
from forebay_proxy.logs import get_logger

RESERVED: Final = 200
SHARE: Final = 8
"""One of so many is kept at least, and so is for what else is asked for, at most."""
ENOUGH: Final = 1 << 21
"""Where the system sets no limit, nobody needs one beyond this: some programs look at each descriptor below it."""


def raise_limit(max_connections: int, more: int = 0) -> int:
    """Raise the soft limit to the hard one; the number of clients that it is enough for, at most `max_connections`.

    `more` descriptors are kept beside those for brokers, but at most an eighth of all.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = ENOUGH if hard == resource.RLIM_INFINITY else min(hard, ENOUGH)
    if soft != resource.RLIM_INFINITY and soft < limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    else:
        limit = ENOUGH if soft == resource.RLIM_INFINITY else soft
    enough_for = room(limit, more)
    if enough_for < max_connections:
        get_logger().warning(
            "too few file descriptors for max.connections: fewer clients are let in",
            max_connections=max_connections,
            let_in=enough_for,
            descriptors=limit,
        )
    return min(enough_for, max_connections)


def room(limit: int, more: int = 0) -> int:
    """How many clients `limit` descriptors are enough for, with `more` kept as above."""
    share = limit // SHARE
    return max(1, (limit - max(RESERVED, share) - min(more, share)) // 2)


def unread(transport: asyncio.BaseTransport) -> int:
    """Bytes that have arrived and wait in the system's buffer."""
    return _bytes(transport, termios.FIONREAD)


def unconfirmed(transport: asyncio.BaseTransport) -> int:
    """Bytes that were handed to the system, and that the other side's has not confirmed."""
    return _bytes(transport, termios.TIOCOUTQ)


def reset(transport: asyncio.Transport) -> None:
    """End it as the system of a process that is gone does: by a reset, and not as one that has no more to say."""
    connection = transport.get_extra_info("socket")
    if connection is not None:
        with suppress(OSError, ValueError), socket.socket(fileno=os.dup(connection.fileno())) as twin:
            twin.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()


def _bytes(transport: asyncio.BaseTransport, of: int) -> int:
    size = array.array("i", [0])
    connection = transport.get_extra_info("socket")  # None: of one with TLS that has just ended
    if connection is not None:
        with suppress(OSError, ValueError):  # it is being closed
            fcntl.ioctl(connection.fileno(), of, size)
    return size[0]


def sends_no_more(transport: asyncio.BaseTransport) -> bool:
    """Whether the other side closed or reset the connection, or its sending half; what it sent may not be read yet."""
    connection = transport.get_extra_info("socket")
    if connection is None:  # of one with TLS that has just ended
        return False
    poll = select.poll()
    try:
        poll.register(connection.fileno(), select.POLLRDHUP)
    except (OSError, ValueError):  # it is being closed
        return False
    return bool(poll.poll(0))


def hung_up(transport: asyncio.BaseTransport, needed: int = 0) -> bool:
    """Whether the other side is gone for good: it closed or reset the connection, and all that it sent is read.

    So it is where less is left than the bytes that are `needed`.
    """
    if not sends_no_more(transport):
        return False
    left = unread(transport)
    return left < max(1, needed) or (isinstance(transport, TlsTransport) and _is_farewell(transport, left))


def _is_farewell(transport: asyncio.BaseTransport, size: int) -> bool:
    """Whether the `size` bytes that are unread are TLS's close_notify alone, which says no more than closing does."""
    if size > 128:
        return False
    try:
        with socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno())) as peeking:
            start = peeking.recv(RECORD_HEADER, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except OSError:  # it is being closed
        return False
    return is_farewell(start, size)
