"""What TLS costs by itself where Python's own `ssl` does it: the records of a load through OpenSSL in memory.

A proxy deciphers each request and enciphers it again, and does the same with its answer. Here nothing else is done:
no socket, no loop, no frame is looked at.
"""

from __future__ import annotations

import ssl
from time import process_time
from typing import Any, Final, NamedTuple

from bench.wire_load import believing
from bench.wired import Tls

READ: Final = 64 * 1024
"""Ciphertext taken at once."""
_RECORD: Final = 17 * 1024
_ANSWER: Final = 60
"""Bytes of an answer to a request of one partition."""


class _Session(NamedTuple):
    """One side of a connection: what came, what goes, and the connection itself."""

    incoming: ssl.MemoryBIO
    outgoing: ssl.MemoryBIO
    tls: Any  # its types do not know that it reads into a buffer


class _Pair(NamedTuple):
    """Both sides of one connection, its handshake done."""

    client: _Session
    server: _Session


def ms_a_mb(tls: Tls, size: int, count: int = 2_000) -> float:
    """CPU for a MB (10⁶ bytes) of requests of `size` bytes, `count` of them, and their answers."""
    from_client, to_broker = _connected(tls), _connected(tls)
    there = _through(from_client.client, from_client.server, to_broker.client, size, count)
    back = _through(to_broker.server, to_broker.client, from_client.server, _ANSWER, count)
    return 1e9 * (there + back) / (size * count)


def _through(writer: _Session, reader: _Session, onward: _Session, size: int, count: int) -> float:
    """Seconds of CPU from when `count` messages of `writer` have arrived at `reader` until they have gone on.

    As many at once as READ holds, at least one.
    """
    message = bytes(size)
    at_once = max(1, READ // size)
    into = memoryview(bytearray(READ + _RECORD))
    spent = 0.0
    for _ in range(0, count, at_once):
        for _ in range(at_once):
            writer.tls.write(message)
        ciphertext = writer.outgoing.read()
        began = process_time()
        reader.incoming.write(ciphertext)
        received = 0
        while received < at_once * size:
            received += reader.tls.read(_RECORD, into[received:])
        for number in range(at_once):
            onward.tls.write(into[number * size : (number + 1) * size])
        onward.outgoing.read()
        spent += process_time() - began
    return spent * count / (at_once * -(-count // at_once))


def _connected(tls: Tls) -> _Pair:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tls.keystore)
    context.num_tickets = 0
    pair = _Pair(_session(believing(), server_side=False), _session(context, server_side=True))
    for _ in range(2):
        for this, other in ((pair.client, pair.server), (pair.server, pair.client)):
            try:
                this.tls.do_handshake()
            except ssl.SSLWantReadError:
                pass
            other.incoming.write(this.outgoing.read())
    assert pair.client.tls.version() == pair.server.tls.version() == "TLSv1.3"
    return pair


def _session(context: ssl.SSLContext, *, server_side: bool) -> _Session:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    return _Session(incoming, outgoing, context.wrap_bio(incoming, outgoing, server_side=server_side))
