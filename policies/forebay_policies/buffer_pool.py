"""How much memory records, and the requests that they came with, may take: `buffer.memory`, in chunks of
`batch.initial.size` (KIP-782).

In: who wants memory for how many bytes. Out: chunks, or a place in the queue.
Fairness: how much a broker, a partition or a client may hold is memory_shares' rule. Those that wait are let in in the
order in which they came, but one that cannot be let in yet holds up only those that share the party that holds it up.
So a large request is not overtaken by those that share its party, nor does it stop those that have nothing to do with
it. Those that hold nothing at its broker do pass it: one of more than half of what is free waits for a moment at which
the broker holds nothing, and beside brokers that are never idle perhaps until its time is up. Where records of several
identities (tenants) share the memory, their requests take turns, and while others wait one tenant may hold half
of the memory.
A freed batch gives back at most `batch.size` of its chunks for use again; the rest is released to the system. So are
those for which there is no room beside what is used: both together are `buffer.memory` at most.

Example, memory 48 KiB, chunk 4 KiB, all for one broker: batches hold 5 chunks, and a request of 6 KiB for an empty
partition waits, since 5 + 2 chunks are more than the 5 that it would leave free; a batch of 1 chunk is freed: 4 + 2 are
not more than 6, the request is let in.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from forebay_policies.memory_shares import (
    TENANT,
    HeldUp,
    MemoryRequest,
    MemoryShares,
    Partition,
    Party,
    Places,
    Tenant,
    Topic,
)


def _no_time() -> float:
    """The clock where nobody asks how long anything took."""
    return 0.0


def _nothing() -> None:
    """What a cancelled waiter does."""


class Waiter:
    """A place in the queue for memory."""

    __slots__ = ("asked", "granted", "over")

    def __init__(self, asked: MemoryRequest, granted: Callable[[], None]) -> None:
        self.asked = asked
        self.granted = granted
        self.over = False
        """It was let in, or it left."""


class BufferPool:
    """Counts the chunks in use and lets requests in while they fit their parties' shares.

    A request larger than all memory is let in alone, when nothing else is held: what is held is then bounded by that
    one request, which the frame's own limit bounds. What a request takes beyond its bytes (longer varints, objects) may
    overdraw the pool; the next request waits for it.
    """

    __slots__ = (
        "_again",
        "_ahead",
        "_free",
        "_granting",
        "_grants",
        "_lingering",
        "_on_freed",
        "_waiters",
        "chunk_size",
        "keep",
        "memory",
        "shares",
        "used",
        "waiting",
        "waits",
    )

    def __init__(self, memory: int, chunk_size: int, batch_size: int) -> None:
        self.memory = memory
        self.chunk_size = chunk_size
        self.keep = batch_size // chunk_size
        self.used = 0
        self.shares = MemoryShares(memory)
        self.waits = 0
        self.waiting = 0
        """Requests that wait for memory."""
        self._free: list[memoryview] = []
        self._waiters: list[Waiter] = []
        self._ahead = HeldUp()
        self._granting = False
        self._grants = 0
        self._again = False
        self._on_freed: Callable[[], object] = self.grant
        self._lingering: dict[Callable[[], None], None] = {}

    def observe(self, freed: Callable[[], object]) -> None:
        """`freed` is called instead of `grant` whenever those that wait may fit; it calls `grant`, now or soon."""
        self._on_freed = freed

    def lingers(self, flush: Callable[[], None]) -> None:
        """Records that hold memory linger somewhere, until `flush` is called: then they are due."""
        self._lingering[flush] = None

    def lingers_no_more(self, flush: Callable[[], None]) -> None:
        """`flush` is not to be called any more."""
        self._lingering.pop(flush, None)

    @property
    def available(self) -> int:
        """Bytes not held by records; never below 0."""
        return max(0, self.memory - self.used * self.chunk_size)

    @property
    def exhausted(self) -> bool:
        """Somebody waits."""
        return self.waiting > 0

    @property
    def free_chunks(self) -> int:
        """Chunks kept for use again."""
        return len(self._free)

    def whole_chunks(self, size: int) -> int:
        """The memory that `size` bytes take in a batch of their own."""
        return -(-size // self.chunk_size) * self.chunk_size

    # Letting in

    def plenty(self, size: int) -> bool:
        """Whether nobody waits and `size` bytes, in whole chunks, fit everybody's share, whoever asks.

        Nobody can hold more than is used: by rule 2, used + size ≤ (memory − used − size) − used will do.
        """
        return not self.waiting and 3 * self.used * self.chunk_size + 2 * size <= self.memory

    def fits(self, asked: MemoryRequest) -> bool:
        """Whether `asked` may be appended now."""
        return self._obstacle(asked) is None

    def _obstacle(self, asked: MemoryRequest, places: Places | None = None) -> Party | None:
        tenant = asked.tenant
        if tenant is not None and self.waiting > tenant.waiting:  # others wait
            much = tenant.held + asked.size > self.memory // 2
            if tenant in self._ahead.tenants or (much and tenant.held):
                return Party(TENANT, tenant)
        return self.shares.obstacle(asked, self._left, self._ahead, places)

    def has_room(self, partition: Partition, size: int) -> bool:
        """Whether `partition` may have `size` bytes more, whoever waits."""
        return self.shares.has_room(partition.leader, partition.held, size, self._left)

    def roomiest(self, topic: Topic, size: int) -> int:
        """The available partition that holds least and may have `size` bytes more, whoever waits; −1: there is none."""
        return self.shares.roomiest(topic, size, self._left)

    @property
    def _left(self) -> int:
        return self.memory - self.used * self.chunk_size

    def flush(self) -> None:
        """Somebody must wait: what lingers, whoever's it is, has the memory, and need not be full to leave, as in
        Kafka's producer. While others wait nothing lingers, since what has been opened since then was due."""
        if not self.waiting:
            for flush in list(self._lingering):
                flush()

    def wait(self, asked: MemoryRequest, granted: Callable[[], None]) -> Waiter:
        """Queue for what does not fit; `granted` is called once, when it does, and appends at once."""
        self.waits += 1
        self.waiting += 1
        if asked.tenant is not None:
            asked.tenant.waiting += 1
        waiter = Waiter(asked, granted)
        self._waiters.append(waiter)
        party = self._obstacle(asked)
        if party is not None:
            self._ahead.add(party)
        self._again = True
        return waiter

    def cancel(self, waiter: Waiter) -> None:
        """Leave the queue: the client is gone. Its place may have been what held up the others."""
        if not waiter.over:
            self._leave(waiter)
            self.changed()

    def _leave(self, waiter: Waiter) -> None:
        waiter.over = True
        waiter.granted = _nothing  # it may stand in the queue for a while, and what it would have appended must not
        self.waiting -= 1
        if waiter.asked.tenant is not None:
            waiter.asked.tenant.waiting -= 1

    def changed(self) -> None:
        """Those that wait may fit: memory was freed, or what is held belongs to somebody else now."""
        if self._waiters:
            self._on_freed()

    def grant(self, clock: Callable[[], float] = _no_time) -> float:
        """Let in those that fit, in the order in which they came. Costs a look at each that waits: for how long, by
        `clock`, without what those did that were let in."""
        self._again = True
        if self._granting:  # a grant may free memory itself, or wait again: the loop below sees to it
            return 0.0
        self._granting = True
        began = clock()
        others = 0.0
        try:
            while self._again:
                self._again = False
                others += self._let_in(clock)
        finally:
            self._granting = False
            self._waiters = [waiter for waiter in self._waiters if not waiter.over]
        return clock() - began - others

    def _let_in(self, clock: Callable[[], float]) -> float:
        """How long that took which those did that were let in."""
        others = 0.0
        ahead = self._ahead
        ahead.clear()
        places: Places = {}
        for waiter in self._in_turn():
            if not waiter.over:
                party = self._obstacle(waiter.asked, places)
                if party is not None:
                    ahead.add(party)
                else:
                    granted = waiter.granted
                    if waiter.asked.tenant is not None:
                        self._grants += 1
                        waiter.asked.tenant.let_in = self._grants
                    self._leave(waiter)
                    began = clock()
                    granted()
                    others += clock() - began
                    places.clear()  # something is held since that was not
        return others

    def _in_turn(self) -> list[Waiter]:
        """Those that wait: of each tenant the first, then of each the second, and so on, each tenant's in the order in
        which they came. Whose turn was longest ago comes first.

        a1 a2 a3 b1 b2, where a was let in last: b1 a1 b2 a2 a3
        """
        waiters = list(self._waiters)
        rounds: dict[Tenant | None, int] = {}
        keys: list[tuple[int, int, int]] = []
        for place, waiter in enumerate(waiters):
            tenant = waiter.asked.tenant
            if waiter.over:
                keys.append((0, 0, place))
                continue
            turn = rounds.get(tenant, 0)
            rounds[tenant] = turn + 1
            keys.append((turn, tenant.let_in if tenant is not None else 0, place))
        if len(rounds) > 1:
            keys.sort()
            return [waiters[place] for _, _, place in keys]
        return waiters

    # Memory

    def take(self) -> memoryview:
        """A chunk, for one whose bytes were found to fit."""
        self.used += 1
        return self._free.pop() if self._free else memoryview(bytearray(self.chunk_size))

    def count(self, chunks: int) -> None:
        """So many are used that are none of the pool's: bytes that are kept where they came, and objects."""
        self.used += chunks
        self._trim()

    def give_back(self, chunks: list[memoryview], kept: int = 0) -> None:
        """Return the chunks of one batch that is gone, and what was counted for it; those that wait may fit now."""
        self.put_back(chunks, kept)
        self.changed()

    def put_back(self, chunks: list[memoryview], kept: int = 0) -> None:
        """Return chunks in the middle of an append, which nobody may come between."""
        self.used -= len(chunks) + kept
        self._free.extend(chunks[: self.keep])
        self._trim()

    def _trim(self) -> None:
        """Release the chunks kept for use again for which there is no room beside what is used."""
        most = max(0, self.memory // self.chunk_size - self.used)
        if len(self._free) > most:
            del self._free[most:]

    def charge(self, client: Hashable, node_id: int, size: int, charged: int = 0) -> None:
        """The client holds `size` bytes more of the broker's share; fewer if negative.

        `charged` is what the same request has been charged there before.
        """
        self.shares.charge_client(client, node_id, size, charged)
        if size < 0:
            self.changed()
