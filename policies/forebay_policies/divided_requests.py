"""One Produce request divided by leader, and the answers to its parts put together again. No I/O.

In: a client's request, and of each of its partitions where it goes: to a broker, or nowhere with an error code. Out: a
frame for each broker; and once all parts are answered or lost, the response to the client, once, with its topics and
partitions in its order. What brokers say of leaders (KIP-951) is not in it.

A partition of which a broker's answer says nothing, and one whose answer is lost, is told REQUEST_TIMED_OUT: nobody
knows whether it was appended, and every client sends it again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from forebay_codecs import error_codes, produce_request, produce_response
from forebay_codecs.primitives import Buffer
from forebay_codecs.produce_request import ProduceRequest
from forebay_codecs.produce_response import PartitionResponse, ProduceResponse
from forebay_codecs.record_batch import BatchNumbers, read_numbers

_UNKNOWN: Final = -1


class PartitionPart:
    """One partition of a request: its records are [start, end) of the frame. `numbers` as in record_batch."""

    __slots__ = ("end", "numbers", "outcome", "partition", "start", "topic")

    def __init__(self, topic: str, partition: int, start: int, end: int, numbers: BatchNumbers | None) -> None:
        self.topic = topic
        self.partition = partition
        self.start = start
        self.end = end
        self.numbers = numbers
        self.outcome: PartitionResponse | None = None

    def fails(self, error_code: int, message: str | None = None) -> None:
        """It is answered so, unless it is answered already."""
        if self.outcome is None:
            self.outcome = PartitionResponse(self.partition, error_code, _UNKNOWN, _UNKNOWN, _UNKNOWN, [], message)


class DividedRequest:
    """Answers exactly once, when nothing of it is open. `on_answer` gets the response's frame, size included."""

    __slots__ = ("_frame", "_on_answer", "_open", "_request", "_throttle_time_ms", "_topics", "parts")

    def __init__(self, frame: bytes, request: ProduceRequest, on_answer: Callable[[bytes], None]) -> None:
        """`frame` holds the request without its size."""
        self._frame = frame
        self._request = request
        self._on_answer = on_answer
        self._open = 1
        """Parts away, and one more until all have left."""
        self._throttle_time_ms = 0
        self._topics: list[tuple[str, list[PartitionPart]]] = []
        self.parts: list[PartitionPart] = []
        """All of them, in the request's order."""
        for name, partitions in request.topics:
            parts = [
                PartitionPart(name, index, start, end, read_numbers(frame, start, end))
                for index, start, end in partitions
            ]
            self._topics.append((name, parts))
            self.parts += parts

    @property
    def request(self) -> ProduceRequest:
        """As the client sent it."""
        return self._request

    def frame_of(self, parts: list[PartitionPart]) -> list[Buffer]:
        """The frame for the broker that gets `parts`, and of which `close_one` will be told."""
        request, view = self._request, memoryview(self._frame)
        topics: dict[str, list[tuple[int, int, list[Buffer]]]] = {}
        for part in parts:
            records: list[Buffer] = [view[part.start : part.end]]
            topics.setdefault(part.topic, []).append((part.partition, part.end - part.start, records))
        self._open += 1
        return produce_request.encode(
            request.version,
            request.correlation_id,
            request.client_id,
            request.acks,
            request.timeout_ms,
            list(topics.items()),
        )

    def answered(self, parts: list[PartitionPart], response: ProduceResponse) -> None:
        """The broker's answer to what it was sent; `close_one` must follow."""
        self._throttle_time_ms = max(self._throttle_time_ms, response.throttle_time_ms)
        told = {
            (topic, partition.partition): partition for topic, partitions in response.topics for partition in partitions
        }
        for part in parts:
            part.outcome = told.get((part.topic, part.partition))
        self.lost(parts, error_codes.REQUEST_TIMED_OUT)

    def lost(self, parts: list[PartitionPart], error_code: int) -> None:
        """There is no answer to what the broker was sent; `close_one` must follow."""
        for part in parts:
            part.fails(error_code)

    def close_one(self) -> None:
        """A broker's part is over, or the last of them is away. The client is answered where nothing else is open."""
        self._open -= 1
        if self._open:
            return
        topics: list[tuple[str, list[PartitionResponse]]] = []
        for name, parts in self._topics:
            topics.append((name, [part.outcome for part in parts if part.outcome is not None]))
        request = self._request
        self._on_answer(
            produce_response.encode(request.version, request.correlation_id, topics, self._throttle_time_ms)
        )
