"""Bounds the memory of large answers that were given from a cache and that their clients have not taken yet.

In: an answer of LARGE bytes or more before it is put together, what clients have taken, every TICK_S a tick. Out: whose
answer is to wait, whose goes on, and whose client does not take what it asked for. Small answers never get here: a
client that does not read is not answered any more once its connection holds as much.

Rules
1. A host's clients may together hold as much as they leave free. So those of one host that do not read keep no other
   host's waiting. A client whose host holds nothing else is answered, however large that is, unless others hold more
   than the limit already. So of any number of hosts that do not read, one answer at most is beyond it.
2. Where others wait, who has hardly taken anything (less than SLOWEST) since the tick before is closed.
3. What has not been taken PATIENCE ticks after it was given, for whatever reason, is slow, and all that is slow may
   together have half of the limit. Where others wait, clients are closed beyond that: of the host that holds most the
   one with most left, but never the last one, whose answer alone may be larger than that. So the other half turns over,
   and those that have come far take theirs to its end.
4. Who waits goes on as soon as there is room, one of each host in turn, in order of arrival. Hosts of which a client
   was closed within REMEMBERED ticks come last. Another one, whose answer is smaller or whose host holds less, may find
   room before.

Example, limit 32 MiB, answers of 3.4 MB: of 300 clients of a host that do not read, four are answered and are closed
within a second or so, since others wait; then the next four are. A client of another host is answered at once. Of 40
hosts whose clients all take 20 KB a second, ten clients are answered, and a second later six of them are closed, since
four fit in half of the limit; then six others are answered. In eight seconds each of these hosts has had its turn, and
whoever then comes of another one waits for a second or so, not for the three minutes that an answer takes there.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Final, Protocol

from forebay_policies.inbound_memory import SLOWEST

LIMIT: Final = 32 << 20

LARGE: Final = 64 * 1024
"""Bytes that a connection may hold anyway before it takes no more requests."""

PATIENCE: Final = 2
"""Ticks: in a second a line of 30 Mbit/s takes 3.4 MB, the names and leaders of some 4,000 topics."""

REMEMBERED: Final = 600
"""Ticks: five minutes, in which 300 such hosts have their turn."""

MOST_REMEMBERED: Final = 10_000
"""Hosts: whoever has a network of IPv6 has as many addresses as they like."""


class Holder(Protocol):
    """A client."""

    @property
    def host(self) -> str:
        """Where it is."""

    @property
    def untaken(self) -> int:
        """Bytes of answers that it has not taken."""

    @property
    def client_slow(self) -> bool:
        """Whether the client does not take what there is for it; else its answer waits behind a slower one."""

    def go_on(self) -> None:
        """There is room for its answer now, which is counted."""

    def not_taken(self) -> None:
        """Close its connection: it does not take what it asked for, and others wait."""


class _Held:
    """What one client holds: `size` bytes, `seen` of them at the last tick (−1: nothing then); `ticks` ago it was given
    more."""

    __slots__ = ("seen", "size", "ticks")

    def __init__(self) -> None:
        self.size = 0
        self.seen = -1
        self.ticks = 0


class UntakenAnswers:
    """Keeps what clients have not taken of large answers, `total`, to about `limit`, without a deadlock."""

    def __init__(self, limit: int = LIMIT) -> None:
        self.total = 0
        self._limit = limit
        self._held: dict[Holder, _Held] = {}
        self._of_host: dict[str, int] = {}
        self._waiting: dict[str, dict[Holder, int]] = {}
        """By host, whose turn is next first: what its clients wait for, in order of arrival."""
        self._closed: dict[str, int] = {}
        """Hosts of which a client was closed, and at which tick, the latest last."""
        self._ticks = 0
        self._releasing = self._again = False

    def admits(self, holder: Holder, size: int) -> bool:
        """Whether an answer of `size` bytes may be given now, which is then counted. False: `go_on` will say so."""
        if self._fits(holder, size):
            self._give(holder, size)
            return True
        self._waiting.setdefault(holder.host, {})[holder] = size
        return False

    def taken(self, holder: Holder) -> None:
        """It may have taken some of it."""
        if self._takes(holder):
            self._release()

    def gone(self, holder: Holder) -> None:
        """It is there no more."""
        self._wait_no_more(holder)
        if holder in self._held:
            self._count(holder, 0)
            self._release()

    def tick(self) -> None:
        """See which clients do not take their answers. To be called every inbound_memory.TICK_S."""
        self._ticks += 1
        self._closed = {host: at for host, at in self._closed.items() if self._ticks - at <= REMEMBERED}
        taken = [self._takes(holder) for holder in list(self._held)]
        if any(taken):  # so that who waits is looked at once
            self._release()
        slow: dict[Holder, int] = {}
        for holder, held in list(self._held.items()):
            stuck = held.seen >= 0 and abs(held.seen - held.size) < SLOWEST and holder.client_slow
            held.seen = held.size
            held.ticks += 1
            if stuck and self._others_wait(holder):
                self._close(holder)
            elif held.ticks > PATIENCE:
                slow[holder] = held.size
        if self._waiting:
            self._close_slow(slow)

    def _close_slow(self, slow: dict[Holder, int]) -> None:
        left, count = sum(slow.values()), len(slow)
        of_host: dict[str, list[Holder]] = {}
        largest_first = sorted(slow, key=slow.__getitem__, reverse=True)
        for holder in reversed(largest_first):
            of_host.setdefault(holder.host, []).append(holder)
        turns = [(-self._of_host.get(host, 0), -slow[there[-1]], host) for host, there in of_host.items()]
        heapify(turns)
        while turns and count > 1 and left > self._limit // 2:
            held, _, host = heappop(turns)
            there = of_host[host]
            holder = there.pop()
            if self._others_wait(holder):
                count -= 1
                left -= slow[holder]
                held += slow[holder]
                self._close(holder)
            if there:
                heappush(turns, (held, -slow[there[-1]], host))

    def _close(self, holder: Holder) -> None:
        self._closed.pop(holder.host, None)
        self._closed[holder.host] = self._ticks
        if len(self._closed) > MOST_REMEMBERED:
            del self._closed[next(iter(self._closed))]
        holder.not_taken()

    def _others_wait(self, holder: Holder) -> bool:
        beside = self._waiting.get(holder.host, {})
        return len(self._waiting) > (holder.host in self._waiting) or len(beside) > (holder in beside)

    def _fits(self, holder: Holder, size: int) -> bool:
        own, held = self._size(holder), self._of_host.get(holder.host, 0)
        if held == own:
            return self.total - own <= self._limit
        return held + size <= self._limit - self.total

    def _takes(self, holder: Holder) -> bool:
        """Count what it has taken; whether it has taken any."""
        size = self._size(holder)
        left = min(size, holder.untaken)
        if left < size:
            self._count(holder, left)
        return left < size

    def _size(self, holder: Holder) -> int:
        held = self._held.get(holder)
        return held.size if held is not None else 0

    def _give(self, holder: Holder, size: int) -> None:
        self._count(holder, self._size(holder) + size)
        self._held[holder].ticks = 0

    def _count(self, holder: Holder, size: int) -> None:
        more = size - self._size(holder)
        self.total += more
        of_host = self._of_host.get(holder.host, 0) + more
        if of_host:
            self._of_host[holder.host] = of_host
        else:
            self._of_host.pop(holder.host, None)
        if size:
            self._held.setdefault(holder, _Held()).size = size
        else:
            self._held.pop(holder, None)

    def _wait_no_more(self, holder: Holder) -> None:
        waiting = self._waiting.get(holder.host)
        if waiting is not None:
            waiting.pop(holder, None)
            if not waiting:
                del self._waiting[holder.host]

    def _release(self) -> None:
        """Give to one of each host, whose turn is next first, until nobody fits."""
        self._again = True
        if self._releasing:  # what one that goes on does may make room itself: the loop below sees it
            return
        self._releasing = True
        try:
            while self._again and self.total <= self._limit:
                self._again = False
                self._give_in_turn()
        finally:
            self._releasing = False

    def _give_in_turn(self) -> None:
        """Each that waits is looked at once: who did not fit does not after others were given more."""
        turns = {host: self._waiting_of(host) for host in sorted(self._waiting, key=self._closed.__contains__)}
        while turns:
            for host, turn in list(turns.items()):
                if self.total > self._limit:  # nobody fits
                    return
                found = next((each for each in turn if self._fits(*each)), None)
                if found is None:
                    del turns[host]
                else:
                    self._let_go_on(*found)

    def _waiting_of(self, host: str) -> Iterator[tuple[Holder, int]]:
        """Each once, in order of arrival, unless it is there no more when it is its turn."""
        for holder, size in list(self._waiting.get(host, {}).items()):
            if holder in self._waiting.get(host, {}):
                yield holder, size

    def _let_go_on(self, holder: Holder, size: int) -> None:
        self._wait_no_more(holder)
        if holder.host in self._waiting:
            self._waiting[holder.host] = self._waiting.pop(holder.host)
        self._give(holder, size)
        holder.go_on()
