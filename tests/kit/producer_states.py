"""What a broker knows of the producers of one partition, and what follows for a batch: the rules of Kafka 4.3.

    states.check(batch) → Known(error_code, offset)

1. The epoch and the last five batches of each producer id are kept.
2. One of these batches again, by epoch, first and last sequence alone, is answered with the offset that it has.
3. An older epoch is INVALID_PRODUCER_EPOCH. A new one begins at sequence 0, else OUT_OF_ORDER_SEQUENCE_NUMBER.
4. Else the first sequence must follow the last one.
5. Of a producer that is not known any first sequence is taken.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from forebay_codecs.error_codes import INVALID_PRODUCER_EPOCH, NONE, OUT_OF_ORDER_SEQUENCE_NUMBER

WINDOW: Final = 5
_WRAP: Final = 1 << 31


class Numbers(NamedTuple):
    """A batch's; `producer_id` −1: it has none."""

    producer_id: int
    epoch: int
    first: int
    records: int

    @property
    def last(self) -> int:
        return (self.first + self.records - 1) % _WRAP


def numbers_of(data: bytes) -> Numbers:
    """Of a whole v2 record batch."""

    def read(start: int, end: int) -> int:
        return int.from_bytes(data[start:end], "big", signed=True)

    return Numbers(read(43, 51), read(51, 53), read(53, 57), read(57, 61))


class Known(NamedTuple):
    """`offset` −1: it is to be appended, or refused with `error_code`."""

    error_code: int
    offset: int


class ProducerStates:
    def __init__(self) -> None:
        self._epochs: dict[int, int] = {}
        self._batches: dict[int, deque[tuple[Numbers, int]]] = {}

    def check(self, batch: Numbers) -> Known:
        if batch.producer_id < 0 or batch.producer_id not in self._epochs:
            return Known(NONE, -1)
        epoch, batches = self._epochs[batch.producer_id], self._batches[batch.producer_id]
        if batch.epoch < epoch:
            return Known(INVALID_PRODUCER_EPOCH, -1)
        if batch.epoch > epoch:
            return Known(NONE if batch.first == 0 else OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
        for earlier, offset in batches:
            if (earlier.first, earlier.last) == (batch.first, batch.last):
                return Known(NONE, offset)
        expected = (batches[-1][0].last + 1) % _WRAP
        return Known(NONE if batch.first == expected else OUT_OF_ORDER_SEQUENCE_NUMBER, -1)

    def appended(self, batch: Numbers, offset: int) -> None:
        if batch.producer_id < 0:
            return
        if self._epochs.get(batch.producer_id) != batch.epoch:
            self._epochs[batch.producer_id] = batch.epoch
            self._batches[batch.producer_id] = deque(maxlen=WINDOW)
        self._batches[batch.producer_id].append((batch, offset))

    def expire(self) -> None:
        """Nothing was written for a day."""
        self._epochs.clear()
        self._batches.clear()
