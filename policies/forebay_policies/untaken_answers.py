"""Bounds the memory of large answers that were given from a cache and that their clients have not taken yet.

In: an answer of LARGE bytes or more before it is put together, what clients have taken, every TICK_S a tick. Out: whose
answer is to wait, whose goes on, and whose client does not take what it asked for. Small answers never get here: a
client that does not read is not answered any more once its connection holds as much.

Rules
1. A host's clients may together hold as much as they leave free. So those of one host that do not read keep no other
   host's waiting. A client whose host holds nothing else is answered, however large that is, unless others hold more
   than the limit already. So of any number of hosts that do not read, one answer at most is beyond it.
2. Where others wait, who has hardly taken anything (less than SLOWEST) since the tick before is closed.
3. Who waits goes on in order of arrival, as soon as there is room: another, whose answer is smaller or whose host holds
   less, may find it before.

Example, limit 32 MiB, answers of 3.4 MB: of 300 clients of a host that do not read, four are answered and are closed
within a second or so, since others wait; then the next four are. A client of another host is answered at once.
"""

from __future__ import annotations

from typing import Final, Protocol

from forebay_policies.inbound_memory import SLOWEST

LIMIT: Final = 32 << 20

LARGE: Final = 64 * 1024
"""Bytes that a connection may hold anyway before it takes no more requests."""


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


class UntakenAnswers:
    """Keeps what clients have not taken of large answers, `total`, to about `limit`, without a deadlock."""

    def __init__(self, limit: int = LIMIT) -> None:
        self.total = 0
        self._limit = limit
        self._sizes: dict[Holder, int] = {}
        self._of_host: dict[str, int] = {}
        self._seen: dict[Holder, int] = {}
        """What they had not taken at the last tick."""
        self._waiting: dict[Holder, int] = {}

    def admits(self, holder: Holder, size: int) -> bool:
        """Whether an answer of `size` bytes may be given now, which is then counted. False: `go_on` will say so."""
        if self._fits(holder, size):
            self._count(holder, self._sizes.get(holder, 0) + size)
            return True
        self._waiting[holder] = size
        return False

    def taken(self, holder: Holder) -> None:
        """It may have taken some of it."""
        size = self._sizes.get(holder, 0)
        left = min(size, holder.untaken)
        if left < size:
            self._count(holder, left)
            self._release()

    def gone(self, holder: Holder) -> None:
        """It is there no more."""
        self._waiting.pop(holder, None)
        if holder in self._sizes:
            self._count(holder, 0)
            self._release()

    def tick(self) -> None:
        """See who does not take his answer. To be called every inbound_memory.TICK_S."""
        for holder in list(self._sizes):
            self.taken(holder)
        seen, self._seen = self._seen, dict(self._sizes)
        for holder, left in self._seen.items():
            others_wait = len(self._waiting) > (holder in self._waiting)
            if others_wait and holder in seen and abs(seen[holder] - left) < SLOWEST and holder.client_slow:
                holder.not_taken()

    def _fits(self, holder: Holder, size: int) -> bool:
        own, held = self._sizes.get(holder, 0), self._of_host.get(holder.host, 0)
        if held == own:
            return self.total - own <= self._limit
        return held + size <= self._limit - self.total

    def _count(self, holder: Holder, size: int) -> None:
        more = size - self._sizes.get(holder, 0)
        self.total += more
        of_host = self._of_host.get(holder.host, 0) + more
        if of_host:
            self._of_host[holder.host] = of_host
        else:
            self._of_host.pop(holder.host, None)
        if size:
            self._sizes[holder] = size
        else:
            self._sizes.pop(holder, None)

    def _release(self) -> None:
        for holder, size in list(self._waiting.items()):
            if holder in self._waiting and self._fits(holder, size):
                del self._waiting[holder]
                self._count(holder, self._sizes.get(holder, 0) + size)
                holder.go_on()
