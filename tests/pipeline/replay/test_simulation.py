"""The simulation: latencies that can be worked out by hand, what must hold of any, KIP-794's scenario."""

from __future__ import annotations

from itertools import product
from random import Random

import pytest

from forebay_pipeline.jobs.histogram import percentile
from forebay_pipeline.replay.service_times import AcksTimes, Constant
from forebay_pipeline.replay.settings import Simulated
from forebay_pipeline.replay.simulation import Outcome, Request, Simulation, World
from forebay_policies.builtin_partitioners import BUILT_IN
from tests.kit.matrix import pairs, part_of
from tests.pipeline.replay.simulated import MS, TOPIC, run, sent_at, settings, steady, takes, world

AT_ONCE = settings(linger_ms=0, partitioner="uniform")


def simulated(requests: list[Request], where: World, made: Simulated = AT_ONCE, counted_from: float = 0.0) -> Outcome:
    return Simulation(made, where, Random(1), counted_from).run(requests)


def total_ms(outcome: Outcome) -> float:
    """Of the latencies of all records together."""
    return outcome.latency_us / 1000


def test_while_a_batch_is_away_the_next_one_grows() -> None:
    """10 ms each: 0 → 10; 1 and 2 together 10 → 20; 15 waits, 20 → 30."""
    outcome = simulated(sent_at(0, 1, 2, 15), world([0], 10))

    assert total_ms(outcome) == pytest.approx(10 + 19 + 18 + 15)
    assert (outcome.requests, outcome.batches, outcome.batch_records) == (3, 3, 4)
    assert outcome.batch_bytes == 4 * 512


def test_adaptive_linger_is_a_turn_of_the_loop() -> None:
    """0.4 ms a turn: 0 leaves at 0.4, 1.5 and 2 a turn after its answer, 10.8, 15 a turn after theirs, 21.2."""
    outcome = simulated(sent_at(0, 1.5, 2, 15), world([0], 10, turn_ms=0.4), settings(linger_ms=-1))

    assert total_ms(outcome) == pytest.approx(10.4 + 19.3 + 18.8 + 16.2)


def test_what_comes_within_a_fixed_linger_goes_along() -> None:
    outcome = simulated(sent_at(0, 3), world([0], 10), settings(linger_ms=5))

    assert total_ms(outcome) == pytest.approx(15 + 12)
    assert outcome.batches == 1


def test_the_way_in_the_proxy_is_added() -> None:
    where = world([0], 10)._replace(way=Constant(0.2 * MS))
    assert total_ms(simulated(sent_at(0, 20), where)) == pytest.approx(2 * 10.2)


def test_a_full_batch_does_not_linger() -> None:
    outcome = simulated(sent_at(0, 3, size=9000), world([0], 10), settings(linger_ms=50))

    assert total_ms(outcome) == pytest.approx(13 + 10)


def test_a_broker_answers_each_request_in_its_own_time() -> None:
    requests = [
        Request(0.0, 0, [run(partition=0, movable=False)]),
        Request(1 * MS, 1, [run(partition=1, movable=False)]),
    ]
    assert total_ms(simulated(requests, world([0, 0], 10))) == pytest.approx(10 + 10)
    assert total_ms(simulated(requests, world([0, 1], 10, 10))) == pytest.approx(10 + 10)


def test_a_request_that_finds_others_under_way_takes_the_time_of_such() -> None:
    requests = [Request(at * MS, at, [run(partition=at % 2, movable=False)]) for at in (0, 1, 40)]

    assert total_ms(simulated(requests, world([0, 0], takes(10, busy_ms=30)))) == pytest.approx(10 + 30 + 10)


def keyed(at_ms: float, acks: int, partition: int = 0) -> Request:
    """From a connection of its own."""
    return Request(at_ms * MS, round(at_ms * 10), [run(partition=partition, movable=False, acks=acks)])


def test_what_waits_for_followers_delays_nothing_that_does_not() -> None:
    """acks=all takes 500 ms, acks=1 takes 10, and 70 if it finds others of acks=1 under way: the first, of the same
    partition as the acks=all before it, finds none; the two that follow do."""
    requests = [keyed(0, -1), keyed(1, 1), keyed(2, 1, partition=1), keyed(20, 1), keyed(30, -1, partition=1)]
    simulation = _Watched(AT_ONCE, world([0, 0], takes(10, busy_ms=70, followers_ms=500)), seed=1)
    outcome = simulation.run(requests)

    assert total_ms(outcome) == pytest.approx(500 + 10 + 70 + 70 + 500)
    assert [round(request.at / MS) for request in simulation.told] == [1, 2, 20, 0, 30]
    assert outcome.requests == 5


def test_a_full_group_leaves_the_places_of_the_other_kind_of_acks() -> None:
    """One request of each at a time: three of acks=all take 500 ms in turn, and acks=1 does not wait for a place."""
    requests = [keyed(0, -1, 0), keyed(1, -1, 1), keyed(2, 1, 2), keyed(3, 1, 3)]
    limited = settings(linger_ms=0, max_in_flight_requests_per_connection=1)
    outcome = simulated(requests, world([0] * 4, takes(10, followers_ms=500)), limited)

    assert total_ms(outcome) == pytest.approx(500 + 999 + 10 + 19)


def test_partitions_of_a_slow_request_go_on_in_halves() -> None:
    """Eight partitions in one request, which is slow for its size, 300 ms. The next one goes in two of four each, which
    are not; then all eight are together again."""
    slow = takes(1)._replace(leader=AcksTimes(*((Constant(1 * MS),) * 2 + (Constant(300 * MS),) * 2,) * 2))
    requests = [
        Request(at * MS, 0, [run(size=size, partition=partition, movable=False) for partition in range(8)])
        for at, size in ((0, 10_000), (400, 6_000), (500, 6_000))
    ]
    outcome = simulated(requests, world([0] * 8, slow, turn_ms=0.1), settings(linger_ms=-1))

    assert outcome.batches == 24
    assert outcome.requests == 1 + 2 + 1


def test_one_request_carries_a_batch_of_each_partition() -> None:
    requests = [Request(0.0, 0, [run(partition=0, movable=False), run(partition=1, movable=False)])]
    outcome = simulated(requests, world([0, 0], 10, turn_ms=0.1), settings(linger_ms=-1))

    assert (outcome.requests, outcome.batches) == (1, 2)


def test_no_more_requests_are_away_than_may_be() -> None:
    """Of three partitions' batches at 0, 1 and 2 ms the third waits for the first answer, at 10, and meets the fourth.

    With room for three it left at once, and the fourth was alone.
    """
    requests = [Request(at * MS, at, [run(partition=at, movable=False)]) for at in range(4)]
    leaders = [0, 0, 0, 0]

    assert simulated(requests, world(leaders, 10), settings(linger_ms=0)).requests == 4
    limited = settings(linger_ms=0, max_in_flight_requests_per_connection=2)
    assert simulated(requests, world(leaders, 10), limited).requests == 3


def test_a_request_is_answered_with_its_last_part() -> None:
    requests = [Request(0.0, 0, [run(3, partition=0, movable=False), run(2, partition=1, movable=False)])]
    assert total_ms(simulated(requests, world([0, 1], 10, 30))) == pytest.approx(5 * 30)


def test_who_waits_for_memory_is_read_again_when_it_was_let_in() -> None:
    """48 KiB of memory. The first request holds 3 of 12 chunks until 10 ms. The second wants 3 more, which is too much
    for one partition, and waits, and with it what its connection sends later; the fourth would fit, but does not
    overtake it. At 10 both are let in and leave together; only then the third is read, which leaves at 20."""
    small = settings(linger_ms=0, batch_initial_size=4096, batch_size=16384, batch_max_size=16384, buffer_memory=49152)
    requests = [
        Request(0.0, 0, [run(size=12_000)]),
        Request(1 * MS, 1, [run(size=12_000)]),
        Request(2 * MS, 1, [run(size=100)]),
        Request(3 * MS, 2, [run(size=100)]),
    ]
    outcome = simulated(requests, world([0], 10), small)

    assert outcome.records == 4
    assert outcome.pool_peak == 20480, "4 chunks of records, and one for what is kept of the two requests"
    assert total_ms(outcome) == pytest.approx(10 + 19 + 28 + 17)


def test_what_came_before_does_not_count() -> None:
    everything = simulated(sent_at(0, 1, 2, 15), world([0], 10))
    later = simulated(sent_at(0, 1, 2, 15), world([0], 10), counted_from=2 * MS)

    assert later.records == 2
    assert total_ms(later) == pytest.approx(18 + 15)
    assert later.shares == {TOPIC: [2]}
    assert (later.batches, later.requests) == (1, 1)
    assert everything.records == 4


class _Watched(Simulation):
    """Remembers which requests were answered, in their order."""

    def __init__(self, made: Simulated, where: World, seed: int) -> None:
        super().__init__(made, where, Random(seed))
        self.told: list[Request] = []

    def answered(self, request: Request) -> None:
        self.told.append(request)
        super().answered(request)

    def left_over(self) -> tuple[int, int, int]:
        return self._pool.used, self._accumulator.queued_batches, self._accumulator.in_flight_bytes


def mixed(seed: int, seconds: float = 1.0) -> list[Request]:
    """With and without keys, of one to four parts, of sizes from nothing to more than a batch."""
    rng = Random(seed)
    requests = []
    at = 0.0
    while at < seconds:
        at += rng.expovariate(1500)
        runs = [
            run(
                records=rng.randint(1, 20),
                size=rng.choice([7, 100, 1000, 5000, 40_000]),
                partition=rng.randrange(6),
                movable=rng.random() < 0.7,
                acks=rng.choice([1, 1, -1]),
            )
            for _ in range(rng.randint(1, 4))
        ]
        requests.append(Request(at, rng.randrange(8), runs))
    return requests


@pytest.mark.parametrize(
    ("partitioner", "linger_ms", "memory"), part_of(product(BUILT_IN, [-1, 0, 3], [524_288, 33_554_432]), pairs)
)
def test_every_record_is_acknowledged_once(partitioner: str, linger_ms: int, memory: int) -> None:
    requests = mixed(seed=linger_ms + 5)
    made = settings(partitioner=partitioner, linger_ms=linger_ms, buffer_memory=memory)
    simulation = _Watched(made, world([0, 1, 2, 0, 1, 2], 4, 1, 0.5, turn_ms=0.1), seed=3)
    outcome = simulation.run(requests)

    records = sum(each.records for request in requests for each in request.runs)
    assert len(simulation.told) == len({id(request) for request in simulation.told}) == len(requests)
    assert outcome.records == outcome.batch_records == records
    assert sum(outcome.latencies.values()) == records
    assert sum(outcome.shares[TOPIC]) == records
    assert simulation.left_over() == (0, 0, 0)


@pytest.mark.parametrize("linger_ms", [-1, 2])
def test_records_with_a_key_are_acknowledged_in_the_order_of_their_connection(linger_ms: int) -> None:
    rng = Random(4)
    requests = [
        Request(number * 0.2 * MS, number % 3, [run(size=rng.choice([50, 9000]), partition=number % 2, movable=False)])
        for number in range(3000)
    ]
    simulation = _Watched(settings(linger_ms=linger_ms), world([0, 1], 3, 1, turn_ms=0.1), seed=1)
    simulation.run(requests)

    for connection in range(3):
        for partition in range(2):
            told = [
                each.at
                for each in simulation.told
                if each.connection == connection and each.runs[0].partition == partition
            ]
            assert told == sorted(told)


def test_memory_is_bounded() -> None:
    """Twelve times what the brokers take: the pool is full, and overdrawn by no more than the ends of batches."""
    memory, chunk, partitions = 262_144, 4096, 3
    requests = list(steady(12_000, 0.5, connections=50))
    where = world([0, 1, 2], 20, 20, 20, turn_ms=0.1)
    small = settings(batch_size=16384, batch_max_size=16384, buffer_memory=memory)
    outcome = simulated(requests, where, small)

    assert outcome.records == len(requests)
    assert memory / 2 < outcome.pool_peak <= memory + partitions * chunk
    assert simulated(requests, where, settings(batch_size=16384, batch_max_size=16384)).pool_peak > 2 * memory


@pytest.mark.parametrize(
    ("partitioner", "seconds", "average_ms", "p99_ms", "on_slow"),
    [
        pytest.param("uniform", 60, 11.0, 40.5, 0.328, marks=pytest.mark.whole),
        pytest.param("adaptive", 60, 10.1, 40.5, 0.297, marks=pytest.mark.whole),
        ("expected_wait", 20, 0.94, 1.2, 0.0016),
        pytest.param("expected_wait", 60, 0.94, 1.2, 0.0016, marks=pytest.mark.whole),
    ],
)
def test_a_slow_broker_costs_what_it_cost_before(
    partitioner: str, seconds: float, average_ms: float, p99_ms: float, on_slow: float
) -> None:
    """KIP-794's scenario, 20.5 / 0.6 / 0.6 ms, 122,880 records, as it was once simulated apart from this program; or
    its first third."""
    outcome = simulated(
        list(steady(2048, seconds)), world([0, 1, 2], 20.5, 0.6, 0.6), settings(partitioner=partitioner, linger_ms=0)
    )
    average = outcome.latency_us / outcome.records / 1000
    p99 = percentile(outcome.latencies, 0.99) / 1000
    share = outcome.shares[TOPIC][0] / outcome.records

    assert average == pytest.approx(average_ms, rel=0.15)
    assert p99 == pytest.approx(p99_ms, rel=0.15)
    assert share == pytest.approx(on_slow, rel=0.1, abs=0.004)
