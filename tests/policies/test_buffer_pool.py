"""Memory in chunks, bounded, given to those that wait in the order in which they came."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from forebay_policies.buffer_pool import BufferPool, Waiter

KIB = 1024


def make(memory: int = 32 * KIB, chunk: int = 4 * KIB, batch_size: int = 16 * KIB) -> BufferPool:
    return BufferPool(memory, chunk, batch_size)


def take(pool: BufferPool, count: int) -> list[memoryview]:
    return [pool.take() for _ in range(count)]


def test_the_example_of_the_module() -> None:
    pool = make()
    three, four = take(pool, 3), take(pool, 4)
    let_in: list[int] = []
    assert not pool.fits(6 * KIB)
    pool.wait(6 * KIB, lambda: let_in.append(pool.available))

    pool.give_back(three)

    assert let_in == [16 * KIB]
    pool.give_back(four)
    assert (pool.used, pool.available, len(let_in)) == (0, 32 * KIB, 1)


def test_chunks_are_of_the_initial_size() -> None:
    chunk = make().take()

    assert (len(chunk), chunk.readonly) == (4096, False)


def test_exactly_all_memory_fits_and_one_byte_more_does_not() -> None:
    pool = make()
    take(pool, 1)

    assert pool.fits(28 * KIB)
    assert not pool.fits(28 * KIB + 1)


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
    assert pool.fits(32 * KIB)


# Who waits


def waiting(pool: BufferPool, size: int, log: list[str], name: str, chunks: int = 0) -> Waiter:
    """A request that takes `chunks` when it is let in."""

    def granted() -> None:
        log.append(name)
        take(pool, chunks)

    return pool.wait(size, granted)


def test_a_small_request_never_overtakes_a_large_one() -> None:
    pool = make()
    first, second = take(pool, 4), take(pool, 4)
    log: list[str] = []
    waiting(pool, 32 * KIB, log, "large", chunks=8)
    waiting(pool, 1, log, "small", chunks=1)

    assert not pool.fits(1)
    pool.give_back(first)
    assert log == []
    assert not pool.fits(1), "nobody new is let in while anyone waits"

    pool.give_back(second)
    assert log == ["large"]
    assert pool.waiting == 1


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


def test_one_that_leaves_the_head_of_the_queue_lets_in_those_behind_it() -> None:
    pool = make()
    take(pool, 4)
    log: list[str] = []
    large = waiting(pool, 32 * KIB, log, "large")
    waiting(pool, 16 * KIB, log, "small")

    pool.cancel(large)

    assert log == ["small"]
    assert pool.waiting == 0
    assert pool.fits(1)


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
    gone = pool.wait(1, request)

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
    pool = make()
    assert pool.fits(100 * KIB)
    held, last = take(pool, 7), take(pool, 1)
    log: list[str] = []
    waiting(pool, 100 * KIB, log, "huge", chunks=25)
    waiting(pool, 1, log, "next", chunks=1)

    pool.give_back(held)
    assert log == []
    pool.give_back(last)

    assert log == ["huge"]
    assert pool.available == 0, "never below 0"
    assert not pool.fits(1)


def test_memory_freed_by_one_that_is_let_in_is_given_out_in_order_and_not_nested() -> None:
    pool = make()
    held = take(pool, 8)
    log: list[str] = []

    def first() -> None:
        log.append("first begins")
        pool.give_back(take(pool, 2))  # as opening up a compressed batch does
        log.append("first ends")

    pool.wait(8 * KIB, first)
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

    pool.wait(4 * KIB, first)
    waiting(pool, 4 * KIB, log, "second")

    pool.give_back(held)

    assert log == ["first", "second", "first again"]


def test_one_that_is_let_in_may_send_the_next_one_away() -> None:
    pool = make()
    held = take(pool, 8)
    log: list[str] = []
    others: list[Waiter] = []
    pool.wait(4 * KIB, lambda: pool.cancel(others[0]))
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

    pool.wait(4 * KIB, failing)
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
        self.held: list[list[memoryview]] = []
        self.queue: list[tuple[int, Waiter]] = []
        self.let_in: list[int] = []
        self.cancelled: set[int] = set()
        self.peak = 0
        self.count = 0

    def _take(self, number: int, size: int) -> None:
        self.let_in.append(number)
        chunks = take(self.pool, -(-size // 64))
        taken = {id(chunk) for batch in self.held for chunk in batch}
        assert not taken & {id(chunk) for chunk in chunks}, "a chunk was given to two"
        self.held.append(chunks)
        self.peak = max(self.peak, self.pool.used)

    @rule(chunks=st.integers(1, 14))
    def request(self, chunks: int) -> None:
        number, size = self.count, chunks * 64
        self.count += 1
        if self.pool.fits(size):
            self._take(number, size)
        else:
            granted: Callable[[], None] = lambda: self._take(number, size)  # noqa: E731
            self.queue.append((number, self.pool.wait(size, granted)))

    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        if self.held:
            self.pool.give_back(self.held.pop(data.draw(st.integers(0, len(self.held) - 1))))

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
        assert pool.used == sum(map(len, self.held))
        assert pool.available == max(0, 640 - pool.used * 64)
        assert pool.used + pool.free_chunks <= self.peak, "memory only grows when more is held"
        assert pool.waiting == len(waiting)
        assert self.let_in == sorted(set(self.let_in)), "first come, first served, once each"
        assert not self.cancelled & set(self.let_in)
        assert pool.used <= 10 or len(self.held) == 1, "only one that is larger than all memory overdraws, alone"
        if waiting:
            size = waiting[0][1].size
            assert pool.used, "nothing is held, and yet someone waits"
            assert size > pool.memory - pool.used * 64, "the head of the queue fits, and yet it waits"

    def teardown(self) -> None:
        while self.held:
            self.pool.give_back(self.held.pop())
            self.exact()
        assert self.pool.used == 0
        assert self.pool.waiting == 0
        assert len(self.let_in) + len(self.cancelled) == self.count


TestPool = PoolMachine.TestCase
TestPool.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
