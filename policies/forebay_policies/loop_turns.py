"""Turns on the event loop: no client has more of it at a time than SLICE_S while others wait.

    what arrives      is taken at once, for a slice: who sends little is served in the turn in which it is read
    what is left      waits in line; each turn of the loop, those in front get a slice each, until one slice is used up
    who is in line    is not read, so it has nothing else of the turn

So a client that has sent thousands of small requests is served as fast as the machine can, and delays others by a slice
or two instead of by all its requests.

Opening a batch is not cut: 2 KB may decompress to 60 MB, which takes 50 ms. Whoever took LONG_S or more at once is
held. Those who are go on one after the other, each when others have had the loop for as long as it, and the one before:

    a takes 50 ms at 0, b 40 at 50     a goes on at 100 (and takes 50 again), b at 200 (40), a at 280

In: who has more to take; who took how long; the clock; the loop's `call_soon` and `call_later`. Out: calls of `turn`;
clients held as LONG_TURN, and released.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from forebay_policies.hold_reason import HoldReason

SLICE_S: Final = 0.002
"""Some ten requests that are answered here. Beside it a switch, tens of µs, costs little."""

LONG_S: Final = 0.01
"""A request of 1 MB is opened in less, most of the time."""
LONGEST_S: Final = 0.5
"""For more nobody is held: the process stood still, and not for what it was sent."""


class Client(Protocol):
    """Who takes turns."""

    def turn(self) -> None:
        """Take requests for a slice. It may get in line again meanwhile."""


class LongClient(Protocol):
    """Who may have sent what takes long."""

    @property
    def left(self) -> bool:
        """It sends no more."""

    def hold(self, why: HoldReason) -> None:
        """Take no further requests until released."""

    def release(self, why: HoldReason) -> None:
        """Take them again, unless it is held for another reason."""


class LoopTurns:
    """Everybody in line gets a turn, in order of arrival, also behind one whose turn fails. Those who take long have
    half of the loop at most, all together.

    `clock` counts seconds; `call_soon` calls a function in the loop's next turn, `call_later` after so many seconds.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        call_soon: Callable[[Callable[[], None]], object],
        call_later: Callable[[float, Callable[[], None]], object],
    ) -> None:
        self._clock = clock
        self._call_soon = call_soon
        self._call_later = call_later
        self._line: deque[Client] = deque()
        self._called = False
        self._long: dict[LongClient, tuple[float, float]] = {}
        """Those who are held, in order: until when at least, and how long each took."""
        self._next_long_at = 0.0
        self._timed = False

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

    # What takes long

    def took(self, client: LongClient, seconds: float) -> None:
        """Something that `client` has sent took the loop for so long at once."""
        if seconds >= LONG_S:
            client.hold(HoldReason.LONG_TURN)
            rests = min(seconds, LONGEST_S)
            _, before = self._long.get(client, (0.0, 0.0))
            self._long[client] = self._clock() + rests, before + rests
            self._time()

    def _time(self) -> None:
        if self._long and not self._timed:
            self._timed = True
            self._call_later(self._long_due() - self._clock(), self._next_long)

    def _long_due(self) -> float:
        until, _ = next(iter(self._long.values()))
        return max(until, self._next_long_at)

    def _next_long(self) -> None:
        """The first goes on, and may take as long again: the next one's time begins after that."""
        self._timed = False
        now = self._clock()
        if self._long_due() <= now:
            client = next(iter(self._long))
            _, seconds = self._long.pop(client)
            if not client.left:
                self._next_long_at = now + 2 * seconds
            client.release(HoldReason.LONG_TURN)
        self._time()
