"""Memory in chunks, bounded, given to those that wait in the order in which they came, as far as shares allow.

Where chunks are taken here without being charged to anybody, what is free may go to a broker that holds nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from forebay_policies.buffer_pool import BufferPool, Waiter
from forebay_policies.memory_shares import HeldUp, MemoryRequest, Tenant

KIB = 1024


def make(memory: int = 32 * KIB, chunk: int = 4 * KIB, batch_size: int = 16 * KIB) -> BufferPool:
    return BufferPool(memory, chunk, batch_size)


class Partition:
    def __init__(self, leader: int) -> None:
        self.leader = leader
        self.held = 0


PARTITION = Partition(0)
"""Holds nothing."""

OTHERS = "others"


class Topic:
    """Of one broker, and its partitions; `looks`: how often it was asked what one of them holds."""

    def __init__(self, *partitions: Partition) -> None:
        self.partitions = partitions
        self.leaders: Sequence[int] = [partition.leader for partition in partitions]
        self.available: Sequence[int] = range(len(partitions))
        self.looks = 0

    def held(self, partition: int) -> int:
        self.looks += 1
        return self.partitions[partition].held


def take(pool: BufferPool, count: int) -> list[memoryview]:
    return [pool.take() for _ in range(count)]


def asks(size: int, partition: Partition = PARTITION, client: object = None) -> MemoryRequest:
    asked = MemoryRequest(client or object())
    asked.add(lambda: partition, size)
    return asked


def fill(pool: BufferPool, partition: Partition, count: int, client: object = OTHERS) -> list[memoryview]:
    """Chunks that are charged to a partition, its broker and a client."""
    pool.charge(client, partition.leader, count * pool.chunk_size)
    partition.held += count * pool.chunk_size
    pool.shares.charge_broker(partition.leader, count * pool.chunk_size)
    return take(pool, count)


def empty(pool: BufferPool, partition: Partition, chunks: list[memoryview], client: object = OTHERS) -> None:
    pool.shares.charge_client(client, partition.leader, -len(chunks) * pool.chunk_size)
    partition.held -= len(chunks) * pool.chunk_size
    pool.shares.charge_broker(partition.leader, -len(chunks) * pool.chunk_size)
    pool.give_back(chunks)


def test_the_example_of_the_module() -> None:
    pool, held = make(48 * KIB), Partition(0)
    one, four = fill(pool, held, 1, "a"), fill(pool, held, 4, "b")
    let_in: list[int] = []
    asked = asks(pool.whole_chunks(6 * KIB))
    assert not pool.fits(asked)
    pool.wait(asked, lambda: let_in.append(pool.available))

    empty(pool, held, one, "a")

    assert let_in == [32 * KIB]
    empty(pool, held, four, "b")
    assert (pool.used, pool.available, len(let_in)) == (0, 48 * KIB, 1)


def test_chunks_are_of_the_initial_size() -> None:
    chunk = make().take()

    assert (len(chunk), chunk.readonly) == (4096, False)


def test_exactly_half_of_what_is_free_fits_and_one_byte_more_does_not() -> None:
    """4 + 12 KiB are held then, as much as is free."""
    pool = make()
    fill(pool, Partition(0), 1)

    assert pool.fits(asks(12 * KIB))
    assert not pool.fits(asks(12 * KIB + 1))


@given(st.integers(0, 40), st.integers(0, 40), st.integers(1, 40 * 64), st.sampled_from([1, 2]))
def test_plenty_is_never_too_much(mine: int, others: int, size: int, leader: int) -> None:
    """Whoever holds what is held."""
    pool, partition, client = BufferPool(40 * 64, 64, 256), Partition(1), object()
    fill(pool, partition, mine, client)
    fill(pool, Partition(2), others)
    if pool.plenty(size):
        assert pool.fits(asks(size, partition, client))


# What is kept


def test_a_freed_batch_gives_back_at_most_batch_size() -> None:
    pool = make(1024 * KIB)
    batch = take(pool, 64)

    pool.give_back(batch)

    assert pool.free_chunks == 4
    assert pool.used == 0
    again = take(pool, 4)
    assert {id(chunk) for chunk in again} <= {id(chunk) for chunk in batch}
    assert pool.free_chunks == 0
    fresh = pool.take()
    assert all(fresh is not chunk for chunk in batch)


def test_each_freed_batch_gives_back_its_own_share() -> None:
    pool = make(1024 * KIB)
    small, full, large = take(pool, 1), take(pool, 4), take(pool, 5)

    pool.give_back(small)
    pool.give_back(large)
    pool.give_back(full)

    assert pool.free_chunks == 1 + 4 + 4


def test_chunks_kept_are_memory_still_available() -> None:
    pool = make()
    pool.give_back(take(pool, 8))

    assert pool.free_chunks == 4
    assert pool.available == 32 * KIB
    assert pool.fits(asks(32 * KIB))


def test_chunks_kept_and_what_is_used_are_never_more_than_all_memory() -> None:
    """Whether it is chunks or bytes that are kept where they came."""
    pool = make()
    for batch in [take(pool, 4) for _ in range(2)]:
        pool.give_back(batch)
    assert pool.free_chunks == 8

    pool.count(5)
    assert (pool.used, pool.free_chunks) == (5, 3)

    chunk = take(pool, 1)
    pool.count(6)
    pool.give_back(chunk)
    assert (pool.used, pool.free_chunks) == (11, 0), "overdrawn"
    pool.give_back([], 11)
    assert (pool.used, pool.free_chunks) == (0, 0)


# Who waits


def waiting(pool: BufferPool, size: int, log: list[str], name: str, chunks: int = 0) -> Waiter:
    """A request that takes `chunks` when it is let in."""

    def granted() -> None:
        log.append(name)
        take(pool, chunks)

    return pool.wait(asks(size), granted)


def test_who_holds_something_never_overtakes_a_large_request_to_its_broker() -> None:
    pool, busy = make(), Partition(0)
    first, second = fill(pool, busy, 4), fill(pool, Partition(1), 2)
    log: list[str] = []
    waiting(pool, 12 * KIB, log, "large", chunks=3)
    pool.wait(asks(4 * KIB, busy), lambda: log.append("small"))

    assert not pool.fits(asks(1, busy))
    empty(pool, busy, first[:2])
    assert log == []
    assert not pool.fits(asks(1, busy)), "nobody new of the same broker is let in while anyone waits"

    empty(pool, busy, first[2:])
    assert log == ["large", "small"]
    pool.give_back(second)


def test_who_is_held_up_by_one_broker_is_in_nobody_elses_way() -> None:
    pool, stuck, well = make(), Partition(1), Partition(2)
    fill(pool, stuck, 3)
    log: list[str] = []
    for name in ("a", "b"):
        assert not pool.fits(asks(4 * KIB, stuck))
        pool.wait(asks(4 * KIB, stuck), partial(log.append, name))

    assert pool.fits(asks(4 * KIB, well))
    assert log == []


def test_who_is_held_up_by_its_own_share_is_in_nobody_elses_way() -> None:
    pool, client = make(), object()
    fill(pool, Partition(1), 3, client)
    log: list[str] = []
    pool.wait(asks(4 * KIB, Partition(1), client), lambda: log.append("flood"))

    assert not pool.fits(asks(4 * KIB, Partition(1), client))
    assert pool.fits(asks(4 * KIB, Partition(1)))
    assert pool.fits(asks(4 * KIB, Partition(2), client)), "a share of each broker"

    pool.charge(client, 1, -12 * KIB)
    assert log == ["flood"]


def test_who_observes_decides_when_those_that_wait_are_looked_at() -> None:
    pool = make()
    held = take(pool, 8)
    log: list[str] = []
    waiting(pool, 4 * KIB, log, "let in")
    pool.observe(freed=lambda: log.append("freed"))

    pool.give_back(held[:4])
    pool.give_back(held[4:])
    assert log == ["freed", "freed"]
    pool.grant()
    assert log == ["freed", "freed", "let in"]


def test_all_that_fit_are_let_in_at_once_in_their_order() -> None:
    pool = make()
    held = take(pool, 8)
    log: list[str] = []
    for name in ("a", "b", "c"):
        waiting(pool, 12 * KIB, log, name, chunks=3)

    pool.give_back(held)

    assert log == ["a", "b"]
    assert pool.used == 6
    assert pool.waits == 3


def anywhere(topic: Topic, size: int, client: object) -> MemoryRequest:
    asked = MemoryRequest(client)
    asked.add_movable(topic, size)
    return asked


def test_partitions_are_gone_over_once_for_all_that_wait_for_their_topic() -> None:
    """A client of a hundred connections has its whole share, and the partitions have room for others."""
    pool = make()
    topic = Topic(*[Partition(0) for _ in range(4)])
    held = [fill(pool, partition, 1, "client") for partition in topic.partitions]
    log: list[str] = []
    for _ in range(100):
        pool.wait(anywhere(topic, 4 * KIB, "client"), lambda: log.append("let in"))
    topic.looks = 0

    empty(pool, topic.partitions[0], held[0], "others, to be let in for nothing that is the client's")

    assert log == []
    assert topic.looks <= 4


def test_where_there_is_room_is_looked_up_anew_behind_each_that_is_let_in() -> None:
    pool, partition = make(), Partition(0)
    topic = Topic(partition)
    held = take(pool, 8)
    log: list[int] = []

    def let_in(number: int) -> None:
        log.append(number)
        fill(pool, partition, 2, number)
        pool.put_back(held[6:])  # as much is free as before

    for number in range(3):
        pool.wait(anywhere(topic, 8 * KIB, number), partial(let_in, number))
    pool.give_back(held[:6])

    assert log == [0]


def test_what_a_look_takes_does_not_count_what_those_do_that_are_let_in() -> None:
    pool = make()
    held = take(pool, 8)
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += 1.0
        return now

    def appends() -> None:
        nonlocal now
        now += 100.0

    pool.wait(asks(4 * KIB), appends)
    pool.observe(freed=lambda: None)
    pool.give_back(held)
    assert pool.grant(clock) == 2.0
    assert pool.grant(clock) == 1.0


def test_one_that_leaves_the_head_of_the_queue_lets_in_those_behind_it() -> None:
    pool, busy = make(64 * KIB), Partition(0)
    fill(pool, busy, 4)
    log: list[str] = []
    large = waiting(pool, 32 * KIB, log, "large")
    pool.wait(asks(4 * KIB, busy), lambda: log.append("small"))

    pool.cancel(large)

    assert log == ["small"]
    assert pool.waiting == 0
    assert pool.fits(asks(1, busy))


def test_one_that_leaves_the_middle_of_the_queue_is_passed_over() -> None:
    pool = make()
    held = take(pool, 8)
    log: list[str] = []
    waiting(pool, 4 * KIB, log, "a")
    middle = waiting(pool, 32 * KIB, log, "b")
    waiting(pool, 4 * KIB, log, "c")

    pool.cancel(middle)
    assert (pool.waiting, log) == (2, [])
    pool.cancel(middle)
    pool.give_back(held)

    assert log == ["a", "c"]
    assert pool.waiting == 0


def test_one_that_left_keeps_nothing_of_its_request_alive() -> None:
    """It may stand in the queue for as long as the one before it; its frame may be of 100 MiB."""

    def request() -> None:
        raise AssertionError("let in after it left")

    pool = make()
    held = take(pool, 8)
    log: list[str] = []
    waiting(pool, 32 * KIB, log, "head")
    gone = pool.wait(asks(1), request)

    pool.cancel(gone)
    assert gone.granted is not request
    pool.give_back(held)
    assert log == ["head"]


def test_leaving_after_being_let_in_changes_nothing() -> None:
    pool = make()
    held = take(pool, 8)
    log: list[str] = []
    early = waiting(pool, 4 * KIB, log, "early", chunks=1)
    pool.give_back(held)
    waiting(pool, 32 * KIB, log, "late")

    pool.cancel(early)

    assert log == ["early"]
    assert pool.waiting == 1


def test_a_request_larger_than_all_memory_is_let_in_alone() -> None:
    pool, busy = make(), Partition(0)
    assert pool.fits(asks(100 * KIB))
    held, last = fill(pool, busy, 6, "a"), fill(pool, busy, 2, "b")
    log: list[str] = []
    waiting(pool, 100 * KIB, log, "huge", chunks=25)
    waiting(pool, 1, log, "next", chunks=1)

    empty(pool, busy, held, "a")
    assert log == ["next"], "it holds nothing"
    assert not pool.fits(asks(1, busy))
    empty(pool, busy, last, "b")
    assert log == ["next"]
    pool.give_back(take(pool, 0))
    pool.used -= 1  # what "next" took
    pool.grant()

    assert log == ["next", "huge"]
    assert pool.available == 0, "never below 0"
    assert not pool.fits(asks(1))


def test_one_that_is_too_large_for_what_others_leave_is_in_nobody_elses_way() -> None:
    pool, stuck, well = make(64 * KIB), Partition(1), Partition(2)
    fill(pool, stuck, 8)
    fill(pool, well, 1)
    log: list[str] = []
    waiting(pool, 60 * KIB, log, "large")

    assert pool.fits(asks(4 * KIB, well))


def test_memory_freed_by_one_that_is_let_in_is_given_out_in_order_and_not_nested() -> None:
    pool = make()
    held = take(pool, 8)
    log: list[str] = []

    def first() -> None:
        log.append("first begins")
        pool.give_back(take(pool, 2))  # as opening up a compressed batch does
        log.append("first ends")

    pool.wait(asks(8 * KIB), first)
    waiting(pool, 4 * KIB, log, "second")

    pool.give_back(held)

    assert log == ["first begins", "first ends", "second"]


def test_one_that_waits_again_while_it_is_let_in_goes_to_the_back() -> None:
    pool = make()
    held = take(pool, 8)
    log: list[str] = []

    def first() -> None:
        log.append("first")
        waiting(pool, 4 * KIB, log, "first again")

    pool.wait(asks(4 * KIB), first)
    waiting(pool, 4 * KIB, log, "second")

    pool.give_back(held)

    assert log == ["first", "second", "first again"]


def test_one_that_is_let_in_may_send_the_next_one_away() -> None:
    pool = make()
    held = take(pool, 8)
    log: list[str] = []
    others: list[Waiter] = []
    pool.wait(asks(4 * KIB), lambda: pool.cancel(others[0]))
    others.append(waiting(pool, 4 * KIB, log, "second"))
    waiting(pool, 4 * KIB, log, "third")

    pool.give_back(held)

    assert log == ["third"]


def test_a_failure_of_one_that_is_let_in_does_not_stop_the_others() -> None:
    pool = make()
    first, second = take(pool, 4), take(pool, 4)
    log: list[str] = []

    def failing() -> None:
        raise RuntimeError("the client's connection is broken")

    pool.wait(asks(4 * KIB), failing)
    waiting(pool, 4 * KIB, log, "next")

    try:
        pool.give_back(first)
    except RuntimeError:
        log.append("told")
    pool.give_back(second)

    assert log == ["told", "next"]


# All together


class PoolMachine(RuleBasedStateMachine):
    """Requests that take their chunks when they are let in, hold them for a while, and some that leave."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = BufferPool(10 * 64, 64, 3 * 64)
        self.partitions = [Partition(leader) for leader in (0, 0, 1, 2)]
        self.held: list[tuple[Partition, int, list[memoryview]]] = []
        self.queue: list[tuple[int, Waiter]] = []
        self.let_in: list[int] = []
        self.cancelled: set[int] = set()
        self.peak = 0
        self.count = 0

    def _take(self, number: int, asked: MemoryRequest, partition: Partition, client: int) -> None:
        self.let_in.append(number)
        chunks = fill(self.pool, partition, asked.size // 64, client)
        taken = {id(chunk) for _, _, batch in self.held for chunk in batch}
        assert not taken & {id(chunk) for chunk in chunks}, "a chunk was given to two"
        self.held.append((partition, client, chunks))
        self.peak = max(self.peak, self.pool.used)

    @rule(chunks=st.integers(1, 14), which=st.integers(0, 3), client=st.integers(1, 3))
    def request(self, chunks: int, which: int, client: int) -> None:
        number, partition = self.count, self.partitions[which]
        asked = asks(chunks * 64, partition, client)
        self.count += 1
        if self.pool.fits(asked):
            self._take(number, asked, partition, client)
        else:
            granted: Callable[[], None] = lambda: self._take(number, asked, partition, client)  # noqa: E731
            self.queue.append((number, self.pool.wait(asked, granted)))

    def _free(self, index: int) -> None:
        partition, client, chunks = self.held.pop(index)
        empty(self.pool, partition, chunks, client)

    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        if self.held:
            self._free(data.draw(st.integers(0, len(self.held) - 1)))

    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        waiting = self._waiting()
        if waiting:
            number, waiter = data.draw(st.sampled_from(waiting))
            self.cancelled.add(number)
            self.pool.cancel(waiter)

    def _waiting(self) -> list[tuple[int, Waiter]]:
        over = {*self.let_in, *self.cancelled}
        return [(number, waiter) for number, waiter in self.queue if number not in over]

    @invariant()
    def exact(self) -> None:
        pool, waiting = self.pool, self._waiting()
        assert pool.used == sum(len(chunks) for _, _, chunks in self.held)
        assert pool.available == max(0, 640 - pool.used * 64)
        assert pool.used + pool.free_chunks <= self.peak, "memory only grows when more is held"
        assert pool.waiting == len(waiting)
        assert len(self.let_in) == len(set(self.let_in)), "once each"
        assert not self.cancelled & set(self.let_in)
        assert pool.used <= 10 or len(self.held) == 1, "only one that is larger than all memory overdraws, alone"
        if waiting:
            assert pool.used, "nothing is held, and yet someone waits"
            free = pool.memory - pool.used * 64
            first = pool.shares.obstacle(waiting[0][1].asked, free, HeldUp())
            assert first is not None, "the head of the queue fits, and yet it waits"

    def teardown(self) -> None:
        while self.held:
            self._free(len(self.held) - 1)
            self.exact()
        assert self.pool.used == 0
        assert self.pool.waiting == 0
        shares = self.pool.shares
        assert (shares.brokers, shares.clients, shares.first) == ({}, {}, {})
        assert len(self.let_in) + len(self.cancelled) == self.count


TestPool = PoolMachine.TestCase
TestPool.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def shared(tenants: int) -> tuple[BufferPool, list[Tenant]]:
    return make(64 * KIB), [Tenant() for _ in range(tenants)]


def test_tenants_that_wait_take_turns() -> None:
    """One that has sent a thousand requests does not stand in front of everybody else's first."""
    pool, (alice, bob) = shared(2)
    chunks = take(pool, 16)
    let_in: list[str] = []
    for name, tenant in [*((f"a{n}", alice) for n in range(1, 4)), ("b1", bob), ("b2", bob)]:
        asked = MemoryRequest(name, tenant)
        asked.add(partial(Partition, 0), 4 * KIB)
        pool.wait(asked, lambda name=name: let_in.append(name))  # type: ignore[misc]
    assert (alice.waiting, bob.waiting) == (3, 2)
    pool.give_back(chunks)
    assert let_in == ["a1", "b1", "a2", "b2", "a3"]
    assert (alice.waiting, bob.waiting, pool.waiting) == (0, 0, 0)


def test_whose_turn_was_longest_ago_is_first() -> None:
    pool, (alice, bob) = shared(2)
    bob.let_in, alice.let_in = 1, 2
    chunks = take(pool, 16)
    let_in: list[str] = []
    for name, tenant in (("a", alice), ("b", bob)):
        asked = MemoryRequest(name, tenant)
        asked.add(partial(Partition, 0), 4 * KIB)
        pool.wait(asked, lambda name=name: let_in.append(name))  # type: ignore[misc]
    pool.give_back(chunks)
    assert let_in == ["b", "a"]


def test_while_others_wait_a_tenant_may_hold_half() -> None:
    pool, (alice, bob) = shared(2)
    alice.held = 32 * KIB
    mine, large = MemoryRequest("a", alice), MemoryRequest("b", bob)
    mine.add(partial(Partition, 0), 4 * KIB)
    large.add(partial(Partition, 0), 36 * KIB)
    assert pool.fits(mine), "nobody waits"
    chunks = take(pool, 2)
    waiter = pool.wait(large, lambda: None)
    assert not pool.fits(mine)
    alice.held -= 4 * KIB
    assert pool.fits(mine)
    pool.cancel(waiter)
    alice.held += 4 * KIB
    assert pool.fits(mine)
    pool.put_back(chunks)
