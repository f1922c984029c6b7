"""Where records wait for their broker: per (topic, partition, lane) one open batch, per partition two queues.

One queue is for records that the leader acknowledges, one for those that wait for its followers (acks=all): neither
holds up the other. Which queues share a request stands in dispatch_groups. Where a broker meters clients (throttling),
a partition has such queues for each client id instead, so that one that is throttled holds up no other.

    append → open batch → ready (full, due or closed) → drain → in flight → completed | requeued | moved

In: checked client batches with the partition chosen for them, flushes, leaders, and what became of drained batches.
Out: batches to send to one broker, oldest partition first.

Rules
1. At most one batch of a queue is in flight; the next one grows meanwhile. This keeps order and enlarges batches.
2. Within a lane batches leave in the order in which they were opened; a batch that was sent back goes to the front.
   A client's records that stay on the partition leave in order too, even if their codecs, and so their lanes, differ;
   if it sends some with acks=all and others without, each of the two on its own.
3. A batch that nobody waits for any more is dropped when its turn comes, not sent.
4. A batch's memory is given back exactly once: when it is completed or dropped. If it may be appended by then, its
   sequence is used up (idempotence.py).
5. A partition changes between the two forms, one queue for all and one a client id, while nothing of it is in flight
   or waits out a backoff; until then nothing more of it leaves. So rule 2 holds across the change: what waits then
   goes over in its order, batches of several client ids in pieces.
6. A batch that may be appended already (tainted) waits first in its queue, keeps its partition and its records, and
   counts as in flight for rule 5.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Iterable, Mapping, Sequence
from typing import Final, cast

from forebay_codecs.record_batch import ClientBatch
from forebay_policies.buffer_pool import BufferPool
from forebay_policies.dispatch_groups import DispatchGroup, DispatchGroups, GroupMember
from forebay_policies.idempotence import ProducerIds, QueueSequence
from forebay_policies.leader_move import LeaderMove
from forebay_policies.memory_shares import MemoryShares, Tenant
from forebay_policies.producer_batch import Lane, ProducerBatch, RecordRun
from forebay_policies.throttling import CLIENT_ID, Throttling

NO_LEADER = -1
ALL_REPLICAS = -1
"""acks: the leader answers when its in-sync followers have the records, too."""

OnOpened = Callable[["PartitionQueue", ProducerBatch], None]
OnReady = Callable[[int], None]
OnDeserted = Callable[[list[RecordRun]], None]

_MAX_SKIPPED = 32
"""A request is sent once this many partitions did not fit: with thousands ready, searching on costs more than it gains.
"""
MOST_BATCHES: Final = 256
"""Of one Produce request: writing it, and reading its answer, takes the loop a few milliseconds. More costs no less."""


class PartitionQueue(GroupMember):
    """The batches of one partition that wait for the same replicas, in the order in which they leave.

    `queued_bytes` counts those in flight, too. While each client id has a queue of its own, they stand in `clients` of
    the `root`, which then holds no batches itself.
    """

    __slots__ = (
        "batches",
        "clients",
        "held",
        "in_flight",
        "index",
        "move",
        "open",
        "paused",
        "queued_bytes",
        "ready_at",
        "ready_clients",
        "root",
        "sequence",
        "topic",
        "turning",
    )

    def __init__(
        self,
        topic: TopicQueues,
        index: int,
        leader: int,
        replicas: tuple[int, ...] | None,
        client_id: str | None = CLIENT_ID,
        root: PartitionQueue | None = None,
    ) -> None:
        super().__init__(leader, replicas, client_id)
        self.topic = topic
        self.index = index
        self.root = root
        """Of a queue for one client id; None: it is a root."""
        self.clients: dict[str | None, PartitionQueue] | None = None
        """Of a root, by client id; None: all clients share it."""
        self.ready_clients: dict[PartitionQueue, None] = {}
        """Of a root: those of its clients in which a ready batch waits, the one that has waited for longest first."""
        self.turning: bool = root is not None and root.turning
        """The partition is to have the other form as soon as nothing of it is in flight: until then nothing leaves."""
        self.move: LeaderMove | None = None
        """Of a root whose leader has changed lately."""
        self.sequence = QueueSequence(topic.ids, (replicas is not None, root is not None, client_id))
        self.batches: list[ProducerBatch] = []
        self.open: dict[Lane, ProducerBatch] = {}
        self.in_flight: ProducerBatch | None = None
        self.paused = False
        """A batch that was sent back waits out its backoff: nothing of this queue leaves until then."""
        self.ready_at: float | None = None
        """See `set_ready_since`."""
        self.queued_bytes = 0
        self.held = 0
        """Bytes of memory, in whole chunks, that these batches take."""

    def set_ready_since(self, since: float | None) -> None:
        """A ready batch has waited for the broker to take it since then; None: there is none."""
        self.ready_at = since
        if self.root is not None:
            if since is None:
                self.root.ready_clients.pop(self, None)
            else:
                self.root.ready_clients[self] = None

    def family(self) -> list[PartitionQueue]:
        """Of a root: the queues that hold the partition's batches."""
        return [self] if self.clients is None else list(self.clients.values())

    @property
    def tainted(self) -> bool:
        """The first batch may be appended already."""
        return bool(self.batches) and self.batches[0].tainted

    @property
    def unsettled(self) -> bool:
        """A batch is away, waits out a backoff, or may be appended already: nothing else may take its place."""
        return self.in_flight is not None or self.paused or self.tainted

    def first_ready(self) -> ProducerBatch | None:
        """The first batch that may be sent, leaving aside who leads and what is in flight."""
        for batch in self.batches:
            if batch.ready:
                return batch
        return None


class TopicQueues:
    """The partitions of one topic, as the accumulator and the partitioner see them (a TopicView)."""

    def __init__(
        self, name: str, shares: MemoryShares, throttling: Throttling, ids: ProducerIds, tenant: Tenant
    ) -> None:
        self.name = name
        self._tenant = tenant
        self.ids = ids
        self.partition_count = 0
        self.available: Sequence[int] = ()
        """Partitions whose leader can be reached, ascending."""
        self.racks: Mapping[str, Sequence[int]] = {}
        """The same by their leader's rack, "" where it is not known."""
        self.leaders: Sequence[int] = ()
        """By partition: the leader's node id, or NO_LEADER."""
        self.replicas: Sequence[Sequence[int]] = ()
        """By partition: the node ids of its replicas."""
        self.refused_at: float | None = None
        """When a broker last refused a batch of it, as far as that keeps client batches whole."""
        self.acked_by_leader: dict[int, PartitionQueue] = {}
        self.acked_by_all: dict[int, PartitionQueue] = {}
        self._loads: dict[int, int] = {}
        self._held: dict[int, int] = {}
        """By partition, where there are any: bytes of memory of its batches, in whole chunks."""
        self._shares = shares
        self._throttling = throttling

    def loads(self) -> dict[int, int]:
        """Partition → bytes queued and in flight, where there are any. To be read, not kept."""
        return self._loads

    def held(self, partition: int) -> int:
        """Bytes of memory, in whole chunks, of the partition's batches."""
        return self._held.get(partition, 0)

    def ready_since(self, partition: int) -> float | None:
        """Since when a ready batch of the partition has waited for its broker; None: there is none.

        What the broker does not want yet does not count: a client that is throttled makes no partition slow.
        """
        by_leader = self._wanted_since(self.acked_by_leader.get(partition))
        by_all = self._wanted_since(self.acked_by_all.get(partition))
        if by_leader is None or by_all is None:
            return by_all if by_leader is None else by_leader
        return min(by_leader, by_all)

    def _wanted_since(self, root: PartitionQueue | None) -> float | None:
        """The same of the queues under one root: they wait in the order of their age."""
        if root is None:
            return None
        for queue in (root,) if root.clients is None else root.ready_clients:
            since = queue.ready_at
            if since is not None and not self._throttling.waits(queue.leader, queue.client_id):
                return since
        return None

    def lingers(self, partition: int) -> bool:
        """Whether the partition has an open batch that is not ready yet."""
        return any(not batch.ready for queue in self._of(partition) for batch in queue.open.values())

    def queue(self, index: int, acks: int = 1, client_id: str | None = CLIENT_ID) -> PartitionQueue:
        """The partition's queue for records of `client_id` that want `acks`, created at first use."""
        queues = self.acked_by_all if acks == ALL_REPLICAS else self.acked_by_leader
        queue = queues.get(index)
        if queue is None:
            replicas = self.replicas_of(index) if acks == ALL_REPLICAS else None
            queue = queues[index] = PartitionQueue(self, index, self.leader_of(index), replicas)
            if self._throttling.by_client(queue.leader):
                queue.clients = {}
        return queue if queue.clients is None else self._of_client(queue, queue.clients, client_id)

    def too_late(self, index: int, acks: int, client: Hashable, node_id: int, now: float) -> bool:
        """Whether records of `client`, which come by the port of broker `node_id`, are behind later ones of theirs."""
        root = (self.acked_by_all if acks == ALL_REPLICAS else self.acked_by_leader).get(index)
        if root is None or root.move is None:
            return False
        if root.move.over(now):
            root.move = None
            return False
        return root.move.too_late(client, by_leader=node_id == root.leader)

    def _of_client(
        self, root: PartitionQueue, clients: dict[str | None, PartitionQueue], client_id: str | None
    ) -> PartitionQueue:
        queue = clients.get(client_id)
        if queue is None:
            queue = clients[client_id] = PartitionQueue(self, root.index, root.leader, root.replicas, client_id, root)
        return queue

    def roots(self) -> list[PartitionQueue]:
        """For each partition those that were ever used of two: for acks=1 and for acks=all."""
        return [*self.acked_by_leader.values(), *self.acked_by_all.values()]

    def queues(self) -> list[PartitionQueue]:
        """All that may hold batches."""
        return [queue for root in self.roots() for queue in root.family()]

    def leader_of(self, index: int) -> int:
        """The partition's leader, or NO_LEADER."""
        return self.leaders[index] if index < len(self.leaders) else NO_LEADER

    def replicas_of(self, index: int) -> tuple[int, ...]:
        """The partition's replicas, ascending; empty where they are not known."""
        return tuple(sorted(self.replicas[index])) if index < len(self.replicas) else ()

    def _of(self, index: int) -> list[PartitionQueue]:
        found = (self.acked_by_leader.get(index), self.acked_by_all.get(index))
        return [queue for root in found if root is not None for queue in root.family()]

    def add_load(self, queue: PartitionQueue, size: int, held: int) -> None:
        """Count `size` more bytes for the partition and `held` more bytes of memory, fewer if negative."""
        if held:
            queue.held += held
            of_all = self._held.get(queue.index, 0) + held
            if of_all:
                self._held[queue.index] = of_all
            else:
                del self._held[queue.index]
            self._shares.charge_broker(queue.leader, held)
            self._tenant.held += held
        queue.queued_bytes += size
        load = self._loads.get(queue.index, 0) + size
        if load:
            self._loads[queue.index] = load
        else:
            self._loads.pop(queue.index, None)


def _nobody_flushes(queue: PartitionQueue, batch: ProducerBatch) -> None:
    """Before anybody observes."""


def _nobody_sends(leader: int) -> None:
    """Before anybody observes."""


def _nobody_tells(runs: list[RecordRun]) -> None:
    """Before anybody observes."""


class Accumulator:
    """Keeps every appended record in exactly one batch until its fate is known; sends in the order of rules 1 and 2.

    Whoever sends what is in it calls `observe` before the first append.
    """

    def __init__(
        self, pool: BufferPool, batch_size: int, batch_max_size: int, throttling: Throttling | None = None
    ) -> None:
        self.pool = pool
        self.throttling = throttling if throttling is not None else Throttling()
        self.ids = ProducerIds()
        self.tenant = Tenant()
        """Whose records these are, where the pool is shared with other accumulators."""
        self.topics: dict[str, TopicQueues] = {}
        self.in_flight_bytes = 0
        self._batch_size = batch_size
        self._batch_max_size = batch_max_size
        self._on_opened: OnOpened = _nobody_flushes
        self._on_ready: OnReady = _nobody_sends
        self._on_deserted: OnDeserted = _nobody_tells
        self._numbers = 0
        self._groups = DispatchGroups()

    def observe(self, *, opened: OnOpened, ready: OnReady, deserted: OnDeserted = _nobody_tells) -> None:
        """`opened` is told of each new batch, to schedule its flush; `ready`, each time a queue becomes ready,
        of the leader whose sender must look; `deserted`, of runs that are taken out of a batch since nobody waits for
        them, or because it must not be sent again: their owners are to be told that the outcome is unknown."""
        self._on_opened = opened
        self._on_ready = ready
        self._on_deserted = deserted

    # What goes in

    def topic(self, name: str) -> TopicQueues:
        """The topic's queues, created at first use."""
        topic = self.topics.get(name)
        if topic is None:
            topic = self.topics[name] = TopicQueues(name, self.pool.shares, self.throttling, self.ids, self.tenant)
        return topic

    def forget(self, name: str) -> None:
        """Nothing of the topic waits, and nobody produces to it any more."""
        topic = self.topics.pop(name)
        for queue in topic.queues():
            self._groups.leave(queue)
            queue.sequence.forgotten()
        for root in topic.roots():
            root.sequence.forgotten()

    def renew_ids(self, gone: Container[str] | None = None) -> None:
        """Another cluster answers, or one that was wiped. Batches that may be appended keep their numbers.

        `gone`: topics that are not there any more, or were made again; all others go on with the ids that they have
        until there are new ones, since most often nothing was wiped. None: all are gone.
        """
        self.ids.renew()
        for topic in self.topics.values():
            at_once = gone is None or topic.name in gone
            for queue in (*topic.queues(), *topic.roots()):
                if at_once:
                    queue.sequence.renew()
                else:
                    queue.sequence.outdated = True

    def has_room(self, queue: PartitionQueue, lane: Lane, batch: ClientBatch) -> bool:
        """Whether `batch` would join an open batch rather than open a new one."""
        open_batch = queue.open.get(lane)
        return open_batch is not None and open_batch.has_room(batch)

    def memory_for(self, batch: ClientBatch) -> int:
        """The memory, in whole chunks, that `batch` is to have before it is appended.

        To merge it takes its uncompressed bytes. What is too large to share a batch is only ever kept as it came.
        """
        size = batch.size
        if size >= self._batch_max_size and batch.header:
            size = batch.came_end - batch.came_start
        return self.pool.whole_chunks(size)

    def append(
        self, queue: PartitionQueue, lane: Lane, run: RecordRun, batch: ClientBatch, now: float
    ) -> ProducerBatch:
        """Add checked records to the queue's batch in `lane`, which is returned. The caller has made sure that the pool
        has room."""
        current = queue.open.get(lane)
        if current is not None and not (
            current.has_room(batch) and (lane.movable or _keeps_order(queue, current, run.owner.client))
        ):
            current.closed = True
            del queue.open[lane]
            current = None
        if not lane.movable:
            _close_others(queue, lane, run.owner.client)
        if current is not None:
            size, held = current.size, current.held
            current.append(run, batch)
            queue.topic.add_load(queue, current.size - size, current.held - held)
        else:
            current = self._new_batch(lane, queue.index, now)
            current.append(run, batch)
            queue.batches.append(current)
            queue.open[lane] = current
            queue.topic.add_load(queue, current.size, current.held)
            self._on_opened(queue, current)
        if current.closed:
            del queue.open[lane]
        self.update_readiness(queue, now)
        return current

    def flush(self, queue: PartitionQueue, lane: Lane, number: int, now: float) -> None:
        """The linger of batch `number` of `lane` is over. Does nothing if it is not open any more: it is ready, or has
        left. Whoever waits to call this keeps the number, not the batch, and with it nobody's records or connection."""
        batch = queue.open.get(lane)
        if batch is not None and batch.number == number:
            batch.due = True
            self.update_readiness(queue, now)

    def flush_all(self, now: float) -> None:
        """Make every batch ready: the proxy is shutting down, or somebody waits for memory."""
        for topic in self.topics.values():
            for queue in topic.queues() if topic.loads() else ():
                for batch in queue.batches:
                    batch.due = True
                self.update_readiness(queue, now)

    def _new_batch(self, lane: Lane, partition: int, now: float) -> ProducerBatch:
        return ProducerBatch(
            self.next_number(), lane, partition, self.pool, self._batch_size, self._batch_max_size, now
        )

    @property
    def was_used(self) -> bool:
        """Records have been appended, whatever became of them."""
        return self._numbers > 0

    def next_number(self) -> int:
        """A number for a new batch; none is used twice."""
        self._numbers += 1
        return self._numbers

    # What is ready, and for whom

    def update_readiness(self, queue: PartitionQueue, now: float) -> None:
        """Announce the queue to its leader's sender if it has become ready; forget it if it no longer is."""
        if queue.turning and not queue.tainted:
            self._groups.discard(queue)
            self._turn(queue.root or queue, now)
        elif queue.first_ready() is None:
            queue.set_ready_since(None)
            self._groups.discard(queue)  # the next ready batch must be announced again
        else:
            if queue.ready_at is None:
                queue.set_ready_since(now)
            if queue.in_flight is None and not queue.paused:
                if queue.group is None:
                    self._groups.place(queue)
                if self._groups.add(queue):
                    self._on_ready(queue.leader)

    def set_leaders(
        self, topic: TopicQueues, leaders: Sequence[int], now: float, replicas: Sequence[Sequence[int]] | None = None
    ) -> None:
        """Take the topic's leaders from metadata: by partition a node id, or NO_LEADER.

        `replicas`: by partition the node ids of all its replicas; None: they are as they were.
        """
        topic.leaders = leaders
        topic.partition_count = len(leaders)
        if replicas is not None:
            topic.replicas = replicas
        for root in topic.roots():
            leader = topic.leader_of(root.index)
            followed = topic.replicas_of(root.index) if root.replicas is not None else None
            if root.leader != leader or root.replicas != followed:
                was = root.leader
                if was != leader:
                    root.move = LeaderMove(now)
                root.leader = leader
                root.replicas = followed
                for queue in root.family():
                    self._groups.leave(queue)
                    self.pool.shares.charge_broker(was, -queue.held)
                    self.pool.shares.charge_broker(leader, queue.held)
                    queue.leader = leader
                    queue.replicas = followed
                self._form(root, now)
        self.pool.changed()

    def ready_queues(self, leader: int) -> list[PartitionQueue]:
        """Queues with a batch that `leader` (a node id) could be sent now; in a group, in their turn."""
        return [cast(PartitionQueue, queue) for group in self._groups.ready(leader) for queue in group.ready]

    def ready_groups(self, leader: int) -> Sequence[DispatchGroup]:
        """The groups of partitions from which `leader` could be sent a request each, in turn."""
        return self._groups.ready(leader)

    def has_ready(self, leader: int) -> bool:
        """Whether `drain_group` may find anything for `leader`."""
        return self._groups.any_ready(leader)

    def drain_group(
        self, group: DispatchGroup, max_size: int, now: float
    ) -> list[tuple[PartitionQueue, ProducerBatch]]:
        """Take the batches for one Produce request of `group`: at most one per queue.

        They hold at most `max_size` bytes of records; a batch larger than that goes alone. They are 256 at most. Queues
        take turns. Of several requests that failed with all that was in them one batch may be the cause, so tainted
        batches get ever less company, until it stands alone: 256, 128, 64 … 1.
        """
        drained: list[tuple[PartitionQueue, ProducerBatch]] = []
        most = MOST_BATCHES
        size = 0
        skipped = 0
        for member in list(group.ready):
            queue = cast(PartitionQueue, member)
            batch = self._next(queue, now)
            if batch is None:
                continue
            company = most
            if batch.tainted:
                company = min(most, max(1, MOST_BATCHES >> min(batch.tries, 16)))
            if drained and (size + batch.size > max_size or len(drained) >= company):
                skipped += 1
                if skipped > _MAX_SKIPPED:
                    break
                continue
            size += batch.size
            most = company
            self.take_out(queue, batch)
            queue.sequence.assign(batch)
            queue.in_flight = batch
            self.in_flight_bytes += batch.size
            queue.set_ready_since(None)
            batch.closed = True
            self._groups.discard(queue)
            drained.append((queue, batch))
            if size >= max_size or len(drained) >= most:
                break
        self._groups.had_its_turn(group)
        return drained

    def holds_merged(self, group: DispatchGroup) -> bool:
        """Whether something of the group is ready that holds, or may hold, records of several client ids."""
        if not self.throttling.merges:
            return False
        return any(isinstance(queue, PartitionQueue) and queue.root is None for queue in group.ready)

    def answered(
        self, group: DispatchGroup, drained: Sequence[tuple[PartitionQueue, ProducerBatch]], seconds: float
    ) -> None:
        """A request of `group` was answered, or given up, after so long: what is slow must not hold up the rest."""
        self._groups.answered(group, [queue for queue, _ in drained], seconds)

    def _next(self, queue: PartitionQueue, now: float) -> ProducerBatch | None:
        """The queue's first ready batch that may leave; those that nobody waits for are dropped."""
        while (batch := queue.first_ready()) is not None and (batch.tries or batch.abandoned):
            if batch.abandoned:
                self.take_out(queue, batch)
                self._gone(queue, batch)
            elif deserted := batch.deserted:
                self._desert(queue, batch, deserted)
            else:
                break
        if batch is None:
            self._groups.discard(queue)
            queue.set_ready_since(None)
        if queue.turning and not queue.tainted:
            self.update_readiness(queue, now)  # the batch that alone could leave before the turn is gone
            return None
        return batch

    def _desert(self, queue: PartitionQueue, batch: ProducerBatch, runs: list[RecordRun]) -> None:
        """`runs` of a waiting batch must not be sent again, nor, if it cannot be cut, the others."""
        if batch.tainted or len(runs) == len(batch.runs):
            self.take_out(queue, batch)
            self._on_deserted(batch.runs)
            self._gone(queue, batch)
        else:
            self._on_deserted(runs)
            gone = set(runs)
            self._cut(queue, batch, [run for run in batch.runs if run not in gone])

    def take_out(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Remove a waiting batch from its queue; its memory and its load stay counted."""
        queue.batches.remove(batch)
        if queue.open.get(batch.lane) is batch:
            del queue.open[batch.lane]

    def _gone(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        if batch.producer_id >= 0:
            queue.sequence.bump(batch)  # whoever knows its fate has taken the sequence from it
        queue.topic.add_load(queue, -batch.size, -batch.held)
        batch.release()

    # What came of it

    def completed(self, queue: PartitionQueue, batch: ProducerBatch, now: float) -> None:
        """The batch's fate is known and its owners have been told: release it."""
        self.clear_in_flight(queue, batch)
        self._gone(queue, batch)
        self.update_readiness(queue, now)

    def send_back(self, queue: PartitionQueue, batches: Iterable[ProducerBatch], now: float, *, paused: bool) -> None:
        """Put `batches`, which were taken out of this queue, back to its front, in their order.

        `paused`: nothing of the queue leaves until `resume`.
        """
        for batch in reversed(list(batches)):
            batch.closed = True
            queue.batches.insert(0, batch)
        queue.paused = queue.paused or paused
        if queue.paused:
            self._groups.discard(queue)
        self.update_readiness(queue, now)

    def clear_in_flight(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """The batch is no longer in flight: its fate is known, or it is about to be queued again."""
        if queue.in_flight is batch:
            queue.in_flight = None
            self.in_flight_bytes -= batch.size

    def resume(self, queue: PartitionQueue, now: float) -> None:
        """The backoff after `send_back` is over."""
        queue.paused = False
        self.update_readiness(queue, now)

    def replace(self, queue: PartitionQueue, batch: ProducerBatch, pieces: Sequence[ProducerBatch], now: float) -> None:
        """Retry a batch that came back as `pieces`, from the front of its queue."""
        self.clear_in_flight(queue, batch)
        queue.topic.add_load(queue, sum(piece.size for piece in pieces), sum(piece.held for piece in pieces))
        self.send_back(queue, pieces, now, paused=False)
        self._gone(queue, batch)

    def move(self, batch: ProducerBatch, source: PartitionQueue, target: PartitionQueue, now: float) -> None:
        """Move a whole batch of a movable lane, waiting or just come back, to another partition of the topic."""
        assert not batch.tainted, "it may be appended"
        if source.in_flight is batch:
            self.clear_in_flight(source, batch)
        else:
            self.take_out(source, batch)
        source.topic.add_load(source, -batch.size, -batch.held)
        batch.partition = target.index
        for run in batch.runs:
            run.moved = True
            run.partition = target.index
        self.update_readiness(source, now)
        self._admit(target.root or target, (batch,), now)
        self.pool.changed()

    def drop_abandoned(self, now: float) -> None:
        """Release batches that wait for a missing leader although their clients have been answered, and forget client
        ids that nothing waits for, later their producer ids."""
        for leader in self._groups.leaders():
            for queue in self.ready_queues(leader):
                self._next(queue, now)
        if self.throttling.active:
            for topic in self.topics.values():
                for root in topic.roots():
                    if root.clients is not None:
                        self._forget_idle(root.clients)
        self.ids.drop_unused(now)

    def drop_done(self, now: float) -> None:
        """Take out of everything that waits the records whose client has its answer, "timed out": it may send them
        again, and what was told as failed before it left must not come after that."""
        for topic in list(self.topics.values()):  # whoever gets the memory appends at once
            for queue in topic.queues():
                for batch in list(queue.batches):
                    done = [run for run in batch.runs if run.owner.done]
                    if len(done) == len(batch.runs):
                        self.take_out(queue, batch)
                        self._gone(queue, batch)
                    elif done and not batch.tainted:
                        self._cut(queue, batch, [run for run in batch.runs if not run.owner.done])
                self.update_readiness(queue, now)

    def _cut(self, queue: PartitionQueue, batch: ProducerBatch, runs: list[RecordRun]) -> ProducerBatch:
        """The batch with these runs only, which takes its place: in the queue, or in flight, where it has come back."""
        rest = batch.of(self.next_number(), runs)
        if queue.in_flight is batch:
            queue.in_flight = rest
            self.in_flight_bytes += rest.size - batch.size
        else:
            queue.batches[queue.batches.index(batch)] = rest
            if queue.open.get(batch.lane) is batch:
                del queue.open[batch.lane]
        queue.topic.add_load(queue, rest.size, rest.held)
        self._gone(queue, batch)
        return rest

    def without_done(self, queue: PartitionQueue, batch: ProducerBatch) -> ProducerBatch:
        """The same of a batch that has come back and is not appended. Where nobody waits, it is dropped at its turn."""
        runs = [run for run in batch.runs if not run.owner.done]
        return self._cut(queue, batch, runs) if 0 < len(runs) < len(batch.runs) else batch

    # Whom brokers throttle

    def throttled(self, leader: int, client_id: str | None, seconds: float, now: float) -> None:
        """`leader` answered a request that carried `client_id` with this throttle time."""
        if self.throttling.throttled(leader, client_id, seconds, now):
            self._form_all(leader, now)

    def settle(self, now: float) -> None:
        """To be called every few seconds: brokers that have not throttled for long are sent merged requests again."""
        for leader in self.throttling.settle(now):
            self._form_all(leader, now)

    def _form_all(self, leader: int, now: float) -> None:
        for topic in self.topics.values():
            for root in topic.roots():
                if root.leader == leader:
                    self._form(root, now)

    def _form(self, root: PartitionQueue, now: float) -> None:
        """See to it that the partition gets the form that is right for its leader; without one, it may keep its own."""
        turning = root.leader >= 0 and (root.clients is not None) is not self.throttling.by_client(root.leader)
        root.turning = turning
        for queue in root.family():
            queue.turning = turning
            self._groups.discard(queue)
            if not turning or queue.tainted:
                self.update_readiness(queue, now)
        if turning:
            self._turn(root, now)

    def _turn(self, root: PartitionQueue, now: float) -> None:
        """Give the partition its other form, if nothing of it is in flight or waits out a backoff."""
        family = root.family()
        for queue in family:
            if queue.unsettled:
                return
        waiting: list[ProducerBatch] = []
        for queue in family:
            for batch in queue.batches:
                queue.topic.add_load(queue, -batch.size, -batch.held)
                waiting.append(batch)
            queue.batches.clear()
            queue.open.clear()
            queue.set_ready_since(None)
            queue.turning = False
            self._groups.leave(queue)
            if queue is not root:
                queue.sequence.forgotten()
        root.turning = False
        root.clients = {} if root.clients is None else None
        self._admit(root, waiting, now)

    def _admit(self, root: PartitionQueue, batches: Iterable[ProducerBatch], now: float) -> None:
        """Add batches, which no queue counts, at the end of the partition's, in its form and in their order."""
        topic, index, acks = root.topic, root.index, 1 if root.replicas is None else ALL_REPLICAS
        whole: list[ProducerBatch] = []
        queues: dict[PartitionQueue, None] = {}
        for batch in batches:
            batch.closed = True
            pieces: list[tuple[str | None, ProducerBatch]] = [(CLIENT_ID, batch)]
            if root.clients is not None:
                pieces = batch.by_client_id(self.next_number)
            if len(pieces) > 1:
                whole.append(batch)
            for client_id, piece in pieces:
                queue = topic.queue(index, acks, client_id)
                queue.batches.append(piece)
                topic.add_load(queue, piece.size, piece.held)
                queues[queue] = None
        for batch in whole:
            batch.release()
        for queue in queues:
            self.update_readiness(queue, now)

    def _forget_idle(self, clients: dict[str | None, PartitionQueue]) -> None:
        for client_id, queue in list(clients.items()):
            if not queue.batches and queue.in_flight is None and not queue.paused:
                queue.set_ready_since(None)
                self._groups.leave(queue)
                queue.sequence.forgotten()
                del clients[client_id]

    @property
    def queued_batches(self) -> int:
        """Batches waiting, not counting those in flight."""
        return sum(len(q.batches) for topic in self.topics.values() for q in topic.queues())

    @property
    def queued_bytes(self) -> int:
        """Bytes waiting, not counting those in flight."""
        total = sum(sum(topic.loads().values()) for topic in self.topics.values())
        return total - self.in_flight_bytes


def _keeps_order(queue: PartitionQueue, current: ProducerBatch, client: Hashable) -> bool:
    """Whether more records of `client` may join `current`: not if a later batch holds earlier records of that client.

    A client that compresses only where it pays off sends none, lz4, none: lanes A, B, A. The third run must not join
    the first one's batch, which leaves before the second's.
    """
    for batch in reversed(queue.batches):
        if batch is current:
            return True
        if client in batch.clients:
            return False
    return True


def _close_others(queue: PartitionQueue, lane: Lane, client: Hashable) -> None:
    """Close the batches of other lanes that hold records of `client`, so that they are ready before what comes now."""
    if len(queue.open) > (lane in queue.open):
        for other in [other for other, batch in queue.open.items() if other != lane and client in batch.clients]:
            queue.open.pop(other).closed = True
