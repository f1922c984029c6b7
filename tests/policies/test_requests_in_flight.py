"""How many requests a broker may have: nobody takes the places of those who must not wait for it."""

from __future__ import annotations

from forebay_policies.dispatch_groups import DispatchGroup
from forebay_policies.requests_in_flight import MAX_REQUESTS, RequestsInFlight
from forebay_policies.throttling import CLIENT_ID


def acks_1(client_id: str | None = CLIENT_ID, *, suspect: bool = False) -> DispatchGroup:
    return DispatchGroup(1, None, client_id, suspect=suspect)


def acks_all(*replicas: int, suspect: bool = False) -> DispatchGroup:
    return DispatchGroup(1, replicas, CLIENT_ID, suspect=suspect)


def sends(away: RequestsInFlight, group: DispatchGroup) -> int:
    """As many as it may; how many those were."""
    before = away.count
    while away.may_send(group):
        away.sent(group)
    return away.count - before


def test_acks_1_has_as_many_as_set_however_many_of_acks_all_are_away() -> None:
    away = RequestsInFlight(5)
    for number in range(20):
        sends(away, acks_all(number))

    assert sends(away, acks_1()) == 5


def test_each_replica_set_has_one_and_more_while_the_broker_has_few() -> None:
    away = RequestsInFlight(5)

    assert [sends(away, acks_all(number)) for number in range(6)] == [5, 5, 5, 1, 1, 1]


def test_where_client_ids_are_kept_apart_each_has_one_and_more_while_the_broker_has_few() -> None:
    away = RequestsInFlight(5)

    assert [sends(away, acks_1(f"client-{number}")) for number in range(6)] == [5, 5, 5, 1, 1, 1]


def test_what_is_suspect_has_one_at_a_time_and_shares_a_bound_with_its_kind() -> None:
    away = RequestsInFlight(5)

    assert [sends(away, acks_1(suspect=True)) for _ in range(MAX_REQUESTS + 1)] == [1] * MAX_REQUESTS + [0]
    assert sends(away, acks_all(1, suspect=True)) == 1
    assert sends(away, acks_1()) == 5


def test_an_answer_makes_room_for_the_next() -> None:
    away = RequestsInFlight(1)
    group, other = acks_1(), acks_1(suspect=True)
    sends(away, group)
    sends(away, other)
    away.done(group)

    assert (away.may_send(group), away.may_send(other), away.count) == (True, False, 1)
    away.done(other)
    assert (away.may_send(other), away.count) == (True, 0)


def test_no_more_than_connections_allow_are_set() -> None:
    assert sends(RequestsInFlight(1_000), acks_1()) == MAX_REQUESTS
