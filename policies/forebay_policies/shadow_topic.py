"""What would wait for one topic's partitions, if records that are only observed were merged: sizes, and no records.

In: runs of records by their sizes, and what became of batches (shadow_queues). Out: a TopicView, by which a partitioner
chooses, and the batches that would wait. The rules are those of accumulator and producer_batch: see there.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from forebay_policies.accumulator import ALL_REPLICAS, TopicQueues
from forebay_policies.dispatch_groups import GroupMember
from forebay_policies.producer_batch import Lane


class ShadowBatch:
    """Records that would leave together. `size`: bytes in memory, of a single run as it came; `section` uncompressed.

    Ready at `ready_size`; no larger than `max_size`, uncompressed.
    """

    __slots__ = ("clients", "closed", "due", "lane", "max_size", "opened_at", "ready_size", "runs", "section", "size")

    def __init__(self, lane: Lane, ready_size: int, max_size: int, now: float) -> None:
        self.lane = lane
        self.ready_size = ready_size
        self.max_size = max_size
        self.opened_at = now
        self.clients: set[Hashable] = set()
        """Whose records it holds; only in lanes that are not movable."""
        self.runs = 0
        self.size = 0
        self.section = 0
        self.due = False
        self.closed = False

    @property
    def ready(self) -> bool:
        """It would be sent as soon as its broker takes it."""
        return self.due or self.closed or self.size >= self.ready_size

    def has_room(self, section: int) -> bool:
        """Whether so many bytes may be added."""
        return not self.closed and self.section + section <= self.max_size

    def add(self, client: Hashable, stored: int, section: int) -> None:
        """A run of `section` bytes, which are `stored` bytes as they came."""
        self.section += section
        self.size = self.section if self.runs else stored
        self.runs += 1
        if not self.lane.movable:
            self.clients.add(client)
        if self.section >= self.max_size:
            self.closed = True


class ShadowQueue(GroupMember):
    """The batches of one partition that would wait for the same replicas; at most one of them is `away`."""

    __slots__ = ("away", "batches", "index", "open", "ready_at", "topic")

    def __init__(self, topic: ShadowTopic, index: int, leader: int, replicas: tuple[int, ...] | None) -> None:
        super().__init__(leader, replicas)
        self.topic = topic
        self.index = index
        self.batches: list[ShadowBatch] = []
        self.open: dict[Lane, ShadowBatch] = {}
        self.away: ShadowBatch | None = None
        self.ready_at: float | None = None

    def has_room(self, lane: Lane, section: int) -> bool:
        """Whether a run would join a batch rather than open one."""
        current = self.open.get(lane)
        return current is not None and current.has_room(section)

    def first_ready(self) -> ShadowBatch | None:
        """The first that would be sent, leaving aside who leads and what is away."""
        for batch in self.batches:
            if batch.ready:
                return batch
        return None

    def to_join(self, lane: Lane, client: Hashable, section: int) -> ShadowBatch | None:
        """The batch that the run joins; None: it opens one. Batches that it must not overtake, or join, are closed."""
        current = self.open.get(lane)
        if current is not None and not (
            current.has_room(section) and (lane.movable or self._keeps_order(current, client))
        ):
            current.closed = True
            del self.open[lane]
            current = None
        if not lane.movable:
            for other, batch in list(self.open.items()):
                if other != lane and client in batch.clients:
                    self.open.pop(other).closed = True
        return current

    def _keeps_order(self, current: ShadowBatch, client: Hashable) -> bool:
        for batch in reversed(self.batches):
            if batch is current:
                return True
            if client in batch.clients:
                return False
        return True


class ShadowTopic:
    """A TopicView whose partitions are those of `real`, and whose loads are those that there would be."""

    __slots__ = ("_loads", "acked_by_all", "acked_by_leader", "gone", "name", "real", "used_at")

    def __init__(self, real: TopicQueues) -> None:
        self.real = real
        self.name = real.name
        self.used_at = 0.0
        self.gone = False
        """Nobody asks for it any more."""
        self.acked_by_leader: dict[int, ShadowQueue] = {}
        self.acked_by_all: dict[int, ShadowQueue] = {}
        self._loads: dict[int, int] = {}

    @property
    def partition_count(self) -> int:
        return self.real.partition_count

    @property
    def available(self) -> Sequence[int]:
        return self.real.available

    @property
    def racks(self) -> Mapping[str, Sequence[int]]:
        return self.real.racks

    def loads(self) -> Mapping[int, int]:
        return self._loads

    def ready_since(self, partition: int) -> float | None:
        times = [queue.ready_at for queue in self._of(partition) if queue.ready_at is not None]
        return min(times, default=None)

    def lingers(self, partition: int) -> bool:
        return any(not batch.ready for queue in self._of(partition) for batch in queue.open.values())

    def queue(self, index: int, acks: int) -> ShadowQueue:
        """The partition's queue for records that want `acks`, made at first use."""
        queues = self.acked_by_all if acks == ALL_REPLICAS else self.acked_by_leader
        queue = queues.get(index)
        if queue is None:
            replicas = self.real.replicas_of(index) if acks == ALL_REPLICAS else None
            queue = queues[index] = ShadowQueue(self, index, self.real.leader_of(index), replicas)
        return queue

    def queues(self) -> list[ShadowQueue]:
        """All that were ever used."""
        return [*self.acked_by_leader.values(), *self.acked_by_all.values()]

    def _of(self, index: int) -> list[ShadowQueue]:
        found = (self.acked_by_leader.get(index), self.acked_by_all.get(index))
        return [queue for queue in found if queue is not None]

    def add_load(self, index: int, size: int) -> None:
        """So many bytes more would be queued or away for the partition, fewer if negative."""
        load = self._loads.get(index, 0) + size
        if load:
            self._loads[index] = load
        else:
            self._loads.pop(index, None)

    @property
    def idle(self) -> bool:
        """Nothing would be queued or away."""
        return not self._loads
