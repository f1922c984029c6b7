"""Turns over a loop and a clock of the test's own."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from forebay_policies.loop_turns import SLICE_S, LoopTurns


class Loop:
    """What is called soon is called in the next turn; time passes as the test says."""

    def __init__(self) -> None:
        self.now = 0.0
        self._ready: list[Callable[[], None]] = []

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._ready.append(callback)

    def turn(self) -> int:
        """Returns how many callbacks there were."""
        ready, self._ready = self._ready, []
        for callback in ready:
            callback()
        return len(ready)


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


class Stage:
    def __init__(self) -> None:
        self.loop = Loop()
        self.turns = LoopTurns(lambda: self.loop.now, self.loop.call_soon)
        self.log: list[str] = []

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
