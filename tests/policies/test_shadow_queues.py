"""What observed records would have become is what the accumulator makes of the same ones."""

from __future__ import annotations

from functools import cache
from heapq import heappop, heappush
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from forebay_codecs.compression import GZIP, NONE
from forebay_codecs.record_batch import ClientBatch
from forebay_policies.accumulator import ALL_REPLICAS, Accumulator, PartitionQueue
from forebay_policies.buffer_pool import BufferPool
from forebay_policies.builtin_partitioners import make_partitioner
from forebay_policies.dispatch_groups import DispatchGroup
from forebay_policies.linger import Linger
from forebay_policies.partitioner import Partitioner
from forebay_policies.producer_batch import Lane, ProducerBatch
from forebay_policies.requests_in_flight import RequestsInFlight
from forebay_policies.shadow_queues import FIRST_GUESS_S, IDLE_S, MAX_WAITING, SMOOTHING, TURN_S, Placed, ShadowQueues
from tests.policies.batches import KEPT, MOVABLE, FakeOwner, run_of, sized

KIB = 1024
BATCH, LARGEST, REQUEST = 16 * KIB, 64 * KIB, 48 * KIB
LIMIT = 2
TIMES = {1: 0.0031, 2: 0.0107}
LEADERS = (1, 2, 1, 1)
LANES = (
    KEPT,
    MOVABLE,
    Lane(1, GZIP, movable=False),
    Lane(ALL_REPLICAS, NONE, movable=False),
    Lane(0, NONE, movable=True),
)

batch_of = cache(sized)


def partitioner(name: str) -> Partitioner:
    return make_partitioner(name, rng=Random(7), batch_size=BATCH)


class Shadow:
    """What would be, with the same leaders."""

    def __init__(self, name: str, linger_ms: float = -1, most_waiting: int = MAX_WAITING) -> None:
        self.queues = ShadowQueues(BATCH, LARGEST, REQUEST, Linger(linger_ms), LIMIT, self.acknowledged, most_waiting)
        self.partitioner = partitioner(name)
        self.told: list[tuple[int, float]] = []
        accumulator = Accumulator(BufferPool(KIB * KIB, 4 * KIB, BATCH), BATCH, LARGEST)
        self.topic = accumulator.topic("ponds")
        accumulator.set_leaders(self.topic, LEADERS, 0.0, [(1, 2)] * len(LEADERS))
        self.topic.available = tuple(range(len(LEADERS)))
        self.accumulator = accumulator
        for leader, seconds in TIMES.items():
            for acks_all in (False, True):
                self.queues.took(leader, seconds, acks_all=acks_all)

    def lead(self, *leaders: int) -> None:
        self.accumulator.set_leaders(self.topic, leaders, 0.0)

    def acknowledged(self, topic: str, partition: int, seconds: float) -> None:
        assert topic == "ponds"
        self.told.append((partition, seconds))
        self.partitioner.on_acknowledged(partition, seconds)

    def put(self, partition: int, lane: Lane, client: str, batch: ClientBatch, now: float) -> Placed:
        sizes = len(batch.records), len(batch.section)
        return self.queues.place(self.topic, self.partitioner, partition, lane, client, *sizes, now)


class Real:
    """The accumulator, whose brokers take TIMES: what the proxy's handler, dispatcher and senders do with it."""

    def __init__(self, name: str) -> None:
        self.accumulator = Accumulator(BufferPool(64 * KIB * KIB, 4 * KIB, BATCH), BATCH, LARGEST)
        self.opened: list[tuple[PartitionQueue, ProducerBatch, int]] = []
        self.accumulator.observe(
            opened=lambda queue, batch: self.opened.append((queue, batch, batch.number)), ready=lambda leader: None
        )
        self.topic = self.accumulator.topic("ponds")
        self.accumulator.set_leaders(self.topic, LEADERS, 0.0, [(1, 2)] * len(LEADERS))
        self.topic.available = tuple(range(len(LEADERS)))
        self.partitioner = partitioner(name)
        self.away = {leader: RequestsInFlight(LIMIT) for leader in TIMES}
        self.answers: list[tuple[float, int, int, DispatchGroup, list[tuple[PartitionQueue, ProducerBatch]]]] = []
        self.batches = self.requests = 0

    def put(self, partition: int, lane: Lane, client: str, batch: ClientBatch, now: float) -> Placed:
        self.advance(now)
        accumulator, topic = self.accumulator, self.topic
        if lane.movable:
            size = len(batch.section)
            partition = self.partitioner.partition(topic, size, now)
            if not accumulator.has_room(topic.queue(partition, lane.acks), lane, batch) and (
                self.partitioner.on_new_batch(topic, partition)
            ):
                partition = self.partitioner.partition(topic, size, now)
        elif not accumulator.has_room(topic.queue(partition, lane.acks), lane, batch):
            self.partitioner.on_new_batch(topic, partition)
        before = len(self.opened)
        accumulator.append(topic.queue(partition, lane.acks), lane, run_of(batch, FakeOwner(client=client)), batch, now)
        self.batches += len(self.opened) - before
        return Placed(partition, len(self.opened) > before)

    def turn_over(self, now: float) -> None:
        self.advance(now)
        opened, self.opened = self.opened, []
        for queue, batch, number in opened:
            self.accumulator.flush(queue, batch.lane, number, now)
        self.send(now)

    def send(self, now: float) -> None:
        for leader, away in self.away.items():
            while groups := [group for group in self.accumulator.ready_groups(leader) if away.may_send(group)]:
                for group in groups:
                    drained = self.accumulator.drain_group(group, REQUEST, now)
                    away.sent(group)
                    self.requests += 1
                    heappush(self.answers, (now + TIMES[leader], self.requests, leader, group, drained))

    def advance(self, now: float) -> None:
        while self.answers and self.answers[0][0] <= now:
            at = self.answers[0][0]
            while self.answers and self.answers[0][0] <= min(now, at + TURN_S):
                _, _, leader, group, drained = heappop(self.answers)
                self.away[leader].done(group)
                for queue, batch in drained:
                    self.accumulator.completed(queue, batch, at)
                    self.partitioner.on_acknowledged(queue.index, at - batch.opened_at)
            self.send(at)


ARRIVALS = st.lists(
    st.tuples(
        st.sampled_from([None, None, 0.0002, 0.001, 0.004, 0.02]),
        st.sampled_from([0, 0, 1, 2, 3]),
        st.sampled_from(LANES),
        st.sampled_from("abc"),
        st.sampled_from([100, 3000, 9000, 40_000]),
    ),
    max_size=60,
)
"""Each: seconds since the one before, at which the turn was over, or None: in the same turn; partition, lane, client,
bytes."""


OVERTAKING = [(None, 0, KEPT, "a", 100), (None, 0, LANES[2], "b", 100), (None, 0, KEPT, "b", 100)]
"""The last may not join the first, which leaves before the second, of the same client."""

TOO_LARGE = [(None, 0, KEPT, "a", 40_000), (None, 2, KEPT, "a", 40_000)]
"""Both are for the same broker, in one turn, and do not fit into one request."""


@settings(max_examples=60, deadline=None)
@example(OVERTAKING, "adaptive")
@example(TOO_LARGE, "adaptive")
@given(ARRIVALS, st.sampled_from(["adaptive", "sticky", "round_robin", "expected_wait"]))
def test_it_is_what_the_accumulator_does(arrivals: list[tuple[float | None, int, Lane, str, int]], name: str) -> None:
    shadow, real = Shadow(name), Real(name)
    now = 1.0
    for gap, partition, lane, client, size in arrivals:
        if gap is not None:
            shadow.queues.turn_over(now)
            real.turn_over(now)
            now += gap
        batch = batch_of(size, lane.codec)
        assert shadow.put(partition, lane, client, batch, now) == real.put(partition, lane, client, batch, now)
    for _ in range(100):
        shadow.queues.turn_over(now)
        real.turn_over(now)
        assert shadow.queues._topics.get("ponds") is None or (
            shadow.queues._topics["ponds"].loads() == real.topic.loads()
        )
        now += 0.005
    assert (shadow.queues.batches, shadow.queues.requests) == (real.batches, real.requests)
    assert real.topic.loads() == {}
    assert not shadow.queues._events
    assert not shadow.queues._waiting


def test_an_example_by_hand() -> None:
    """Partition 0 is led by broker 1, which takes 3.1 ms. Runs of 1,000 bytes that keep their partition:

    at 0 ms     a, b in one turn    one batch, sent at once
    at 1 ms     c                   opens a batch, since the first is away
    at 2 ms     d                   joins it
    at 3.1 ms                       the first is answered, and c and d leave
    at 9 ms     e                   a third batch
    """
    shadow = Shadow("uniform")
    opens = []
    for at, clients in ((0.0, "ab"), (0.001, "c"), (0.002, "d"), (0.009, "e")):
        opens += [shadow.put(0, KEPT, client, batch_of(1000), at).opens for client in clients]
        shadow.queues.turn_over(at)
    shadow.queues.advance(1.0)
    assert opens == [True, False, True, False, True]
    assert (shadow.queues.batches, shadow.queues.requests) == (3, 3)
    assert [seconds for _, seconds in shadow.told] == pytest.approx([0.0031, 0.0052, 0.0031])


def test_what_is_full_does_not_wait_for_the_linger() -> None:
    shadow = Shadow("uniform", linger_ms=5)
    for _ in range(6):
        shadow.put(0, KEPT, "a", batch_of(3000), 0.0)
    shadow.queues.turn_over(0.0)
    assert shadow.queues.requests == 1
    shadow.put(1, KEPT, "a", batch_of(3000), 0.0)
    shadow.queues.turn_over(0.0)
    shadow.queues.advance(0.0049)
    assert shadow.queues.requests == 1
    shadow.queues.advance(0.005)
    assert shadow.queues.requests == 2


def test_without_a_linger_nothing_waits_for_more() -> None:
    shadow = Shadow("uniform", linger_ms=0)
    assert shadow.put(0, KEPT, "a", batch_of(100), 0.0).opens
    assert shadow.queues.waits_for_turn
    shadow.queues.turn_over(0.0)
    assert shadow.queues.requests == 1
    assert not shadow.queues.waits_for_turn


def test_a_broker_takes_as_long_as_it_is_seen_to() -> None:
    shadow = Shadow("uniform")
    queues = ShadowQueues(BATCH, LARGEST, REQUEST, Linger(-1), LIMIT, shadow.acknowledged)
    assert queues._time(1, acks_all=False) == FIRST_GUESS_S
    queues.took(1, 0.002, acks_all=False)
    assert queues._time(1, acks_all=True) == 0.002, "better than a guess"
    queues.took(1, 0.022, acks_all=False)
    assert queues._time(1, acks_all=False) == pytest.approx(0.002 + SMOOTHING * 0.02)


def test_another_leader_gets_what_waits() -> None:
    shadow = Shadow("uniform")
    shadow.put(0, KEPT, "a", batch_of(100), 0.0)
    shadow.queues.turn_over(0.0)
    shadow.put(0, KEPT, "a", batch_of(100), 0.001)
    shadow.lead(2, 2, 2, 2)
    assert not shadow.put(0, KEPT, "a", batch_of(100), 0.002).opens
    shadow.queues.turn_over(0.002)
    shadow.queues.advance(0.0032)
    assert shadow.queues.requests == 2
    assert list(shadow.queues._away) == [1, 2]


def test_a_topic_that_is_forgotten_meanwhile() -> None:
    shadow = Shadow("uniform")
    shadow.put(0, KEPT, "a", batch_of(100), 0.0)
    shadow.queues.turn_over(0.0)
    shadow.put(0, KEPT, "a", batch_of(100), 0.001)
    shadow.queues.forget("ponds")
    shadow.queues.forget("ponds")
    shadow.queues.turn_over(0.001)
    shadow.queues.advance(1.0)
    assert shadow.told == []
    assert not shadow.queues._waiting
    assert shadow.put(0, KEPT, "a", batch_of(100), 1.0).opens


def test_an_idle_topic_is_forgotten() -> None:
    shadow, other = Shadow("uniform"), Shadow("uniform")
    other.topic.name = "lakes"
    shadow.put(0, KEPT, "a", batch_of(100), 0.0)
    shadow.queues.turn_over(0.0)
    shadow.queues.place(other.topic, other.partitioner, 0, KEPT, "a", 100, 100, 2 * IDLE_S)
    assert list(shadow.queues._topics) == ["lakes"]


def test_no_more_batches_wait_than_may() -> None:
    shadow = Shadow("uniform", most_waiting=20)
    shadow.queues.took(1, 1e6, acks_all=False)
    for number in range(1000):
        shadow.put(0, KEPT, "a", batch_of(40_000), number / 1000)
        shadow.queues.turn_over(number / 1000)
        assert shadow.queues._waiting <= 20
    assert shadow.queues.batches == 1000
    topic = shadow.queues._topics["ponds"]
    assert sum(topic.loads().values()) == sum(
        batch.size for queue in topic.queues() for batch in [*queue.batches, *([queue.away] if queue.away else [])]
    )


def test_lingers_that_are_left_behind_are_bounded() -> None:
    shadow = Shadow("uniform", linger_ms=60_000, most_waiting=20)
    for number in range(1000):
        assert shadow.put(0, KEPT, "a", batch_of(40_000), number / 100).opens
        shadow.queues.turn_over(number / 100)
        assert len(shadow.queues._events) <= 2 * 20 + LIMIT
    assert shadow.queues.requests == 1000


def test_what_moves_is_spread_and_what_does_not_stays() -> None:
    shadow = Shadow("round_robin")
    assert {shadow.put(3, MOVABLE, "a", batch_of(100), 0.0).partition for _ in LEADERS} == set(range(len(LEADERS)))
    assert {shadow.put(3, KEPT, "a", batch_of(100), 0.0).partition for _ in LEADERS} == {3}
