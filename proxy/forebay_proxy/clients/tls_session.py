"""One TLS connection on the server's side, without I/O: ciphertext in, plaintext out, and the other way round.

    ciphertext in (`receive`) → handshake, until `established` → plaintext
    plaintext (`send`)        → ciphertext
    `outgoing`                  what must go to the client next, of the handshake too

Raises ssl.SSLError for what breaks the protocol; what is then `outgoing` is the alert that tells the client why.
"""

from __future__ import annotations

import ssl
from typing import Any, Final

from forebay_codecs.primitives import Buffer

MAX_READ: Final = 64 * 1024
"""Ciphertext that may be given at once: what OpenSSL keeps of a connection never shrinks below the most that it was
given.
"""

_MAX_RECORD: Final = 17 * 1024
"""16 KiB of plaintext, and what TLS adds."""

_plaintext: Final = memoryview(bytearray(MAX_READ + _MAX_RECORD))
"""For all sessions: what is read is copied out before anybody else reads. Enough for a read and the incomplete record
before it, since plaintext is shorter than its ciphertext.
"""

RECORD_HEADER: Final = 5
"""Bytes: the record's type, its version in two, and how much follows in two."""
_ALERT, _APPLICATION_DATA = 0x15, 0x17
_ALERT_1_3: Final = 24
"""TLS 1.3 hides a record's type; one of this size is an alert, or application data of two bytes: no request."""


def is_farewell(start: bytes, size: int) -> bool:
    """Whether `size` bytes that begin with `start`, RECORD_HEADER of them, are one record that is an alert."""
    if len(start) < RECORD_HEADER or int.from_bytes(start[3:5], "big") + RECORD_HEADER != size:
        return False
    return start[0] == _ALERT or (start[0] == _APPLICATION_DATA and size == _ALERT_1_3)


class TlsSession:
    """Every byte is given out once and in order; nothing that was given in stays undeciphered but an incomplete record.

    `established`  the handshake is done: `receive` may return plaintext, and `send` may be called
    `over`         the client has said that nothing more will come
    """

    __slots__ = ("_incoming", "_outgoing", "_tls", "established", "over")

    def __init__(self, context: ssl.SSLContext) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self.established = False
        self.over = False

    @property
    def certificate(self) -> bytes | None:
        """What the client has shown, in DER form, once `established`; None: nothing. It was verified if asked for."""
        return self._tls.getpeercert(binary_form=True)

    def receive(self, ciphertext: Buffer) -> bytes:
        """Take at most MAX_READ bytes; the plaintext that they complete, which may be none."""
        self._incoming.write(ciphertext)
        try:
            if not self.established:
                self._tls.do_handshake()
                self.established = True
            return self._read()
        except ssl.SSLWantReadError:
            return b""

    def _read(self) -> bytes:
        size = 0
        try:
            while self._incoming.pending or self._tls.pending():
                count = self._read_record(_plaintext[size:])
                if not count:
                    self.over = True
                    break
                size += count
        except ssl.SSLWantReadError:
            pass
        return bytes(_plaintext[:size])

    def _read_record(self, into: memoryview) -> int:
        tls: Any = self._tls  # its types do not say that with a buffer it returns how much it read
        count: int = tls.read(_MAX_RECORD, into)
        return count

    def send(self, plaintext: Buffer) -> None:
        """Encipher it, in records of up to 16 KiB."""
        view = memoryview(plaintext)
        while view:
            written = self._tls.write(view)  # a line of its own: mypyc evaluates the bounds of some slices twice
            view = view[written:]

    def say_farewell(self) -> None:
        """Tell the client that nothing more will come (close_notify); its own farewell is not waited for."""
        try:
            self._tls.unwrap()
        except ssl.SSLError:  # it has not said so yet, or the handshake is not done
            pass

    def outgoing(self) -> bytes:
        """Ciphertext for the client, once; empty: none."""
        return self._outgoing.read() if self._outgoing.pending else b""
