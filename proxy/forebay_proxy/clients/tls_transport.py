"""What a client connection writes to and pauses when its client speaks TLS.

In: plaintext to write, the calls of a transport. Out: ciphertext on the transport beneath. All plaintext of a read is
given out at once, so that nothing deciphered is ever kept here: what waits is in the system's buffer, as without TLS.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterable
from typing import Any, Final

from forebay_codecs.primitives import Buffer
from forebay_proxy.clients.tls_session import TlsSession

CERTIFICATE: Final = "forebay.certificate"
"""No transport of others has a name like it."""
SMALL: Final = 4096
"""Pieces below this are joined, since each that is written makes a record, which costs as much as a kilobyte does."""


class TlsTransport:
    """As the transport beneath, but for what is written, which is enciphered, and for `close`, which says farewell.

    It has of asyncio.Transport what client connections use, and is none: that class reserves room in its instances,
    which a compiled class would write over.
    """

    def __init__(self, beneath: asyncio.Transport, session: TlsSession, eof_received: Callable[[], bool]) -> None:
        """`eof_received`: whether the connection stays, for answers, though the client has said farewell."""
        self._beneath = beneath
        self._session = session
        self._eof_received = eof_received
        self._reading = True
        self._over = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Of the connection beneath; and CERTIFICATE, that of the client in DER form, None without one."""
        if name == CERTIFICATE:
            return self._session.certificate
        return self._beneath.get_extra_info(name, default)

    def is_closing(self) -> bool:
        """Whether nothing is taken any more."""
        return self._beneath.is_closing()

    def get_write_buffer_size(self) -> int:
        """Bytes of ciphertext that have not gone out."""
        return self._beneath.get_write_buffer_size()

    def pause_reading(self) -> None:
        """Nothing is received until `resume_reading`."""
        self._reading = False
        self._beneath.pause_reading()

    def resume_reading(self) -> None:
        """It is received again. After the client's farewell nothing comes: all that came before has been taken."""
        self._reading = True
        if self._over:
            asyncio.get_running_loop().call_soon(self._end)  # who resumes may be about to pause again
        else:
            self._beneath.resume_reading()

    def over(self) -> None:
        """The client has said farewell: close as soon as what it said before is taken, as at the end of a stream."""
        self._over = True
        self._end()

    def _end(self) -> None:
        if self._reading and not self._beneath.is_closing() and not self._eof_received():
            self.close()

    def lost(self) -> None:
        """The transport beneath has closed: nobody is asked any more."""
        self._eof_received = _closes

    def write(self, data: Buffer) -> None:
        """As a record or several of its own."""
        self.writelines((data,))

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        """Pieces below SMALL leave joined, in one write with all others."""
        if self._beneath.is_closing():
            return
        small: list[Buffer] = []
        try:
            for piece in list_of_data:
                if len(piece) < SMALL:
                    small.append(piece)
                    continue
                self._send(small)
                small = []
                self._session.send(piece)
            self._send(small)
        except ssl.SSLError:  # only after a fault of the client's, whose connection is being aborted
            self._beneath.abort()
        else:
            self.flush()

    def _send(self, pieces: list[Buffer]) -> None:
        if pieces:
            self._session.send(b"".join(pieces))

    def flush(self) -> None:
        """Pass on what TLS itself has to say, and everything written."""
        ciphertext = self._session.outgoing()
        if ciphertext and not self._beneath.is_closing():
            self._beneath.write(ciphertext)

    def close(self) -> None:
        """Close once what was written has gone out. The client's farewell is not waited for."""
        if not self._beneath.is_closing():
            self._session.say_farewell()
            self.flush()
            self._beneath.close()

    def abort(self) -> None:
        """Close at once, without a farewell."""
        self._beneath.abort()


def _closes() -> bool:
    """Nobody is there to answer."""
    return False
