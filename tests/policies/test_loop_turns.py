"""Turns over a loop and a clock of the test's own."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest

from forebay_policies.hold_reason import HoldReason
from forebay_policies.loop_turns import LONG_S, LONGEST_S, SLICE_S, LoopTurns


class Loop:
    """What is called soon is called in the next turn; time passes as the test says."""

    def __init__(self) -> None:
        self.now = 0.0
        self._ready: list[Callable[[], None]] = []
        self._later: list[tuple[float, Callable[[], None]]] = []

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._ready.append(callback)

    def turn(self) -> int:
        """Returns how many callbacks there were."""
        ready, self._ready = self._ready, []
        for callback in ready:
            callback()
        return len(ready)

    def call_later(self, delay: float, callback: Callable[[], None]) -> None:
        self._later.append((self.now + delay, callback))

    def goes_on_until(self, end: float) -> None:
        """Nothing happens but what is due by then."""
        while due := [timer for timer in self._later if timer[0] <= end]:
            timer = min(due, key=lambda timer: timer[0])
            self._later.remove(timer)
            self.now = max(self.now, timer[0])
            timer[1]()
        self.now = max(self.now, end)


class Hasty:
    """Each request takes `cost` seconds; takes its slice, and gets in line again for what is left."""

    def __init__(self, loop: Loop, turns: LoopTurns, name: str, requests: int, cost: float, log: list[str]) -> None:
        self._loop, self._turns, self._name, self._cost, self._log = loop, turns, name, cost, log
        self.left = requests

    def turn(self) -> None:
        until = self._loop.now + SLICE_S
        self._log.append(self._name)
        while self.left:
            self.left -= 1
            self._loop.now += self._cost
            if self.left and self._loop.now >= until:
                self._turns.wait(self)
                return


class Long:
    """Whenever it may, it sends what takes `cost` seconds at once; `begun`: when."""

    def __init__(self, loop: Loop, turns: LoopTurns, cost: float) -> None:
        self._loop, self._turns, self.cost = loop, turns, cost
        self.left = self.held = self.idle = False
        self.begun: list[float] = []

    def sends(self) -> None:
        self.begun.append(self._loop.now)
        self._loop.now += self.cost
        self._turns.took(self, self.cost)

    def hold(self, why: HoldReason) -> None:
        assert why is HoldReason.LONG_TURN
        self.held = True

    def release(self, why: HoldReason) -> None:
        assert self.held
        assert why is HoldReason.LONG_TURN
        self.held = False
        if not (self.left or self.idle):
            self.sends()


class Stage:
    def __init__(self) -> None:
        self.loop = Loop()
        self.turns = LoopTurns(lambda: self.loop.now, self.loop.call_soon, self.loop.call_later)
        self.log: list[str] = []

    def long(self, cost: float) -> Long:
        """It has sent once."""
        client = Long(self.loop, self.turns, cost)
        client.sends()
        return client

    def hasty(self, name: str, requests: int, cost: float = SLICE_S / 10) -> Hasty:
        client = Hasty(self.loop, self.turns, name, requests, cost, self.log)
        self.turns.wait(client)
        return client


def test_each_in_line_gets_a_slice_in_order_of_arrival() -> None:
    stage = Stage()
    a, b = stage.hasty("a", 30), stage.hasty("b", 20)
    while stage.loop.turn():
        pass
    assert (a.left, b.left, len(stage.turns)) == (0, 0, 0)
    assert stage.log == ["a", "b", "a", "b", "a"]


def test_a_turn_of_the_loop_gives_one_slice_to_those_who_need_it_whole() -> None:
    """Whoever waits beside them waits for one slice, however many they are."""
    stage = Stage()
    for number in range(50):
        stage.hasty(str(number), 1000)
    begun = stage.loop.now
    stage.loop.turn()
    assert stage.loop.now - begun < 1.5 * SLICE_S
    assert stage.log == ["0"]


def test_a_turn_of_the_loop_is_for_many_who_need_little() -> None:
    stage = Stage()
    clients = [stage.hasty(str(number), 1, cost=SLICE_S / 20) for number in range(30)]
    stage.loop.turn()
    assert [client.left for client in clients].count(0) == 20
    stage.loop.turn()
    assert not any(client.left for client in clients)


def test_one_whose_request_takes_longer_than_a_slice_goes_on() -> None:
    stage = Stage()
    slow, quick = stage.hasty("slow", 3, cost=5 * SLICE_S), stage.hasty("quick", 3)
    while stage.loop.turn():
        pass
    assert (slow.left, quick.left) == (0, 0)
    assert stage.log == ["slow", "quick", "slow", "slow"]


def test_one_whose_turn_fails_holds_up_nobody() -> None:
    stage = Stage()

    class Broken:
        def turn(self) -> None:
            raise RuntimeError("a fault of ours")

    before, behind = stage.hasty("before", 3), Broken()
    stage.turns.wait(behind)
    last = stage.hasty("last", 3)
    with pytest.raises(RuntimeError):  # which the loop logs
        stage.loop.turn()
    while stage.loop.turn():
        pass
    assert (before.left, last.left, len(stage.turns)) == (0, 0, 0)


def test_the_loop_is_asked_for_one_turn_at_a_time_and_for_none_by_an_empty_line() -> None:
    stage = Stage()
    stage.hasty("a", 30)
    stage.hasty("b", 5)
    assert [stage.loop.turn() for _ in range(4)] == [1, 1, 1, 0]
    stage.hasty("a", 1)
    assert [stage.loop.turn() for _ in range(2)] == [1, 0]


class TestWhatTakesLong:
    def test_those_who_send_it_have_half_of_the_loop_in_turn_however_many_they_are(self) -> None:
        for costs in ([0.05], [0.05] * 4, [0.2, 0.02, 0.05]):
            stage = Stage()
            clients = [stage.long(cost) for cost in costs]
            begun = stage.loop.now
            stage.loop.goes_on_until(begun + 60)
            times = sorted((at, at + client.cost) for client in clients for at in client.begun if at >= begun)
            assert 0.45 * 60 < sum(end - at for at, end in times) < 0.51 * 60
            for (at, end), (next_at, _) in pairwise(times):
                assert next_at - end >= 0.999 * (end - at), "the others have as long"
            counts = [len(client.begun) for client in clients]
            assert max(counts) - min(counts) <= 1

    def test_one_goes_on_when_others_had_as_long_as_it_and_the_one_before(self) -> None:
        stage = Stage()
        a, b = stage.long(0.05), stage.long(0.04)
        stage.loop.goes_on_until(0.3)
        assert [round(at, 3) for at in a.begun] == [0.0, 0.1, 0.28]
        assert [round(at, 3) for at in b.begun] == [0.05, 0.2]

    def test_nor_sooner_where_it_has_put_it_off(self) -> None:
        stage = Stage()
        client = stage.long(0.05)
        client.idle = True
        stage.loop.goes_on_until(0.18)
        assert not client.held
        client.idle = False
        client.sends()
        stage.loop.goes_on_until(0.27)
        assert client.held
        stage.loop.goes_on_until(0.281)
        assert [round(at, 3) for at in client.begun] == [0.0, 0.18, 0.28]

    def test_parts_of_what_it_sent_count_together(self) -> None:
        stage = Stage()
        client, other = stage.long(0.05), stage.long(0.02)
        client.sends()  # the next part of its request
        stage.loop.goes_on_until(0.17)
        assert len(client.begun) == 3
        stage.loop.goes_on_until(0.36)
        assert len(other.begun) == 1, "twice what both parts took"
        stage.loop.goes_on_until(0.38)
        assert len(other.begun) == 2

    def test_what_takes_less_holds_nobody(self) -> None:
        stage = Stage()
        client = stage.long(0.9 * LONG_S)
        assert not client.held
        stage.loop.goes_on_until(1.0)
        assert len(client.begun) == 1

    def test_a_process_that_was_stopped_is_not_taken_for_busy(self) -> None:
        stage = Stage()
        client = stage.long(60.0)
        client.cost = 0.05
        other = stage.long(0.05)
        stage.loop.goes_on_until(60.0 + LONGEST_S + 0.001)
        assert len(client.begun) == 2
        stage.loop.goes_on_until(60.0 + 3 * LONGEST_S + 0.001)
        assert len(other.begun) == 2

    def test_nobody_waits_for_those_who_have_left(self) -> None:
        stage = Stage()
        gone = [stage.long(0.05) for _ in range(10)]
        last = stage.long(0.05)
        for client in gone:
            client.left = True
        now = stage.loop.now
        stage.loop.goes_on_until(now + 0.051)
        assert len(last.begun) == 2
        assert not any(client.held for client in gone)
