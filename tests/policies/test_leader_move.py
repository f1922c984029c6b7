"""What comes by the former leader's port is too late once the same client has come by the new one's."""

from __future__ import annotations

from forebay_policies.leader_move import LATE_S, MOST, LeaderMove


def test_it_is_too_late_behind_what_came_by_the_new_leaders_port() -> None:
    move = LeaderMove(0.0)
    assert not move.too_late("till", by_leader=False)
    assert not move.too_late("till", by_leader=True)
    assert move.too_late("till", by_leader=False)
    assert not move.too_late("till", by_leader=True)


def test_one_client_makes_no_other_late() -> None:
    move = LeaderMove(0.0)
    move.too_late("till", by_leader=True)
    assert not move.too_late("anna", by_leader=False)


def test_it_is_over_when_clients_have_given_up() -> None:
    move = LeaderMove(5.0)
    assert not move.over(5.0 + LATE_S - 1)
    assert move.over(5.0 + LATE_S)


def test_where_there_are_too_many_to_remember_the_former_leader_refuses_all() -> None:
    move = LeaderMove(0.0)
    for number in range(MOST - 1):
        move.too_late(number, by_leader=True)
    assert not move.too_late("till", by_leader=False)
    move.too_late("one more", by_leader=True)
    assert move.too_late("till", by_leader=False)
    assert not move.too_late("till", by_leader=True)
