"""How much memory records may take: `buffer.memory`, in chunks of `batch.initial.size` (KIP-782).

In: who wants memory for how many bytes. Out: chunks, or a place in the queue.
Fairness: memory goes to those that wait in the order in which they came. A small request never overtakes a large
one, so the large one is not starved; while anyone waits, nobody new is let in.
A freed batch gives back at most `batch.size` of its chunks for use again; the rest is released to the system.

Example, memory 32 KiB, chunk 4 KiB: batches hold 7 chunks, a request of 6 KiB waits (28 + 6 > 32); a batch of 3
chunks is freed: used 4 chunks = 16 KiB, the request is let in.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable


def _nothing() -> None:
    """What a cancelled waiter does."""


class Waiter:
    """A place in the queue for memory."""

    __slots__ = ("cancelled", "granted", "size")

    def __init__(self, size: int, granted: Callable[[], None]) -> None:
        self.size = size
        self.granted = granted
        self.cancelled = False


class BufferPool:
    """Counts the chunks in use and lets requests in while they fit.

    A request larger than all memory is let in alone, when nothing else is held: what is held is then bounded by that
    one request, which the frame's own limit bounds. What a request takes beyond its bytes (longer varints, the unused
    end of each batch's last chunk) may overdraw the pool; the next request waits for it.
    """

    __slots__ = ("_free", "_granting", "_waiters", "chunk_size", "keep", "memory", "used", "waits")

    def __init__(self, memory: int, chunk_size: int, batch_size: int) -> None:
        self.memory = memory
        self.chunk_size = chunk_size
        self.keep = batch_size // chunk_size
        self.used = 0
        self.waits = 0
        self._free: list[memoryview] = []
        self._waiters: deque[Waiter] = deque()
        self._granting = False

    @property
    def available(self) -> int:
        """Bytes not held by records; never below 0."""
        return max(0, self.memory - self.used * self.chunk_size)

    @property
    def waiting(self) -> int:
        """Requests that wait for memory."""
        return sum(not waiter.cancelled for waiter in self._waiters)

    @property
    def exhausted(self) -> bool:
        """Somebody waits."""
        return bool(self._waiters)

    @property
    def free_chunks(self) -> int:
        """Chunks kept for use again."""
        return len(self._free)

    def fits(self, size: int) -> bool:
        """Whether `size` bytes may be appended now."""
        return not self._waiters and self._fits(size)

    def _fits(self, size: int) -> bool:
        return self.used == 0 or size <= self.memory - self.used * self.chunk_size

    def wait(self, size: int, granted: Callable[[], None]) -> Waiter:
        """Queue for `size` bytes; `granted` is called once, when they fit, and appends at once."""
        self.waits += 1
        waiter = Waiter(size, granted)
        self._waiters.append(waiter)
        return waiter

    def cancel(self, waiter: Waiter) -> None:
        """Leave the queue: the client is gone. Its place may have been what held up the others."""
        waiter.cancelled = True
        waiter.granted = _nothing  # it may stand in the queue for long, and what it would have appended must not
        self._grant()

    def take(self) -> memoryview:
        """A chunk, for one whose bytes were found to fit."""
        self.used += 1
        return self._free.pop() if self._free else memoryview(bytearray(self.chunk_size))

    def give_back(self, chunks: list[memoryview]) -> None:
        """Return the chunks of one batch that is gone; lets in those that wait and now fit."""
        self.used -= len(chunks)
        self._free.extend(chunks[: self.keep])
        self._grant()

    def _grant(self) -> None:
        if self._granting:  # a grant may free memory itself: its turn is in the loop below
            return
        self._granting = True
        try:
            while self._waiters:
                waiter = self._waiters[0]
                if not waiter.cancelled and not self._fits(waiter.size):
                    return
                self._waiters.popleft()
                if not waiter.cancelled:
                    waiter.granted()
        finally:
            self._granting = False
