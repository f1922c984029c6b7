"""A client's connection with TLS: beneath it a transport with ciphertext, above it the protocol that a client without
TLS would have met.

    bytes in → handshake, in its turns → session → plaintext → the protocol above, made once the handshake is done
    bytes out ← TlsTransport ← what that protocol writes

A handshake that fails, or does not go on, has taken no client's place, since nothing above has been made.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, cast

from forebay_proxy.clients.bounded_reads import BoundedReads
from forebay_proxy.clients.handshakes import Handshakes
from forebay_proxy.clients.tls_session import MAX_READ, TlsSession
from forebay_proxy.clients.tls_transport import TlsTransport
from forebay_proxy.clients.wrong_protocol import instead_of_tls
from forebay_proxy.config.settings import HostPort
from forebay_proxy.logs import RateLimited
from forebay_proxy.security.tls import TlsContext

_read: Final = memoryview(bytearray(MAX_READ))
"""For all connections: what is read is used up before the next is read."""


@dataclass(slots=True)
class TlsDoor:
    """What all connections to one listener share. `context` is that of handshakes that begin from now on."""

    listener: str
    context: TlsContext
    handshakes: Handshakes
    log: RateLimited


class TlsConnection(asyncio.BufferedProtocol):
    """The protocol that `make` makes sees what it would see without TLS, from its beginning to its end."""

    def __init__(self, door: TlsDoor, make: Callable[[], asyncio.BaseProtocol]) -> None:
        self._door = door
        self._make = make
        self._session: TlsSession | None = None  # a silent client needs none
        self._above: BoundedReads | None = None
        self._beneath: asyncio.Transport | None = None
        self._transport: TlsTransport | None = None
        self._arrived = b""
        """Of the handshake, until its turn; the connection is not read meanwhile."""

    # What the transport tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._beneath = cast(asyncio.Transport, transport)  # uvloop's own class, of the same interface
        if not self._door.handshakes.came(self):
            self._door.log.warning("too many TLS handshakes, closing a new connection", listener=self._door.listener)
            self._beneath.abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        return _read if self._above is None else _read[: self._above.room()]

    def buffer_updated(self, nbytes: int) -> None:
        if self._above is not None:
            self._receive(_read[:nbytes])
            return
        assert self._beneath is not None
        self._arrived += _read[:nbytes]
        self._beneath.pause_reading()
        self._door.handshakes.arrived(self)

    def pause_writing(self) -> None:
        if self._above is not None:
            self._above.pause_writing()

    def resume_writing(self) -> None:
        if self._above is not None:
            self._above.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._door.handshakes.ended(self, "client_left")
        if self._transport is not None:
            self._transport.lost()
        if self._above is not None:
            self._above.connection_lost(exc)

    def _eof_received(self) -> bool:
        return self._above is not None and bool(self._above.eof_received())

    # The handshake (handshakes.Handshake)

    def step(self) -> None:
        assert self._beneath is not None
        arrived, self._arrived = self._arrived, b""
        if self._session is None:
            if (other := instead_of_tls(arrived)) is not None:
                self._fail("not_tls", "a client does not speak TLS on a listener that does", spoke=other)
                return
            self._session = TlsSession(self._door.context)
            self._transport = TlsTransport(self._beneath, self._session, self._eof_received)
        assert self._transport is not None
        try:
            plaintext = self._session.receive(arrived)
        except ssl.SSLError as error:
            self._transport.flush()  # the alert
            self._fail("failed", "TLS handshake failed", error=_reason(error))
            return
        self._transport.flush()
        self._beneath.resume_reading()
        if self._session.established:
            self._begin(plaintext)

    def _begin(self, plaintext: bytes) -> None:
        assert self._transport is not None
        self._door.handshakes.ended(self, "established")
        above = self._make()
        above.connection_made(cast(asyncio.Transport, self._transport))  # as much of one as it needs
        if isinstance(above, BoundedReads):  # else there is no place for it, and it closes
            self._above = above
            self._give(plaintext)

    def give_up(self, why: str) -> None:
        if why == "client_left":
            self._door.handshakes.ended(self, why)
        elif self._arrived or self._session is not None:
            self._fail(why, "TLS handshake does not go on")
        else:
            self._fail(why, "a client does not begin its TLS handshake")
        if self._beneath is not None:
            self._beneath.abort()

    def _fail(self, result: str, event: str, **keys: object) -> None:
        assert self._beneath is not None
        self._door.handshakes.ended(self, result)
        self._door.log.warning(event, client=peer_of(self._beneath), listener=self._door.listener, **keys)
        self._beneath.close()

    # After it

    def _receive(self, ciphertext: memoryview) -> None:
        assert self._beneath is not None
        assert self._session is not None
        assert self._transport is not None
        if self._beneath.is_closing():
            return
        try:
            plaintext = self._session.receive(ciphertext)
        except ssl.SSLError as error:
            client = peer_of(self._beneath)
            self._door.log.warning("closing a client that broke TLS", client=client, error=_reason(error))
            self._transport.flush()
            self._beneath.abort()
            return
        self._transport.flush()  # what TLS itself answers: a change of keys
        self._give(plaintext)

    def _give(self, plaintext: bytes) -> None:
        assert self._above is not None
        assert self._session is not None
        assert self._transport is not None
        if plaintext:
            self._above.data_received(plaintext)
        if self._session.over:
            self._transport.over()


def peer_of(transport: asyncio.BaseTransport) -> str:
    """The other side's address, for the log; ? where it is gone already."""
    peer = transport.get_extra_info("peername")
    return str(HostPort(peer[0], peer[1])) if peer else "?"


def _reason(error: ssl.SSLError) -> str:
    """In words: `peer did not return a certificate`, `certificate verify failed: certificate has expired`."""
    reason = (error.reason or str(error)).replace("_", " ").lower()
    return f"{reason}: {error.verify_message}" if isinstance(error, ssl.SSLCertVerificationError) else reason
