"""When clients are to leave, by a clock of the test's own."""

from __future__ import annotations

import pytest

from forebay_policies.leave_turns import APART_S, GAP_S, LeaveTurns


def leaving(turns: LeaveTurns, now: float) -> list[int | None]:
    return [node_id for node_id in (None, 0, 1, 7) if turns.has_come(node_id, now)]


def test_bootstrap_and_then_one_broker_after_the_other() -> None:
    turns = LeaveTurns([7, 0, 1, 7, 0], 100.0, 3.0)
    for apart, left in ((0, [None]), (1, [None, 0]), (2, [None, 0, 1]), (3, [None, 0, 1, 7])):
        assert leaving(turns, 100.0 + apart * APART_S) == left
        assert leaving(turns, 100.0 + (apart + 0.99) * APART_S) == left
    assert turns.last == 100.0 + 3 * APART_S


@pytest.mark.parametrize(("brokers", "last"), [(4, 3.0), (5, 3.0), (101, 3.0), (1, APART_S), (0, 0.0)])
def test_many_take_no_longer(brokers: int, last: float) -> None:
    turns = LeaveTurns(range(brokers), 100.0, 3.0)
    assert turns.last == pytest.approx(100.0 + last)
    assert turns.has_come(brokers - 1, 100.0 + last + 1e-9)


def test_all_at_once() -> None:
    assert leaving(LeaveTurns([0, 1, 7], 100.0, 0.0), 100.0) == [None, 0, 1, 7]
    assert all(LeaveTurns((), 100.0, 0.0).is_over(node_id, 100.0) for node_id in (None, 0))


@pytest.mark.parametrize(("node_id", "at"), [(0, 100.0 + APART_S), (None, 100.0), (7, 100.0)])
def test_a_turn_lasts_a_moment(node_id: int | None, at: float) -> None:
    turns = LeaveTurns([0, 1], 100.0, 3.0)
    assert [turns.is_over(node_id, now) for now in (at, at + GAP_S - 0.01, at + GAP_S + 0.01)] == [False, False, True]


def test_who_is_none_of_them_may_leave_at_once() -> None:
    assert LeaveTurns([0, 1], 100.0, 3.0).has_come(7, 100.0)
