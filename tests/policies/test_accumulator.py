"""Where records wait: what joins which batch, what leaves when and in which order, and what comes of it."""

from __future__ import annotations

import pytest

from forebay_codecs import compression
from forebay_policies.accumulator import NO_LEADER
from forebay_policies.producer_batch import Lane, RecordRun
from tests.policies.accumulator_kit import KIB, Bench
from tests.policies.batches import KEPT, MOVABLE, FakeOwner, batch_bytes, client_batch, encoded, sent, split_off

# Which batch a record joins


@pytest.mark.parametrize("codec", range(len(compression.NAMES)))
@pytest.mark.parametrize("size", [100, 6 * KIB, 256 * KIB - 20, 256 * KIB, 300 * KIB, 5000 * KIB])
def test_memory_is_asked_for_what_may_be_merged_uncompressed_and_for_the_rest_as_it_came(codec: int, size: int) -> None:
    bench = Bench()
    batch = client_batch(b"x" * size, codec=codec)
    asked = bench.accumulator.memory_for(batch)

    bench.append(0, b"x" * size, lane=Lane(1, codec, movable=True))
    alone = bench.queue(0).held
    bench.append(0, b"y", lane=Lane(1, codec, movable=True))

    assert asked >= alone
    if size >= 256 * KIB:
        assert (asked, len(bench.queue(0).batches)) == (alone, 2), "nothing joins it: so much it takes"
    elif size + 40 < 256 * KIB:
        assert len(bench.queue(0).batches) == 1
        assert asked >= size
    assert bench.accumulator.memory_for(split_off(batch)) >= size


def test_a_batch_is_adopted_only_while_it_is_alone() -> None:
    bench = Bench()
    bench.put(0, b"a")
    adopted = bench.drain_one(1)
    bench.put(0, b"b")  # behind a backlog: the partition's batch is away
    bench.put(0, b"c")

    assert encoded(adopted) == batch_bytes([b"a"])
    bench.complete(0, adopted)
    merged = bench.drain_one(1)
    assert merged.flush_reason != "adopted"
    assert sent(merged).values == [b"b", b"c"]


@pytest.mark.parametrize("codec", range(1, len(compression.NAMES)))
def test_behind_a_backlog_compressed_batches_are_merged_in_the_lanes_codec(codec: int) -> None:
    bench = Bench()
    lane = Lane(1, codec, movable=True)
    for value in (b"a" * 500, b"b" * 500, b"c" * 500):
        bench.put(0, value, lane=lane)

    found = sent(bench.drain_one(1))

    assert (found.codec, found.values) == (codec, [b"a" * 500, b"b" * 500, b"c" * 500])


def test_while_one_batch_is_away_the_next_one_grows_past_ready_up_to_the_cap() -> None:
    bench = Bench()
    bench.put(0, b"first")
    away = bench.drain_one(1)
    value = bytes(4 * KIB - 20)

    for _ in range(100):
        bench.put(0, value)

    assert bench.drain(1) == [], "at most one batch of a partition is away"
    assert [batch.record_count for batch in bench.queue(0).batches] == [64, 36]
    bench.complete(0, away)
    assert [len(values) for values in bench.send_all(1)] == [64, 36]
    bench.assert_empty()


@pytest.mark.parametrize(
    "other",
    [
        KEPT._replace(acks=-1),
        KEPT._replace(codec=compression.LZ4),
        KEPT._replace(movable=True),
        KEPT._replace(principal="User:alice"),
    ],
)
def test_lanes_never_mix(other: Lane) -> None:
    bench = Bench()
    bench.append(0, b"a", lane=KEPT)
    assert bench.accumulator.has_room(bench.queue(0), KEPT, client_batch(b"b"))
    assert not bench.accumulator.has_room(bench.queue(0), other, client_batch(b"b"))
    bench.append(0, b"b", lane=other)
    bench.append(0, b"c", lane=KEPT)
    bench.append(0, b"d", lane=other)
    bench.flush()

    queues = dict.fromkeys([bench.queue(0), bench.queue(0, other.acks)])
    assert [batch.lane for queue in queues for batch in queue.batches] == [KEPT, other]
    assert bench.send_all(1) == [[b"a", b"c"], [b"b", b"d"]]


def test_partitions_and_topics_never_mix() -> None:
    bench = Bench()
    bench.put(0, b"a")
    bench.put(1, b"b")
    other = bench.accumulator.topic("other")
    assert bench.accumulator.topic("other") is other
    assert bench.accumulator.topic("topic") is bench.topic

    assert not bench.accumulator.has_room(bench.queue(2), MOVABLE, client_batch(b"c"))
    assert not bench.accumulator.has_room(other.queue(0), MOVABLE, client_batch(b"c"))
    assert (bench.send_all(1), bench.send_all(2), bench.send_all(3)) == ([[b"a"]], [[b"b"]], [])


def test_what_does_not_fit_closes_the_batch_and_opens_the_next() -> None:
    bench = Bench(max_size=20 * KIB)
    bench.append(0, bytes(12 * KIB))
    bench.append(0, bytes(12 * KIB))
    bench.append(0, b"a")

    assert [batch.closed for batch in bench.queue(0).batches] == [True, False]
    assert [len(values) for values in bench.send_all(1)] == [1], "the second is neither full nor due"
    bench.flush()
    assert [len(values) for values in bench.send_all(1)] == [2]


def test_a_request_has_256_batches_at_most_and_the_others_are_next() -> None:
    bench = Bench(partitions=1)
    bench.lead(*[1] * 600)
    for partition in range(600):
        bench.put(partition, b"a")

    drained = [bench.drain(1) for _ in range(4)]
    assert [len(batches) for batches in drained] == [256, 256, 88, 0]
    assert len({queue.index for batches in drained for queue, _ in batches}) == 600


def test_each_new_batch_is_told_once_with_a_number_of_its_own() -> None:
    bench = Bench()
    bench.append(0, b"a")
    bench.append(0, b"b")
    bench.append(0, b"c", lane=KEPT)
    bench.append(1, b"d")

    assert [(queue.index, batch.lane) for queue, batch, _ in bench.opened] == [(0, MOVABLE), (0, KEPT), (1, MOVABLE)]
    assert len({number for _, _, number in bench.opened}) == 3


def test_a_batch_due_when_it_opens_is_ready_with_its_first_record() -> None:
    """linger.ms=0."""
    bench = Bench()
    bench.accumulator.observe(opened=lambda queue, batch: setattr(batch, "due", True), ready=lambda leader: None)
    bench.append(0, b"a")

    assert bench.send_all(1) == [[b"a"]]


# Flushes


def test_a_flush_makes_its_batch_ready() -> None:
    bench = Bench()
    bench.append(0, b"a")
    assert not bench.accumulator.has_ready(1)

    bench.flush()

    assert bench.accumulator.has_ready(1)
    assert bench.send_all(1) == [[b"a"]]


def test_an_orphaned_flush_does_nothing() -> None:
    bench = Bench()
    bench.append(0, bytes(16 * KIB))
    orphans, bench.opened = bench.opened, []
    full = bench.drain_one(1)
    bench.append(0, b"next")
    for state in ("away", "completed"):
        for queue, batch, number in orphans:
            bench.accumulator.flush(queue, batch.lane, number, bench.now)
        assert not bench.accumulator.has_ready(1), state
        assert [batch.due for batch in bench.queue(0).batches] == [False], state
        if state == "away":
            bench.complete(0, full)

    bench.flush()
    assert bench.send_all(1) == [[b"next"]]


def test_a_flush_of_another_number_does_nothing() -> None:
    bench = Bench()
    bench.append(0, b"a")
    [(queue, batch, number)] = bench.opened

    bench.accumulator.flush(queue, batch.lane, number + 1, bench.now)

    assert not batch.ready


def test_the_flush_of_a_batch_that_moved_does_nothing_to_its_old_partition() -> None:
    bench = Bench()
    bench.append(0, b"a")
    [(queue, batch, number)] = bench.opened
    bench.accumulator.move(batch, queue, bench.queue(1), bench.now)
    bench.append(0, b"b")

    bench.accumulator.flush(queue, batch.lane, number, bench.now)

    assert not bench.accumulator.has_ready(1)
    assert bench.send_all(2) == [[b"a"]]


def test_flush_all_makes_everything_ready() -> None:
    bench = Bench()
    bench.append(0, b"a")
    bench.append(0, b"b", lane=KEPT)
    bench.append(2, b"c")

    bench.accumulator.flush_all(bench.now)

    assert [leader for leader in (1, 2, 3) if bench.accumulator.has_ready(leader)] == [1, 3]
    assert bench.send_all(1) == [[b"a"], [b"b"]]
    assert bench.send_all(3) == [[b"c"]]


# Loads


def test_loads_count_what_waits_and_what_is_away() -> None:
    bench = Bench()
    sizes = [len(client_batch(b"x" * 100).section), len(client_batch(b"y" * 200).section)]
    assert bench.topic.loads() == {}

    bench.put(0, b"x" * 100)
    bench.put(1, b"y" * 200)
    assert bench.topic.loads() == {0: sizes[0], 1: sizes[1]}
    away = bench.drain_one(1)
    assert bench.topic.loads() == {0: sizes[0], 1: sizes[1]}
    assert (bench.accumulator.in_flight_bytes, bench.accumulator.queued_bytes) == (sizes[0], sizes[1])
    bench.put(0, b"x" * 100)
    assert bench.topic.loads() == {0: 2 * sizes[0], 1: sizes[1]}
    assert bench.accumulator.queued_batches == 2

    bench.complete(0, away)
    assert bench.topic.loads() == {0: sizes[0], 1: sizes[1]}
    bench.send_all(1)
    assert bench.topic.loads() == {1: sizes[1]}
    bench.send_all(2)
    bench.assert_empty()


def test_loads_follow_a_compressed_batch_that_is_opened_up() -> None:
    bench = Bench()
    lane = Lane(1, compression.GZIP, movable=True)
    bench.put(0, bytes(50_000), lane=lane)
    assert 0 < bench.topic.loads()[0] < 1000

    bench.put(0, b"a", lane=lane)

    assert bench.topic.loads()[0] == bench.queue(0).batches[0].size > 50_000
    bench.send_all(1)
    bench.assert_empty()


def test_ready_since_counts_from_readiness_to_drain() -> None:
    bench = Bench()
    bench.now = 1.0
    bench.append(0, b"a")
    assert bench.topic.ready_since(0) is None
    assert bench.topic.ready_since(2) is None
    bench.now = 2.0
    bench.flush()
    bench.now = 3.0
    bench.append(0, b"b")
    assert bench.topic.ready_since(0) == 2.0

    away = bench.drain_one(1)
    assert bench.topic.ready_since(0) is None
    bench.now = 4.0
    bench.put(0, b"c")
    assert bench.topic.ready_since(0) == 4.0, "its broker has not accepted it, since another one is away"
    bench.now = 5.0
    bench.complete(0, away)
    assert bench.topic.ready_since(0) == 4.0


def test_a_partition_lingers_while_a_batch_is_neither_full_nor_due() -> None:
    bench = Bench()
    assert not bench.topic.lingers(0), "nothing is there"
    bench.append(0, b"a")
    assert bench.topic.lingers(0)
    assert not bench.topic.lingers(1)
    bench.flush()
    assert not bench.topic.lingers(0), "it is due"

    away = bench.drain_one(1)
    assert not bench.topic.lingers(0), "what is away takes no more records"
    bench.append(0, b"b")
    assert bench.topic.lingers(0), "another batch is open behind it"
    bench.complete(0, away)


def test_ready_since_of_a_batch_that_moved_away_is_forgotten() -> None:
    bench = Bench()
    bench.put(0, b"a")
    bench.now = 1.0
    bench.accumulator.move(bench.queue(0).batches[0], bench.queue(0), bench.queue(1), bench.now)

    assert (bench.topic.ready_since(0), bench.topic.ready_since(1)) == (None, 1.0)


# Leaders


def test_without_a_leader_a_partition_waits_and_is_found_when_it_has_one() -> None:
    bench = Bench()
    bench.lead(NO_LEADER, 2, 3)
    bench.put(0, b"a")
    assert [bench.drain(leader) for leader in (1, 2, 3)] == [[], [], []]

    bench.lead(3, 2, 3)

    assert [leader for leader in (NO_LEADER, 1, 2, 3) if bench.accumulator.has_ready(leader)] == [3]
    assert bench.send_all(3) == [[b"a"]]


def test_what_is_ready_follows_the_leader() -> None:
    bench = Bench()
    bench.put(0, b"a")
    bench.put(1, b"b")

    bench.lead(2, 1, 3)

    assert bench.accumulator.ready_queues(1) == [bench.queue(1)]
    assert bench.accumulator.ready_queues(2) == [bench.queue(0)]
    assert (bench.send_all(1), bench.send_all(2)) == ([[b"b"]], [[b"a"]])


def test_what_is_away_when_the_leader_changes_comes_back_to_the_new_one() -> None:
    bench = Bench()
    bench.put(0, b"a", lane=KEPT)
    away = bench.drain_one(1)
    bench.put(0, b"b", lane=KEPT)
    bench.lead(2, 2, 3)
    assert not bench.accumulator.has_ready(2), "one is still away, to the old leader"

    bench.back(0, away)

    assert not bench.accumulator.has_ready(1)
    assert bench.send_all(2) == [[b"a"], [b"b"]]


def test_a_leader_that_changes_during_a_backoff_does_not_end_it() -> None:
    bench = Bench()
    bench.put(0, b"a", lane=KEPT)
    bench.back(0, bench.drain_one(1), paused=True)

    bench.lead(2, 2, 3)
    bench.put(0, b"b", lane=KEPT)
    assert bench.drain(2) == []
    bench.accumulator.resume(bench.queue(0), bench.now)

    assert bench.send_all(2) == [[b"a"], [b"b"]]


def test_partitions_that_are_new_and_partitions_that_are_gone() -> None:
    bench = Bench(partitions=2)
    bench.put(1, b"a")
    bench.lead(1)
    assert bench.topic.partition_count == 1
    assert [bench.drain(leader) for leader in (1, 2)] == [[], []]

    bench.lead(1, 5, 6)
    bench.put(2, b"b")

    assert (bench.send_all(5), bench.send_all(6)) == ([[b"a"]], [[b"b"]])


# Nobody waits any more


def test_a_batch_that_nobody_waits_for_is_dropped_when_its_turn_comes() -> None:
    bench = Bench()
    owners = [FakeOwner() for _ in range(3)]
    for owner, lane in zip(owners, (MOVABLE, KEPT, MOVABLE._replace(acks=-1)), strict=True):
        bench.put(0, b"a", lane=lane, owner=owner)
    owners[0].done = owners[1].done = True

    left = bench.drain_one(1)

    assert left.runs[0].owner is owners[2]
    assert bench.pool.used == 1
    assert bench.topic.loads() == {0: left.size}
    bench.complete(0, left)
    bench.assert_empty()


def test_a_batch_that_somebody_waits_for_is_sent_whole() -> None:
    bench = Bench()
    owners = [FakeOwner(), FakeOwner()]
    for owner in owners:
        bench.append(0, b"a", owner=owner)
    bench.flush()
    owners[0].done = True

    assert bench.send_all(1) == [[b"a", b"a"]]


class Unsearched(list[RecordRun]):
    """A batch may have tens of thousands: to look for each of them in a list takes the square of that."""

    def __contains__(self, run: object) -> bool:
        raise AssertionError("searched from its start for each run of the batch")


def test_of_a_batch_that_comes_back_runs_whose_client_has_left_are_taken_out() -> None:
    bench = Bench()
    owners = [FakeOwner() for _ in range(6)]
    for number, owner in enumerate(owners):
        bench.append(0, b"%d" % number, lane=KEPT, owner=owner)
    bench.flush()
    batch = bench.drain_one(1)
    batch.tries = 1
    bench.back(0, batch)
    for owner in owners[::2]:
        owner.left = True

    bench.accumulator._desert(bench.queue(0), batch, Unsearched(batch.deserted))

    assert bench.send_all(1) == [[b"1", b"3", b"5"]]
    bench.assert_empty()


def test_but_one_that_may_be_appended_already_is_not_cut_and_all_are_told() -> None:
    bench = Bench()
    told: list[RecordRun] = []
    bench.accumulator.observe(opened=lambda *_: None, ready=lambda _: None, deserted=told.extend)
    owners = [FakeOwner() for _ in range(3)]
    runs = [bench.append(0, b"a", lane=KEPT, owner=owner) for owner in owners]
    bench.accumulator.flush_all(bench.now)
    batch = bench.drain_one(1)
    batch.tries, batch.tainted = 1, True
    bench.back(0, batch)
    owners[1].left = True

    assert bench.send_all(1) == []
    assert told == runs
    bench.assert_empty()


def test_dropping_what_waits_for_a_leader_frees_its_memory_and_lets_in_who_waits() -> None:
    bench = Bench(partitions=1, memory=8 * KIB)
    bench.lead(NO_LEADER)
    owner = FakeOwner()
    bench.put(0, bytes(7 * KIB), owner=owner)

    def granted() -> None:
        bench.append(0, b"next")

    bench.wait(4 * KIB, granted)
    bench.accumulator.drop_abandoned(bench.now)
    assert bench.pool.waiting == 1

    owner.done = True
    bench.accumulator.drop_abandoned(bench.now)

    assert bench.pool.waiting == 0
    bench.flush()
    bench.lead(1)
    assert bench.send_all(1) == [[b"next"]]
    bench.assert_empty()


def test_when_all_is_dropped_nothing_is_ready() -> None:
    bench = Bench()
    owner = FakeOwner()
    bench.put(0, b"a", owner=owner)
    owner.done = True

    assert bench.drain(1) == []
    assert not bench.accumulator.has_ready(1)
    assert bench.topic.ready_since(0) is None
    bench.assert_empty()
