"""Responses leave a client connection in the order of its requests, whoever answers first.

In: a slot opened for each request that will have a response, bytes written to slots in any order. Out: bytes, in slot
order. The slot at the head writes through; the others hold what they are given until their turn.
acks=0 requests open no slot.

`held` bytes are waiting behind a slower answer: whoever feeds the slots stops reading its source while there are many.

A slot knows since when its request has been here, and is told how long the broker took: the rest of the time until its
response leaves is what Forebay adds. Request whole at 10.000 s, batch sent at 10.002, acknowledged at 10.007, response
written at 10.008: 8 ms less the broker's 5 ms, 3 ms.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Final

from forebay_codecs.primitives import Buffer
from forebay_proxy.metrics.instruments import Histogram

MERGED: Final = 0
UNTOUCHED: Final = 1
PASSED: Final = 2
"""Ways of a request, as numbers of catalog.PATHS."""

UNKNOWN: Final = -1.0


class Slot:
    """The place of one response.

    `since`: when its request was whole, by `monotonic`. `took`: the broker's seconds; UNKNOWN: they are not known, or
    no broker was asked. `path`: which way the request went.
    """

    __slots__ = ("closed", "held", "path", "since", "took")

    def __init__(self, since: float) -> None:
        self.held: list[Buffer] = []
        self.closed = False
        self.since = since
        self.took = UNKNOWN
        self.path = MERGED


class ResponseOrderer:
    """Responses leave in the order of their slots. `write` takes buffers that are next on the wire.

    `added`, by path, is told of the seconds that each response took beside its broker's; None: nobody is.
    `since`: by `monotonic`, when what comes now was whole and could be taken; whoever reads the client keeps it.
    """

    __slots__ = ("_added", "_slots", "_write", "held", "since")

    def __init__(self, write: Callable[[list[Buffer]], None], added: tuple[Histogram, ...] | None = None) -> None:
        self._write = write
        self._added = added
        self._slots: deque[Slot] = deque()
        self.held = 0
        self.since = 0.0

    def __len__(self) -> int:
        """Requests whose response has not wholly left."""
        return len(self._slots)

    def open(self) -> Slot:
        """The place of the next request's response, behind all others."""
        slot = Slot(self.since)
        self._slots.append(slot)
        return slot

    def withdraw(self) -> None:
        """The place opened last, to which nothing was written, is not needed: its request has no response."""
        self._slots.pop()

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
        now = monotonic()
        self._leaves(self._slots.popleft(), now)
        while self._slots:
            head = self._slots[0]
            if head.held:
                out += head.held
                for buffer in head.held:
                    self.held -= len(buffer)
                head.held = []
            if not head.closed:
                break
            self._leaves(self._slots.popleft(), now)
        self._write(out)

    def _leaves(self, slot: Slot, now: float) -> None:
        if self._added is not None and slot.took >= 0:
            self._added[slot.path].observe(max(0.0, now - slot.since - slot.took))
