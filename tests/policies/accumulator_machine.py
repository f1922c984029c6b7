"""Random lives of records in an accumulator, against a simple model.

The model is a list of runs, each with what it holds and where it is: waiting for memory, held (queued or away), or
told. After every step the accumulator's own accounts must be what the batches in it add up to, every run that is not
told must stand in exactly one batch, and the kept runs of a lane must stand in the order in which they came.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from forebay_codecs import compression
from forebay_codecs.record_batch import ClientBatch
from forebay_policies.accumulator import NO_LEADER, PartitionQueue
from forebay_policies.buffer_pool import Waiter
from forebay_policies.dispatch_groups import DispatchGroup
from forebay_policies.memory_shares import HeldUp, MemoryRequest
from forebay_policies.producer_batch import Lane, ProducerBatch, RecordRun
from tests.policies.accumulator_kit import Bench
from tests.policies.batches import FakeOwner, client_batch, sent, split_off

PARTITIONS = 3
NODES = (1, 2)
LANES = (
    Lane(1, compression.NONE, movable=False),
    Lane(1, compression.GZIP, movable=False),
    Lane(1, compression.GZIP, movable=True),
    Lane(-1, compression.NONE, movable=True),
    Lane(-1, compression.NONE, movable=False),
)
REPLICAS = ((1, 2), (2, 1), (2, 3), ())

Away = tuple[PartitionQueue, ProducerBatch]


class Request(NamedTuple):
    """A run as it was handed in. `number` counts them."""

    number: int
    lane: Lane
    values: list[bytes]
    owner: FakeOwner


class AccumulatorMachine(RuleBasedStateMachine):
    """Everything that may happen to an accumulator, in any order; invariants hold after every step."""

    def __init__(self) -> None:
        super().__init__()
        self.bench = Bench(PARTITIONS, memory=40 * 64, chunk=64, batch_size=256, max_size=1024)
        self.bench.lead(1, 2, 1)
        self.accumulator = self.bench.accumulator
        self.queues = [self.bench.queue(index, acks) for index in range(PARTITIONS) for acks in (1, -1)]
        self.requests: dict[RecordRun, Request] = {}
        self.waiters: list[tuple[FakeOwner, Waiter]] = []
        self.count = 0
        self.appended: list[int] = []
        self.acknowledged: dict[tuple[int, Lane], list[int]] = {}
        self.paused: set[PartitionQueue] = set()
        self.unanswered: list[tuple[DispatchGroup, list[Away]]] = []

    # In

    @rule(
        partition=st.integers(0, PARTITIONS - 1),
        lane=st.sampled_from(LANES),
        requests=st.lists(
            st.tuples(
                st.lists(st.sampled_from([0, 10, 70, 150]), min_size=1, max_size=3),
                st.sampled_from([1000, 500, 1 << 40, 1 << 50]),
                st.booleans(),
            ),
            min_size=1,
            max_size=4,
        ),
    )
    def append(self, partition: int, lane: Lane, requests: list[tuple[list[int], int, bool]]) -> None:
        """One client's requests in a row: (sizes of values, base timestamp, whether it is split off a mixed batch)."""
        for sizes, base, is_split_off in requests:
            values = [b"%06d-%d-" % (self.count, i) + bytes(size) for i, size in enumerate(sizes)]
            came = client_batch(*values, codec=lane.codec, timestamps=[base + i for i in range(len(values))])
            self._arrive(partition, lane, values, split_off(came) if is_split_off else came)

    @rule(partition=st.integers(0, PARTITIONS - 1), size=st.sampled_from([1100, 3000]))
    def append_larger_than_a_batch_or_all_memory(self, partition: int, size: int) -> None:
        values = [b"%06d-" % self.count + bytes(size)]
        self._arrive(partition, LANES[0], values, client_batch(*values))

    def _arrive(self, partition: int, lane: Lane, values: list[bytes], came: ClientBatch) -> None:
        request = Request(self.count, lane, values, FakeOwner())
        self.count += 1
        pool = self.bench.pool
        asked = MemoryRequest(request.owner)
        asked.add(partial(self.bench.queue, partition, request.lane.acks), pool.whole_chunks(len(came.section)))
        if pool.plenty(asked.size):
            assert pool.fits(asked)
        if pool.fits(asked):
            self._append(partition, request, came)
        else:
            waiter = pool.wait(asked, lambda: self._append(partition, request, came))
            self.waiters.append((request.owner, waiter))
        pool.grant()  # compressed records that were opened may take less than before

    def _append(self, partition: int, request: Request, came: ClientBatch) -> None:
        assert not request.owner.done, "let in though it has left"
        overhead = request.number % 3 * 40
        run = RecordRun(request.owner, 0, came.record_count, moved=False, whole=True, overhead=overhead)
        self.requests[run] = request
        self.appended.append(request.number)
        queue = self.bench.queue(partition, request.lane.acks)
        self.accumulator.append(queue, request.lane, run, came, self.bench.now)

    @precondition(lambda self: self.bench.opened)
    @rule(data=st.data())
    def flush_comes(self, data: st.DataObject) -> None:
        """Of a batch that may be full, away, moved or gone: they come in any order here."""
        index = data.draw(st.integers(0, len(self.bench.opened) - 1))
        queue, batch, number = self.bench.opened.pop(index)
        self.accumulator.flush(queue, batch.lane, number, self.bench.now)

    @rule()
    def all_flushes_come(self) -> None:
        self.bench.flush()

    @rule(leaders=st.lists(st.sampled_from([*NODES, NO_LEADER]), min_size=PARTITIONS, max_size=PARTITIONS))
    def leaders_change(self, leaders: list[int]) -> None:
        self.bench.lead(*leaders)

    @rule(replicas=st.lists(st.sampled_from(REPLICAS), min_size=PARTITIONS, max_size=PARTITIONS))
    def replicas_change(self, replicas: list[tuple[int, ...]]) -> None:
        self.bench.lead(*self.bench.topic.leaders, replicas=replicas)

    @precondition(lambda self: self.unanswered)
    @rule(data=st.data(), seconds=st.sampled_from([0.001, 0.09, 1.0, 30.0]))
    def request_took(self, data: st.DataObject, seconds: float) -> None:
        """In any order, and whatever has become of its batches and their queues."""
        index = data.draw(st.integers(0, len(self.unanswered) - 1))
        group, drained = self.unanswered.pop(index)
        self.accumulator.answered(group, drained, seconds)

    @rule(data=st.data())
    def owner_gives_up(self, data: st.DataObject) -> None:
        """Its time is up: it is answered, and what it still waits for is not looked at."""
        owners = [request.owner for request in self.requests.values()] + [owner for owner, _ in self.waiters]
        owners = [owner for owner in owners if not owner.done and not owner.told]
        if owners:
            owner = data.draw(st.sampled_from(owners))
            owner.done = True
            for waiting, waiter in self.waiters:
                if waiting is owner:
                    self.bench.pool.cancel(waiter)

    # Out

    @rule(max_size=st.sampled_from([1, 300, 1 << 20]))
    def all_brokers_drain(self, max_size: int) -> None:
        for leader in NODES:
            self._drain(leader, max_size)

    def _drain(self, leader: int, max_size: int) -> None:
        before = {queue: list(queue.batches) for queue in self.queues}
        busy = {queue for queue in self.queues if queue.in_flight or queue.paused}
        told = self.bench.announced
        told[:] = [other for other in told if other != leader]
        turns = self.accumulator.ready_groups(leader)
        drained = self.bench.drain(leader, max_size)
        if drained:
            told.append(leader)  # its sender goes on until nothing comes
            group = drained[0][0].group
            assert group is not None
            self.unanswered.append((group, drained))
            left = self.accumulator.ready_groups(leader)
            behind = left[left.index(group) + 1 :] if group in left else []
            # Others may have come in with the memory of those that were dropped.
            assert not set(behind).intersection(turns), "out of turn"
        assert len({queue for queue, _ in drained}) == len(drained)
        assert len({queue.group for queue, _ in drained}) <= 1
        assert len({batch.lane.acks for _, batch in drained}) <= 1
        assert len({queue.replicas for queue, _ in drained}) <= 1
        assert len(drained) <= 1 or sum(batch.size for _, batch in drained) <= max_size
        for queue, batch in drained:
            assert queue not in busy
            assert queue.leader == leader
            assert queue.in_flight is batch
            assert not batch.abandoned
            # One that is not in `before` came in with the memory of those that were dropped.
            there = before[queue]
            earlier = there[: there.index(batch)] if batch in there else there
            assert all(other.abandoned or not other.ready for other in earlier)
            self._check_bytes(batch)

    def _check_bytes(self, batch: ProducerBatch) -> None:
        found = sent(batch)
        expected = [value for run in batch.runs for value in self.requests[run].values]
        assert found.values == expected
        assert found.codec == batch.lane.codec
        for run in batch.runs:
            request = self.requests[run]
            assert request.lane == batch.lane
            assert found.values[run.first : run.first + run.record_count] == request.values

    def _away(self) -> list[Away]:
        return [(queue, queue.in_flight) for queue in self.queues if queue.in_flight is not None]

    def _draw_away(self, data: st.DataObject) -> Away:
        return data.draw(st.sampled_from(self._away()))

    def _tell(self, queue: PartitionQueue, batch: ProducerBatch, error_code: int) -> None:
        for run in batch.runs:
            request = self.requests[run]
            if error_code:
                request.owner.failed(run, error_code, None, [])
                continue
            request.owner.acknowledged(run, 100, -1, 0)
            if not batch.lane.movable:
                self.acknowledged.setdefault((queue.index, batch.lane), []).append(request.number)
        self.accumulator.completed(queue, batch, self.bench.now)

    @precondition(lambda self: self._away())
    @rule(data=st.data(), error_code=st.sampled_from([0, 0, 7]))
    def answered(self, data: st.DataObject, error_code: int) -> None:
        self._tell(*self._draw_away(data), error_code)

    @precondition(lambda self: self._away())
    @rule(data=st.data(), paused=st.booleans())
    def sent_back(self, data: st.DataObject, *, paused: bool) -> None:
        queue, batch = self._draw_away(data)
        self.bench.back(queue.index, batch, paused=paused)
        if paused:
            self.paused.add(queue)

    @precondition(lambda self: self.paused)
    @rule(data=st.data())
    def backoff_ends(self, data: st.DataObject) -> None:
        queue = data.draw(st.sampled_from([queue for queue in self.queues if queue in self.paused]))
        self.paused.discard(queue)
        self.accumulator.resume(queue, self.bench.now)

    @precondition(lambda self: any(len(batch.runs) > 1 for _, batch in self._away()))
    @rule(data=st.data())
    def refused_whole(self, data: st.DataObject) -> None:
        away = [(queue, batch) for queue, batch in self._away() if len(batch.runs) > 1]
        queue, batch = data.draw(st.sampled_from(away))
        numbers = self.accumulator.next_number(), self.accumulator.next_number()
        self.accumulator.replace(queue, batch, batch.halves(numbers, self.bench.now), self.bench.now)

    @rule(data=st.data(), step=st.integers(1, PARTITIONS - 1))
    def moves(self, data: st.DataObject, step: int) -> None:
        """One that came back, or one that still waits and is ready."""
        found = [(queue, batch) for queue in self.queues for batch in queue.batches if batch.ready] + self._away()
        found = [(queue, batch) for queue, batch in found if batch.lane.movable]
        if found:
            queue, batch = data.draw(st.sampled_from(found))
            target = self.bench.queue((queue.index + step) % PARTITIONS, batch.lane.acks)
            self.accumulator.move(batch, queue, target, self.bench.now)
            assert all(run.moved for run in batch.runs)

    @rule()
    def sweep(self) -> None:
        self.accumulator.drop_abandoned(self.bench.now)
        for queue in self.queues:
            first = queue.first_ready()
            if first is not None and queue.in_flight is None and not queue.paused:
                assert not first.abandoned

    @rule()
    def what_is_done_is_dropped(self) -> None:
        self.accumulator.drop_done(self.bench.now)
        for queue in self.queues:
            assert not any(run.owner.done for batch in queue.batches for run in batch.runs)

    @rule(partition=st.integers(0, PARTITIONS - 1))
    def partition_is_gone(self, partition: int) -> None:
        for queue in [queue for queue in self.queues if queue.index == partition]:
            for batch in list(queue.batches):
                self.accumulator.take_out(queue, batch)
                self._tell(queue, batch, 3)

    # What must hold

    def _held(self) -> Iterator[tuple[PartitionQueue, list[ProducerBatch]]]:
        for queue in self.queues:
            yield queue, [*([queue.in_flight] if queue.in_flight else []), *queue.batches]

    @invariant()
    def accounts_are_exact(self) -> None:
        loads = dict.fromkeys(range(PARTITIONS), 0)
        for queue, batches in self._held():
            assert queue.queued_bytes == sum(batch.size for batch in batches)
            loads[queue.index] += queue.queued_bytes
        away = sum(batch.size for _, batch in self._away())
        assert dict(self.bench.topic.loads()) == {index: size for index, size in loads.items() if size}
        assert self.accumulator.in_flight_bytes == away
        assert self.accumulator.queued_bytes == sum(loads.values()) - away
        assert self.accumulator.queued_batches == sum(len(queue.batches) for queue in self.queues)
        chunks = [chunk for _, batches in self._held() for batch in batches for chunk in batch._chunks]
        assert len(chunks) == len({id(chunk) for chunk in chunks})
        assert self.bench.pool.used * 64 == sum(batch.held for _, batches in self._held() for batch in batches)
        shares: Counter[int] = Counter()
        for queue, batches in self._held():
            assert queue.held == sum(batch.held for batch in batches)
            assert all(batch.size <= batch.held for batch in batches)
            shares[queue.leader] += queue.held
        for topic in self.accumulator.topics.values():
            of_all: Counter[int] = Counter()
            for queue in topic.queues():
                of_all[queue.index] += queue.held
            assert all(topic.held(index) == of_all[index] for index in range(topic.partition_count))
            for root in topic.roots():
                assert root.ready_clients.keys() == {
                    queue for queue in (root.clients or {}).values() if queue.ready_at is not None
                }
        assert self.bench.pool.shares.brokers == {leader: held for leader, held in shares.items() if held}

    @invariant()
    def every_part_is_held_or_told_once(self) -> None:
        held = Counter(run for _, batches in self._held() for batch in batches for run in batch.runs)
        for run, request in self.requests.items():
            told = sum(entry[0] is run for entry in request.owner.told)
            if told + held[run] == 0:
                assert request.owner.done, "lost"
            else:
                assert told + held[run] == 1, "twice"
        assert len(self.appended) == len(set(self.appended))

    @invariant()
    def kept_parts_stand_in_their_order(self) -> None:
        for queue, batches in self._held():
            for lane in [lane for lane in LANES if not lane.movable]:
                numbers = [self.requests[p].number for b in batches if b.lane == lane for p in b.runs]
                mine = [n for n in self.appended if n in set(numbers)]
                assert numbers == mine
                done = self.acknowledged.get((queue.index, lane), [])
                assert [n for n in self.appended if n in set(done)] == done

    @invariant()
    def whatever_is_ready_is_found(self) -> None:
        found = {leader: self.accumulator.ready_queues(leader) for leader in (*NODES, NO_LEADER)}
        for leader, queues in found.items():
            assert self.accumulator.has_ready(leader) is bool(queues)
            assert not queues or leader in self.bench.announced
            assert all(queue.first_ready() is not None for queue in queues)
            assert len(queues) == len(set(queues))
            assert all(q.leader == leader and q.in_flight is None and not q.paused for q in queues)
        for queue in self.queues:
            ready = queue.first_ready() is not None
            assert queue.paused == (queue in self.paused)
            assert queue.group is None or queue.group.leader == queue.leader
            assert ready is (queue.ready_at is not None) or queue.in_flight is not None
            if ready and queue.in_flight is None and not queue.paused:
                assert queue in found[queue.leader]
            assert all(batch.ready or queue.open.get(batch.lane) is batch for batch in queue.batches), "never due"
            assert all(batch in queue.batches for batch in queue.open.values())

    @invariant()
    def who_waits_for_memory_has_to(self) -> None:
        waiting = [waiter for owner, waiter in self.waiters if not owner.done and not self._was_let_in(owner)]
        pool = self.bench.pool
        assert pool.waiting == len(waiting)
        if waiting:
            asked = waiting[0].asked
            assert pool.used or asked.partitions[0][0]().leader == NO_LEADER
            free = pool.memory - pool.used * pool.chunk_size
            assert pool.shares.obstacle(asked, free, HeldUp()) is not None

    def _was_let_in(self, owner: FakeOwner) -> bool:
        return any(request.owner is owner for request in self.requests.values())

    def teardown(self) -> None:
        """The cluster is well again: everything leaves, everybody is told, all memory is given back."""
        self.bench.lead(1, 2, 1)
        for queue in self.paused:
            self.accumulator.resume(queue, self.bench.now)
        self.paused.clear()
        rounds = 0
        while self._away() or self.accumulator.queued_batches or self.bench.pool.waiting:
            for queue, batch in self._away():
                self._tell(queue, batch, 0)
            self.bench.flush()
            self.accumulator.flush_all(self.bench.now)
            for leader in NODES:
                self._drain(leader, 1 << 20)
            self.every_part_is_held_or_told_once()
            self.whatever_is_ready_is_found()
            rounds += 1
            assert rounds < 10_000, "something never leaves"
        self.bench.assert_empty()
        self.accounts_are_exact()
        self.kept_parts_stand_in_their_order()
        untold = [request for request in self.requests.values() if not request.owner.told]
        assert all(request.owner.done for request in untold)
