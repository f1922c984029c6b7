"""Random lives of batches that carry sequences, between the real accumulator and Delivery and a model of brokers.

    world = World(Random(seed)); await world.run(steps)      # AssertionError where a rule is broken

The brokers' rules stand in tests.kit.producer_states. Requests are lost before and after they were carried out, and
come late, after others; leaders move, with and without the end of the log; topics are made again; brokers meter
clients; clients give up and leave. Clients send each record once, and then:

1. a record that is acknowledged is in the log, unless the log has lost it by itself;
2. no record is there twice, whatever was told of it;
3. a record that was refused in words that mean "not appended" is not there;
4. acknowledged records of a client that keep their partition stand in the order in which they were sent; a copy that
   comes late after its log has lost what was acknowledged may stand anywhere;
5. a batch that may be appended leaves for no other partition, with no other records and under no other numbers;
6. kept records whose client has left or has its answer are not sent again, nor, once refused, others whose client has
   its answer;
7. in the end everybody who waits is told, and no memory is held;
8. what a broker takes for a batch that it has is that batch.

One thing is left out, for it can go wrong, as with any idempotent producer: a batch whose outcome is unknown is refused
as out of order, since its log has lost what was before it, and so it is sent again in a new epoch; then what was before
it comes back, late (or the topic is made again, and any sequence is taken); and then, before the batch itself, a late
copy of its first attempt. Here such a copy gets lost when its batch is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from random import Random
from time import monotonic
from typing import cast

from forebay_codecs import error_codes as codes
from forebay_codecs.produce_response import PartitionResponse
from forebay_policies.accumulator import NO_LEADER, Accumulator, PartitionQueue
from forebay_policies.buffer_pool import BufferPool
from forebay_policies.producer_batch import Lane, ProducerBatch, RecordRun
from forebay_proxy.config.settings import HostPort
from forebay_proxy.metrics.registry import MetricRegistry
from forebay_proxy.produce.delivery import Delivery
from tests.kit.app import settings
from tests.kit.fakes_proxy import client_batch
from tests.kit.ports import LOOPBACK
from tests.kit.producer_states import Numbers, ProducerStates, numbers_of
from tests.kit.wire import keyed, null_key
from tests.policies.accumulator_kit import drain

PARTITIONS = 3
NODES = (0, 1)
REPLICAS = ((0, 1), (0, 1), (0, 1))
CLIENTS = ("a", "b", "c")
MOST_WAITING = 60

_BEFORE = (
    codes.UNKNOWN_TOPIC_OR_PARTITION,
    codes.LEADER_NOT_AVAILABLE,
    codes.NOT_LEADER_OR_FOLLOWER,
    codes.FENCED_LEADER_EPOCH,
    codes.NOT_ENOUGH_REPLICAS,
    codes.CORRUPT_MESSAGE,
    codes.MESSAGE_TOO_LARGE,
    codes.INVALID_RECORD,
    codes.TOPIC_AUTHORIZATION_FAILED,
    codes.UNKNOWN_PRODUCER_ID,
    codes.INVALID_PRODUCER_EPOCH,
)
"""What a broker may answer that has not appended, whatever became of earlier attempts."""
_PERHAPS = (
    codes.REQUEST_TIMED_OUT,
    codes.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    codes.KAFKA_STORAGE_ERROR,
    codes.UNKNOWN_SERVER_ERROR,
)
_UNKNOWN = frozenset(_PERHAPS)
_RECORDS = {False: keyed, True: null_key}
_BATCHES = {
    (movable, count): client_batch(make(*[f"{i}" for i in range(count)]))
    for movable, make in _RECORDS.items()
    for count in (1, 2, 3)
}


class Owner:
    """A client's request: one run of records, sent once."""

    def __init__(self, world: World, number: int, client: str, lane: Lane) -> None:
        self.number = number
        self.client: Hashable = client
        self.client_id: str | None = client
        self.timeout_ms = 1000
        self.done = False
        self.left = False
        self.lane = lane
        self.there = 0
        """How often it is in logs."""
        self.gone = False
        """A log has lost it by itself."""
        self.came_late = False
        """A log had lost it, and a copy came after it had been acknowledged."""
        self.refused = False
        self.acked = False
        self._world = world

    def acknowledged(self, run: RecordRun, base_offset: int, log_append_time: int, log_start_offset: int) -> None:
        if not self.done:
            if not (self.there or self.gone):
                self._world.broken = f"lost: {self.number}"
            elif log_append_time != -1:
                self._world.broken = "records keep the client's time"
            self.acked = self.done = True
            self._world.told(self)

    def failed(
        self, run: RecordRun, error_code: int, message: str | None, record_errors: list[tuple[int, str | None]]
    ) -> None:
        if not self.done:
            self.refused = error_code not in _UNKNOWN
            if self.refused and self.there:
                self._world.broken = f"told {error_code} of what is there: {self.number}"
            self.done = True
            self._world.told(self)

    def throttle(self, throttle_time_ms: int) -> None:
        raise AssertionError("nobody throttles")


class Log:
    """A partition as its leader has it."""

    def __init__(self) -> None:
        self.batches: list[tuple[Numbers, list[Owner]]] = []
        self.states = ProducerStates()
        self.end = 0

    def append(self, attempt: Attempt) -> PartitionResponse:
        numbers, owners = attempt.numbers, attempt.owners
        known = self.states.check(numbers)
        if known.error_code:
            return _answer(known.error_code)
        if known.offset >= 0:
            assert all(owner.there for owner in owners), f"taken for another: {[owner.number for owner in owners]}"
            return _answer(codes.NONE, known.offset, attempt.newest)
        for owner in owners:
            owner.came_late |= owner.acked
            owner.there += 1
            assert owner.there == 1, f"twice: {owner.number}"
            assert not owner.refused, f"there, though it was refused: {owner.number}"
        offset = self.end
        self._put(numbers, owners)
        return _answer(codes.NONE, offset)

    def _put(self, numbers: Numbers, owners: list[Owner]) -> None:
        self.batches.append((numbers, owners))
        self.states.appended(numbers, self.end)
        self.end += numbers.records

    def truncate(self, kept: int) -> None:
        batches, lost = self.batches[:kept], self.batches[kept:]
        for _, owners in lost:
            for owner in owners:
                owner.there -= 1
                owner.gone = True
        self.batches, self.states, self.end = [], ProducerStates(), 0
        for numbers, owners in batches:
            self._put(numbers, owners)

    def check_order(self) -> None:
        newest: dict[tuple[Hashable, int], int] = {}
        for _, owners in self.batches:
            for owner in owners:
                if owner.acked and not owner.came_late and not owner.lane.movable:
                    key = owner.client, owner.lane.acks
                    assert owner.number > newest.get(key, -1), f"behind {newest[key]}: {owner.number}"
                    newest[key] = owner.number


def _answer(error_code: int, offset: int = -1, time: int = -1) -> PartitionResponse:
    return PartitionResponse(0, error_code, offset, time, 0, [], None)


class Attempt:
    """A batch on its way to a broker, as it was written."""

    def __init__(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        _, buffers = batch.encode()
        self.queue = queue
        self.batch = batch
        self.node = queue.leader
        self.partition = queue.index
        self.numbers = numbers_of(b"".join(buffers))
        self.owners = [cast(Owner, run.owner) for run in batch.runs]
        self.newest = batch.max_timestamp
        """Timestamp, which brokers answer of a duplicate."""
        self.answer: PartitionResponse | None = None
        assert self.numbers.records == batch.record_count
        assert (self.numbers.producer_id >= 0) is (batch.producer_id >= 0)


class World:
    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.accumulator = Accumulator(BufferPool(1 << 20, 512, 512), 512, 4096)
        self.topic = self.accumulator.topic("t")
        self.leaders = [0, 1, 0]
        self.logs = [Log() for _ in range(PARTITIONS)]
        self.delivery = Delivery(
            self.accumulator,
            settings((HostPort(LOOPBACK, 1),), 2, retry_backoff_ms=0),
            MetricRegistry(),
            lambda *changed: None,
            lambda queue, seconds: None,
            rng,
        )
        self.accumulator.observe(
            opened=lambda queue, batch: None, ready=lambda leader: None, deserted=self.delivery.deserted
        )
        self.ids = self.accumulator.ids
        self.ids.observe(lambda: None)
        self.waiting: dict[Owner, None] = {}
        self.away: list[Attempt] = []
        self.late: list[Attempt] = []
        self.tainted: dict[ProducerBatch, tuple[int, Numbers, list[Owner]]] = {}
        self.sent = 0
        self.next_id = 1000
        self.broken = ""
        """What an owner saw go wrong: Delivery would take an error of its for a fault towards that client alone."""
        self.counts = {"acknowledged": 0, "bumps": 0, "appended late": 0, "sent again": 0, "unknown": 0}
        self._lead()

    def told(self, owner: Owner) -> None:
        self.waiting.pop(owner, None)
        self.counts["acknowledged" if owner.acked else "unknown"] += 1

    # What happens

    async def run(self, steps: int) -> None:
        events: list[tuple[Callable[[], None], int]] = [
            (self.client_sends, 30),
            (self.brokers_are_sent_to, 30),
            (self.broker_carries_out, 30),
            (self.broker_answers, 30),
            (self.connection_is_lost, 6),
            (self.late_request_comes, 3),
            (self.client_gives_up, 2),
            (self.client_leaves, 1),
            (self.leader_moves, 1),
            (self.leader_is_lost, 1),
            (self.broker_cannot_be_reached, 1),
            (self.broker_throttles, 1),
            (self.broker_throttles_no_more, 1),
            (self.ids_arrive, 3),
            (self.sweep, 1),
        ]
        rare: list[Callable[[], None]] = [self.log_is_truncated, self.topic_is_made_again, self.producers_expire]
        chosen = self.rng.choices([event for event, _ in events], [weight for _, weight in events], k=steps)
        for step, event in enumerate(chosen):
            event()
            assert not self.broken, self.broken
            if step % 101 == 0:
                self.rng.choice(rare)()
            if step % 7 == 0:
                await asyncio.sleep(0)  # pauses end, and what was put off is told
        await self.settle()

    def client_sends(self) -> None:
        if len(self.waiting) >= MOST_WAITING:
            return
        rng = self.rng
        movable = rng.random() < 0.4
        lane = Lane(rng.choice((-1, 1)), 0, movable)
        came = _BATCHES[movable, rng.randint(1, 3)]
        owner = Owner(self, self.sent, rng.choice(CLIENTS), lane)
        self.sent += 1
        self.waiting[owner] = None
        queue = self.topic.queue(rng.randrange(PARTITIONS), lane.acks, owner.client_id)
        run = RecordRun(owner, 0, came.record_count, moved=False, whole=True)
        self.accumulator.append(queue, lane, run, came, monotonic())
        if rng.random() < 0.7:
            self.accumulator.flush_all(monotonic())

    def brokers_are_sent_to(self) -> None:
        for node in NODES:
            for queue, batch in drain(self.accumulator, node, now=monotonic()):
                self._sent(queue, batch)

    def _sent(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        attempt = Attempt(queue, batch)
        assert all(other.queue is not queue for other in self.away), "two batches of a queue"
        if batch in self.tainted:
            assert self.tainted[batch] == (queue.index, attempt.numbers, attempt.owners), "not the same batch"
        if batch.tries:
            self.counts["sent again"] += 1
            if not batch.lane.movable:
                assert not any(owner.done or owner.left for owner in attempt.owners), "nobody waits for it"
            elif not batch.tainted:
                assert not any(owner.done for owner in attempt.owners), "its client was told"
        self.away.append(attempt)

    def broker_carries_out(self) -> None:
        waiting = [attempt for attempt in self.away if attempt.answer is None]
        if waiting:
            attempt = self.rng.choice(waiting)
            attempt.answer = self._carried_out(attempt)

    def _carried_out(self, attempt: Attempt) -> PartitionResponse:
        rng = self.rng
        if self.leaders[attempt.partition] != attempt.node:
            return _answer(codes.NOT_LEADER_OR_FOLLOWER)
        chance = rng.random()
        if chance < 0.04:
            return _answer(rng.choice(_BEFORE))
        if chance < 0.06:
            return _answer(rng.choice(_PERHAPS))
        answer = self.logs[attempt.partition].append(attempt)
        if answer.error_code == codes.OUT_OF_ORDER_SEQUENCE_NUMBER:
            self.late = [late for late in self.late if late.batch is not attempt.batch]
        if answer.error_code == codes.NONE and chance > 0.93:
            if rng.random() < 0.3:
                return _answer(codes.NOT_LEADER_OR_FOLLOWER, answer.base_offset)
            return _answer(rng.choice(_PERHAPS))
        return answer

    def broker_answers(self) -> None:
        answered = [attempt for attempt in self.away if attempt.answer is not None]
        if answered:
            attempt = self.rng.choice(answered)
            assert attempt.answer is not None
            self.away.remove(attempt)
            self._answered(attempt, attempt.answer)

    def _answered(self, attempt: Attempt, answer: PartitionResponse) -> None:
        self.delivery.answered(attempt.queue, attempt.batch, answer)
        self._look_at(attempt)

    def connection_is_lost(self) -> None:
        if self.away:
            attempt = self.rng.choice(self.away)
            self.away.remove(attempt)
            if attempt.answer is None and self.rng.random() < 0.6:
                self.late.append(attempt)
            self.delivery.lost(attempt.queue, attempt.batch)
            self._look_at(attempt)

    def _look_at(self, attempt: Attempt) -> None:
        """It is tainted from now on, or no longer."""
        batch = attempt.batch
        if batch.tainted and batch.producer_id >= 0:
            assert batch in attempt.queue.batches
            self.tainted[batch] = attempt.partition, attempt.numbers, attempt.owners
        else:
            self.tainted.pop(batch, None)

    def late_request_comes(self) -> None:
        """Bytes that were under way when their connection ended."""
        if self.late:
            attempt = self.late.pop(self.rng.randrange(len(self.late)))
            if self.leaders[attempt.partition] == attempt.node:
                before = self.logs[attempt.partition].end
                self.logs[attempt.partition].append(attempt)
                self.counts["appended late"] += self.logs[attempt.partition].end > before

    def client_gives_up(self) -> None:
        if self.waiting:
            owner = self.rng.choice(list(self.waiting))
            owner.done = True
            self.told(owner)
            self.accumulator.drop_done(monotonic())

    def client_leaves(self) -> None:
        if self.waiting:
            self.rng.choice(list(self.waiting)).left = True

    def leader_moves(self) -> None:
        partition = self.rng.randrange(PARTITIONS)
        self.leaders[partition] = self.rng.choice(NODES)
        self._lead()

    def leader_is_lost(self) -> None:
        self.leaders[self.rng.randrange(PARTITIONS)] = NO_LEADER
        self._lead()

    def _lead(self) -> None:
        self.accumulator.set_leaders(self.topic, list(self.leaders), monotonic(), REPLICAS)
        self.topic.available = [index for index, leader in enumerate(self.leaders) if leader >= 0]

    def log_is_truncated(self) -> None:
        """An unclean election, or acks=1 and a leader that died."""
        partition = self.rng.randrange(PARTITIONS)
        log = self.logs[partition]
        lost = self.rng.randint(1, 4) if self.rng.random() < 0.8 else len(log.batches)
        log.truncate(max(0, len(log.batches) - lost))
        self.leaders[partition] = 1 - max(0, self.leaders[partition])
        self._lead()

    def broker_cannot_be_reached(self) -> None:
        self.delivery.unreachable(self.rng.choice((*NODES, NO_LEADER)))

    def broker_throttles(self) -> None:
        self.accumulator.throttled(self.rng.choice(NODES), self.rng.choice(CLIENTS), 0.0, monotonic())

    def broker_throttles_no_more(self) -> None:
        self.accumulator.settle(monotonic() + 1e6)

    def topic_is_made_again(self) -> None:
        """What is away, and what is late, may be carried out by the new topic."""
        self.accumulator.set_leaders(self.topic, (), monotonic())
        self.topic.available = ()
        self.delivery.gone([queue for queue in self.topic.queues() if queue.batches])
        for log in self.logs:
            log.check_order()
            log.truncate(0)
        self.logs = [Log() for _ in range(PARTITIONS)]
        self._lead()

    def producers_expire(self) -> None:
        """A day after their last records: nothing of them is under way."""
        for partition, log in enumerate(self.logs):
            busy = any(attempt.partition == partition for attempt in (*self.away, *self.late))
            if not busy and all(queue.index != partition or not queue.unsettled for queue in self.topic.queues()):
                log.states.expire()

    def ids_arrive(self) -> None:
        for kind in list(self.ids.wanted):
            self.next_id += 1
            self.ids.arrived(kind, self.next_id, self.rng.choice((0, 0, 0, 32760)))

    def sweep(self) -> None:
        self.accumulator.drop_abandoned(monotonic())

    # The end

    async def settle(self) -> None:
        """All is well again: everybody who waits is told, and nothing is held."""
        self.leaders = [0, 1, 0]
        self._lead()
        self.late.clear()
        rounds = 0
        while self.waiting or self.away or self.accumulator.queued_batches:
            self.accumulator.flush_all(monotonic())
            self.brokers_are_sent_to()
            for attempt in list(self.away):
                attempt.answer = attempt.answer or self.logs[attempt.partition].append(attempt)
                self.away.remove(attempt)
                self._answered(attempt, attempt.answer)
            self.ids_arrive()
            await asyncio.sleep(0.0002 if rounds > 50 else 0)
            rounds += 1
            assert rounds < 10_000, "something never leaves"
        for log in self.logs:
            log.check_order()
        assert not self.broken, self.broken
        pool = self.accumulator.pool
        assert pool.available == pool.memory
        assert not self.topic.loads()
        self.counts["bumps"] = self.ids.bumps
