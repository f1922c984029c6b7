"""What the supervisor and a worker say to each other over a socket pair.

    supervisor: Hello              worker: starts its App with those settings
    supervisor: Ask(1)             worker: Report(1, …)        every second, and for each scrape
    supervisor: Drain              worker: drains, Report(…), leaves
    supervisor: (closed)           worker: the same: nobody would notice it any more
                                   worker: StartFailed(…), leaves

A message is its length (4 bytes, big endian) and msgpack.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Final, Self

import msgspec

from forebay_proxy.config.settings import Settings

_LENGTH: Final = struct.Struct(">I")


class Hello(msgspec.Struct, tag=True, frozen=True):
    """`app` names what makes the App (see lifecycle.load_app)."""

    index: int
    settings: Settings
    app: str


class Ask(msgspec.Struct, tag=True, frozen=True):
    number: int


class Drain(msgspec.Struct, tag=True, frozen=True):
    pass


class Report(msgspec.Struct, tag=True, frozen=True):
    """`number` is that of the last Ask; `stats` a snapshot (see metrics.decode); `unready` says why it is not."""

    number: int
    started: bool
    unready: str | None
    stats: bytes


class StartFailed(msgspec.Struct, tag=True, frozen=True):
    message: str


Message = Hello | Ask | Drain | Report | StartFailed

_encode: Final = msgspec.msgpack.Encoder().encode
_decoder: Final[msgspec.msgpack.Decoder[Message]] = msgspec.msgpack.Decoder(Message)


class Channel:
    """One end of the pair."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def over(cls, end: socket.socket) -> Self:
        return cls(*await asyncio.open_unix_connection(sock=end))

    def send(self, message: Message) -> None:
        """Never waits: messages are small and few. Whether the other side is gone, `receive` tells."""
        data = _encode(message)
        self._writer.write(_LENGTH.pack(len(data)) + data)

    async def receive(self) -> Message | None:
        """The next message; None when the other side is gone."""
        try:
            (length,) = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))
            return _decoder.decode(await self._reader.readexactly(length))
        except (asyncio.IncompleteReadError, ConnectionError):
            return None

    async def close(self) -> None:
        """After what was sent has left, or the other side is gone."""
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except ConnectionError:
            pass
