"""Classifies the batches of one Produce request by what may be done with them (policies.eligibility).

In: the frame and its parsed request. Out: `inspect`, from headers alone, which batches may be touched; then `classify`:
what goes on untouched, what is checked and may be merged, what is refused with a broker's error code. Nothing is
sent or appended here.

A batch that cannot be opened here is the broker's to judge: it goes on untouched. Only message sets are refused, since
turning them into batches is Forebay's own doing.
Message sets (Produce v0 to v2) become batches of format v2 on the way, also those that nothing else is done with.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, NamedTuple

from forebay_codecs import error_codes
from forebay_codecs.message_set import open_message_set
from forebay_codecs.produce_request import RECORD_BATCHES_FROM, PartitionRecords, ProduceRequest
from forebay_codecs.record_batch import (
    NO_TIMESTAMP,
    BadBatch,
    BatchHeader,
    ClientBatch,
    open_batch,
    read_header,
    split_by_key,
)
from forebay_codecs.record_batch_builder import encode_batch
from forebay_policies.eligibility import LONGEST_NAME, Eligibility, Reason, header_reason, key_reason
from forebay_proxy.metrics.registry import MetricRegistry

_UNREAD = {
    error_codes.CORRUPT_MESSAGE: Reason.CORRUPT,
    error_codes.INVALID_RECORD: Reason.INVALID,
    error_codes.INVALID_TIMESTAMP: Reason.INVALID,
    error_codes.MESSAGE_TOO_LARGE: Reason.TOO_LARGE,
}


def time_of_day() -> int:
    """In ms since 1970."""
    return time.time_ns() // 1_000_000


class InspectedBatch:
    """One batch of a request, by its header alone: [start, end) of the frame. `reason`: why it is left untouched.

    A message set has no header.
    """

    __slots__ = ("end", "header", "message_set", "partition", "reason", "start", "topic")

    def __init__(
        self,
        topic: str,
        partition: int,
        start: int,
        end: int,
        header: BatchHeader | None,
        reason: Reason | None,
        *,
        message_set: bool,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.start = start
        self.end = end
        self.header = header
        self.reason = reason
        self.message_set = message_set


ALL_SLOTS: Final = slice(0, None)


class UntouchedBatch(NamedTuple):
    """A batch that goes on by itself: a part of the frame, or what a message set was turned into.

    `slot` counts the request's partitions; `records`: how many it says to hold, 0 if that cannot be read.
    """

    slot: int
    topic: str
    partition: int
    batch: bytes | memoryview
    records: int


class TouchedBatch:
    """Checked records, all with a key (they stay on `partition`) or all without (`movable`).

    `came`: bytes of the request that they took; halves of a batch that is split by key share its bytes by their size.
    """

    __slots__ = ("batch", "came", "movable", "partition", "slot", "topic", "whole")

    def __init__(
        self, slot: int, topic: str, partition: int, batch: ClientBatch, came: int, *, movable: bool, whole: bool
    ) -> None:
        self.slot = slot
        self.topic = topic
        self.partition = partition
        self.batch = batch
        self.came = came
        self.movable = movable
        self.whole = whole


class Refused(NamedTuple):
    """The partition at `slot` is answered with this error, and none of its records is sent."""

    slot: int
    error_code: int
    message: str


class ClassifiedRequest:
    """A request, or some slots of one.

    `size` counts the uncompressed bytes of what is touched, `decompressed` those that came compressed.

    All stand in memory at once: a frame of 1 MiB has room for hundreds of batches that decompress to 64 MiB each. So
    they share one limit. `records` counts all that are in the request, as far as their batches say. `reasons` are those
    of the slots, `stamped` counts by slot the records that were given a timestamp. `unread`: some of what is untouched
    was to be touched, and could not be opened, or not be merged. `converted`: by slot what message sets that are only
    observed hold, or None.
    """

    __slots__ = (
        "converted",
        "decompressed",
        "reasons",
        "records",
        "refused",
        "size",
        "stamped",
        "touched",
        "unread",
        "untouched",
    )

    def __init__(self) -> None:
        self.untouched: list[UntouchedBatch] = []
        self.touched: list[TouchedBatch] = []
        self.refused: list[Refused] = []
        self.reasons: list[Reason] = []
        self.stamped: dict[int, int] = {}
        self.converted: dict[int, ClientBatch] | None = None
        self.size = 0
        self.decompressed = 0
        self.records = 0
        self.unread = False


class BatchClassifier:
    """Classifies every batch of a request without sending, appending or losing any.

    `is_internal` knows topics that the brokers call internal, `has_choice` those with more than one
    partition, `splits` those whose batches may go in halves, by key; `now_ms` is the time of day.

    Where there is no choice nothing moves: records without a key stay in order with all others of their client, since
    topics of one partition are what a total order is had by.
    """

    def __init__(
        self,
        eligibility: Eligibility,
        is_internal: Callable[[str], bool],
        has_choice: Callable[[str], bool],
        splits: Callable[[str], bool],
        max_decompressed: int,
        stats: MetricRegistry,
        now_ms: Callable[[], int] = time_of_day,
    ) -> None:
        self.eligibility = eligibility
        """May be replaced at any time. A request is judged by one from its beginning to its end."""
        self._is_internal = is_internal
        self._has_choice = has_choice
        self._splits = splits
        self._max_decompressed = max_decompressed
        self._batches = {r: stats.counter("forebay_batches_in_total", reason=r.value) for r in Reason}
        self._records_untouched = stats.counter("forebay_records_total", fate="untouched")
        self._topics = stats.topics
        self._converted = stats.counter("forebay_records_converted_total")
        self._stamped = stats.counter("forebay_records_stamped_total")
        self._now_ms = now_ms

    def inspect(
        self,
        frame: bytes,
        request: ProduceRequest,
        topics: list[tuple[str, list[PartitionRecords]]],
        eligibility: Eligibility | None = None,
        *,
        own_login: bool = False,
    ) -> list[InspectedBatch]:
        """The batches of `topics`, which are the request's or some of them, in their order.

        Those without a reason may be touched, by `eligibility` or what is in force. `own_login`: of a client that logs
        in at its broker by itself: they mix with nobody's.
        """
        eligibility = eligibility or self.eligibility
        whole = Reason.OWN_LOGIN if own_login else _request_reason(request, eligibility)
        old = request.version < RECORD_BATCHES_FROM
        observed = eligibility.observed
        watched: Reason | None = None
        found = []
        for name, partitions in topics:
            topic_reason = whole or eligibility.topic(name, internal=self._is_internal(name))
            if len(name) > LONGEST_NAME:
                topic_reason = topic_reason or Reason.NO_METADATA
            if observed is not None:
                watched = Reason.OBSERVED if observed.has(request.client_id, name) else None
            for partition, start, end in partitions:
                header = None if old else read_header(frame, start, end)
                reason = topic_reason or (None if old else _batch_reason(header)) or watched
                found.append(InspectedBatch(name, partition, start, end, header, reason, message_set=old))
        return found

    def count_untouched(self, inspected: list[InspectedBatch]) -> int:
        """Batches that go on as they came, for the metrics. Returns the number of records that they say to hold."""
        records = 0
        for entry in inspected:
            if entry.reason is not None:
                self._batches[entry.reason].value += 1
            records += self._count_records(entry)
        return records

    def _count_records(self, entry: InspectedBatch) -> int:
        records = _says(entry)
        self._records_untouched.value += records
        self._topics.untouched(entry.topic, records, entry.end - entry.start)
        return records

    def classify(
        self,
        frame: bytes,
        inspected: list[InspectedBatch],
        slots: slice = ALL_SLOTS,
        decompressed: int = 0,
        *,
        count: bool = True,
    ) -> ClassifiedRequest:
        """Open and check those batches of the request at `slots` that may be touched.

        `decompressed`: bytes that earlier slots came to. `count`: for the metrics, once a batch.
        """
        out = ClassifiedRequest()
        out.decompressed = decompressed
        entries = inspected[slots]
        for slot, entry in enumerate(entries, slots.start):
            if entry.reason is not None and not entry.message_set:
                out.reasons.append(entry.reason)
                out.untouched.append(_as_it_came(slot, entry, frame))
            else:
                reason = self._place(out, slot, entry, frame, count=count)
                out.reasons.append(reason)
                if count:
                    self._batches[reason].value += 1
        if count and out.untouched:
            out.records += self.count_untouched([entry for entry in entries if entry.reason and not entry.message_set])
        return out

    def _place(self, out: ClassifiedRequest, slot: int, entry: InspectedBatch, frame: bytes, *, count: bool) -> Reason:
        name, partition = entry.topic, entry.partition
        try:
            batch = self._open(out, slot, entry, frame, count=count)
        except BadBatch as error:
            if error.opened:
                # It may have taken as long as the largest batch: half as long remains for the others, then a quarter.
                out.decompressed += (self._max_decompressed - out.decompressed) // 2
            if entry.message_set:
                out.refused.append(Refused(slot, error.code, error.message))
            else:
                out.unread = True
                out.untouched.append(_as_it_came(slot, entry, frame))
                if count:
                    out.records += self._count_records(entry)
            return _UNREAD[error.code]
        if batch is None:
            return Reason.EMPTY
        out.records += batch.record_count
        if batch.codec:
            out.decompressed += batch.size
        if entry.reason is not None or batch.oldest < NO_TIMESTAMP:
            if count:
                self._records_untouched.value += batch.record_count
                self._topics.untouched(name, batch.record_count, entry.end - entry.start)
            if entry.message_set:
                out.untouched.append(UntouchedBatch(slot, name, partition, encode_batch(batch), batch.record_count))
            else:
                out.untouched.append(_as_it_came(slot, entry, frame))
            if entry.reason is None:
                out.unread = True  # brokers that compress anew fail at such a time, and with it at the whole batch
                return Reason.INVALID
            if entry.reason is Reason.OBSERVED:
                if out.converted is None:
                    out.converted = {}
                out.converted[slot] = batch
            return entry.reason
        out.size += batch.size
        reason = key_reason(batch.null_keys, batch.record_count - batch.null_keys)
        came = entry.end - entry.start
        if reason is not Reason.KEYED and not self._has_choice(name):
            out.touched.append(TouchedBatch(slot, name, partition, batch, came, movable=False, whole=True))
        elif reason is Reason.MIXED and self._splits(name):
            keyed, null_key = split_by_key(batch)
            part = came * keyed.size // (keyed.size + null_key.size)
            rest = came - part
            out.touched.append(TouchedBatch(slot, name, partition, keyed, part, movable=False, whole=False))
            out.touched.append(TouchedBatch(slot, name, partition, null_key, rest, movable=True, whole=False))
        else:
            movable = reason is Reason.NULL_KEY
            out.touched.append(TouchedBatch(slot, name, partition, batch, came, movable=movable, whole=True))
        return reason

    def _open(
        self, out: ClassifiedRequest, slot: int, entry: InspectedBatch, frame: bytes, *, count: bool
    ) -> ClientBatch | None:
        """Its records; None where there are none. Raises BadBatch."""
        max_decompressed = self._max_decompressed - out.decompressed
        if not entry.message_set:
            assert entry.header is not None
            return open_batch(frame, entry.header, max_decompressed)
        found = open_message_set(frame, entry.start, entry.end, max_decompressed, self._now_ms())
        if found.stamped:
            out.stamped[slot] = found.stamped
        if count and found.batch is not None:
            self._converted.value += found.batch.record_count
            self._stamped.value += found.stamped
        return found.batch


def _request_reason(request: ProduceRequest, eligibility: Eligibility) -> Reason | None:
    if request.transactional_id is not None:
        return Reason.TRANSACTIONAL
    return eligibility.client(request.client_id)


def _as_it_came(slot: int, entry: InspectedBatch, frame: bytes) -> UntouchedBatch:
    return UntouchedBatch(slot, entry.topic, entry.partition, memoryview(frame)[entry.start : entry.end], _says(entry))


def _says(entry: InspectedBatch) -> int:
    """How many records it says to hold."""
    return max(0, entry.header.record_count) if entry.header is not None else 0


def _batch_reason(header: BatchHeader | None) -> Reason | None:
    return Reason.UNKNOWN_ATTRIBUTES if header is None else header_reason(header.producer_id, header.attributes)
