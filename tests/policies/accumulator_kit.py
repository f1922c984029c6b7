"""An accumulator of one topic, driven by hand: append, flush, drain, answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from forebay_policies.accumulator import Accumulator, PartitionQueue
from forebay_policies.buffer_pool import BufferPool, Waiter
from forebay_policies.memory_shares import MemoryRequest
from forebay_policies.producer_batch import Lane, ProducerBatch, RecordRun
from tests.policies.batches import MOVABLE, FakeOwner, client_batch, run_of, sent

KIB = 1024
PLENTY = 1 << 20


def drain(
    accumulator: Accumulator, leader: int, max_size: int = PLENTY, now: float = 0.0
) -> list[tuple[PartitionQueue, ProducerBatch]]:
    """The batches for one Produce request to `leader`, of the group whose turn it is."""
    for group in accumulator.ready_groups(leader):
        if drained := accumulator.drain_group(group, max_size, now):
            return drained
    return []


class Bench:
    """Partition i is led by node i + 1. `now` is the clock; `opened` what was told of new batches, in order."""

    def __init__(
        self,
        partitions: int = 3,
        memory: int = 32 << 20,
        chunk: int = 4 * KIB,
        batch_size: int = 16 * KIB,
        max_size: int = 256 * KIB,
    ) -> None:
        self.now = 0.0
        self.pool = BufferPool(memory, chunk, batch_size)
        self.opened: list[tuple[PartitionQueue, ProducerBatch, int]] = []
        self.accumulator = Accumulator(self.pool, batch_size, max_size)
        self.announced: list[int] = []
        """Brokers whose sender was told to look, in order."""
        self.accumulator.observe(
            opened=lambda queue, batch: self.opened.append((queue, batch, batch.number)), ready=self.announced.append
        )
        self.topic = self.accumulator.topic("topic")
        self.lead(*range(1, partitions + 1))

    def lead(self, *leaders: int, replicas: Sequence[tuple[int, ...]] | None = None) -> None:
        self.accumulator.set_leaders(self.topic, leaders, self.now, replicas)

    def queue(self, index: int, acks: int = 1) -> PartitionQueue:
        return self.topic.queue(index, acks)

    def append(
        self,
        partition: int,
        *values: bytes,
        lane: Lane = MOVABLE,
        owner: FakeOwner | None = None,
        timestamps: list[int] | None = None,
    ) -> RecordRun:
        batch = client_batch(*values, codec=lane.codec, timestamps=timestamps)
        run = run_of(batch, owner)
        self.accumulator.append(self.queue(partition, lane.acks), lane, run, batch, self.now)
        return run

    def wait(self, size: int, granted: Callable[[], None], partition: int = 0) -> Waiter:
        """A client that holds nothing waits for memory."""
        asked = MemoryRequest(object())
        asked.add(partial(self.queue, partition), self.pool.whole_chunks(size))
        assert not self.pool.fits(asked)
        return self.pool.wait(asked, granted)

    def flush(self) -> None:
        """All flushes that were scheduled come, in their order."""
        flushes, self.opened = self.opened, []
        for queue, batch, number in flushes:
            self.accumulator.flush(queue, batch.lane, number, self.now)

    def put(self, partition: int, *values: bytes, lane: Lane = MOVABLE, owner: FakeOwner | None = None) -> RecordRun:
        """Append, and due at once."""
        run = self.append(partition, *values, lane=lane, owner=owner)
        self.flush()
        return run

    def drain(self, leader: int, max_size: int = PLENTY) -> list[tuple[PartitionQueue, ProducerBatch]]:
        return drain(self.accumulator, leader, max_size, self.now)

    def drain_one(self, leader: int) -> ProducerBatch:
        [(_, batch)] = self.drain(leader)
        return batch

    def complete(self, partition: int, batch: ProducerBatch) -> None:
        self.accumulator.completed(self.queue(partition, batch.lane.acks), batch, self.now)

    def back(self, partition: int, batch: ProducerBatch, *, paused: bool = False) -> None:
        """The batch was not taken by its broker and waits for another try."""
        queue = self.queue(partition, batch.lane.acks)
        self.accumulator.clear_in_flight(queue, batch)
        self.accumulator.send_back(queue, (batch,), self.now, paused=paused)

    def send_all(self, leader: int) -> list[list[bytes | None]]:
        """Everything that leaves for `leader`, one batch after another, each acknowledged before the next."""
        left = []
        while drained := self.drain(leader):
            for queue, batch in drained:
                left.append(sent(batch).values)
                self.accumulator.completed(queue, batch, self.now)
        return left

    def assert_empty(self) -> None:
        assert self.topic.loads() == {}
        assert self.pool.used == 0
        assert self.pool.shares.brokers == {}
        assert all(queue.held == 0 for queue in self.topic.queues())
        assert self.accumulator.in_flight_bytes == 0
        assert (self.accumulator.queued_batches, self.accumulator.queued_bytes) == (0, 0)
