"""Who shares requests with whom: replica sets, a bound on their number, and halves of what was slow."""

from __future__ import annotations

from itertools import combinations

import pytest

from forebay_policies.dispatch_groups import MAX_GROUPS, DispatchGroup, DispatchGroups, GroupMember

ONE = None
"""Replicas of queues that wait for their leader alone."""


class Stage:
    """Queues of one leader."""

    def __init__(self, *replicas: tuple[int, ...] | None) -> None:
        self.groups = DispatchGroups()
        self.queues = [GroupMember(1, each) for each in replicas]
        for queue in self.queues:
            self.groups.place(queue)

    def together(self) -> list[list[int]]:
        """Which queues share requests, by number."""
        found: dict[DispatchGroup | None, list[int]] = {}
        for number, queue in enumerate(self.queues):
            found.setdefault(queue.group, []).append(number)
        return sorted(found.values())

    def took(self, seconds: float, *numbers: int) -> None:
        """A request with these queues, which share a group."""
        queues = [self.queues[number] for number in numbers]
        [group] = {queue.group for queue in queues}
        assert group is not None
        self.groups.answered(group, queues, seconds)


def test_queues_of_a_replica_set_are_together_and_those_that_wait_for_nobody() -> None:
    stage = Stage(ONE, (1, 2), ONE, (1, 3), (1, 2))

    assert stage.together() == [[0, 2], [1, 4], [3]]


def test_more_replica_sets_than_groups_share_them_and_never_with_acks_1() -> None:
    sets = list(combinations(range(12), 3))
    stage = Stage(*sets, ONE, *sets)
    groups = stage.together()

    assert len(groups) == MAX_GROUPS + 1
    assert [len(sets)] in groups
    assert all(number in group for group in groups for number in [n + len(sets) + 1 for n in group if n < len(sets)])


def test_client_ids_share_no_group_and_take_no_other_the_place() -> None:
    groups = DispatchGroups()
    queues = [
        GroupMember(1, replicas, client_id)
        for client_id in ("a", "b", None)
        for replicas in (ONE, *[(number,) for number in range(2 * MAX_GROUPS)])
    ]
    for queue in queues:
        groups.place(queue)

    found = {queue.group for queue in queues}
    assert len(found) == 3 * (MAX_GROUPS + 1)
    assert all(queue.group is not None and queue.group.client_id == queue.client_id for queue in queues)
    for queue in queues:
        groups.leave(queue)
    assert groups._homes == {}


def test_what_is_split_off_keeps_its_client_id() -> None:
    groups = DispatchGroups()
    queues = [GroupMember(1, ONE, "a") for _ in range(2)]
    for queue in queues:
        groups.place(queue)
    home = queues[0].group
    assert home is not None
    groups.answered(home, queues, 3.0)

    assert [queue.group.client_id for queue in queues if queue.group is not None and queue.group.suspect] == ["a", "a"]


def test_a_group_that_nobody_stands_in_makes_room_for_another() -> None:
    stage = Stage(*[(number,) for number in range(MAX_GROUPS + 1)])
    assert len(stage.together()) == MAX_GROUPS
    alone = next(queue for queue in stage.queues if queue.home is not None and queue.home.members == 1)
    stage.groups.leave(alone)
    newcomer = GroupMember(1, (99,))
    stage.groups.place(newcomer)

    assert newcomer.home is not None
    assert newcomer.home.members == 1


def test_the_slow_one_of_eight_is_found_by_halving() -> None:
    """As in the module."""
    stage = Stage(*[ONE] * 8)
    stage.took(3.0, *range(8))
    assert stage.together() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    stage.took(0.001, 0, 1, 2, 3)
    stage.took(3.0, 4, 5, 6, 7)
    assert stage.together() == [[0, 1, 2, 3], [4, 5], [6, 7]]
    stage.took(0.001, 6, 7)
    stage.took(3.0, 4, 5)
    stage.took(0.001, 4)
    for _ in range(100):
        stage.took(3.0, 5)
        stage.took(0.001, 0, 1, 2, 3, 4, 6, 7)
        assert stage.together() == [[0, 1, 2, 3, 4, 6, 7], [5]]

    stage.took(0.001, 5)
    assert stage.together() == [list(range(8))]


@pytest.mark.parametrize("seconds", [0.001, 0.1])
def test_a_tenth_of_a_second_is_not_slow(seconds: float) -> None:
    stage = Stage(*[(1, 2)] * 4)
    for _ in range(10):
        stage.took(seconds, 0, 1, 2, 3)

    assert stage.together() == [[0, 1, 2, 3]]


def test_what_is_slow_for_all_becomes_usual() -> None:
    stage = Stage(*[(1, 2)] * 32)
    rounds = 0
    while rounds < 12 or len(stage.together()) > 1:
        for numbers in stage.together():
            stage.took(2.0, *numbers)
        rounds += 1
        assert rounds < 20

    assert stage.together() == [list(range(32))]


def test_replica_sets_that_share_a_group_part_first() -> None:
    sets = [(number, number + 1) for number in range(MAX_GROUPS)]
    other = next((n, n + 9) for n in range(99, 999) if hash((n, n + 9)) % MAX_GROUPS == 0)
    stage = Stage(*sets, other, sets[0], other)
    assert [0, 16, 17, 18] in stage.together()

    stage.took(1.0, 0, 16, 17, 18)

    assert [group for group in stage.together() if len(group) > 1] == [[0, 17], [16, 18]]


def test_a_ready_queue_stays_ready_in_its_half_and_those_that_moved_away_are_left_alone() -> None:
    stage = Stage(*[ONE] * 4)
    home = stage.queues[0].group
    assert home is not None
    for queue in stage.queues:
        assert stage.groups.add(queue)
        assert not stage.groups.add(queue)
    stage.groups.leave(stage.queues[3])
    stage.groups.answered(home, stage.queues, 1.0)

    assert [list(group.ready) for group in stage.groups.ready(1)] == [[stage.queues[0]], stage.queues[1:3]]
    assert all(group.suspect for group in stage.groups.ready(1))
    assert stage.queues[3].group is None
