"""What may be held of responses that are gathered: who waits, who goes on, whose client is closed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay_policies.inbound_memory import READ, SLOWEST
from forebay_policies.response_memory import SMALL, ResponseMemory


class FakeHolder:
    def __init__(self, memory: ResponseMemory) -> None:
        self.memory = memory
        self.moved = 0
        self.gathered = 0
        self.untaken = 0
        self.waits = False
        self.closed = False

    @property
    def client_slow(self) -> bool:
        return self.untaken > 0

    def hold_reading(self, *, hold: bool) -> None:
        assert self.waits != hold
        self.waits = hold

    def not_taken(self) -> None:
        self.closed = True
        self.leaves()

    def tell(self) -> None:
        self.memory.set_held(self, self.gathered + self.untaken, gathering=self.gathered > 0)

    def gathers(self, size: int) -> None:
        assert not self.waits
        self.moved += size
        self.gathered += size
        self.tell()

    def is_whole(self) -> None:
        self.untaken, self.gathered = self.untaken + self.gathered, 0
        self.tell()

    def takes(self, size: int) -> None:
        self.moved += size
        self.untaken -= size
        self.tell()

    def leaves(self) -> None:
        self.gathered = self.untaken = 0
        self.tell()


class LeavesLater(FakeHolder):
    """As a connection: what it holds is given back in a later turn of the loop."""

    def not_taken(self) -> None:
        self.closed = True


def holders(
    memory: ResponseMemory, count: int, size: int = READ, kind: type[FakeHolder] = FakeHolder
) -> list[FakeHolder]:
    made = [kind(memory) for _ in range(count)]
    for holder in made:
        holder.gathers(size)
    return made


def test_within_the_limit_nobody_waits() -> None:
    memory = ResponseMemory(4 * READ)
    assert not any(holder.waits for holder in holders(memory, 4))
    assert memory.total == 4 * READ


def test_beyond_the_limit_they_go_on_in_turn() -> None:
    memory = ResponseMemory(2 * READ)
    first, second, third, fourth = holders(memory, 4)
    assert [holder.waits for holder in (first, second, third, fourth)] == [False, False, True, True]
    first.leaves()
    second.leaves()
    assert [third.waits, fourth.waits] == [False, True]
    third.leaves()
    assert not fourth.waits
    fourth.leaves()
    assert memory.total == 0


def test_a_response_larger_than_the_limit_gets_through_alone() -> None:
    memory = ResponseMemory(READ)
    (giant,) = holders(memory, 1)
    for _ in range(20):
        giant.gathers(READ)
    (other,) = holders(memory, 1)
    assert other.waits
    giant.is_whole()
    assert not other.waits, "nothing else is read"


def test_what_a_client_has_not_taken_counts() -> None:
    memory = ResponseMemory(2 * READ)
    (slow,) = holders(memory, 1)
    slow.is_whole()
    _, second = holders(memory, 2, READ - 1)
    assert second.waits
    slow.takes(READ)
    assert not second.waits


def test_a_broker_that_pauses_gives_its_turn_away_and_keeps_its_client() -> None:
    memory = ResponseMemory(READ)
    pausing, other, third = holders(memory, 3)
    assert [pausing.waits, other.waits, third.waits] == [False, True, True]
    memory.tick()
    assert other.waits
    memory.tick()
    assert [other.waits, third.waits] == [False, True]
    pausing.gathers(READ)
    assert pausing.waits, "another one is being read now"
    other.leaves()
    assert not third.waits
    third.leaves()
    assert not pausing.waits
    assert not pausing.closed


def test_a_client_that_takes_nothing_is_closed_where_others_wait_for_it() -> None:
    memory = ResponseMemory(2 * READ)
    (hoarder,) = holders(memory, 1, 10 * READ)
    hoarder.is_whole()
    for _ in range(10):
        memory.tick()
    assert not hoarder.closed, "nobody waits"
    first, second = holders(memory, 2)
    assert [first.waits, second.waits] == [False, True]
    memory.tick()
    assert hoarder.closed
    assert not second.waits


@pytest.mark.parametrize("kind", [FakeHolder, LeavesLater])
def test_of_clients_that_take_nothing_one_after_the_other_the_oldest_are_closed(kind: type[FakeHolder]) -> None:
    memory = ResponseMemory(2 * READ)
    hoarders: list[FakeHolder] = []
    for _ in range(22):
        (hoarder,) = holders(memory, 1, READ, kind)
        hoarder.is_whole()
        hoarders.append(hoarder)
        for _ in range(2):
            memory.tick()
            for closed in hoarders:
                if closed.closed:
                    closed.leaves()
        assert memory.total <= 5 * READ, "each was the only one that is read"
    assert [hoarder.closed for hoarder in hoarders] == [True] * 18 + [False] * 4


def test_of_two_that_each_hold_too_much_one_is_kept() -> None:
    memory = ResponseMemory(2 * READ)
    (first,) = holders(memory, 1, 10 * READ, LeavesLater)
    first.is_whole()
    (second,) = holders(memory, 1, 10 * READ, LeavesLater)
    second.is_whole()
    memory.tick()
    memory.tick()
    assert [first.closed, second.closed] == [True, False]


@pytest.mark.parametrize("kind", [FakeHolder, LeavesLater])
def test_where_others_wait_no_more_are_closed_than_make_room(kind: type[FakeHolder]) -> None:
    memory = ResponseMemory(10 * READ)
    stuck = holders(memory, 9, kind=kind)
    for holder in stuck:
        holder.is_whole()
    reading, waiting = *holders(memory, 1), *holders(memory, 1)
    assert (reading.waits, waiting.waits) == (False, True)
    memory.tick()
    reading.gathers(SLOWEST)
    memory.tick()
    assert [holder.closed for holder in stuck] == [True] * 2 + [False] * 7


def test_a_client_that_takes_it_slowly_is_not_closed() -> None:
    memory = ResponseMemory(2 * READ)
    (slow,) = holders(memory, 1, 10 * READ)
    slow.is_whole()
    holders(memory, 2)
    for _ in range(20):
        slow.takes(SLOWEST)
        memory.tick()
    assert not slow.closed


def test_reads_are_small_where_there_is_no_room() -> None:
    memory = ResponseMemory(2 * READ)
    assert memory.next_read() == READ
    (holder,) = holders(memory, 1, 2 * READ - 20_000)
    assert memory.next_read() == 20_000
    holder.gathers(READ)
    assert memory.next_read() == SMALL


@given(st.lists(st.tuples(st.integers(0, 4), st.sampled_from(["gather", "whole", "take", "leave", "tick"]))))
def test_there_is_never_a_deadlock_and_every_byte_is_given_back(steps: list[tuple[int, str]]) -> None:
    memory = ResponseMemory(2 * READ)
    made = [FakeHolder(memory) for _ in range(5)]
    for number, what in steps:
        holder = made[number]
        if what == "tick":
            memory.tick()
        elif what == "leave":
            holder.leaves()
        elif what == "take" and holder.untaken:
            holder.takes(holder.untaken)
        elif what == "gather" and not holder.waits:
            holder.gathers(READ)
        elif what == "whole" and holder.gathered and not holder.waits:
            holder.is_whole()
        assert memory.total == sum(holder.gathered + holder.untaken for holder in made)
        waiting = [holder for holder in made if holder.waits]
        assert all(holder.gathered for holder in waiting)
        assert not waiting or any(holder.gathered and not holder.waits for holder in made)
    for holder in made:
        holder.leaves()
    assert memory.total == memory._reading == 0
    assert not any(holder.waits for holder in made)
