"""What the supervisor and a worker say to each other over a socket pair.

    supervisor: Hello              worker: starts its App with these settings
    supervisor: Ask(1)             worker: Report(1, …)        every second, and with details for each scrape
    supervisor: Reload(1)          worker: Renewed(1, …)       makes certificates and secrets anew
    supervisor: Prepare(2, …)      worker: Prepared(2, …)      gets ready for other settings, or says why it cannot
    supervisor: Commit(2, …)       worker: puts them into force
    supervisor: Dump               worker: Dumped(…)          how it stands
    supervisor: Share              worker: hands over the sockets that it listens on (handed_sockets.py)
    supervisor: Drain              worker: drains, Report(…), exits
    supervisor: (closed)           worker: the same, since nobody supervises it any more
                                   worker: StartFailed(…), exits

A message is its length (4 bytes, big endian), then msgpack. Secrets go along as they are: nobody else has the sockets.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Any, Final, Self

import msgspec

from forebay_proxy.config.secret import Secret
from forebay_proxy.config.settings import Settings
from forebay_proxy.security.renewals import Outcome

_LENGTH: Final = struct.Struct(">I")


class Hello(msgspec.Struct, tag=True, frozen=True):
    """The first message: `index` is the worker's number, from 0; `app` is as lifecycle.load_app reads it."""

    index: int
    settings: Settings
    app: str


class Ask(msgspec.Struct, tag=True, frozen=True):
    """Asks for a Report; `number` grows by one with each. `details`: with topics and clients, which are many."""

    number: int
    details: bool = True


class Reload(msgspec.Struct, tag=True, frozen=True):
    """Read certificates and secrets again. `number` grows by one with each."""

    number: int


class Renewed(msgspec.Struct, tag=True, frozen=True):
    """What came of it."""

    number: int
    outcomes: list[Outcome]


class Prepare(msgspec.Struct, tag=True, frozen=True):
    """Get ready for these settings, which are the `generation`-th."""

    generation: int
    settings: Settings


class Prepared(msgspec.Struct, tag=True, frozen=True):
    """It is, or `error` says why it cannot be."""

    generation: int
    error: str = ""


class Commit(msgspec.Struct, tag=True, frozen=True):
    """Put them into force. They are told again for a worker that has just started."""

    generation: int
    settings: Settings


class Dump(msgspec.Struct, tag=True, frozen=True):
    """Asks how the worker stands."""

    number: int


class Dumped(msgspec.Struct, tag=True, frozen=True):
    """`content`: JSON, of bounded size."""

    number: int
    content: bytes


class Share(msgspec.Struct, tag=True, frozen=True):
    """Hand over what you listen on, for the worker that takes your place; you go on accepting."""


class Drain(msgspec.Struct, tag=True, frozen=True):
    """Drain, then exit. `succeeded`: others accept on the same ports."""

    succeeded: bool = False


class Report(msgspec.Struct, tag=True, frozen=True):
    """How a worker stands.

    `number` is that of the last Ask; `unready` says why no client can be served (None: ready); `stats` is a snapshot
    that metrics.registry.decode reads, `details` whether topics and clients are in it; `leaving`: it takes no more
    connections.
    """

    number: int
    started: bool
    unready: str | None
    stats: bytes
    details: bool = True
    leaving: bool = False


class StartFailed(msgspec.Struct, tag=True, frozen=True):
    """The App raised StartError; `message` is its text."""

    message: str


Message = (
    Hello | Ask | Reload | Renewed | Prepare | Prepared | Commit | Dump | Dumped | Share | Drain | Report | StartFailed
)


def _encode_secret(value: object) -> str:
    if isinstance(value, Secret):
        return value.reveal()
    raise NotImplementedError(f"a message holds no {type(value).__name__}")


def _decode_secret(kind: type, value: Any) -> Secret:
    if kind is Secret and isinstance(value, str):
        return Secret(value)
    raise NotImplementedError(f"a message holds no {kind.__name__}")


encode: Final = msgspec.msgpack.Encoder(enc_hook=_encode_secret).encode
"""A message → msgpack."""
decode: Final = msgspec.msgpack.Decoder(Message, dec_hook=_decode_secret).decode
"""What `encode` made → the message. Raises msgspec.DecodeError."""


class Channel:
    """One end of the pair: sends and receives whole messages, and raises nothing when the other end is gone."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def over(cls, end: socket.socket) -> Self:
        """Take over `end`, a connected Unix socket."""
        return cls(*await asyncio.open_unix_connection(sock=end))

    def send(self, message: Message) -> None:
        """Never waits: messages are small and few. `receive` tells when the other end is gone."""
        if self._writer.is_closing():  # an earlier message met nobody; uvloop raises for the next
            return
        data = encode(message)
        self._writer.write(_LENGTH.pack(len(data)) + data)

    async def receive(self) -> Message | None:
        """The next message; None when the other end is gone."""
        try:
            (length,) = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))
            message: Message = decode(await self._reader.readexactly(length))
            return message
        except (asyncio.IncompleteReadError, ConnectionError):
            return None

    async def close(self) -> None:
        """Close once everything sent has left, or the other end is gone."""
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except ConnectionError:
            pass
