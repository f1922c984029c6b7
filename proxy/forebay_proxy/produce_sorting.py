"""Sorts the batches of one Produce request by what may be done with them (policies.eligibility).

In: the frame and its parsed request. Out: `look`, from headers alone, which batches may be touched; then `sort`: what
goes on untouched, what is checked and may be merged, what is refused with a broker's error code. Nothing is sent or
appended here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from forebay_codecs import error_codes
from forebay_codecs.produce_request import ProduceRequest
from forebay_codecs.record_batch import BadBatch, BatchHeader, ClientBatch, open_batch, read_header, split_by_key
from forebay_policies.eligibility import Eligibility, Reason, header_reason, key_reason
from forebay_proxy.metrics import Stats

_REFUSALS = {
    error_codes.CORRUPT_MESSAGE: Reason.CORRUPT,
    error_codes.INVALID_RECORD: Reason.INVALID,
    error_codes.MESSAGE_TOO_LARGE: Reason.TOO_LARGE,
}

LONGEST_NAME = 249
"""Of a topic in Kafka. The broker refuses a longer one; asked for in Metadata, many could make a request too large."""


class Seen:
    """One batch of a request, by its header alone: [start, end) of the frame. `reason`: why it is left untouched."""

    __slots__ = ("end", "header", "partition", "reason", "start", "topic")

    def __init__(
        self, topic: str, partition: int, start: int, end: int, header: BatchHeader | None, reason: Reason | None
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.start = start
        self.end = end
        self.header = header
        self.reason = reason


class Untouched(NamedTuple):
    """A batch that goes on as it came: [start, end) of the frame. `slot` counts the request's partitions."""

    slot: int
    topic: str
    partition: int
    start: int
    end: int


class Touched:
    """Checked records, all with a key (they stay on `partition`) or all without (`movable`)."""

    __slots__ = ("batch", "movable", "partition", "slot", "topic", "whole")

    def __init__(self, slot: int, topic: str, partition: int, batch: ClientBatch, movable: bool, whole: bool) -> None:
        self.slot = slot
        self.topic = topic
        self.partition = partition
        self.batch = batch
        self.movable = movable
        self.whole = whole


class Refused(NamedTuple):
    slot: int
    error_code: int
    message: str


class Sorted:
    """`size` counts the uncompressed bytes of what is touched, `decompressed` those that came compressed.

    All stand in memory at once: a frame of 1 MiB has room for hundreds of batches that decompress to 64 MiB each. So
    they share one limit.
    """

    __slots__ = ("decompressed", "refused", "size", "touched", "untouched")

    def __init__(self) -> None:
        self.untouched: list[Untouched] = []
        self.touched: list[Touched] = []
        self.refused: list[Refused] = []
        self.size = 0
        self.decompressed = 0


class Sorter:
    """See the module. `is_internal` knows topics that the brokers call internal."""

    def __init__(
        self, eligibility: Eligibility, is_internal: Callable[[str], bool], max_decompressed: int, stats: Stats
    ) -> None:
        self._eligibility = eligibility
        self._is_internal = is_internal
        self._max_decompressed = max_decompressed
        self._batches = {r: stats.counter("forebay_batches_in_total", reason=r.value) for r in Reason}
        self._records_untouched = stats.counter("forebay_records_total", fate="untouched")

    def look(self, frame: bytes, request: ProduceRequest) -> list[Seen]:
        """The request's batches in their order; those without a reason may be touched."""
        whole = self._request_reason(request)
        found = []
        for name, partitions in request.topics:
            topic_reason = whole or self._eligibility.topic(name, self._is_internal(name))
            if len(name) > LONGEST_NAME:
                topic_reason = topic_reason or Reason.NO_METADATA
            for partition, start, end in partitions:
                header = read_header(frame, start, end)
                reason = topic_reason or _batch_reason(header)
                found.append(Seen(name, partition, start, end, header, reason))
        return found

    def count_untouched(self, seen: list[Seen]) -> None:
        """Batches that go on as they came, for the metrics."""
        for entry in seen:
            if entry.reason is not None:
                self._batches[entry.reason].value += 1
            if entry.header is not None:
                self._records_untouched.value += max(0, entry.header.record_count)

    def sort(self, frame: bytes, seen: list[Seen], count: bool = True) -> Sorted:
        """Open and check every batch that may be touched. `count`: for the metrics, once a request."""
        out = Sorted()
        for slot, entry in enumerate(seen):
            if entry.header is None or entry.reason is not None:
                out.untouched.append(Untouched(slot, entry.topic, entry.partition, entry.start, entry.end))
            else:
                reason = self._open(out, slot, entry.topic, entry.partition, frame, entry.header)
                if count:
                    self._batches[reason].value += 1
        if count and out.untouched:
            self.count_untouched([entry for entry in seen if entry.reason is not None])
        return out

    def _open(self, out: Sorted, slot: int, name: str, partition: int, frame: bytes, header: BatchHeader) -> Reason:
        try:
            batch = open_batch(frame, header, self._max_decompressed - out.decompressed)
        except BadBatch as error:
            out.refused.append(Refused(slot, error.code, error.message))
            if error.opened:
                # It may have taken as long as the largest batch: half as long remains for the others, then a quarter.
                out.decompressed += (self._max_decompressed - out.decompressed) // 2
            return _REFUSALS[error.code]
        out.size += len(batch.section)
        if batch.codec:
            out.decompressed += len(batch.section)
        reason = key_reason(batch.null_keys, batch.record_count - batch.null_keys)
        if reason is Reason.MIXED:
            keyed, null_key = split_by_key(batch)
            out.touched.append(Touched(slot, name, partition, keyed, False, False))
            out.touched.append(Touched(slot, name, partition, null_key, True, False))
        else:
            out.touched.append(Touched(slot, name, partition, batch, reason is Reason.NULL_KEY, True))
        return reason

    def _request_reason(self, request: ProduceRequest) -> Reason | None:
        if request.transactional_id is not None:
            return Reason.TRANSACTIONAL
        return self._eligibility.client(request.client_id)


def _batch_reason(header: BatchHeader | None) -> Reason | None:
    return Reason.UNKNOWN_ATTRIBUTES if header is None else header_reason(header.producer_id, header.attributes)
