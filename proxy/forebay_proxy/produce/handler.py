"""The produce path from a client's request to the accumulator.

In: one Produce frame of v0–v12. Out: False, where no batch of it may be touched: the caller then forwards the frame as
it came. Else its records are in the accumulator sooner or later, and one completion answers:
    wanted topics known? → sort → memory? → append
A request waits, and its connection with it, for the metadata of its topics and then for its share of memory
(policies.memory_shares). One of many partitions takes turns with other clients: INSPECTED_AT_ONCE headers are looked
at, SLICE partitions sorted and appended with their own share of memory, ANSWERED_AT_ONCE answers put together.
Untouched batches beside touched ones go on in a request of their own on the client's own upstream connection.
Where they are untouched because they could not be opened, the request waits until the client's earlier ones are
answered, and its later ones wait for it: they would overtake each other on their two ways. So does a client's request
after what may be touched has changed, while records of it are on the other way; it goes on untouched.
Appending itself never waits: metadata is known and memory suffices when it begins.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from time import monotonic
from typing import Final

from forebay_codecs import error_codes, produce_request, produce_response
from forebay_codecs.errors import Malformed
from forebay_codecs.primitives import Buffer
from forebay_codecs.produce_request import PartitionRecords, ProduceRequest
from forebay_codecs.record_batch import ClientBatch
from forebay_policies import retry
from forebay_policies.accumulator import Accumulator, PartitionQueue, TopicQueues
from forebay_policies.buffer_pool import Waiter
from forebay_policies.eligibility import Reason
from forebay_policies.hold_reason import HoldReason
from forebay_policies.loop_turns import LoopTurns
from forebay_policies.memory_shares import MemoryRequest
from forebay_policies.partitioner import Partitioner
from forebay_policies.producer_batch import Lane, ProducerBatch, RecordRun
from forebay_proxy.brokers.cluster import Cluster
from forebay_proxy.brokers.metadata_updater import MetadataUpdater
from forebay_proxy.config.settings import Settings
from forebay_proxy.logs import RateLimited, get_logger
from forebay_proxy.metrics.registry import MetricRegistry
from forebay_proxy.produce.classifier import (
    BatchClassifier,
    ClassifiedRequest,
    InspectedBatch,
    TouchedBatch,
    UntouchedBatch,
)
from forebay_proxy.produce.client import Client
from forebay_proxy.produce.completion import ProduceCompletion
from forebay_proxy.produce.deadlines import Deadlines
from forebay_proxy.produce.idempotent_sample import IdempotentSample
from forebay_proxy.produce.ledger import Ledger
from forebay_proxy.produce.observer import ObservedRequest, Observer
from forebay_proxy.produce.rack_traffic import RackTraffic

log = RateLimited(get_logger())

PARTITION_TRIES: Final = 2
"""Metadata requests before a partition is refused that a known topic is not known to have."""

SHORTEST_WAIT = 1.0
"""Seconds. Some clients send timeouts of a few ms with acks=1, where brokers do not look at them: they must live."""
PATIENCE: Final = 0.8
"""The part of its timeout after which a client is answered. Java waits exactly as long itself, from when it sent, and
then leaves the connection, with all answers that stand behind: what those acknowledge it would send again."""

ACKS = (-1, 0, 1)

SLICE: Final = 64
"""Partitions that are sorted and appended at once, which takes a few milliseconds."""

INSPECTED_AT_ONCE: Final = 512
"""Partitions whose batches' headers are looked at at once, which takes a millisecond."""

_Topics = list[tuple[str, list[PartitionRecords]]]
Lingering = list[tuple[PartitionQueue, Lane, int]]
"""Batches by their numbers, since they hold others' records."""


class ProduceHandler:
    """Sees to it that a request that it takes is answered exactly once, whatever becomes of its records.

    `partitioner_of` gives the partitioner of a topic for clients in a rack; `racks` and `ledger` are None where nothing
    is known of racks, or no ledger is kept.
    """

    def __init__(
        self,
        accumulator: Accumulator,
        classifier: BatchClassifier,
        partitioner_of: Callable[[str, str], Partitioner],
        cluster: Cluster,
        updater: MetadataUpdater,
        deadlines: Deadlines,
        settings: Settings,
        stats: MetricRegistry,
        turns: LoopTurns,
        sample: IdempotentSample,
        observer: Observer,
        racks: RackTraffic | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        self.accumulator = accumulator
        self.turns = turns
        self.sample = sample
        self.observer = observer
        self.racks = racks
        self.ledger = ledger
        self.classifier = classifier
        self.cluster = cluster
        self.updater = updater
        self.deadlines = deadlines
        self.loop = asyncio.get_running_loop()
        self._partitioner_of = partitioner_of
        self._delivery_timeout = settings.delivery_timeout_ms / 1000
        self._request_timeout_ms = settings.request_timeout_ms
        self.linger = settings.linger_ms / 1000
        """Seconds for which batches wait for more records; not above 0: they do not. May change at any time."""
        self._lingering: dict[Client, dict[PendingProduce, None]] = {}
        """By client: its requests that are not answered and came while batches linger."""
        self.throttling = accumulator.throttling
        self._lanes: dict[int, Lane] = {}
        self._requests = stats.counter("forebay_produce_requests_total", side="client")
        self._moved = stats.counter("forebay_records_total", fate="moved")
        self._kept = stats.counter("forebay_records_total", fate="kept")
        self._refused = stats.counter("forebay_errors_total", side="internal", kind="refused")
        self._retriable = stats.counter("forebay_errors_total", side="internal", kind="retriable")

    def handle(self, client: Client, frame: bytes, request: ProduceRequest) -> bool:
        """Take a request, which `frame` holds without its size. False: nothing of it is touched; forward the frame."""
        self._requests.value += 1
        eligibility = self.classifier.eligibility
        changes_way = False
        inspected: list[InspectedBatch] = []
        pieces = _pieces(request.topics)
        touched = request.version < produce_request.RECORD_BATCHES_FROM
        while pieces:
            found = self.classifier.inspect(frame, request, pieces.pop(), own_login=client.own_login)
            inspected += found
            touched = touched or any(entry.reason is None for entry in found)
            if touched and self.ledger is None:  # which notes all partitions when they come
                break
        if client.judged_by is not eligibility:
            if client.judged_by is not None:
                changes_way = self._meets_itself(client, request, inspected, pieces)
            if not (client.producing or client.passing):
                client.judged_by = eligibility  # else there may be earlier records that a later request meets
        if not (touched or changes_way):
            reasons = [entry.reason for entry in inspected if entry.reason is not None]
            client.produced(self.classifier.count_untouched(inspected), reasons)
            self.sample.passed(client, frame, inspected)
            if self.racks is not None:
                self.racks.passed(client, inspected)
            if self.ledger is not None:
                self.ledger.passed_on(client, request, inspected)
            if eligibility.observed is not None:
                self.observer.passed(client, frame, request, inspected)
            return False
        pending = PendingProduce(self, client, frame, request, inspected, pieces, changes_way=changes_way)
        if request.acks in ACKS:
            try:
                pending.proceed()
            except Exception as error:  # as if it could not be read it would be forwarded, too, and records be doubled
                pending.gives_up(error)
        else:
            pending.refuse(error_codes.INVALID_REQUIRED_ACKS, f"acks must be -1, 0 or 1, not {request.acks}")
        return True

    def _meets_itself(
        self, client: Client, request: ProduceRequest, inspected: list[InspectedBatch], pieces: list[_Topics]
    ) -> bool:
        """Whether records of the request would go beside earlier ones of the client that are on the other way."""
        if request.transactional_id is not None:
            return False
        merged = all(entry.reason is None for entry in inspected) and not pieces
        passed = all(entry.reason is not None for entry in inspected) and not pieces
        return (client.producing and not merged) or (client.passing and not passed)

    def send_now(self, client: Client) -> None:
        """`client` may send no more until it is answered: to linger for what it would send is to wait for nothing."""
        pending = self._lingering.get(client)
        if pending is not None:
            for request in pending:
                request.flush()

    def flush(self, lingering: Lingering) -> None:
        """Nothing of these lingers any more."""
        now = monotonic()
        for queue, lane, number in lingering:
            self.accumulator.flush(queue, lane, number, now)
        lingering.clear()

    def flush_in_time(self, lingering: Lingering, deadline: float) -> asyncio.TimerHandle | None:
        """Whoever waits until `deadline` is to be answered by then: these, and what is added to them, linger for half
        of that time at most."""
        most = (deadline - monotonic()) / 2
        return self.loop.call_later(most, self.flush, lingering) if self.linger > most else None

    def lingers_for(self, client: Client, request: PendingProduce) -> None:
        """Records of `request` are in batches that may linger, until `answered`."""
        self._lingering.setdefault(client, {})[request] = None

    def answered(self, client: Client, request: PendingProduce) -> None:
        """`request`, of which records may have lingered, waits for nothing any more."""
        pending = self._lingering[client]
        del pending[request]
        if not pending:
            del self._lingering[client]

    def deadline(self, request: ProduceRequest) -> float:
        """Until when it may wait, in seconds of `time.monotonic`."""
        patience = PATIENCE if request.acks else 1.0
        wait = min(self._delivery_timeout, max(SHORTEST_WAIT, patience * self.timeout_ms(request) / 1000))
        return monotonic() + wait

    def timeout_ms(self, request: ProduceRequest) -> int:
        """For how long its client waits. A broker does not look at it where there are no acks, as nobody waits."""
        return request.timeout_ms if request.acks else max(request.timeout_ms, self._request_timeout_ms)

    def count_refused(self, error_code: int) -> None:
        """A batch is not sent, and its client is told that."""
        (self._retriable if retry.refusal(error_code) else self._refused).value += 1

    def memory_request(self, completion: ProduceCompletion, found: ClassifiedRequest) -> MemoryRequest:
        """What `found`, the batches of the request that `completion` answers, asks of buffer.memory."""
        asked = MemoryRequest(completion.client, self.accumulator.tenant)
        acks, client_id = completion.acks, completion.client_id
        for touched in found.touched:
            if not self.cluster.lacks(touched.topic, touched.partition):
                topic = self.cluster.topics[touched.topic].queues
                size = self.accumulator.memory_for(touched.batch)
                if touched.movable:
                    asked.add_movable(topic, size)
                else:
                    asked.add(partial(topic.queue, touched.partition, acks, client_id), size)
        return asked

    def append(
        self, pending: PendingProduce, completion: ProduceCompletion, touched: TouchedBatch, rack: str
    ) -> RecordRun:
        """Put checked records of `pending`, of a client in `rack`, where they belong. The topic is known and memory
        suffices."""
        now = monotonic()
        state = self.cluster.topics[touched.topic]
        state.used_at = now
        topic = state.queues
        batch = touched.batch
        lane = self._lane(completion.acks, batch.codec, completion.principal, movable=touched.movable)
        client_id = completion.client_id
        partition = touched.partition
        partitioner = self._partitioner_of(touched.topic, rack)
        if touched.movable:
            size = batch.size
            partition = partitioner.partition(topic, size, now)
            queue = topic.queue(partition, lane.acks, client_id)
            if not self.accumulator.has_room(queue, lane, batch) and partitioner.on_new_batch(topic, partition):
                queue = topic.queue(partitioner.partition(topic, size, now), lane.acks, client_id)
            queue = self._with_room(topic, queue, completion, batch)
            partition = queue.index
        else:
            queue = topic.queue(partition, lane.acks, client_id)
            if not self.accumulator.has_room(queue, lane, batch):
                partitioner.on_new_batch(topic, partition)
        if self.racks is not None:
            self.racks.sent(touched.topic, rack, queue.leader, touched.came)
        moved = partition != touched.partition
        run = completion.add_run(touched.slot, batch.record_count, moved=moved, whole=touched.whole)
        run.partition = partition
        (self._moved if moved else self._kept).value += batch.record_count
        current = self.accumulator.append(queue, lane, run, batch, now)
        if self.linger > 0:
            pending.lingers_in(queue, current)
        return run

    def _lane(self, acks: int, codec: int, principal: str, *, movable: bool) -> Lane:
        """Forebay's own are few, and made once."""
        if principal:
            return Lane(acks, codec, movable, principal)
        place = (acks + 1) << 4 | codec << 1 | movable
        lane = self._lanes.get(place)
        if lane is None:
            lane = self._lanes[place] = Lane(acks, codec, movable)
        return lane

    def _with_room(
        self, topic: TopicQueues, queue: PartitionQueue, completion: ProduceCompletion, batch: ClientBatch
    ) -> PartitionQueue:
        """`queue`, or another partition's where its share of the memory is used up, as it is while its broker hangs."""
        pool = self.accumulator.pool
        size = self.accumulator.memory_for(batch)
        if pool.plenty(size) or pool.has_room(queue, size):
            return queue
        other = pool.roomiest(topic, size)
        return topic.queue(other, completion.acks, completion.client_id) if other >= 0 else queue


class PendingProduce:
    """One request between its arrival and its records' being in the accumulator."""

    __slots__ = (
        "_appended",
        "_asked",
        "_changes_way",
        "_charges",
        "_client",
        "_completion",
        "_decompressed",
        "_eligibility",
        "_entry",
        "_flusher",
        "_frame",
        "_handler",
        "_held",
        "_in_line",
        "_inspected",
        "_lingering",
        "_missing",
        "_observed",
        "_on_done",
        "_overtakes",
        "_own_login",
        "_pieces",
        "_request",
        "_to_answer",
        "_unknown",
        "_untouched",
        "_waiter",
    )

    def __init__(
        self,
        handler: ProduceHandler,
        client: Client,
        frame: bytes,
        request: ProduceRequest,
        inspected: list[InspectedBatch],
        pieces: list[_Topics],
        *,
        changes_way: bool,
    ) -> None:
        self._eligibility = handler.classifier.eligibility
        self._changes_way = changes_way
        """It goes alone, and nothing of it is touched: earlier records of its client go another way than later ones."""
        self._handler = handler
        self._client = client
        self._frame = frame
        self._request = request
        self._inspected = inspected
        self._pieces = pieces
        """What is to be inspected yet, the last first."""
        self._own_login = client.own_login
        """When it came: what it becomes part of must not change on its way."""
        self._held = False
        self._in_line = False
        self._to_answer = False  # it is done, and told when all answers are put together
        self._overtakes = False
        self._missing: set[str] = set()
        self._unknown = 0
        self._asked = 0
        self._waiter: Waiter | None = None
        self._charges: dict[int, int] = {}
        """By broker: memory that the client is charged with until it is answered."""
        self._lingering: Lingering | None = None
        """The batches that its records are in, if these linger."""
        self._flusher: asyncio.TimerHandle | None = None
        self._appended = 0
        """How many of its partitions are behind it, SLICE at a time."""
        self._decompressed = 0
        self._untouched: list[UntouchedBatch] = []
        self._observed: list[ObservedRequest] | None = None
        self._entry = handler.ledger.arrived(client, request, inspected) if handler.ledger is not None else None
        self._on_done = client.reserve(request.acks)
        self._completion = ProduceCompletion(
            request.version,
            request.correlation_id,
            request.acks,
            handler.timeout_ms(request),
            handler.deadline(request),
            self._done,
            (client.host, request.client_id),
            request.client_id,
            client,
            client.principal,
        )
        if handler.throttling.active:
            self._completion.paused = handler.throttling.pause(request.client_id, monotonic())
        for name, partitions in request.topics:
            self._completion.add_topic(name)
            for partition, _, _ in partitions:
                self._completion.add_partition(partition)
        handler.deadlines.add(self._completion)

    def proceed(self) -> None:
        """Go on, once all of it is inspected and the topics that are not known have been asked for."""
        handler = self._handler
        if self._pieces:
            self._hold()
            self._wait_for_turn()
            return
        if self._changes_way:
            for entry in self._inspected:
                entry.reason = entry.reason or Reason.SETTINGS_CHANGED
        for entry in self._inspected:
            if entry.reason is None and handler.cluster.lacks(entry.topic, entry.partition):
                self._missing.add(entry.topic)
        if not self._missing:
            self._classify()
            return
        self._hold()
        self._ask()

    def _inspect_some(self) -> None:
        """The next piece; behind the last what comes then."""
        classifier, own_login = self._handler.classifier, self._own_login
        self._inspected += classifier.inspect(
            self._frame, self._request, self._pieces.pop(), self._eligibility, own_login=own_login
        )
        if self._pieces or not self._asked:
            self.proceed()
        else:
            self._classify()

    def _ask(self) -> None:
        """A topic that is known, but not with that many partitions, may have been given more: a broker is asked."""
        self._asked += 1
        self._unknown = len(self._missing)
        for name in list(self._missing):
            known = self._handler.cluster.usable(name) is not None
            self._handler.updater.want(name, self._topic_settled, anew=known)

    def _lacks_partitions(self) -> bool:
        """Whether a topic is known, but not a partition of it that the request names."""
        handler = self._handler
        return any(
            entry.reason is None
            and entry.partition >= 0
            and handler.cluster.lacks(entry.topic, entry.partition)
            and handler.cluster.usable(entry.topic) is not None
            for entry in self._inspected
        )

    def refuse(self, error_code: int, message: str) -> None:
        """All of it, before anything else."""
        slot = 0
        for topic, partitions in self._request.topics:
            for _ in partitions:
                self._refuse(slot, topic, error_code, message)
                slot += 1
        self._completion.all_added()

    def _refuse(self, slot: int, topic: str, error_code: int, message: str) -> None:
        """Nothing of a partition is sent."""
        completion = self._completion
        if completion.fates[slot].error_code == error_codes.NONE:  # else it was half of a batch that is split by key
            self._handler.count_refused(error_code)
            client_id = completion.client_id
            log.info("records refused", topic=topic, error_code=error_code, why=message, client_id=client_id)
        completion.refuse(slot, error_code, message)

    def _topic_settled(self) -> None:
        self._unknown -= 1
        if self._unknown or self._completion.done:
            return
        if self._asked < PARTITION_TRIES and self._lacks_partitions():
            self._ask()  # the answer may have been on its way before the partition was there
        else:
            # Looked at anew: only now is it known which topics are internal.
            self._inspected = []
            self._pieces = _pieces(self._request.topics)
            try:
                self._inspect_some()
            except Exception as error:  # others wait for the topic, too
                self.gives_up(error)

    def gives_up(self, error: Exception) -> None:
        """By a fault of ours it cannot be gone on with: what is still open may or may not be appended."""
        log.error("a produce request cannot be gone on with: this is a bug in Forebay", exc_info=error)
        self._completion.expire()

    def _classify(self) -> None:
        found = self._classified(count=True)
        self._client.produced(found.records, found.reasons)
        if self._eligibility.observed is not None:
            self._observe(found)
        if found.unread or self._changes_way:
            self._overtakes = True
            self._hold()
            self._handler.send_now(self._client)
            self._client.when_alone(self._alone)
        else:
            self._take_memory(found)

    def _observe(self, found: ClassifiedRequest) -> None:
        first = self._appended
        entries = self._inspected[first : first + SLICE]
        earlier = self._observed[0] if self._observed else None
        seen = self._handler.observer.beside(self._client, self._frame, self._request, entries, found, first, earlier)
        if seen is not None:
            self._observed = [*(self._observed or ()), seen]

    def _alone(self) -> None:
        if not self._completion.done:
            self._take_memory(self._classified(count=False))

    def _take_memory(self, found: ClassifiedRequest) -> None:
        pool = self._handler.accumulator.pool
        if not found.touched or pool.plenty(found.size + len(found.touched) * pool.chunk_size):
            self._append(found)
            return
        asked = self._handler.memory_request(self._completion, found)
        if pool.fits(asked):
            self._append(found)
            return
        self._hold()
        pool.flush()
        if self._charges:  # its earlier slices may have all that the client may have
            self._completion.when_told(self._go_on_soon)
            return
        # Classified again then: what was opened now may be many times what the client sent, and counts in no pool.
        self._waiter = pool.wait(asked, lambda: self._append(self._classified(count=False)))

    def _go_on_soon(self) -> None:
        self._handler.loop.call_soon(self._earlier_told)

    def _earlier_told(self) -> None:
        if not self._completion.done:
            self._uncharge()
            self._take_memory(self._classified(count=False))

    def _uncharge(self) -> None:
        for node_id, size in self._charges.items():
            self._handler.accumulator.pool.charge(self._completion.client, node_id, -size)
        self._charges.clear()

    def _classified(self, *, count: bool) -> ClassifiedRequest:
        slots = slice(self._appended, self._appended + SLICE)
        return self._handler.classifier.classify(self._frame, self._inspected, slots, self._decompressed, count=count)

    def _append(self, found: ClassifiedRequest) -> None:
        self._waiter = None
        handler, completion, entry = self._handler, self._completion, self._entry
        if entry is not None:
            entry.classified(self._appended, found)
        for refused in found.refused:
            self._refuse(refused.slot, self._inspected[refused.slot].topic, refused.error_code, refused.message)
        late = -1
        for touched in found.touched:
            if handler.cluster.lacks(touched.topic, touched.partition):
                code = handler.cluster.why_unknown(touched.topic)
                self._refuse(touched.slot, touched.topic, code, "the brokers do not know it, or do not tell of it")
            elif touched.slot == late or self._too_late(touched):
                late = touched.slot  # both halves of a batch that is split by key
                code = error_codes.NOT_LEADER_OR_FOLLOWER
                self._refuse(late, touched.topic, code, "the client's later records came first")
            else:
                run = self._append_batch(touched)
                if entry is not None:
                    entry.appended(run, touched)
        if handler.racks is not None and found.untouched:
            handler.racks.passed(self._client, [self._inspected[passed.slot] for passed in found.untouched])
        self._untouched += found.untouched
        self._decompressed = found.decompressed
        self._appended += SLICE
        if self._appended < len(self._inspected):
            self._hold()
            self._wait_for_turn()
            return
        if self._untouched:
            self._forward(self._untouched)
            self._untouched = []
        # The pool holds its records: until they are answered, the frame and what was read of it would take as much.
        self._frame = b""
        self._inspected = []
        self._request.topics = []
        completion.all_added()
        if not self._overtakes:
            self._release()

    def _wait_for_turn(self) -> None:
        if not self._in_line:
            self._in_line = True
            self._handler.turns.wait(self)

    def turn(self) -> None:
        """The next part of what there is to do (loop_turns)."""
        self._in_line = False
        if self._completion.done:
            if self._to_answer:
                self._answer_some()
        elif self._pieces:
            self._inspect_some()
        else:
            self._classify()

    def _too_late(self, touched: TouchedBatch) -> bool:
        """Whether records that keep their order have been overtaken by later ones of the client."""
        node_id, completion = self._client.node_id, self._completion
        if touched.movable or node_id is None:
            return False
        queues = self._handler.cluster.topics[touched.topic].queues
        return queues.too_late(touched.partition, completion.acks, completion.client, node_id, monotonic())

    def _append_batch(self, touched: TouchedBatch) -> RecordRun:
        handler = self._handler
        pool = handler.accumulator.pool
        used = pool.used
        run = handler.append(self, self._completion, touched, self._client.rack)
        if pool.used > used:
            leader = handler.cluster.topics[touched.topic].queues.leader_of(run.partition)
            size = (pool.used - used) * pool.chunk_size
            charged = self._charges.get(leader, 0)
            self._charges[leader] = charged + size
            pool.charge(self._completion.client, leader, size, charged)
        return run

    def lingers_in(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Records of it are in `batch`, which may linger."""
        if self._lingering is None:
            self._lingering = []
            self._handler.lingers_for(self._client, self)
        if not self._lingering:
            self._stop_flusher()
            self._flusher = self._handler.flush_in_time(self._lingering, self._completion.deadline)
        self._lingering.append((queue, batch.lane, batch.number))

    def flush(self) -> None:
        """Nothing of it lingers any more."""
        if self._lingering:
            self._handler.flush(self._lingering)

    def _stop_flusher(self) -> None:
        if self._flusher is not None:
            self._flusher.cancel()

    def _forward(self, untouched: list[UntouchedBatch]) -> None:
        """A request of the untouched batches alone, in the client's order and, if it may be, the client's version."""
        request, completion = self._request, self._completion
        # Whether a broker takes what could not be opened must be known before anything behind it is carried out.
        acks = request.acks or int(self._overtakes and not self._client.left)
        version = max(request.version, produce_request.RECORD_BATCHES_FROM)
        topics: dict[str, list[tuple[int, int, list[Buffer]]]] = {}
        for passed in untouched:
            topics.setdefault(passed.topic, []).append((passed.partition, len(passed.batch), [passed.batch]))
        frame = produce_request.encode(
            version,
            request.correlation_id,
            request.client_id,
            acks,
            request.timeout_ms,
            list(topics.items()),
        )
        observed: Sequence[ObservedRequest] = self._observed or ()
        self._observed = None
        for seen in observed:
            seen.leaves()
        if acks == 0:
            self._client.send_own(frame, version, request.correlation_id, 0, lambda answer: None)
            for seen in observed:
                seen.answered(None)
            return
        runs: dict[tuple[str, int], list[RecordRun]] = {}
        for entry in untouched:
            run = completion.add_run(entry.slot, 0, moved=False, whole=True)
            runs.setdefault((entry.topic, entry.partition), []).append(run)

        def answered(answer: bytes | None) -> None:
            try:
                response = produce_response.parse(answer, version) if answer is not None else None
            except Malformed:
                response = None
            for told in observed:
                told.answered(response)
            if response is not None:
                self._throttled(response.throttle_time_ms)
                for topic, partitions in response.topics:
                    for partition in partitions:
                        for run in runs.pop((topic, partition.partition), ()):
                            completion.tell(run.slot, partition)
            for run in (run for unanswered in runs.values() for run in unanswered):
                completion.failed(run, error_codes.REQUEST_TIMED_OUT, "the broker did not answer", [])

        self._client.send_own(frame, version, request.correlation_id, acks, answered)
        if self._changes_way:
            self._client.settle()

    def _done(self, completion: ProduceCompletion, frame: bytes | None) -> None:
        """Answered, perhaps because the time was up while the request still waited."""
        self._handler.deadlines.remove(completion)
        if self._lingering is not None:
            self._lingering = None
            self._handler.answered(self._client, self)
            self._stop_flusher()
        if self._entry is not None:
            self._entry.answered(completion)
        if self._unknown:
            for name in self._missing:
                self._handler.updater.forget(name, self._topic_settled)
        if self._waiter is not None:
            self._handler.accumulator.pool.cancel(self._waiter)
        self._uncharge()
        if frame is None and completion.acks != 0:
            self._to_answer = True
            self._answer_some()
        else:
            self._tell(frame)

    def _answer_some(self) -> None:
        frame = self._completion.answer_some()
        if frame is None:
            self._wait_for_turn()
        else:
            self._to_answer = False
            self._tell(frame)

    def _tell(self, frame: bytes | None) -> None:
        completion = self._completion
        self._on_done(completion, frame)
        if completion.throttle_time_ms:
            self._client.throttled(completion.throttle_time_ms)
        self._release()

    def _throttled(self, throttle_time_ms: int) -> None:
        """By the client's own broker, on its own connection."""
        if throttle_time_ms > 0:
            self._completion.throttle(throttle_time_ms)
            self._handler.throttling.paused(self._completion.client_id, throttle_time_ms / 1000, monotonic())

    def _hold(self) -> None:
        if not self._held:
            self._held = True
            self._client.hold(HoldReason.PENDING_REQUEST)

    def _release(self) -> None:
        if self._held:
            self._held = False
            self._client.release(HoldReason.PENDING_REQUEST)


def _pieces(topics: _Topics) -> list[_Topics]:
    """The same partitions in the same order, INSPECTED_AT_ONCE in each, but the last piece first."""
    count = 0
    for _, partitions in topics:
        count += len(partitions)
    if count <= INSPECTED_AT_ONCE:
        return [topics]
    pieces: list[_Topics] = []
    piece: _Topics = []
    room = INSPECTED_AT_ONCE
    for name, partitions in topics:
        begin = 0
        while begin < len(partitions):
            part = partitions[begin : begin + room]
            piece.append((name, part))
            begin += len(part)
            room -= len(part)
            if not room:
                pieces.append(piece)
                piece = []
                room = INSPECTED_AT_ONCE
    if piece:
        pieces.append(piece)
    pieces.reverse()
    return pieces
