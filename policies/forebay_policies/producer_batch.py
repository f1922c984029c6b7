"""One record batch on its way to one partition: who owns which of its records, and the memory that holds them.

In: checked client batches (codecs.record_batch.ClientBatch). Out: the buffers of a v2 record batch.
The first run is kept as it came, header included: if it stays alone, it is sent so (*adopted*), with no more than a
producer id and a sequence written into the header. A second run turns the batch into a merged one: its records are
appended with offset and timestamp deltas renumbered, and a header is written at drain. The first run's records need no
change either way, since it sets the base timestamp.

Memory (KIP-782) grows by chained chunks of `batch.initial.size` and is never copied; the batch is ready at `batch.size`
and keeps growing up to `batch.max.size` until it is drained:
    4096 → 8192 → 12288 → 16384 (ready) → … → 262144 (closed)
Records that are as large as a chunk are not copied into one: what they came in is kept, and counts as many chunks.
So does what is kept of requests and runs beside their records, as far as it makes whole chunks: of small requests it is
more than their records.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from forebay_codecs import compression, records
from forebay_codecs.primitives import Buffer
from forebay_codecs.record_batch import ClientBatch
from forebay_codecs.record_batch_builder import (
    NO_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    build_header,
    with_producer,
)
from forebay_policies.journal_rows import FlushReason

if TYPE_CHECKING:
    from forebay_policies.buffer_pool import BufferPool

_MAX_TIMESTAMP_SHIFT = 1 << 48
"""In ms, between two runs of one batch: far beyond any clock, well within an int64."""

HURRIED_MS = 3_000
"""Who waits for less is hardly helped by a second attempt, and has none made of what others wait for, too: a broker
that stands still for a second would be sent everything of theirs again."""


REQUEST_SIZE: Final = 2048
RUN_SIZE: Final = 512
"""Bytes that are kept of a Produce request, and of each run of it, beside its records, until it is answered. Measured
as resident memory while a broker hangs: 2.3 KiB for a request of one record, 4.7 MB for one of 10,000 partitions."""


def run_overhead(partitions: int) -> int:
    """Bytes that a run takes beside its records: itself, and its part of a request to so many partitions."""
    return RUN_SIZE + REQUEST_SIZE // partitions


class Lane(NamedTuple):
    """What records must have in common to share a batch.

    `movable`: records without a key whose partition the partitioner chose. They may be sent elsewhere if their broker
    fails, so they do not mix with records that must stay. `principal` is whom the broker takes the client for,
    empty where that is Forebay.
    """

    acks: int
    codec: int
    movable: bool
    principal: str = ""


class Owner(Protocol):
    """Whoever waits for the fate of a run: one client request. It is told exactly once of each of its runs."""

    @property
    def done(self) -> bool:
        """The request has been answered already, because its timeout has passed."""

    @property
    def left(self) -> bool:
        """Its client's connection has ended: nobody hears what becomes of its records."""

    @property
    def client(self) -> Hashable:
        """Who sent the records. A client's records that stay on a partition leave in the order in which they came."""

    @property
    def client_id(self) -> str | None:
        """What the client calls itself: quotas of brokers go by it."""

    @property
    def timeout_ms(self) -> int:
        """The request's timeout: how long the broker may wait for its followers."""

    def acknowledged(self, run: RecordRun, base_offset: int, log_append_time: int, log_start_offset: int) -> None:
        """The batch that holds `run` was appended, its first record at `base_offset`. Time in ms; −1 for none."""

    def failed(
        self, run: RecordRun, error_code: int, message: str | None, record_errors: list[tuple[int, str | None]]
    ) -> None:
        """`run` was not acknowledged. `record_errors` are (index in the client's batch, message)."""

    def throttle(self, throttle_time_ms: int) -> None:
        """The broker asks the client to slow down."""


class RecordRun:
    """A run of records of one client batch that stay together: [first, first + record_count) of the batch holding them.

    `slot` is the owner's number for it; `whole`: it is all of its client batch; `moved`: its partition is not the
    client's choice. `partition` is where it was put last; `base_offset` its first record's once acknowledged, else −1.
    `took`: seconds between its being sent and its being acknowledged; −1 where it was sent more than once. `overhead`:
    bytes that it takes beside its records.
    """

    __slots__ = (
        "base_offset",
        "first",
        "moved",
        "overhead",
        "owner",
        "partition",
        "record_count",
        "slot",
        "took",
        "whole",
    )

    def __init__(
        self, owner: Owner, slot: int, record_count: int, *, moved: bool, whole: bool, overhead: int = 0
    ) -> None:
        self.owner = owner
        self.overhead = overhead
        self.slot = slot
        self.record_count = record_count
        self.moved = moved
        self.whole = whole
        self.first = 0
        self.partition = -1
        self.base_offset = -1
        self.took = -1.0


class ProducerBatch:
    """Holds records of one lane for one partition and encodes them in the order in which they were appended.

    `size` is the bytes in memory; it is `ready` at `ready_size`, and `max_size` bounds its uncompressed records.
    `opened_at` is in seconds of the caller's clock.
    """

    __slots__ = (
        "_came_header",
        "_chunks",
        "_filled",
        "_kept",
        "_kept_size",
        "_overhead",
        "_overheads",
        "_pieces",
        "_pool",
        "base_sequence",
        "base_timestamp",
        "clients",
        "closed",
        "due",
        "lane",
        "load",
        "max_size",
        "max_timestamp",
        "number",
        "opened_at",
        "partition",
        "producer_epoch",
        "producer_id",
        "ready_size",
        "record_count",
        "refused_by",
        "runs",
        "section_size",
        "sent_at",
        "sent_to",
        "size",
        "tainted",
        "tries",
    )

    def __init__(
        self, number: int, lane: Lane, partition: int, pool: BufferPool, ready_size: int, max_size: int, now: float
    ) -> None:
        self.number = number
        self.lane = lane
        self.partition = partition
        self.ready_size = ready_size
        self.max_size = max_size
        self.opened_at = now
        self.runs: list[RecordRun] = []
        self.clients: set[Hashable] = set()
        """Whose records it holds; only in lanes that are not movable, where their order counts."""
        self.size = 0
        self.section_size = 0
        """Bytes of all records, uncompressed."""
        self.record_count = 0
        self.base_timestamp = 0
        self.max_timestamp = 0
        self.due = False
        """Its linger is over."""
        self.closed = False
        """Takes no more records."""
        self.tries = 0
        self.refused_by: tuple[int, ...] = ()
        """Leaders that have not taken it for want of replicas: it goes to others first."""
        self.producer_id = NO_PRODUCER_ID
        """What it is sent under (idempotence.py), while it is away and while it is tainted; NO_PRODUCER_ID: nothing."""
        self.producer_epoch = NO_EPOCH
        self.base_sequence = NO_SEQUENCE
        self.tainted = False
        """What became of an earlier attempt is not known: it stays on its partition, whole, and, unless the broker asks
        for others, under the same numbers."""
        self.sent_at = now
        self.sent_to = -1
        """The broker's node id, once sent; `load` is what its partition had queued and in flight then, this too."""
        self.load = 0
        self._pool = pool
        self._came_header = b""
        self._pieces: list[Buffer] = []
        """Bytes that were kept, and full chunks, in their order; behind them `_filled` bytes of the last chunk."""
        self._chunks: list[memoryview] = []
        self._filled = 0
        self._kept_size = 0
        """Bytes that were kept as they came; they count as `_kept` chunks."""
        self._kept = 0
        self._overhead = 0
        """Bytes that its runs take beside their records; they count as `_overheads` chunks."""
        self._overheads = 0

    @property
    def ready(self) -> bool:
        """It may be sent."""
        return self.due or self.closed or self.size >= self.ready_size

    @property
    def flush_reason(self) -> FlushReason:
        """Why it left, or would leave now; valid until `release`."""
        if self._came_header:
            return "adopted"
        if self.size >= self.ready_size:
            return "full"
        return "linger" if self.due else "closed"

    @property
    def abandoned(self) -> bool:
        """Nobody waits for any of its records any more."""
        return all(run.owner.done for run in self.runs)

    @property
    def timeouts_ms(self) -> tuple[int, int]:
        """The shortest and the longest time for which its owners wait; those that are done wait for nothing.

        The shortest is one of HURRIED_MS or more, if there is any.
        """
        shortest = longest = -1
        for run in self.runs:
            owner = run.owner
            if not owner.done:
                timeout_ms = owner.timeout_ms
                if timeout_ms > longest:
                    longest = timeout_ms
                if timeout_ms >= HURRIED_MS and (shortest < 0 or timeout_ms < shortest):
                    shortest = timeout_ms
        return (shortest if shortest >= 0 else longest), longest

    @property
    def deserted(self) -> list[RecordRun]:
        """Of a batch of kept records that was sent before: the runs that must not be sent again.

        Their client has its answer, or has left. It may be sending later records elsewhere, behind which these would
        end up. A first attempt still leaves: the client did send them.
        """
        if not self.tries or self.lane.movable:
            return []
        return [run for run in self.runs if run.owner.done or run.owner.left]

    @property
    def is_torn(self) -> bool:
        """Some of its clients wait, and because of the others it must not be sent again (`deserted`)."""
        if self.lane.movable:
            return False
        gone = sum([run.owner.done or run.owner.left for run in self.runs])
        return 0 < gone < len(self.runs)

    def has_room(self, batch: ClientBatch) -> bool:
        """Whether `batch` may be appended."""
        return (
            not self.closed
            and self.section_size + batch.size <= self.max_size
            and abs(batch.base_timestamp - self.base_timestamp) < _MAX_TIMESTAMP_SHIFT
            and self._can_be_opened_up()
        )

    def append(self, run: RecordRun, batch: ClientBatch) -> None:
        """Add the records of `run`, which are `batch`: the first as they came, later ones merged.

        The caller has asked `has_room`.
        """
        run.first = self.record_count
        if not self.runs:
            self._came_header = batch.header
            self.base_timestamp = batch.base_timestamp
            self.max_timestamp = batch.max_timestamp
            self.section_size = batch.size
            if batch.header:
                self._add_bytes(batch.came, batch.came_start, batch.came_end)
            else:
                self._add_bytes(batch.data, batch.start, batch.end)
        else:
            if self._came_header:
                self._open_up()
            shift = batch.base_timestamp - self.base_timestamp
            section = records.renumber(batch.data, batch.start, batch.end, self.record_count, shift)
            self.section_size += len(section)
            self._add_bytes(section, 0, len(section))
            if batch.max_timestamp > self.max_timestamp:
                self.max_timestamp = batch.max_timestamp
        self._add(run)
        self.record_count += run.record_count
        if self.section_size >= self.max_size:
            self.closed = True

    def _can_be_opened_up(self) -> bool:
        """Whether there is memory to merge into it: decompressed, records may take a hundred times as much."""
        if not self._came_header or self.lane.codec == compression.NONE:
            return True
        return self.section_size <= self._pool.available

    def _add(self, run: RecordRun) -> None:
        self.runs.append(run)
        self._overhead += run.overhead
        more = self._overhead // self._pool.chunk_size - self._overheads
        if more:
            self._overheads += more
            self._pool.count(more)
        if not self.lane.movable:
            self.clients.add(run.owner.client)

    def _open_up(self) -> None:
        """Turn a batch that was to be sent as it came into one that more records can join."""
        self._came_header = b""
        if self.lane.codec != compression.NONE:
            section = compression.decompress(self.lane.codec, b"".join(self.buffers()), self.section_size)
            chunks, kept = self._empty()
            self._add_bytes(section, 0, len(section))
            self._pool.put_back(chunks, kept)

    def _add_bytes(self, data: bytes, start: int, end: int) -> None:
        """[start, end) of `data`: as large as a chunk, they are kept as they are; smaller ones are gathered in chunks.

        What they came in is kept with them. Where that is more than an eighth of it, they are copied out of it.
        """
        size = end - start
        chunk_size = self._pool.chunk_size
        if size < chunk_size:
            self._gather(data, start, end)
        else:
            self._close_chunk()
            self._count_kept(size)
            if size == len(data):
                self._pieces.append(data)  # a slice would be a copy, in compiled code
            elif len(data) - size <= size >> 3:
                self._pieces.append(memoryview(data)[start:end])
            else:
                self._pieces.append(data[start:end])
        self.size += size

    def _count_kept(self, size: int) -> None:
        """`size` more bytes are kept as they are: so many whole chunks as they bring it to."""
        self._kept_size += size
        more = -(-self._kept_size // self._pool.chunk_size) - self._kept
        self._kept += more
        self._pool.count(more)

    def _gather(self, data: bytes, start: int, end: int) -> None:
        chunk_size = self._pool.chunk_size
        filled = self._filled
        while start < end:
            if not filled:
                self._chunks.append(self._pool.take())
            chunk = self._chunks[-1]
            step = min(chunk_size - filled, end - start)
            chunk[filled : filled + step] = data[start : start + step]
            start += step
            filled += step
            if filled == chunk_size:
                self._pieces.append(chunk)
                filled = 0
        self._filled = filled

    def _close_chunk(self) -> None:
        """What comes next is behind it."""
        if self._filled:
            self._pieces.append(self._chunks[-1][: self._filled])
            self._filled = 0

    def _empty(self) -> tuple[list[memoryview], int]:
        """Nothing is in it any more: (chunks, chunks that other bytes count as) to be given back."""
        chunks, kept = self._chunks, self._kept
        self._chunks = []
        self._pieces = []
        self._kept = self._kept_size = self._filled = self.size = 0
        return chunks, kept

    @property
    def held(self) -> int:
        """Bytes of memory, in whole chunks."""
        return (len(self._chunks) + self._kept + self._overheads) * self._pool.chunk_size

    def buffers(self) -> list[Buffer]:
        """The bytes in memory, in their order."""
        if not self._filled:
            return list(self._pieces)
        return [*self._pieces, self._chunks[-1][: self._filled]]

    def encode(self) -> tuple[int, list[Buffer]]:
        """(size, buffers) of the v2 record batch to send. The buffers live until `release`."""
        body = self.buffers()
        producer_id, epoch, sequence = self.producer_id, self.producer_epoch, self.base_sequence
        if self._came_header:
            header = self._came_header
            if producer_id >= 0:
                header = with_producer(header, body, producer_id, epoch, sequence)
            return len(header) + self.size, [header, *body]
        size = self.size
        codec = self.lane.codec
        if codec != compression.NONE:
            packed = compression.compress(codec, b"".join(body))
            body = [packed]
            size = len(packed)
        header = build_header(
            body,
            size,
            self.record_count,
            codec,
            self.base_timestamp,
            self.max_timestamp,
            producer_id,
            epoch,
            sequence,
        )
        return len(header) + size, [header, *body]

    def unsequence(self) -> None:
        """It is sent under no numbers any more: the next attempt gets new ones."""
        self.producer_id = NO_PRODUCER_ID
        self.producer_epoch = NO_EPOCH
        self.base_sequence = NO_SEQUENCE
        self.tainted = False

    def sent(self, node_id: int, load: int, now: float) -> None:
        """It leaves for its broker; `load` is what its partition has queued and in flight, this included."""
        self.sent_to = node_id
        self.load = load
        self.sent_at = now

    def release(self) -> None:
        """Give the memory back; the batch must not be used afterwards."""
        chunks, kept = self._empty()
        kept += self._overheads
        self._overhead = self._overheads = 0
        self._pool.give_back(chunks, kept)

    def halves(self, numbers: tuple[int, int], now: float) -> tuple[ProducerBatch, ProducerBatch]:
        """Two batches with these `numbers`, cut between runs, to retry what a broker refused as a whole.

        Needs at least two runs. The halves have memory of their own; this batch keeps its own until `release`.
        """
        section = b"".join(self.buffers())
        starts = self._starts(section)
        middle = len(self.runs) // 2
        first = self._piece(numbers[0], section, starts, self.runs[:middle], now)
        return first, self._piece(numbers[1], section, starts, self.runs[middle:], now)

    def of(self, number: int, runs: list[RecordRun]) -> ProducerBatch:
        """The batch with these of its runs only, of which there are some, in their order.

        It holds its own memory; this one keeps its own.
        """
        section = b"".join(self.buffers())
        rest = self._piece(number, section, self._starts(section), runs, self.opened_at)
        rest.tries, rest.refused_by = self.tries, self.refused_by
        return rest

    def by_client_id(self, next_number: Callable[[], int]) -> list[tuple[str | None, ProducerBatch]]:
        """The batch as one for each client id that it holds records of, each with its runs in their order.

        It is that itself where there is but one. Else each has memory of its own; this one keeps its own.
        """
        runs: dict[str | None, list[RecordRun]] = {}
        for run in self.runs:
            runs.setdefault(run.owner.client_id, []).append(run)
        if len(runs) == 1:
            return [(client_id, self) for client_id in runs]
        section = b"".join(self.buffers())
        starts = self._starts(section)
        pieces: list[tuple[str | None, ProducerBatch]] = []
        for client_id, theirs in runs.items():
            before = pieces[-1][1] if pieces else None
            piece = self._piece(next_number(), section, starts, theirs, self.opened_at, before)
            piece.tries, piece.refused_by = self.tries, self.refused_by
            pieces.append((client_id, piece))
        return pieces

    def _starts(self, section: bytes) -> dict[int, int]:
        """Where each run begins in `section`, by the number of its first record, and where the last one ends.

        Looked up once for all pieces: each may hold many runs with gaps between them.
        """
        firsts = [run.first for run in self.runs]
        firsts.append(self.record_count)
        return dict(zip(firsts, records.starts(section, 0, len(section), firsts), strict=True))

    def _piece(
        self,
        number: int,
        section: bytes,
        starts: dict[int, int],
        runs: list[RecordRun],
        now: float,
        before: ProducerBatch | None = None,
    ) -> ProducerBatch:
        """`runs`, in their order, as a batch that takes no more; one after the other or with gaps between them.

        It begins in what the piece `before` has left of its last chunk: a chunk for each of a thousand small pieces
        would be many times the memory that they were in.
        """
        piece = ProducerBatch(number, self.lane, self.partition, self._pool, self.ready_size, self.max_size, now)
        piece.base_timestamp = self.base_timestamp
        if before is not None:
            piece._kept_size = before._kept_size - before._kept * self._pool.chunk_size
        kept: list[bytes] = []
        newest = 0
        at = 0
        while at < len(runs):
            end = at + 1
            count = runs[at].record_count
            while end < len(runs) and runs[end].first == runs[at].first + count:
                count += runs[end].record_count
                end += 1
            first = runs[at].first
            taken, max_delta = records.take(section, starts[first], starts[first + count], piece.record_count)
            newest = max(newest, max_delta) if at else max_delta
            kept.append(taken)
            first = piece.record_count
            for run in runs[at:end]:
                run.first = first
                first += run.record_count
                piece._add(run)
            piece.record_count += count
            at = end
        data = b"".join(kept)
        piece._count_kept(len(data))
        piece._pieces.append(data)
        piece.size = piece.section_size = len(data)
        piece.max_timestamp = self.base_timestamp + newest
        piece.closed = True
        return piece
