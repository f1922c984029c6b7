"""Responses leave a client connection in the order of its requests, whoever answers first.

In: a slot opened for each request that will have a response, bytes written to slots in any order. Out: bytes, in slot
order. The slot at the head writes through; the others hold what they are given until their turn.
acks=0 requests open no slot.

`held` bytes are waiting behind a slower answer: whoever feeds the slots stops reading its source while there are many.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from forebay_codecs.primitives import Buffer


class Slot:
    """The place of one response."""

    __slots__ = ("closed", "held")

    def __init__(self) -> None:
        self.held: list[Buffer] = []
        self.closed = False


class ResponseOrderer:
    """Responses leave in the order of their slots. `write` takes buffers that are next on the wire."""

    __slots__ = ("_slots", "_write", "held")

    def __init__(self, write: Callable[[list[Buffer]], None]) -> None:
        self._write = write
        self._slots: deque[Slot] = deque()
        self.held = 0

    def __len__(self) -> int:
        """Requests whose response has not wholly left."""
        return len(self._slots)

    def open(self) -> Slot:
        """The place of the next request's response, behind all others."""
        slot = Slot()
        self._slots.append(slot)
        return slot

    def is_next(self, slot: Slot) -> bool:
        """Whether what is written to it goes out at once."""
        return self._slots[0] is slot

    def write(self, slot: Slot, data: Buffer, *, last: bool) -> None:
        """Bytes of the slot's response; `last` closes it and lets the ones behind it go."""
        if self._slots[0] is not slot:
            slot.held.append(data)
            slot.closed = last
            self.held += len(data)
            return
        if not last:
            self._write([data])
            return
        out = [data]
        self._slots.popleft()
        while self._slots:
            head = self._slots[0]
            if head.held:
                out += head.held
                for buffer in head.held:
                    self.held -= len(buffer)
                head.held = []
            if not head.closed:
                break
            self._slots.popleft()
        self._write(out)
