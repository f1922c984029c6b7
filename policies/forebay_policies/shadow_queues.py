"""What merging would have made of records that are only observed: how many batches and requests, on which partitions.

    place → open batch → due at the end of the turn, or after the linger → sent, if its broker would take it
                ↑ joined meanwhile                                          → answered as late as brokers answer now

In: runs of records by their sizes, partition and lane; the end of each turn of the event loop; how long brokers are
seen to take. Out: for each run where it would have gone, and whether it would have opened a batch; what would have been
sent, counted. Nothing is ever sent, and no record is kept.

Dispatch groups, the limits of requests in flight, the linger and partitioners are the real ones; queues are
shadow_topic's. What is left out: buffer.memory, brokers that fail or throttle, and records that are really merged at
the same time. Time only passes when somebody calls: `advance` does what would have happened until then.

Bounds: `most_waiting` batches wait at most. If brokers are taken to be slower than they are, more might: then all of
them count as sent. Lingers of batches that left earlier stay behind: of twice as many events, further batches do not
linger. Topics are forgotten IDLE_S after their last record.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from heapq import heappop, heappush
from typing import Final, NamedTuple, cast

from forebay_policies.accumulator import MOST_BATCHES, TopicQueues
from forebay_policies.dispatch_groups import DispatchGroup, DispatchGroups
from forebay_policies.linger import Linger
from forebay_policies.partitioner import Partitioner
from forebay_policies.producer_batch import Lane
from forebay_policies.requests_in_flight import RequestsInFlight
from forebay_policies.shadow_topic import ShadowBatch, ShadowQueue, ShadowTopic

MAX_WAITING: Final = 4096
IDLE_S: Final = 60.0

FIRST_GUESS_S: Final = 0.002
"""What a broker takes that has not answered yet."""

SMOOTHING: Final = 0.1
"""Weight of a new answer: of 2 ms on average, one of 22 ms makes 4 ms."""

TURN_S: Final = 0.0001
"""What happens so soon after something else happens in the same turn of the loop, and leaves in the same request."""


class Placed(NamedTuple):
    """Where a run would have gone, and whether it would have opened a batch there."""

    partition: int
    opens: bool


class _Event:
    """A batch's linger is over (`batch`), or a request of `group` is answered (`sent`)."""

    __slots__ = ("batch", "group", "leader", "queue", "sent")

    def __init__(self, leader: int) -> None:
        self.leader = leader
        self.queue: ShadowQueue | None = None
        self.batch: ShadowBatch | None = None
        self.group: DispatchGroup | None = None
        self.sent: list[tuple[ShadowQueue, ShadowBatch]] = []


class ShadowQueues:
    """Counts `batches` that would have been opened, each of which would have been sent once, and `requests` sent.

    `limit`: requests in flight to a broker, as RequestsInFlight has it. `acknowledged` is told of (topic, partition,
    seconds since its opening) as a partitioner would be. All times are in seconds of one clock.
    """

    def __init__(
        self,
        batch_size: int,
        batch_max_size: int,
        max_request_size: int,
        linger: Linger,
        limit: int,
        acknowledged: Callable[[str, int, float], None],
        most_waiting: int = MAX_WAITING,
    ) -> None:
        self.batches = 0
        self.requests = 0
        self._batch_size = batch_size
        self._batch_max_size = batch_max_size
        self._max_request_size = max_request_size
        self._linger = linger
        self._limit = limit
        self._acknowledged = acknowledged
        self._most_waiting = most_waiting
        self._topics: dict[str, ShadowTopic] = {}
        self._groups = DispatchGroups()
        self._away: dict[int, RequestsInFlight] = {}
        self._times: dict[tuple[int, bool], float] = {}
        """By broker, and whether it waits for followers."""
        self._opened: list[tuple[ShadowQueue, ShadowBatch]] = []
        self._woken: dict[int, None] = {}
        """Brokers that would look for something to be sent at the end of the turn."""
        self._events: list[tuple[float, int, _Event]] = []
        self._numbers = 0
        self._waiting = 0
        self._looked_at = 0.0

    @property
    def waits_for_turn(self) -> bool:
        """Something is to happen at the end of the event loop's present turn: `turn_over` is to be called then."""
        return bool(self._opened or self._woken)

    def change(self, linger: Linger) -> None:
        """Batches that are opened from now on linger so."""
        self._linger = linger

    # What goes in

    def took(self, leader: int, seconds: float, *, acks_all: bool) -> None:
        """A broker has answered a request that nothing was in front of; `acks_all`: it waited for followers."""
        before = self._times.get((leader, acks_all))
        self._times[leader, acks_all] = seconds if before is None else before + SMOOTHING * (seconds - before)

    def place(
        self,
        real: TopicQueues,
        partitioner: Partitioner,
        partition: int,
        lane: Lane,
        client: Hashable,
        stored: int,
        section: int,
        now: float,
    ) -> Placed:
        """A run of `section` bytes, `stored` as they came, for a topic of which at least one partition is known."""
        self.advance(now)
        topic = self._topic(real, now)
        if lane.movable:
            queue = self._queue(topic, partitioner.partition(topic, section, now), lane.acks, now)
            if not queue.has_room(lane, section) and partitioner.on_new_batch(topic, queue.index):
                queue = self._queue(topic, partitioner.partition(topic, section, now), lane.acks, now)
        else:
            queue = self._queue(topic, partition, lane.acks, now)
            if not queue.has_room(lane, section):
                partitioner.on_new_batch(topic, partition)
        batch = queue.to_join(lane, client, section)
        opens = batch is None
        if batch is None:
            batch = ShadowBatch(lane, self._batch_size, self._batch_max_size, now)
        size = batch.size
        batch.add(client, stored, section)
        topic.add_load(queue.index, batch.size - size)
        if opens:
            self.batches += 1
            self._waiting += 1
            queue.batches.append(batch)
            queue.open[lane] = batch
            self._schedule(queue, batch, now)
        if batch.closed:
            queue.open.pop(lane, None)
        self._readiness(queue, now)
        if self._waiting > self._most_waiting:
            self._give_up()
        return Placed(queue.index, opens)

    def turn_over(self, now: float) -> None:
        """The event loop's turn is over."""
        self.advance(now)
        opened, self._opened = self._opened, []
        for queue, batch in opened:
            batch.due = True
            self._readiness(queue, now)
        self._send_woken(now)

    def advance(self, now: float) -> None:
        """What would have happened until now."""
        events = self._events
        while events and events[0][0] <= now:
            at = events[0][0]
            while events and events[0][0] <= min(now, at + TURN_S):
                self._happens(heappop(events)[2], at)
            self._send_woken(at)

    def forget(self, name: str) -> None:
        """The topic is not known any more."""
        topic = self._topics.pop(name, None)
        if topic is not None:
            topic.gone = True
            for queue in topic.queues():
                self._waiting -= len(queue.batches)
                self._clear(queue)
                self._groups.leave(queue)

    # Batches

    def _topic(self, real: TopicQueues, now: float) -> ShadowTopic:
        topic = self._topics.get(real.name)
        if topic is not None and topic.real is not real:
            self.forget(real.name)
            topic = None
        if topic is None:
            if now - self._looked_at > IDLE_S:
                self._looked_at = now
                for name in [n for n, t in self._topics.items() if t.idle and now - t.used_at > IDLE_S]:
                    self.forget(name)
            topic = self._topics[real.name] = ShadowTopic(real)
        topic.used_at = now
        return topic

    def _queue(self, topic: ShadowTopic, partition: int, acks: int, now: float) -> ShadowQueue:
        queue = topic.queue(partition, acks)
        leader = topic.real.leader_of(partition)
        if queue.leader != leader:
            self._groups.leave(queue)
            queue.leader = leader
            if queue.replicas is not None:
                queue.replicas = topic.real.replicas_of(partition)
            self._readiness(queue, now)
        return queue

    def _schedule(self, queue: ShadowQueue, batch: ShadowBatch, now: float) -> None:
        if self._linger.adaptive:
            self._opened.append((queue, batch))
        elif self._linger.delay and len(self._events) < 2 * self._most_waiting:
            event = _Event(queue.leader)
            event.queue, event.batch = queue, batch
            self._at(now + self._linger.delay, event)
        else:
            batch.due = True

    def _readiness(self, queue: ShadowQueue, now: float) -> None:
        if queue.first_ready() is None:
            queue.ready_at = None
            self._groups.discard(queue)
            return
        if queue.ready_at is None:
            queue.ready_at = now
        if queue.away is None:
            if queue.group is None:
                self._groups.place(queue)
            if self._groups.add(queue):
                self._woken[queue.leader] = None

    # Brokers

    def _send_woken(self, now: float) -> None:
        while self._woken:
            leader, _ = self._woken.popitem()
            away = self._away.get(leader)
            if away is None:
                away = self._away[leader] = RequestsInFlight(self._limit)
            while self._send_round(leader, away, now):
                pass

    def _send_round(self, leader: int, away: RequestsInFlight, now: float) -> bool:
        """A request of each group that may send one. False: there was none."""
        any_sent = False
        for group in self._groups.ready(leader):
            if away.may_send(group):
                event = _Event(leader)
                event.group, event.sent = group, self._drained(group)
                away.sent(group)
                self.requests += 1
                self._at(now + self._time(leader, acks_all=group.acks_all), event)
                any_sent = True
        return any_sent

    def _drained(self, group: DispatchGroup) -> list[tuple[ShadowQueue, ShadowBatch]]:
        """What one request would take: a batch of each queue, as far as it has room."""
        drained: list[tuple[ShadowQueue, ShadowBatch]] = []
        size = 0
        for member in list(group.ready):
            queue = cast(ShadowQueue, member)
            batch = queue.first_ready()
            assert batch is not None, "else it would not stand there"
            if drained and (size + batch.size > self._max_request_size or len(drained) >= MOST_BATCHES):
                continue
            size += batch.size
            batch.closed = True
            queue.batches.remove(batch)
            if queue.open.get(batch.lane) is batch:
                del queue.open[batch.lane]
            queue.away = batch
            queue.ready_at = None
            self._waiting -= 1
            self._groups.discard(queue)
            drained.append((queue, batch))
        self._groups.had_its_turn(group)
        return drained

    def _time(self, leader: int, *, acks_all: bool) -> float:
        own = self._times.get((leader, acks_all))
        return own if own is not None else self._times.get((leader, not acks_all), FIRST_GUESS_S)

    def _at(self, when: float, event: _Event) -> None:
        self._numbers += 1
        heappush(self._events, (when, self._numbers, event))

    def _happens(self, event: _Event, now: float) -> None:
        queue, batch = event.queue, event.batch
        if queue is not None and batch is not None:
            batch.due = True
            self._readiness(queue, now)
            return
        assert event.group is not None
        self._away[event.leader].done(event.group)
        for sent_from, sent in event.sent:
            if sent_from.away is sent:
                sent_from.away = None
                sent_from.topic.add_load(sent_from.index, -sent.size)
                if not sent_from.topic.gone:
                    self._acknowledged(sent_from.topic.name, sent_from.index, now - sent.opened_at)
                    self._readiness(sent_from, now)
        if self._groups.any_ready(event.leader):
            self._woken[event.leader] = None

    # Bounds

    def _give_up(self) -> None:
        """All that waits counts as sent."""
        for topic in self._topics.values():
            for queue in topic.queues():
                self._clear(queue)
        self._waiting = 0
        self._opened.clear()
        self.requests += 1

    def _clear(self, queue: ShadowQueue) -> None:
        queue.topic.add_load(queue.index, -sum([batch.size for batch in queue.batches]))
        queue.batches.clear()
        queue.open.clear()
        queue.ready_at = None
        self._groups.discard(queue)
