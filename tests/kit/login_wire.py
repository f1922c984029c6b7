"""A client that logs in, frame by frame: to a broker as well as to Forebay, so that their answers can be compared."""

from __future__ import annotations

import socket
import ssl
import struct
from typing import Self

from forebay_codecs.api_keys import SASL_HANDSHAKE
from forebay_codecs.sasl import authenticate_request
from tests.kit.wire import CLIENT_ID, framed, request


class Wire:
    """One connection, byte by byte: to a broker as well as to Forebay."""

    def __init__(self, address: str, context: ssl.SSLContext | None) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=30)
        if context is not None:
            self._socket = context.wrap_socket(self._socket, server_hostname=host)
        self._answers = self._socket.makefile("rb")

    def say(self, frame: bytes) -> bytes | None:
        """The answer's frame; None: the connection was closed instead."""
        try:
            self._socket.sendall(frame)
        except OSError:  # reset
            return None
        return self.hear()

    def hear(self) -> bytes | None:
        """The next answer, as `say`."""
        try:
            size = self._answers.read(4)
        except OSError:  # reset
            return None
        return self._answers.read(struct.unpack(">i", size)[0]) if size else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._answers.close()
        self._socket.close()


def handshake(version: int, mechanism: str) -> bytes:
    return request(SASL_HANDSHAKE, version, 1, struct.pack(">h", len(mechanism)) + mechanism.encode())


def authenticate(token: bytes, version: int = 1) -> bytes:
    return framed(authenticate_request(2, CLIENT_ID, version, token))
