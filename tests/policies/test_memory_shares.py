"""The rule by which memory is shared, in numbers: 1200 bytes, requests of 1 byte unless told."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pytest

from forebay_policies.accumulator import NO_LEADER
from forebay_policies.memory_shares import (
    BROKER,
    CLIENT,
    PARTITION,
    HeldUp,
    MemoryRequest,
    MemoryShares,
    Party,
)

MEMORY = 1200


class FakePartition:
    def __init__(self, leader: int, held: int = 0) -> None:
        self.leader = leader
        self.held = held


class FakeTopic:
    def __init__(self, *partitions: FakePartition, available: Sequence[int] | None = None) -> None:
        self.partitions = partitions
        self.leaders: Sequence[int] = [partition.leader for partition in partitions]
        self.available: Sequence[int] = range(len(partitions)) if available is None else available

    def held(self, partition: int) -> int:
        return self.partitions[partition].held


class Bench:
    def __init__(self) -> None:
        self.shares = MemoryShares(MEMORY)
        self.free = MEMORY
        self.ahead = HeldUp()

    def hold(self, partition: FakePartition, size: int, client: object = None, charged: int = 0) -> None:
        partition.held += size
        self.shares.charge_broker(partition.leader, size)
        self.shares.charge_client(client or object(), partition.leader, size, charged)
        self.free -= size

    def obstacle(self, partition: FakePartition, size: int = 1, client: object = None) -> Party | None:
        asked = MemoryRequest(client or object())
        asked.add(lambda: partition, size)
        return self.shares.obstacle(asked, self.free, self.ahead)

    def obstacle_anywhere(self, topic: FakeTopic, size: int = 1) -> Party | None:
        asked = MemoryRequest(object())
        asked.add_movable(topic, size)
        return self.shares.obstacle(asked, self.free, self.ahead)

    def flood(self, partitions: Sequence[FakePartition], client: object = None) -> list[int]:
        """Requests of 1 byte to each in turn, nothing of which is ever sent, until none is let in."""
        stuck = False
        while not stuck:
            stuck = True
            for partition in partitions:
                if self.obstacle(partition, 1, client) is None:
                    self.hold(partition, 1, client)
                    stuck = False
        return [partition.held for partition in partitions]


def crowd(leader: int) -> list[FakePartition]:
    """So many partitions that each holds next to nothing."""
    return [FakePartition(leader) for _ in range(MEMORY)]


@pytest.mark.parametrize(("brokers", "each"), [(1, 600), (2, 400), (3, 300), (11, 100)])
def test_each_of_n_brokers_that_hang_holds_what_they_leave_free(brokers: int, each: int) -> None:
    bench = Bench()
    crowds = [crowd(leader) for leader in range(brokers)]
    bench.flood([partition for each_ones in zip(*crowds, strict=True) for partition in each_ones])

    assert list(bench.shares.brokers.values()) == pytest.approx([each] * brokers, abs=2)
    assert bench.free == pytest.approx(each, abs=2 * brokers)


@pytest.mark.parametrize("of_request", [1, 4, 16])
def test_all_partitions_of_a_clients_first_request_count(of_request: int) -> None:
    bench = Bench()
    while True:
        client, parts = object(), [FakePartition(1) for _ in range(of_request)]
        asked = MemoryRequest(client)
        for part in parts:
            asked.add(lambda part=part: part, 1)  # type: ignore[misc]
        if bench.shares.obstacle(asked, bench.free, bench.ahead) is not None:
            break
        for charged, part in enumerate(parts):
            bench.hold(part, 1, client, charged)
        bench.hold(FakePartition(1), 1, client)  # of another request, which counts for its client alone

    assert bench.free == pytest.approx(of_request * MEMORY / (2 * of_request + 1), abs=2 * of_request)


def test_brokers_that_hang_one_after_the_other_halve_what_is_left() -> None:
    """What is held is not taken back: the first one's records must be answered before the shares are even."""
    bench = Bench()
    for leader in range(3):
        bench.flood(crowd(leader))

    assert list(bench.shares.brokers.values()) == pytest.approx([600, 300, 150], abs=2)


@pytest.mark.parametrize(("partitions", "each"), [(1, 400), (2, 240), (5, 109)])
def test_partitions_that_are_stuck_leave_their_broker_as_much_as_each_of_them_holds(partitions: int, each: int) -> None:
    bench = Bench()

    assert bench.flood([FakePartition(1) for _ in range(partitions)]) == pytest.approx([each] * partitions, abs=2)
    assert bench.obstacle(FakePartition(1), each // 2) is None
    assert bench.obstacle(FakePartition(2), each // 2) is None


def test_one_client_that_floods_leaves_its_broker_to_others() -> None:
    bench = Bench()
    flood = object()
    bench.flood(crowd(1), flood)

    assert bench.shares.clients[flood, 1].size == pytest.approx(400, abs=2)
    assert bench.obstacle(FakePartition(1), 1, flood) == Party(CLIENT, (flood, 1))
    assert bench.obstacle(FakePartition(1), 200) is None


def test_a_client_whose_records_one_broker_does_not_take_may_send_to_another() -> None:
    bench = Bench()
    client = object()
    bench.flood(crowd(1), client)

    assert bench.obstacle(FakePartition(2), 200, client) is None


def test_what_is_stuck_keeps_nobody_from_a_broker_that_is_well_whatever_else_happens() -> None:
    """A partition takes 400 of broker 1, then broker 2 hangs and takes 400: as much is stuck at 1 as is free."""
    bench = Bench()
    stuck = FakePartition(1)
    bench.flood([stuck], object())
    bench.flood(crowd(2))
    assert bench.shares.brokers[1] >= bench.free - 2

    assert bench.obstacle(FakePartition(1), 100) is None
    assert bench.obstacle(stuck) == Party(PARTITION, stuck)


def test_the_obstacle_is_whoever_holds_too_much() -> None:
    bench = Bench()
    stuck = FakePartition(1)
    bench.flood([stuck])
    assert bench.obstacle(stuck) == Party(PARTITION, stuck)
    bench.flood(crowd(1))
    assert bench.obstacle(FakePartition(1)) == Party(BROKER, 1)
    assert bench.obstacle(FakePartition(2), 100) is None


def test_behind_a_broker_that_is_held_up_who_holds_nothing_is_judged_by_itself() -> None:
    bench = Bench()
    busy = FakePartition(1)
    bench.hold(busy, 100)
    bench.ahead.add(Party(BROKER, 1))

    assert bench.obstacle(busy) == Party(BROKER, 1)
    assert bench.obstacle(FakePartition(1)) is None
    assert bench.obstacle(FakePartition(2)) is None


def test_behind_a_partition_or_client_that_is_held_up_its_own_wait_even_if_they_fit() -> None:
    bench = Bench()
    partition, client = FakePartition(1), object()
    bench.hold(FakePartition(2), 1)
    bench.ahead.add(Party(PARTITION, partition))
    bench.ahead.add(Party(CLIENT, (client, 1)))

    assert bench.obstacle(partition) == Party(PARTITION, partition)
    assert bench.obstacle(FakePartition(1), 1, client) == Party(CLIENT, (client, 1))
    assert bench.obstacle(FakePartition(2), 1, client) is None


@pytest.mark.parametrize(
    ("size", "leader", "expected"),
    [
        (600, 1, None),
        (601, 1, None),
        (1200, 1, None),
        (5000, 1, None),
        (600, NO_LEADER, None),
        (601, NO_LEADER, Party(BROKER, NO_LEADER)),
    ],
)
def test_a_request_larger_than_any_share_is_let_in_alone_but_not_without_a_leader(
    size: int, leader: int, expected: Party | None
) -> None:
    assert Bench().obstacle(FakePartition(leader), size) == expected


def test_a_request_larger_than_its_share_waits_until_its_broker_holds_nothing() -> None:
    bench = Bench()
    held, client = FakePartition(1), object()
    bench.hold(held, 100, client)
    bench.hold(FakePartition(2), 300)

    assert bench.obstacle(FakePartition(1), 800) == Party(BROKER, 1)
    bench.hold(held, -100, client)
    assert bench.obstacle(FakePartition(1), 800) is None


def test_one_too_large_for_what_other_brokers_leave_is_only_in_its_clients_way() -> None:
    bench = Bench()
    client = object()
    bench.hold(FakePartition(1), 100)
    bench.hold(FakePartition(2), 300)

    assert bench.obstacle(FakePartition(1), 901, client) == Party(CLIENT, (client, 1))


def test_a_request_to_several_brokers_fits_all_of_their_shares_or_waits() -> None:
    bench = Bench()
    bench.flood(crowd(1))
    asked = MemoryRequest(object())
    asked.add(partial(FakePartition, 2), 10)
    asked.add(partial(FakePartition, 1), 10)

    assert bench.shares.obstacle(asked, bench.free, bench.ahead) == Party(BROKER, 1)


def test_a_request_that_waits_is_judged_by_what_stands_for_its_partition_by_then() -> None:
    bench = Bench()
    bench.flood(crowd(1))
    stands = [FakePartition(1)]
    asked = MemoryRequest(object())
    asked.add(lambda: stands[-1], 10)
    assert bench.shares.obstacle(asked, bench.free, bench.ahead) == Party(BROKER, 1)

    stands.append(FakePartition(2))

    assert bench.shares.obstacle(asked, bench.free, bench.ahead) is None


# Records that may go to any partition


def test_records_without_a_key_wait_only_if_no_available_partition_has_room() -> None:
    bench = Bench()
    stuck, well = FakePartition(1), FakePartition(2)
    bench.flood([stuck])
    bench.flood(crowd(1))

    assert bench.obstacle_anywhere(FakeTopic(stuck, well), 100) is None
    assert bench.shares.roomiest(FakeTopic(stuck, well), 100, bench.free) == 1
    only_stuck = FakeTopic(stuck, well, available=[0])
    assert bench.obstacle_anywhere(only_stuck) == Party(PARTITION, only_stuck)
    assert bench.shares.roomiest(only_stuck, 1, bench.free) == -1


def test_they_go_to_the_partition_that_holds_least() -> None:
    bench = Bench()
    topic = FakeTopic(FakePartition(1), FakePartition(2), FakePartition(1))
    for index, size in enumerate((30, 20, 10)):
        bench.hold(topic.partitions[index], size)

    assert bench.shares.roomiest(topic, 1, bench.free) == 2


def test_while_no_partition_is_available_they_may_go_to_any() -> None:
    bench = Bench()
    topic = FakeTopic(FakePartition(NO_LEADER), FakePartition(NO_LEADER), available=())

    assert bench.obstacle_anywhere(topic) is None
    bench.flood(topic.partitions)
    assert bench.obstacle_anywhere(topic) == Party(PARTITION, topic)


def test_a_topic_that_is_gone_holds_nobody_up() -> None:
    bench = Bench()
    bench.flood(crowd(1))

    assert bench.obstacle_anywhere(FakeTopic()) is None


def test_one_that_may_go_anywhere_and_is_too_large_for_any_share_is_let_in_where_nothing_is_held() -> None:
    bench = Bench()
    bench.hold(FakePartition(1), 100)

    assert bench.obstacle_anywhere(FakeTopic(FakePartition(1)), 1000) is not None
    assert bench.obstacle_anywhere(FakeTopic(FakePartition(1), FakePartition(2)), 1000) is None


def test_while_it_waits_for_that_it_is_in_nobody_elses_way() -> None:
    """Nor is one that is ordinary in size, and waits only for some of what its broker holds, overtaken."""
    bench = Bench()
    topic = FakeTopic(FakePartition(1), FakePartition(2))
    for partition in topic.partitions:
        bench.hold(partition, 10)
    asked = MemoryRequest(object())
    asked.add_movable(topic, 1000)
    party = bench.shares.obstacle(asked, bench.free, bench.ahead)
    assert party == Party(BROKER, 1)
    bench.ahead.add(party)
    assert bench.obstacle_anywhere(topic) is None

    bench.flood(crowd(1))
    bench.flood(crowd(2))
    assert bench.obstacle_anywhere(topic, bench.free // 2) == Party(PARTITION, topic)
