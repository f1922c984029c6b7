"""Turns on the event loop: no client has more of it at a time than SLICE_S while others wait.

    what arrives      is taken at once, for a slice: who sends little is served in the turn in which it is read
    what is left      waits in line; each turn of the loop, those in front get a slice each, until one slice is used up
    who is in line    is not read, so it has nothing else of the turn

So a client that has sent thousands of small requests is served as fast as the machine can, and delays others by a slice
or two instead of by all its requests.

In: who has more to take; the clock; the loop's `call_soon`. Out: calls of `turn`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

SLICE_S: Final = 0.002
"""Some ten requests that are answered here. Beside it a switch, tens of µs, costs little."""


class Client(Protocol):
    """Who takes turns."""

    def turn(self) -> None:
        """Take requests for a slice. It may get in line again meanwhile."""


class LoopTurns:
    """Everybody in line gets a turn, in order of arrival, also behind one whose turn fails.

    `clock` counts seconds; `call_soon` calls a function in the loop's next turn.
    """

    def __init__(self, clock: Callable[[], float], call_soon: Callable[[Callable[[], None]], object]) -> None:
        self._clock = clock
        self._call_soon = call_soon
        self._line: deque[Client] = deque()
        self._called = False

    def __len__(self) -> int:
        return len(self._line)

    def wait(self, client: Client) -> None:
        """Get in line. Whoever is in it already does not call this."""
        self._line.append(client)
        self._call()

    def _call(self) -> None:
        if self._line and not self._called:
            self._called = True
            self._call_soon(self._next)

    def _next(self) -> None:
        until = self._clock() + SLICE_S
        try:
            for _ in range(len(self._line)):
                self._line.popleft().turn()
                if self._clock() >= until:
                    break
        finally:
            self._called = False
            self._call()
