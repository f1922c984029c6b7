"""Local where that keeps every partition within its bound, and nowhere else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random
from typing import NamedTuple

import pytest

from forebay_policies.builtin_partitioners import BUILT_IN, make_partitioner
from forebay_policies.partitioner import Partitioner
from forebay_policies.rack_partitioner import LOOK_S, NO_RACK, WINDOW, RackPartitioner, RackView
from tests.policies.fakes import FakeTopic

TURN = 16_384
RUN = 4_000
SKEW = 0.2
LIKE_THE_KIP = float("inf")


def racks(max_skew: float = SKEW, kind: str = "uniform", seed: int = 1, patience_s: float = 0.0) -> RackPartitioner:
    rng = Random(seed)

    def make() -> Partitioner:
        return make_partitioner(kind, rng=rng, batch_size=TURN, availability_timeout_s=patience_s)

    return RackPartitioner(make, TURN, max_skew, patience_s)


class Spread(NamedTuple):
    """Of clients' bytes: the part of those with a rack that stayed there, and each partition's ÷ its fair share."""

    local: float
    shares: Sequence[float]


def spread(
    partitioner: RackPartitioner, topic: FakeTopic, clients: Mapping[str, float], runs: int = 24_000, seed: int = 2
) -> Spread:
    """Of runs from clients in these racks, as often as their weights say. Every fourth run opens a batch."""
    rng = Random(seed)
    led_in = {partition: rack for rack, places in topic.racks.items() for partition in places}
    received: Counter[int] = Counter()
    local = known = 0
    for number, rack in enumerate(rng.choices(list(clients), list(clients.values()), k=runs)):
        client, now = partitioner.of(rack), number / 1e6
        partition = client.partition(topic, RUN, now)
        if number % 4 == 0 and client.on_new_batch(topic, partition):
            partition = client.partition(topic, RUN, now)
        received[partition] += 1
        known += rack != NO_RACK
        local += rack == led_in[partition]
    return Spread(local / known, [received[partition] * topic.partition_count / runs for partition in led_in])


EVEN = FakeTopic(12, led_in="aaaabbbbcccc")


@pytest.mark.parametrize("kind", BUILT_IN)
def test_where_clients_and_leaders_are_spread_alike_all_stay(kind: str) -> None:
    found = spread(racks(kind=kind), EVEN, {"a": 1, "b": 1, "c": 1})
    assert found.local > 0.99
    assert max(found.shares) < 1.15


UNEVEN: dict[str, tuple[FakeTopic, dict[str, float]]] = {
    "two thirds of the clients in one rack": (EVEN, {"a": 4, "b": 1, "c": 1}),
    "all clients in one rack": (EVEN, {"a": 1}),
    "few clients in one rack": (EVEN, {"a": 4, "b": 4, "c": 1}),
    "leaders unevenly": (FakeTopic(12, led_in="aaaaaaaabbbc"), {"a": 1, "b": 1, "c": 1}),
    "no leader in one rack": (FakeTopic(12, led_in="aaaaaabbbbbb"), {"a": 1, "b": 1, "c": 4}),
    "half of the clients nowhere": (EVEN, {"a": 3, "b": 1, "c": 1, NO_RACK: 5}),
}


EVEN_ANYHOW = {"no leader in one rack", "half of the clients nowhere"}
"""By the KIP's rule: those without a rack, or without a leader in theirs, go to where there is least."""


@pytest.mark.parametrize("case", UNEVEN)
@pytest.mark.parametrize("kind", ["uniform", "adaptive", "round_robin"])
def test_no_partition_leaves_its_bound_where_the_kips_rule_leaves_it(case: str, kind: str) -> None:
    topic, clients = UNEVEN[case]
    ours, kips = spread(racks(kind=kind), topic, clients), spread(racks(LIKE_THE_KIP, kind), topic, clients)
    noise = 0.12  # of a draw of some hundred turns a partition
    assert max(ours.shares) < 1 + SKEW + noise
    assert min(ours.shares) > 1 - SKEW - noise
    assert max(kips.shares) > 1.35 or min(kips.shares) < 0.65 or case in EVEN_ANYHOW


def test_as_many_stay_as_can() -> None:
    """Rack a has two thirds of the bytes and may take 1.2 thirds of them: 0.4 + 1/6 + 1/6 of all stay."""
    found = spread(racks(), *UNEVEN["two thirds of the clients in one rack"])
    assert found.local == pytest.approx(0.4 + 1 / 3, abs=0.02)


def test_without_a_bound_all_stay() -> None:
    found = spread(racks(LIKE_THE_KIP), *UNEVEN["all clients in one rack"])
    assert found.local == 1
    assert found.shares[:4] == pytest.approx([3.0] * 4, abs=0.4)


def test_a_rack_that_has_lost_its_leaders_is_left_at_once() -> None:
    partitioner = racks()
    spread(partitioner, EVEN, {"a": 1, "b": 1, "c": 1}, runs=1000)
    without = FakeTopic(12, available=range(4, 12), led_in="aaaabbbbcccc")
    chosen = {partitioner.of("a").partition(without, RUN, 0.0) for _ in range(200)}
    assert min(chosen) >= 4


WITHOUT_A = FakeTopic(12, available=range(4, 12), led_in="aaaabbbbcccc")
WITH_HALF_OF_A = FakeTopic(12, available=range(2, 12), led_in="aaaabbbbcccc")
ALIKE = {"a": 1.0, "b": 1.0, "c": 1.0}
SHORT = 2000
"""Runs, of 8 MB in all: 40 turns a partition, of which nothing is forgotten yet."""


@pytest.mark.parametrize("meanwhile", [WITHOUT_A, WITH_HALF_OF_A])
def test_partitions_whose_leaders_come_back_get_no_more_than_others(meanwhile: FakeTopic) -> None:
    partitioner = racks()
    spread(partitioner, EVEN, ALIKE)
    spread(partitioner, meanwhile, ALIKE)
    found = spread(partitioner, EVEN, ALIKE, SHORT)
    assert found.local > 0.99
    assert sum(found.shares[:4]) == pytest.approx(4, abs=0.4)
    assert max(found.shares) < 1.5


def test_a_racks_other_partitions_go_on_when_it_loses_some() -> None:
    partitioner = racks()
    spread(partitioner, EVEN, ALIKE)
    assert spread(partitioner, WITH_HALF_OF_A, ALIKE, SHORT).local > 0.99
    later = spread(partitioner, WITH_HALF_OF_A, ALIKE)
    fair = 12 / 10
    assert later.shares[:2] == pytest.approx([fair * (1 + SKEW)] * 2, abs=0.15)


def test_a_rack_of_many_clients_gets_no_more_for_being_away_at_times() -> None:
    partitioner = racks()
    clients = {"a": 4.0, "b": 1.0, "c": 1.0}
    spread(partitioner, EVEN, clients)
    found = []
    for time in range(10):
        spread(partitioner, WITHOUT_A, clients, 20, seed=time)
        found.append(spread(partitioner, EVEN, clients, SHORT, seed=time).local)
    assert sum(found) / len(found) == pytest.approx(0.4 + 1 / 3, abs=0.03)


def test_what_waits_for_any_leader_counts_for_no_rack() -> None:
    partitioner = racks()
    spread(partitioner, EVEN, ALIKE)
    nobody = FakeTopic(12, available=(), led_in="aaaabbbbcccc")
    for _ in range(SHORT):
        partitioner.of("a").partition(nobody, RUN, 0.0)
    assert spread(partitioner, EVEN, ALIKE, SHORT).local > 0.99


def test_without_any_leader_some_partition_is_chosen() -> None:
    assert racks().of("a").partition(FakeTopic(3, available=()), RUN, 0.0) in range(3)


PATIENCE = 1.0


def hanging(*partitions: int, since: float = 0.0) -> FakeTopic:
    """EVEN, but the brokers of these partitions have taken no batch `since` then."""
    topic = FakeTopic(12, led_in="aaaabbbbcccc")
    topic.load = dict.fromkeys(partitions, TURN)
    topic.waiting = dict.fromkeys(partitions, since)
    return topic


def chosen(partitioner: RackPartitioner, topic: FakeTopic, now: float, rack: str = "a", runs: int = 60) -> set[int]:
    return {partitioner.of(rack).partition(topic, RUN, now) for _ in range(runs)}


A, OTHERS = set(range(4)), set(range(4, 12))


@pytest.mark.parametrize("max_skew", [SKEW, LIKE_THE_KIP])
def test_a_rack_is_left_while_none_of_its_brokers_takes_a_batch(max_skew: float) -> None:
    partitioner = racks(max_skew, "adaptive", patience_s=PATIENCE)
    spread(partitioner, EVEN, ALIKE, SHORT)
    topic = hanging(*A)
    assert chosen(partitioner, topic, PATIENCE, runs=4) <= A
    later = PATIENCE + LOOK_S
    assert chosen(partitioner, topic, later) <= OTHERS
    topic.waiting = {}
    assert chosen(partitioner, topic, later + LOOK_S, runs=4) <= A


def test_a_rack_that_takes_batches_again_gets_no_more_than_others() -> None:
    partitioner = racks(kind="adaptive", patience_s=PATIENCE)
    spread(partitioner, EVEN, ALIKE, SHORT)
    assert chosen(partitioner, hanging(*A), 2 * PATIENCE, runs=SHORT) <= OTHERS
    found = spread(partitioner, EVEN, ALIKE, SHORT)
    assert sum(found.shares[:4]) == pytest.approx(4, abs=0.4)


def test_a_rack_with_one_partition_left_gets_no_more_than_that_may_have() -> None:
    partitioner = racks(kind="adaptive", patience_s=PATIENCE)
    topic = hanging(0, 1, 2)
    received: Counter[int] = Counter()
    for number in range(24_000):
        received[partitioner.of("abc"[number % 3]).partition(topic, RUN, 2 * PATIENCE)] += 1
    assert received[3] * 9 / 24_000 == pytest.approx(1 + SKEW, abs=0.05)
    assert not {0, 1, 2} & set(received)


def test_where_no_broker_takes_a_batch_all_stay_with_theirs() -> None:
    assert chosen(racks(patience_s=PATIENCE), hanging(*range(12)), 2 * PATIENCE, runs=4) <= A


def test_without_patience_to_lose_a_rack_is_not_left() -> None:
    assert chosen(racks(LIKE_THE_KIP), hanging(*A), 1e9) <= A


def test_whether_batches_are_taken_is_not_asked_for_each_record() -> None:
    class Asked(FakeTopic):
        times = 0

        def loads(self) -> Mapping[int, int]:
            self.times += 1
            return super().loads()

    topic = Asked(12, led_in="aaaabbbbcccc")
    partitioner = racks(patience_s=PATIENCE)
    for number in range(1000):
        partitioner.of("a").partition(topic, 1, number * LOOK_S / 100)
    assert topic.times == pytest.approx(10, abs=1)


def test_brokers_without_racks_are_one() -> None:
    assert min(spread(racks(), FakeTopic(4), {"a": 1}).shares) > 0.9


def test_a_topic_of_little_traffic_stays_local_for_a_turn_a_partition() -> None:
    client = racks().of("a")
    assert {client.partition(EVEN, 100, 0.0) for _ in range(TURN // 100)} <= set(range(4))


def test_what_was_long_ago_is_forgotten() -> None:
    """All from a, then all from b: after a few windows b's bound is what a's was."""
    partitioner = racks()
    once = 12 * WINDOW * TURN // RUN
    spread(partitioner, EVEN, {"a": 1}, runs=2 * once)
    spread(partitioner, EVEN, {"b": 1}, runs=6 * once)
    found = spread(partitioner, EVEN, {"b": 1}, runs=once)
    assert found.local == pytest.approx(0.4, abs=0.04)


def test_records_whose_place_changes_with_a_new_batch_count_once() -> None:
    """Every run to rack a opens a batch there, as with a fast broker; elsewhere a batch holds 16."""
    partitioner = racks(kind="sticky")
    rng = Random(2)
    local = 0
    for number in range(24_000):
        rack = "abc"[rng.randrange(3)]
        client, now = partitioner.of(rack), number / 1e6
        partition = client.partition(EVEN, RUN, now)
        if (partition in A or number % 16 == 0) and client.on_new_batch(EVEN, partition):
            partition = client.partition(EVEN, RUN, now)
        local += partition in EVEN.racks[rack]
    assert local / 24_000 > 0.99


def test_a_batch_of_records_with_a_key_makes_no_others_count_less() -> None:
    """It may change the choice, too, but none that has been made: nobody asks again."""
    partitioner = racks(kind="sticky")
    rng = Random(2)
    received: Counter[bool] = Counter()
    for number in range(24_000):
        client = partitioner.of("aaaabc"[rng.randrange(6)])
        partition = client.partition(EVEN, RUN, number / 1e6)
        received[partition in A] += 1
        if partition in A:
            assert client.on_new_batch(EVEN, partition)
    assert received[True] * 3 / 24_000 == pytest.approx(1 + SKEW, abs=0.02)


class Told:
    """Partitioner of one rack that remembers what it was told."""

    def __init__(self) -> None:
        self.opened: list[int] = []
        self.acknowledged: list[int] = []

    def partition(self, topic: object, size: int, now: float) -> int:
        assert isinstance(topic, RackView)
        assert topic.name == "topic"
        assert topic.partition_count == 4
        return topic.available[0]

    def on_new_batch(self, topic: object, partition: int) -> bool:
        assert isinstance(topic, RackView)
        assert partition in topic.available
        self.opened.append(partition)
        return partition == 3

    def on_acknowledged(self, partition: int, seconds: float) -> None:
        self.acknowledged.append(partition)

    def choices(self) -> Mapping[str, int]:
        return {"switch": len(self.opened), "sticky": 1}


def test_each_racks_partitioner_is_told_of_its_own() -> None:
    made: list[Told] = []

    def make() -> Partitioner:
        made.append(Told())
        return made[-1]

    topic = FakeTopic(4, led_in="aabb")
    partitioner = RackPartitioner(make, TURN, SKEW)
    a, b = partitioner.of("a"), partitioner.of("b")
    assert partitioner.of("a") is a
    assert (a.partition(topic, RUN, 0.0), b.partition(topic, RUN, 0.0)) == (0, 2)
    assert [a.on_new_batch(topic, 1), b.on_new_batch(topic, 3), a.on_new_batch(topic, 9)] == [False, True, False]
    for partition in (0, 1, 2):  # nobody chose 1
        a.on_acknowledged(partition, 0.1)
    assert [(told.opened, told.acknowledged) for told in made] == [([1], [0]), ([3], [2])]
    assert a.choices() == {"switch": 2, "sticky": 2}


def test_a_view_has_the_topics_own_queues() -> None:
    topic = FakeTopic(4, loads={1: 10}, led_in="aabb")
    topic.waiting[1], topic.lingering = 3.0, {2}
    view = RackView(topic, "a")
    assert (view.loads(), view.ready_since(1), view.lingers(2), view.racks) == ({1: 10}, 3.0, True, topic.racks)
    assert view.available is topic.racks["a"]
    assert RackView(topic, "elsewhere").available == ()
