"""How much a connection reads at once is asked for before each read, not found out after it.

In: room, in bytes. Out: `data_received` with at most so many. Nothing is gained in the system's own buffers, which hold
what is not read, and slow its sender down.
"""

from __future__ import annotations

import asyncio
from typing import Final

from mypy_extensions import mypyc_attr

from forebay_policies.inbound_memory import READ

_BUFFER: Final = memoryview(bytearray(READ))
"""One for all: the loop hands a read on before it begins another one."""


@mypyc_attr(allow_interpreted_subclasses=True)
class BoundedReads(asyncio.BufferedProtocol):
    """No read returns more than `room` says, at least one byte."""

    def room(self) -> int:
        """The most bytes of the next read."""
        raise NotImplementedError

    def arrived(self, data: memoryview) -> None:
        """What was read, in memory that the next read of anybody overwrites."""
        self.data_received(data.tobytes())

    def data_received(self, data: bytes) -> None:
        """What was read, or came some other way."""
        raise NotImplementedError

    # asyncio.BufferedProtocol

    def get_buffer(self, sizehint: int) -> memoryview:
        room = self.room()
        return _BUFFER if room >= READ else _BUFFER[:room]

    def buffer_updated(self, nbytes: int) -> None:
        self.arrived(_BUFFER[:nbytes])
