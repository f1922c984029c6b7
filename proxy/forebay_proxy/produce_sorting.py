"""Sorts the batches of one Produce request by what may be done with them (policies.eligibility).

In: the frame and its parsed request. Out: `may_touch` from headers alone; then `sort`: what goes on untouched, what is
checked and may be merged, what is refused with a broker's error code. Nothing is sent or appended here.
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


class Untouched(NamedTuple):
    """A batch that goes on as it came: [start, end) of the frame. `slot` counts the request's partitions."""

    slot: int
    topic: str
    partition: int
    start: int
    end: int


class Touched(NamedTuple):
    """Checked records, all with a key (they stay on `partition`) or all without (`movable`)."""

    slot: int
    topic: str
    partition: int
    batch: ClientBatch
    movable: bool
    whole: bool


class Refused(NamedTuple):
    slot: int
    error_code: int
    message: str


class Sorted(NamedTuple):
    untouched: list[Untouched]
    touched: list[Touched]
    refused: list[Refused]


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

    def topics_to_touch(self, frame: bytes, request: ProduceRequest) -> set[str]:
        """The topics with a batch that may be touched. None: the whole request is to go on as it came."""
        if self._request_reason(request) is not None:
            return set()
        return {
            name
            for name, partitions in request.topics
            if any(self._batch_reason(name, read_header(frame, start, end)) is None for _, start, end in partitions)
        }

    def count_untouched(self, frame: bytes, request: ProduceRequest) -> None:
        """A request of which nothing is touched, for the metrics."""
        whole = self._request_reason(request)
        for name, partitions in request.topics:
            for _, start, end in partitions:
                header = read_header(frame, start, end)
                self._count(whole or self._batch_reason(name, header), header)

    def sort(self, frame: bytes, request: ProduceRequest, count: bool = True) -> Sorted:
        """Open and check every batch that may be touched. `count`: for the metrics, once a request."""
        out = Sorted([], [], [])
        slot = 0
        for name, partitions in request.topics:
            for partition, start, end in partitions:
                header = read_header(frame, start, end)
                reason = self._batch_reason(name, header)
                if header is None or reason is not None:
                    out.untouched.append(Untouched(slot, name, partition, start, end))
                    if count:
                        self._count(reason, header)
                else:
                    reason = self._open(out, slot, name, partition, frame, header)
                    if count:
                        self._batches[reason].value += 1
                slot += 1
        return out

    def _open(self, out: Sorted, slot: int, name: str, partition: int, frame: bytes, header: BatchHeader) -> Reason:
        try:
            batch = open_batch(frame, header, self._max_decompressed)
        except BadBatch as error:
            out.refused.append(Refused(slot, error.code, error.message))
            return _REFUSALS[error.code]
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

    def _batch_reason(self, topic: str, header: BatchHeader | None) -> Reason | None:
        reason = self._eligibility.topic(topic, self._is_internal(topic))
        if reason is not None:
            return reason
        if header is None:
            return Reason.UNKNOWN_ATTRIBUTES
        return header_reason(header.producer_id, header.attributes)

    def _count(self, reason: Reason | None, header: BatchHeader | None) -> None:
        if reason is not None:
            self._batches[reason].value += 1
        if header is not None:
            self._records_untouched.value += max(0, header.record_count)
