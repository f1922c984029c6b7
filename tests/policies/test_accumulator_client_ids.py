"""A partition's queues where a broker meters clients: one for each client id, and the way there and back."""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from random import Random

import pytest

from forebay_codecs import compression
from forebay_policies.accumulator import NO_LEADER, PartitionQueue
from forebay_policies.memory_shares import MemoryRequest
from forebay_policies.producer_batch import Lane, ProducerBatch
from forebay_policies.throttling import CLIENT_ID, QUIET_S, Throttling
from tests.policies.accumulator_kit import KIB, Bench
from tests.policies.batches import KEPT, MOVABLE, FakeOwner, client_batch, run_of, sent

A, B = "a", "b"


class Metered(Bench):
    """Each client id is one client. Partition i is led by node i + 1."""

    def __init__(self, partitions: int = 3, memory: int = 32 << 20) -> None:
        super().__init__(partitions, memory)
        self.clients: dict[str, FakeOwner] = {}

    def send(self, client_id: str, value: bytes, partition: int = 0, lane: Lane = KEPT) -> FakeOwner:
        """One record, due at once."""
        owner = FakeOwner(client=client_id, client_id=client_id)
        batch = client_batch(value, codec=lane.codec)
        queue = self.topic.queue(partition, lane.acks, client_id)
        self.accumulator.append(queue, lane, run_of(batch, owner), batch, self.now)
        self.flush()
        return owner

    def throttles(self, leader: int, client_id: str = CLIENT_ID, seconds: float = 0.0) -> None:
        self.accumulator.throttled(leader, client_id, seconds, self.now)

    def quiet(self) -> None:
        """Nobody has been throttled for long."""
        self.now += QUIET_S
        self.accumulator.settle(self.now)

    def answer(self, drained: list[tuple[PartitionQueue, ProducerBatch]]) -> None:
        for queue, batch in drained:
            self.accumulator.completed(queue, batch, self.now)

    def next(self, leader: int = 1) -> tuple[str | None, list[bytes | None]]:
        """The next request: its client id, and the values of its only batch."""
        [(queue, batch)] = drained = self.drain(leader)
        found = queue.client_id, sent(batch).values
        self.answer(drained)
        return found


def test_each_client_id_has_a_request_and_a_batch_of_a_partition_under_way_of_its_own() -> None:
    bench = Metered()
    bench.throttles(1)
    for value in (b"1", b"2"):
        bench.send(A, value)
        bench.send(B, value)

    first, second = bench.drain(1), bench.drain(1)

    assert [(queue.client_id, sent(batch).values) for queue, batch in first + second] == [
        (A, [b"1", b"2"]),
        (B, [b"1", b"2"]),
    ]
    bench.send(A, b"3")
    assert bench.drain(1) == [], "one batch of a client id's and partition's is away"
    bench.answer(first)
    assert bench.next() == (A, [b"3"])
    bench.answer(second)
    bench.assert_empty()


def test_other_brokers_stay_merged() -> None:
    bench = Metered()
    bench.throttles(1)
    bench.send(A, b"1", partition=1)
    bench.send(B, b"2", partition=1)

    assert bench.next(2) == (CLIENT_ID, [b"1", b"2"])


def test_what_waits_when_the_broker_throttles_goes_on_in_pieces_of_one_client_each() -> None:
    bench = Metered()
    away = [bench.send(A, b"0")]
    drained = bench.drain(1)
    for value in (b"1", b"2"):
        bench.send(A, value)
        bench.send(B, value)
    bench.throttles(1)
    assert bench.drain(1) == [], "what is away may hold records that come before those that wait"
    bench.send(B, b"3")

    bench.answer(drained)

    assert [bench.next(), bench.next()] == [(A, [b"1", b"2"]), (B, [b"1", b"2", b"3"])]
    assert away[0].told == []
    bench.assert_empty()


@pytest.mark.parametrize("codec", [compression.GZIP, compression.LZ4])
def test_pieces_are_sound_whatever_their_codec(codec: int) -> None:
    bench = Metered()
    lane = KEPT._replace(codec=codec)
    for number in range(6):
        bench.send(A if number % 2 else B, b"%d" % number * 100, lane=lane)
    bench.throttles(1)

    assert [bench.next(), bench.next()] == [
        (B, [b"0" * 100, b"2" * 100, b"4" * 100]),
        (A, [b"1" * 100, b"3" * 100, b"5" * 100]),
    ]
    bench.assert_empty()


def test_pieces_of_many_clients_take_the_memory_that_their_batch_took() -> None:
    bench = Metered()
    for number in range(1_000):
        bench.send(f"client {number}", bytes(30))
    before = bench.pool.used
    bench.throttles(1)

    assert bench.pool.used in (before, before + 1)
    assert bench.topic.held(0) == bench.pool.used * bench.pool.chunk_size
    for number in range(1_000):
        assert bench.next() == (f"client {number}", [bytes(30)])
    bench.assert_empty()


def test_a_batch_that_comes_back_after_the_change_goes_on_before_later_ones() -> None:
    bench = Metered()
    bench.send(A, b"1")
    bench.send(B, b"2")
    batch = bench.drain_one(1)
    bench.send(A, b"3")
    bench.throttles(1)
    root = bench.topic.acked_by_leader[0]
    bench.accumulator.clear_in_flight(root, batch)
    bench.accumulator.send_back(root, (batch,), bench.now, paused=True)
    assert bench.drain(1) == [], "it waits out its backoff"

    bench.accumulator.resume(root, bench.now)

    assert [bench.next(), bench.next(), bench.next()] == [(A, [b"1"]), (B, [b"2"]), (A, [b"3"])]
    bench.assert_empty()


def test_halves_of_a_batch_that_was_refused_after_the_change_are_one_clients_each() -> None:
    bench = Metered()
    for value in (b"1", b"2"):
        bench.send(A, value)
        bench.send(B, value)
    batch = bench.drain_one(1)
    bench.throttles(1)
    root = bench.topic.acked_by_leader[0]

    bench.accumulator.replace(root, batch, batch.halves((100, 101), bench.now), bench.now)

    left = [bench.next() for _ in range(4)]
    assert sorted(left, key=lambda it: str(it[0])) == [(A, [b"1"]), (A, [b"2"]), (B, [b"1"]), (B, [b"2"])]
    bench.assert_empty()


def test_when_the_broker_is_merged_again_what_waits_goes_first() -> None:
    bench = Metered()
    bench.throttles(1)
    bench.send(A, b"1")
    bench.send(A, b"2", lane=KEPT._replace(codec=compression.GZIP))
    away = bench.drain(1)
    bench.quiet()
    bench.send(A, b"3")
    bench.send(B, b"4")
    assert bench.drain(1) == []

    bench.answer(away)

    left = [bench.next() for _ in range(3)]
    assert left == [(CLIENT_ID, [b"2"]), (CLIENT_ID, [b"3"]), (CLIENT_ID, [b"4"])]
    bench.send(A, b"5")
    bench.send(B, b"6")
    assert bench.next() == (CLIENT_ID, [b"5", b"6"])
    bench.assert_empty()


def comes_back_unknown(bench: Metered, drained: list[tuple[PartitionQueue, ProducerBatch]]) -> None:
    """Its connection was lost: it may be appended."""
    [(queue, batch)] = drained
    batch.tainted = True
    batch.tries += 1
    bench.accumulator.clear_in_flight(queue, batch)
    bench.accumulator.send_back(queue, (batch,), bench.now, paused=False)


@pytest.mark.parametrize("sweep", [False, True])
@pytest.mark.parametrize("why", ["done", "left"])
@pytest.mark.parametrize("behind", [(), (b"3",)])
def test_when_what_the_turn_waits_for_is_dropped_the_partition_turns(
    why: str, behind: tuple[bytes, ...], *, sweep: bool
) -> None:
    bench = Metered()
    bench.throttles(1)
    owner = bench.send(A, b"1")
    away = bench.drain(1)
    bench.send(B, b"2")
    for value in behind:
        bench.send(A, value)
    bench.lead(2, 2, 3)
    comes_back_unknown(bench, away)
    assert bench.accumulator.has_ready(2), "the same again, before the partition turns"
    bench.announced.clear()
    setattr(owner, why, True)

    if sweep:
        bench.accumulator.drop_abandoned(bench.now)
    else:
        assert bench.drain(2) == [], "nothing more leaves in the old form"

    assert bench.announced == [2]
    values = [*behind, b"2"]
    assert [bench.next(2) for _ in values] == [(CLIENT_ID, [value]) for value in values]
    bench.assert_empty()


def test_what_stands_behind_a_dropped_batch_waits_for_the_turn_with_the_others() -> None:
    bench = Metered()
    bench.throttles(1)
    owner = bench.send(A, b"1")
    first = bench.drain(1)
    bench.send(B, b"2")
    second = bench.drain(1)
    bench.send(A, b"3")
    bench.lead(2, 2, 3)
    comes_back_unknown(bench, first)
    owner.left = True

    assert bench.drain(2) == [], "B's is away"
    assert not bench.accumulator.has_ready(2)
    assert bench.topic.queue(0, 1, A).batches, "and still there"

    bench.answer(second)
    assert bench.next(2) == (CLIENT_ID, [b"3"])
    bench.assert_empty()


def test_a_partition_takes_the_form_that_is_right_for_its_new_leader() -> None:
    bench = Metered()
    bench.throttles(1)
    bench.send(A, b"1")
    bench.send(B, b"2")
    bench.lead(NO_LEADER, 2, 3)
    assert bench.drain(1) == []
    bench.send(A, b"3")
    bench.lead(2, 2, 3)

    assert [bench.next(2), bench.next(2)] == [(CLIENT_ID, [b"1", b"3"]), (CLIENT_ID, [b"2"])]
    bench.send(A, b"4")
    bench.send(B, b"5")
    bench.lead(1, 2, 3)
    assert [bench.next(), bench.next()] == [(A, [b"4"]), (B, [b"5"])]
    bench.assert_empty()


def test_records_that_move_to_a_broker_that_meters_clients_go_there_in_pieces() -> None:
    bench = Metered()
    bench.throttles(1)
    for client_id in (A, B, A):
        bench.send(client_id, client_id.encode(), partition=1, lane=MOVABLE)
    source = bench.queue(1)
    [batch] = source.batches

    bench.accumulator.move(batch, source, bench.topic.queue(0, 1, A), bench.now)

    assert [bench.next(), bench.next()] == [(A, [b"a", b"a"]), (B, [b"b"])]
    bench.assert_empty()


def test_client_ids_that_nothing_waits_for_are_forgotten() -> None:
    bench = Metered()
    bench.throttles(1)
    for number in range(5):
        bench.send(f"{number}", b"x")
    bench.next()
    away = bench.drain(1)
    root = bench.topic.acked_by_leader[0]

    bench.accumulator.drop_abandoned(bench.now)

    assert root.clients is not None
    assert root.clients.keys() == {"1", "2", "3", "4"}
    bench.answer(away)
    while drained := bench.drain(1):
        bench.answer(drained)
    bench.accumulator.drop_abandoned(bench.now)
    assert root.clients == {}
    bench.accumulator.forget("topic")
    bench.assert_empty()


def test_what_a_throttled_client_has_waiting_makes_no_partition_slow() -> None:
    bench = Metered()
    bench.throttles(1, A, 5.0)
    bench.send(A, b"1")
    assert bench.topic.ready_since(0) is None
    bench.now = 1.0
    bench.send(B, b"2")
    assert bench.topic.ready_since(0) == 1.0


def test_for_how_long_a_partition_waits_only_those_are_looked_at_in_which_something_waits() -> None:
    bench = Metered()
    bench.throttles(1)
    for number in range(100):
        bench.topic.queue(0, 1, f"{number}")
    root = bench.topic.acked_by_leader[0]
    for bench.now, client_id in ((1.0, A), (2.0, B), (3.0, A)):
        bench.send(client_id, b"x")
    assert [queue.client_id for queue in root.ready_clients] == [A, B]
    assert bench.topic.ready_since(0) == 1.0

    bench.now = 4.0
    away = bench.drain(1)
    assert [queue.client_id for queue in root.ready_clients] == [B]
    assert bench.topic.ready_since(0) == 2.0
    bench.send(A, b"x")
    assert [queue.client_id for queue in root.ready_clients] == [B, A], "it waits since the one before it has left"
    bench.answer(away)
    bench.quiet()
    assert not root.ready_clients
    assert bench.topic.ready_since(0) == bench.now, "that of all, put together"


def test_memory_is_shared_by_client_id_too() -> None:
    bench = Metered()
    bench.throttles(1)
    bench.send(A, bytes(9000))

    assert bench.topic.queue(0, 1, A).held == bench.topic.held(0) == 3 * 4096
    assert bench.topic.queue(0, 1, B).held == 0


@pytest.mark.parametrize("meanwhile", ["swept", "put together", "divided"])
def test_who_waits_for_memory_is_let_in_where_the_partition_is_led_by_then(meanwhile: str) -> None:
    bench = Metered(memory=64 * KIB)
    bench.lead(1, 1, 2)
    if meanwhile != "divided":
        bench.throttles(1)
    bench.send(A, bytes(28_000))
    bench.pool.charge(A, 1, bench.pool.whole_chunks(28_000))
    bench.drain(1)  # and is never answered
    let_in: list[str] = []
    asked = MemoryRequest(B)
    asked.add(partial(bench.topic.queue, 1, 1, B), bench.pool.whole_chunks(12_000))
    assert not bench.pool.fits(asked)
    bench.pool.wait(asked, lambda: let_in.append(B))
    if meanwhile == "swept":
        bench.accumulator.drop_abandoned(bench.now)
    elif meanwhile == "put together":
        bench.quiet()
    else:
        bench.throttles(1)
    assert let_in == []

    bench.lead(1, 2, 2)

    assert let_in == [B]


def test_by_setting_client_ids_are_apart_from_the_start() -> None:
    bench = Metered()
    bench.accumulator = type(bench.accumulator)(bench.pool, 16_384, 65_536, Throttling(merges=False))
    bench.topic = bench.accumulator.topic("topic")
    bench.accumulator.observe(
        opened=lambda queue, batch: bench.opened.append((queue, batch, batch.number)), ready=bench.announced.append
    )
    bench.send(A, b"1")  # without a leader yet
    bench.send(B, b"2")
    bench.lead(1)

    assert [bench.next(), bench.next()] == [(A, [b"1"]), (B, [b"2"])]


@pytest.mark.parametrize("seed", range(40))
def test_whatever_happens_each_record_leaves_once_and_a_clients_in_order(seed: int) -> None:
    """Kept records of three clients; brokers throttle, are quiet, take over, send back, split and answer at random."""
    rng = Random(seed)
    bench = Metered(partitions=2)
    bench.lead(1, 2)
    log: dict[tuple[int, int, str], list[int]] = defaultdict(list)
    away: list[tuple[int, PartitionQueue, ProducerBatch]] = []
    paused: set[PartitionQueue] = set()
    lanes = [Lane(acks, codec, movable=False) for acks in (1, -1) for codec in (0, compression.LZ4)]
    count = 0

    def drain() -> None:
        leader = rng.choice((1, 2))
        for queue, batch in bench.drain(leader, rng.choice((100, 1 << 20))):
            ids = {run.owner.client_id for run in batch.runs}
            if bench.accumulator.throttling.by_client(leader):
                assert ids == {queue.client_id}
            else:
                assert queue.client_id == CLIENT_ID
            away.append((leader, queue, batch))

    def settle(*, whole: bool) -> None:
        _, queue, batch = away.pop(rng.randrange(len(away)))
        what = 0 if whole else rng.randrange(4)
        if what == 3 and len(batch.runs) > 1:
            numbers = bench.accumulator.next_number(), bench.accumulator.next_number()
            bench.accumulator.replace(queue, batch, batch.halves(numbers, bench.now), bench.now)
        elif what == 2:
            bench.accumulator.clear_in_flight(queue, batch)
            bench.accumulator.send_back(queue, (batch,), bench.now, paused=True)
            paused.add(queue)
        else:
            values = iter(sent(batch).values)
            for run in batch.runs:
                client_id = run.owner.client_id
                assert client_id is not None
                log[queue.index, batch.lane.acks, client_id] += [
                    int(next(values) or b"") for _ in range(run.record_count)
                ]
            bench.accumulator.completed(queue, batch, bench.now)

    def resume() -> None:
        queue = rng.choice(sorted(paused, key=id))
        paused.discard(queue)
        bench.accumulator.resume(queue, bench.now)

    for _ in range(300):
        bench.now += 0.01
        what = rng.random()
        if what < 0.4:
            bench.send(rng.choice("abc"), b"%d" % count, rng.randrange(2), rng.choice(lanes))
            count += 1
        elif what < 0.6:
            drain()
        elif what < 0.8 and away:
            settle(whole=False)
        elif what < 0.88 and paused:
            resume()
        elif what < 0.92:
            bench.throttles(rng.choice((1, 2)))
        elif what < 0.95:
            bench.now += 4000
            bench.accumulator.settle(bench.now)
        elif what < 0.98:
            bench.lead(rng.choice((1, 2, NO_LEADER)), rng.choice((1, 2, NO_LEADER)))
        else:
            bench.accumulator.drop_abandoned(bench.now)
    bench.lead(1, 2)
    while away or paused or bench.accumulator.has_ready(1) or bench.accumulator.has_ready(2):
        if paused:
            resume()
        drain()
        if away:
            settle(whole=True)

    found = sorted(value for values in log.values() for value in values)
    assert found == list(range(count))
    for where, values in log.items():
        assert values == sorted(values), where
    bench.assert_empty()
