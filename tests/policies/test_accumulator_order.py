"""What leaves first, what leaves together, and what came back: order, fairness, moves, halves."""

from __future__ import annotations

import pytest

from forebay_codecs import compression
from forebay_policies.accumulator import PartitionQueue
from forebay_policies.producer_batch import Lane, ProducerBatch
from tests.policies.accumulator_kit import KIB, Bench
from tests.policies.batches import KEPT, MOVABLE, FakeOwner, sent

ALL = KEPT._replace(acks=-1)


def indexes(drained: list[tuple[PartitionQueue, ProducerBatch]]) -> list[int]:
    return [queue.index for queue, _ in drained]


# One request


def test_one_request_takes_one_batch_of_every_partition_of_the_broker() -> None:
    bench = Bench()
    bench.lead(1, 1, 2)
    for partition in (0, 1, 2, 0, 1):
        bench.put(partition, b"a", lane=KEPT)
        bench.put(partition, b"b", lane=MOVABLE)

    drained = bench.drain(1)

    assert indexes(drained) == [0, 1]
    assert all(batch.closed for _, batch in drained)
    assert bench.drain(1) == []
    assert indexes(bench.drain(2)) == [2]


def test_one_request_has_one_acks_and_the_others_are_first_in_the_next() -> None:
    bench = Bench(partitions=4)
    bench.lead(1, 1, 1, 1)
    for partition, lane in enumerate((KEPT, ALL, MOVABLE, ALL)):
        bench.put(partition, b"a", lane=lane)

    first, second = bench.drain(1), bench.drain(1)

    assert (indexes(first), {batch.lane.acks for _, batch in first}) == ([0, 2], {1})
    assert (indexes(second), {batch.lane.acks for _, batch in second}) == ([1, 3], {-1})


def test_one_request_is_bounded_and_what_is_left_out_is_first_in_the_next() -> None:
    bench = Bench(partitions=4)
    bench.lead(1, 1, 1, 1)
    for partition, size in enumerate((6, 6, 3, 6)):
        bench.put(partition, bytes(size * KIB))

    requests = [bench.drain(1, 10 * KIB) for _ in range(4)]

    assert [indexes(drained) for drained in requests] == [[0, 2], [1], [3], []]


def test_a_request_is_filled_to_the_last_byte_and_no_further() -> None:
    bench = Bench()
    bench.lead(1, 1, 1)
    for partition in range(3):
        bench.put(partition, b"a" * 100)
    size = bench.queue(0).batches[0].size

    assert indexes(bench.drain(1, 2 * size - 1)) == [0]
    assert indexes(bench.drain(1, 2 * size)) == [1, 2]


def test_a_batch_larger_than_a_request_goes_alone() -> None:
    bench = Bench()
    bench.lead(1, 1, 1)
    bench.put(0, b"a")
    bench.put(1, bytes(20 * KIB))
    bench.put(2, b"c")

    assert [indexes(bench.drain(1, 10 * KIB)) for _ in range(2)] == [[0, 2], [1]]


def test_partitions_take_turns() -> None:
    """One that is always ready does not keep the others from leaving."""
    bench = Bench()
    bench.lead(1, 1, 1)
    for partition in (0, 1, 2):
        bench.put(partition, b"a")
    turns = []
    for _ in range(9):
        [(queue, batch)] = bench.drain(1, 1)
        turns.append(queue.index)
        bench.put(queue.index, b"a")
        bench.complete(queue.index, batch)

    assert turns == [0, 1, 2] * 3


def test_lanes_of_a_partition_take_turns() -> None:
    bench = Bench(partitions=1)
    bench.put(0, b"a", lane=KEPT)
    bench.put(0, b"a", lane=ALL)
    turns = []
    for _ in range(6):
        batch = bench.drain_one(1)
        turns.append(batch.lane)
        bench.put(0, b"a", lane=batch.lane)
        bench.complete(0, batch)

    assert turns == [KEPT, ALL] * 3


def test_a_ready_batch_does_not_wait_for_one_of_another_lane_that_is_not() -> None:
    bench = Bench(partitions=1)
    bench.append(0, b"not due", lane=MOVABLE)
    bench.opened.clear()
    bench.put(0, b"due", lane=KEPT)

    assert bench.send_all(1) == [[b"due"]]
    assert bench.accumulator.queued_batches == 1


def test_a_batch_that_is_drained_takes_no_more() -> None:
    bench = Bench(partitions=1)
    bench.put(0, b"a")
    away = bench.drain_one(1)
    bench.append(0, b"b")

    assert sent(away).values == [b"a"]
    assert bench.opened[-1][1] is not away


# What came back


def test_a_batch_that_came_back_leaves_before_those_behind_it() -> None:
    bench = Bench(partitions=1)
    for value in (b"a", b"b", b"c"):
        bench.put(0, value + bytes(200 * KIB), lane=KEPT)  # no two of them fit one batch
    away = bench.drain_one(1)
    size = away.size

    bench.back(0, away)

    assert (bench.accumulator.in_flight_bytes, bench.topic.loads()[0]) == (0, 3 * size)
    assert [values[0][:1] for values in bench.send_all(1) if values[0]] == [b"a", b"b", b"c"]
    bench.assert_empty()


def test_a_batch_that_came_back_takes_no_more_and_is_sent_the_same_again() -> None:
    bench = Bench(partitions=1)
    bench.put(0, b"a", lane=KEPT)
    away = bench.drain_one(1)
    bench.back(0, away)

    bench.put(0, b"b", lane=KEPT)

    assert bench.send_all(1) == [[b"a"], [b"b"]]


def test_while_a_batch_waits_out_its_backoff_nothing_of_its_partition_leaves() -> None:
    bench = Bench()
    bench.lead(1, 1, 1)
    bench.put(0, b"a", lane=KEPT)
    bench.back(0, bench.drain_one(1), paused=True)
    bench.put(0, b"b", lane=KEPT)
    bench.put(0, b"c", lane=MOVABLE)
    bench.put(1, b"d")
    assert bench.send_all(1) == [[b"d"]]

    bench.accumulator.resume(bench.queue(0), bench.now)

    assert bench.send_all(1) == [[b"a"], [b"b"], [b"c"]]
    bench.assert_empty()


def test_a_partition_that_pauses_while_it_was_ready_is_not_drained() -> None:
    bench = Bench(partitions=1)
    bench.put(0, b"a", lane=KEPT)
    away = bench.drain_one(1)
    bench.accumulator.clear_in_flight(bench.queue(0), away)
    bench.put(0, b"b", lane=KEPT)
    assert bench.accumulator.has_ready(1)

    bench.accumulator.send_back(bench.queue(0), (away,), bench.now, paused=True)

    assert not bench.accumulator.has_ready(1)
    assert bench.drain(1) == []


def test_the_end_of_a_backoff_with_nothing_left_does_nothing() -> None:
    bench = Bench(partitions=1)
    owner = FakeOwner()
    bench.put(0, b"a", lane=KEPT, owner=owner)
    bench.back(0, bench.drain_one(1), paused=True)
    [batch] = bench.queue(0).batches
    bench.accumulator.take_out(bench.queue(0), batch)
    bench.complete(0, batch)

    bench.accumulator.resume(bench.queue(0), bench.now)

    assert not bench.accumulator.has_ready(1)
    bench.assert_empty()


# What its client was told of already


@pytest.mark.parametrize("codec", [compression.NONE, compression.ZSTD])
@pytest.mark.parametrize("done", ["a", "b", "d", "ad", "bc", "abd"])
def test_what_was_told_as_failed_before_it_left_never_leaves(codec: int, done: str) -> None:
    bench = Bench(partitions=1)
    lane = Lane(1, codec, movable=False)
    bench.put(0, b"away", lane=lane)
    bench.drain_one(1)
    owners = {value: FakeOwner() for value in "abcd"}
    runs = [bench.append(0, value.encode(), value.encode() * 2, lane=lane, owner=owners[value]) for value in "abcd"]
    for value in done:
        owners[value].done = True

    bench.accumulator.drop_done(bench.now)
    bench.put(0, b"e", lane=lane)

    left = [value for value in "abcd" if value not in done]
    assert [run.first for run in runs if run.owner in [owners[value] for value in left]] == [
        2 * number for number in range(len(left))
    ]
    assert bench.topic.loads()[0] == bench.accumulator.in_flight_bytes + sum(b.size for b in bench.queue(0).batches)
    away = bench.queue(0).in_flight
    assert away is not None
    bench.complete(0, away)
    assert [v for values in bench.send_all(1) for v in values] == [
        v for value in left for v in (value.encode(), value.encode() * 2)
    ] + [b"e"]
    bench.assert_empty()


def test_a_batch_of_which_all_is_told_gives_its_memory_to_who_waits() -> None:
    bench = Bench(partitions=1, memory=8 * KIB)
    owner = FakeOwner()
    bench.append(0, b"a" * 6 * KIB, lane=KEPT, owner=owner)

    def granted() -> None:
        bench.put(0, b"next", lane=KEPT)

    bench.wait(6 * KIB, granted)
    owner.done = True

    bench.accumulator.drop_done(bench.now)

    assert bench.send_all(1) == [[b"next"]]
    bench.assert_empty()


# Halves


@pytest.mark.parametrize("codec", [compression.NONE, compression.ZSTD])
def test_halves_take_the_place_of_what_was_refused(codec: int) -> None:
    bench = Bench(partitions=1)
    lane = Lane(1, codec, movable=False)
    runs = [bench.append(0, value, lane=lane) for value in (b"a", b"b", b"c")]
    bench.flush()
    refused = bench.drain_one(1)
    bench.put(0, b"d", lane=lane)

    halves = refused.halves((100, 101), bench.now)
    bench.accumulator.replace(bench.queue(0), refused, halves, bench.now)

    assert bench.topic.loads()[0] == sum(batch.size for batch in bench.queue(0).batches)
    assert bench.pool.used == 3
    assert [run.first for run in runs] == [0, 0, 1]
    assert bench.send_all(1) == [[b"a"], [b"b", b"c"], [b"d"]]
    bench.assert_empty()


def test_who_is_let_in_by_a_refused_batchs_memory_stands_behind_its_halves() -> None:
    bench = Bench(partitions=1, memory=64 * KIB)
    for value in (b"a", b"b"):
        bench.append(0, value * 4 * KIB, lane=KEPT)
    bench.flush()
    refused = bench.drain_one(1)
    halves = refused.halves((100, 101), bench.now)
    assert bench.pool.used == 3 + 2 + 2

    def granted() -> None:
        bench.append(0, b"next", lane=KEPT)

    bench.wait(6 * KIB, granted)
    bench.accumulator.replace(bench.queue(0), refused, halves, bench.now)

    assert bench.pool.waiting == 0
    bench.flush()
    assert bench.send_all(1) == [[b"a" * 4 * KIB], [b"b" * 4 * KIB], [b"next"]]
    bench.assert_empty()


# Moves


def test_a_batch_that_came_back_moves_as_it_is() -> None:
    bench = Bench()
    run = bench.put(0, b"a")
    away = bench.drain_one(1)

    bench.accumulator.move(away, bench.queue(0), bench.queue(1), bench.now)

    assert run.moved
    assert (away.partition, bench.queue(0).in_flight, bench.accumulator.in_flight_bytes) == (1, None, 0)
    assert bench.topic.loads() == {1: away.size}
    assert (bench.send_all(1), bench.send_all(2)) == ([], [[b"a"]])
    bench.assert_empty()


def test_a_batch_that_moves_away_lets_those_behind_it_leave() -> None:
    bench = Bench()
    bench.put(0, b"a")
    away = bench.drain_one(1)
    bench.put(0, b"b", lane=KEPT)

    bench.accumulator.move(away, bench.queue(0), bench.queue(1), bench.now)

    assert (bench.send_all(1), bench.send_all(2)) == ([[b"b"]], [[b"a"]])


def test_a_batch_that_still_waits_moves_while_another_is_away() -> None:
    bench = Bench()
    bench.put(0, b"a", lane=KEPT)
    away = bench.drain_one(1)
    run = bench.put(0, b"b")
    [waiting] = bench.queue(0).batches

    bench.accumulator.move(waiting, bench.queue(0), bench.queue(1), bench.now)
    bench.put(0, b"c")

    assert run.moved
    assert bench.topic.loads() == {0: away.size + waiting.size, 1: waiting.size}
    assert bench.accumulator.in_flight_bytes == away.size
    assert bench.send_all(2) == [[b"b"]]
    bench.complete(0, away)
    assert bench.send_all(1) == [[b"c"]]
    bench.assert_empty()


def test_a_batch_that_moves_to_a_partition_in_its_backoff_waits_with_it() -> None:
    bench = Bench()
    bench.put(1, b"a", lane=KEPT)
    bench.back(1, bench.drain_one(2), paused=True)
    bench.put(0, b"b")

    bench.accumulator.move(bench.drain_one(1), bench.queue(0), bench.queue(1), bench.now)
    assert bench.drain(2) == []
    bench.accumulator.resume(bench.queue(1), bench.now)

    assert bench.send_all(2) == [[b"a"], [b"b"]]


def test_an_open_batch_that_moves_is_ready_and_the_next_record_opens_another() -> None:
    bench = Bench()
    bench.append(0, b"a")
    bench.accumulator.move(bench.queue(0).batches[0], bench.queue(0), bench.queue(1), bench.now)
    bench.append(0, b"b")
    bench.append(1, b"c")

    assert bench.send_all(2) == [[b"a"]]
    bench.flush()
    assert (bench.send_all(1), bench.send_all(2)) == ([[b"b"]], [[b"c"]])


def test_memory_is_given_back_once_whatever_a_batch_went_through() -> None:
    bench = Bench()
    for value in (b"a" + bytes(5 * KIB), b"b" + bytes(5 * KIB)):
        bench.append(0, value)
    bench.flush()
    bench.back(0, bench.drain_one(1), paused=True)
    bench.accumulator.resume(bench.queue(0), bench.now)
    away = bench.drain_one(1)
    bench.accumulator.move(away, bench.queue(0), bench.queue(1), bench.now)
    away = bench.drain_one(2)
    bench.accumulator.replace(bench.queue(1), away, away.halves((8, 9), bench.now), bench.now)
    assert bench.pool.used == 4

    assert [len(values) for values in bench.send_all(2)] == [1, 1]

    bench.complete(1, away)  # a second answer to a batch that is gone
    bench.assert_empty()


# Groups


def test_what_waits_for_followers_holds_up_nothing_that_does_not() -> None:
    """The same partition has one batch away for each."""
    bench = Bench(partitions=1)
    bench.put(0, b"all", lane=ALL)
    away = bench.drain_one(1)
    bench.put(0, b"one", lane=KEPT)
    bench.put(0, b"all again", lane=ALL)

    assert sent(bench.drain_one(1)).values == [b"one"]
    assert bench.drain(1) == []

    bench.complete(0, away)
    assert sent(bench.drain_one(1)).values == [b"all again"]


def test_acks_0_and_1_share_a_request_since_both_go_as_1() -> None:
    bench = Bench(partitions=2)
    bench.lead(1, 1)
    bench.put(0, b"a", lane=KEPT._replace(acks=0))
    bench.put(1, b"b", lane=KEPT)

    assert indexes(bench.drain(1)) == [0, 1]


def test_acks_all_shares_requests_within_a_replica_set_in_whatever_order_it_is_named() -> None:
    bench = Bench(partitions=4)
    bench.lead(1, 1, 1, 1, replicas=[(1, 2), (1, 3), (2, 1), (1, 3)])
    for partition in range(4):
        bench.put(partition, b"a", lane=ALL)
        bench.put(partition, b"a", lane=KEPT)

    assert [indexes(bench.drain(1)) for _ in range(4)] == [[0, 2], [0, 1, 2, 3], [1, 3], []]


def test_groups_take_turns() -> None:
    """One that is always ready does not keep the others from leaving, however many its partitions are."""
    bench = Bench(partitions=50)
    bench.lead(*[1] * 50, replicas=[(1, 2)] * 49 + [(1, 3)])
    for partition in range(50):
        bench.put(partition, b"a", lane=ALL)
    bench.put(0, b"a", lane=KEPT)
    turns = []
    for _ in range(6):
        [(queue, batch)] = bench.drain(1, 1)
        turns.append((queue.replicas, batch.lane.acks))
        bench.put(queue.index, b"a", lane=batch.lane)
        bench.complete(queue.index, batch)

    assert turns == [((1, 2), -1), ((1, 3), -1), (None, 1)] * 2


def test_a_partition_that_gets_other_replicas_goes_with_those() -> None:
    bench = Bench(partitions=2)
    bench.lead(1, 1, replicas=[(1, 2), (1, 3)])
    for partition in range(2):
        bench.put(partition, b"a", lane=ALL)
    bench.lead(1, 1, replicas=[(1, 3), (1, 3)])

    assert indexes(bench.drain(1)) == [1, 0]


def test_a_forgotten_topic_leaves_no_group_behind() -> None:
    bench = Bench()
    bench.put(0, b"a", lane=ALL)
    bench.complete(0, bench.drain_one(1))
    bench.accumulator.forget("topic")

    assert bench.accumulator.topics == {}
    assert bench.queue(0, -1).group is None
