"""Whose handshake goes on when: over fake ones, with time in the test's hands."""

from __future__ import annotations

import pytest

from forebay_proxy.clients import handshakes as module
from forebay_proxy.clients.handshakes import (
    GIVES_WAY_S,
    MAX_PENDING,
    MAX_UNDER_WAY,
    STEPS_A_TURN,
    TIMEOUT_S,
    Handshakes,
)
from forebay_proxy.metrics.registry import MetricRegistry
from forebay_proxy.metrics.traffic import HandshakeMetrics
from tests.kit.event_loop import in_loop, turns, until


class Hall:
    def __init__(self, max_connections: int = 10_000) -> None:
        self.stats = MetricRegistry()
        self.handshakes = Handshakes(HandshakeMetrics(self.stats), max_connections)
        self.stepped: list[FakeHandshake] = []

    def come(self, count: int = 1) -> list[FakeHandshake]:
        found = [FakeHandshake(self) for _ in range(count)]
        assert all(self.handshakes.came(each) for each in found)
        return found

    def begin(self, count: int = 1) -> list[FakeHandshake]:
        found = self.come(count)
        for each in found:
            self.handshakes.arrived(each)
        return found

    def ended(self, result: str) -> float:
        return self.stats.take().counters["forebay_tls_handshakes_total", (result,)]


class FakeHandshake:
    def __init__(self, hall: Hall) -> None:
        self._hall = hall
        self.gave_up = ""

    def step(self) -> None:
        self._hall.stepped.append(self)

    def give_up(self, why: str) -> None:
        self.gave_up = why
        self._hall.handshakes.ended(self, why)

    def end(self) -> None:
        self._hall.handshakes.ended(self, "established")


@in_loop
async def test_a_few_take_a_step_in_each_turn_of_the_loop_and_all_in_the_end() -> None:
    hall = Hall()
    all_of_them = hall.begin(10)
    seen = []
    while len(hall.stepped) < 10:
        before = len(hall.stepped)
        await turns(1)
        seen.append(len(hall.stepped) - before)
    assert max(seen) <= STEPS_A_TURN
    assert hall.stepped == all_of_them
    hall.handshakes.close()


@in_loop
async def test_the_silent_take_nobodys_turn() -> None:
    hall = Hall()
    hall.come(MAX_PENDING - 1)
    (talker,) = hall.begin()
    await turns()
    assert hall.stepped == [talker]
    hall.handshakes.close()


@in_loop
async def test_no_more_than_64_are_under_way_and_the_next_begins_when_one_ends() -> None:
    hall = Hall()
    first = hall.begin(MAX_UNDER_WAY)
    waits = hall.begin(2)
    await turns(3 * MAX_UNDER_WAY)
    assert hall.stepped == first
    first[3].end()
    await turns()
    assert hall.stepped == [*first, waits[0]]
    hall.handshakes.arrived(first[5])  # its client has answered
    await turns()
    assert hall.stepped[-1] is first[5]
    hall.handshakes.close()


@in_loop
async def test_one_that_does_not_go_on_makes_room_for_those_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(module, "monotonic", lambda: now)
    hall = Hall()
    first = hall.begin(MAX_UNDER_WAY)
    (waits,) = hall.begin()
    await turns(3 * MAX_UNDER_WAY)
    now += GIVES_WAY_S
    hall.handshakes._look()
    await turns()
    assert first[0].gave_up == "timed_out"
    assert [each.gave_up for each in first[1:]] == [""] * (MAX_UNDER_WAY - 1)
    assert hall.stepped[-1] is waits
    hall.handshakes.close()


@in_loop
async def test_whoever_takes_too_long_is_given_up_silent_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(module, "monotonic", lambda: now)
    hall = Hall()
    (silent,) = hall.come()
    (slow,) = hall.begin()
    await turns()
    now += 1
    (late,) = hall.come()
    now += TIMEOUT_S - 1
    hall.handshakes._look()
    assert (silent.gave_up, slow.gave_up, late.gave_up) == ("timed_out", "timed_out", "")
    assert len(hall.handshakes) == 1
    assert hall.ended("timed_out") == 2
    hall.handshakes.close()


@in_loop
async def test_time_passes_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TIMEOUT_S", 0.01)
    hall = Hall()
    (silent,) = hall.come()
    await until(lambda: silent.gave_up)
    assert len(hall.handshakes) == 0
    assert hall.handshakes._timer is None  # nothing is left to wait for


@pytest.mark.parametrize(("max_connections", "most"), [(10_000, 1_024), (400, 100), (100, 64)])
@in_loop
async def test_a_quarter_of_all_connections_may_be_handshakes_but_64_may_and_1024_at_most(
    max_connections: int, most: int
) -> None:
    hall = Hall(max_connections)
    hall.come(most)
    assert not hall.handshakes.came(FakeHandshake(hall))
    hall.handshakes.close()


@in_loop
async def test_where_all_places_are_taken_the_oldest_silent_one_gives_way_if_it_is_old_enough(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0
    monkeypatch.setattr(module, "monotonic", lambda: now)
    hall = Hall(max_connections=1)
    silent = hall.come(MAX_UNDER_WAY)
    refused = FakeHandshake(hall)
    assert not hall.handshakes.came(refused)
    now += GIVES_WAY_S
    assert hall.handshakes.came(refused)
    assert [each.gave_up for each in silent[:2]] == ["refused", ""]
    hall.handshakes.close()


@in_loop
async def test_who_waits_for_a_turn_does_not_lose_it_to_those_who_come(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(module, "monotonic", lambda: now)
    hall = Hall(max_connections=1)
    waiting = hall.begin(MAX_UNDER_WAY - 1)
    (silent,) = hall.come()
    now += GIVES_WAY_S
    (late,) = hall.come()
    assert not hall.handshakes.came(FakeHandshake(hall))
    assert [silent.gave_up, late.gave_up] == ["refused", ""]
    await turns(MAX_UNDER_WAY)
    assert hall.stepped == waiting
    hall.handshakes.close()


@in_loop
async def test_what_has_ended_is_forgotten_wherever_it_was() -> None:
    hall = Hall()
    (silent,), (under_way,) = hall.come(), hall.begin()
    await turns()
    (waiting,) = hall.begin()
    hall.handshakes.arrived(under_way)
    for each in (silent, under_way, waiting):
        each.end()
        each.end()
    await turns()
    assert hall.stepped == [under_way]
    assert hall.ended("established") == 3
    handshakes = hall.handshakes
    assert [handshakes._pending, handshakes._silent, handshakes._waiting] == [{}] * 3
    assert [handshakes._going_on, handshakes._under_way] == [{}] * 2
    handshakes.close()


@in_loop
async def test_closed_it_gives_up_all_of_them() -> None:
    hall = Hall()
    found = [*hall.come(2), *hall.begin(2)]
    hall.handshakes.close()
    assert [each.gave_up for each in found] == ["client_left"] * 4
    assert not hall.handshakes.came(FakeHandshake(hall))
