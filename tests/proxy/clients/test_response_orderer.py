"""Whatever order answers come in, they leave in the order of the requests, and at the earliest moment."""

from __future__ import annotations

from time import monotonic

from hypothesis import given
from hypothesis import strategies as st

from forebay_codecs.primitives import Buffer
from forebay_proxy.clients.response_orderer import MERGED, PASSED, ResponseOrderer, Slot
from forebay_proxy.metrics.catalog import PATHS, TIMES_S
from forebay_proxy.metrics.instruments import Histogram


class Wire:
    """What has left, and whether it left in order."""

    def __init__(self) -> None:
        self.out = b""
        self.orderer = ResponseOrderer(self.write)

    def write(self, buffers: list[Buffer]) -> None:
        self.out += b"".join(buffers)


def test_the_head_writes_through_and_the_others_hold() -> None:
    wire = Wire()
    first, second = wire.orderer.open(), wire.orderer.open()
    wire.orderer.write(second, b"22", last=True)
    assert (wire.out, wire.orderer.held, len(wire.orderer)) == (b"", 2, 2)
    wire.orderer.write(first, b"1", last=False)
    assert wire.out == b"1"
    wire.orderer.write(first, b"1", last=True)
    assert (wire.out, wire.orderer.held, len(wire.orderer)) == (b"1122", 0, 0)


def test_a_slot_that_becomes_the_head_half_written_writes_what_it_held_and_goes_on() -> None:
    wire = Wire()
    first, second, third = [wire.orderer.open() for _ in range(3)]
    wire.orderer.write(second, b"2", last=False)
    wire.orderer.write(third, b"3", last=True)
    wire.orderer.write(first, b"1", last=True)
    assert wire.out == b"12"
    wire.orderer.write(second, b"2", last=False)
    assert wire.out == b"122"
    wire.orderer.write(second, b"2", last=True)
    assert wire.out == b"12223"


@given(st.data())
def test_any_order_of_writes_leaves_in_the_order_of_requests(data: st.DataObject) -> None:
    wire = Wire()
    pieces = data.draw(st.lists(st.lists(st.binary(max_size=4), min_size=1, max_size=3), max_size=6))
    slots: list[Slot] = []
    done = [0] * len(pieces)
    while len(slots) < len(pieces) or any(done[n] < len(pieces[n]) for n in range(len(slots))):
        open_slots = [n for n in range(len(slots)) if done[n] < len(pieces[n])]
        choices = [*open_slots, *([-1] if len(slots) < len(pieces) else [])]
        chosen = data.draw(st.sampled_from(choices))
        if chosen < 0:
            slots.append(wire.orderer.open())
            continue
        piece = pieces[chosen][done[chosen]]
        done[chosen] += 1
        wire.orderer.write(slots[chosen], piece, last=done[chosen] == len(pieces[chosen]))
        expected = b""
        whole = 0
        for number in range(len(slots)):  # everything up to the first request that is not wholly answered
            expected += b"".join(pieces[number][: done[number]])
            if done[number] < len(pieces[number]):
                break
            whole += 1
        assert wire.out == expected
        assert len(wire.orderer) == len(slots) - whole
        written = sum(len(piece) for number, taken in enumerate(done) for piece in pieces[number][:taken])
        assert wire.orderer.held == written - len(expected)


class TestAddedTime:
    """What a response took beside its broker's time, from its request's being whole until it leaves."""

    def setup_method(self) -> None:
        self.added = tuple(Histogram(TIMES_S, 0.0) for _ in PATHS)
        self.orderer = ResponseOrderer(lambda buffers: None, self.added)

    def open(self, ago: float) -> Slot:
        self.orderer.since = monotonic() - ago
        return self.orderer.open()

    def seen(self) -> list[int]:
        return [sum(histogram.counts) for histogram in self.added]

    def test_it_is_all_time_but_the_brokers(self) -> None:
        slot = self.open(ago=100.0)
        slot.took = 90.0
        self.orderer.write(slot, b"1", last=True)
        assert self.seen() == [1, 0, 0]
        assert 10.0 <= self.added[MERGED].sum < 60.0

    def test_a_wait_behind_a_slower_answer_counts(self) -> None:
        first, second = self.open(ago=0.0), self.open(ago=50.0)
        second.took, second.path = 0.0, PASSED
        self.orderer.write(second, b"2", last=True)
        assert self.seen() == [0, 0, 0]
        self.orderer.write(first, b"1", last=True)
        assert self.seen() == [0, 0, 1]
        assert self.added[PASSED].sum >= 50.0

    def test_where_the_brokers_time_is_not_known_nothing_is_said(self) -> None:
        self.orderer.write(self.open(ago=10.0), b"1", last=True)
        assert self.seen() == [0, 0, 0]

    def test_it_is_never_less_than_nothing(self) -> None:
        slot = self.open(ago=1.0)
        slot.took = 99.0
        self.orderer.write(slot, b"1", last=True)
        assert self.added[MERGED].sum == 0.0
