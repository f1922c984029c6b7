"""When an open batch is due although it is not full: `linger.ms`.

`linger.ms` = −1, adaptive (after the "adaptive append linger" of Kafka's coordinators): when a batch opens, its flush
goes to the back of the event loop's queue instead of on a timer. On an idle loop the queue is empty and the batch
leaves at once; on a busy one, what arrived before the flush is in the batch. How long the flush took to come round
tells how busy the loop is: beyond BUSY_S, batches that are due go to the back of the queue once more before they are
sent, and collect what arrives meanwhile. 0 or more: a timer, as in Kafka's producer.

A flush names its batch by number. A batch that left earlier (full, or drained) leaves an orphaned flush behind, which
must not affect the next batch.
"""

from __future__ import annotations

from typing import Final

ADAPTIVE: Final = -1

BUSY_S: Final = 0.0005
"""The time of about ten requests."""


class Linger:
    """How to schedule the flush of a batch; `linger_ms` as configured, −1: adaptive."""

    __slots__ = ("adaptive", "delay")

    def __init__(self, linger_ms: float) -> None:
        self.adaptive = linger_ms == ADAPTIVE
        """Put the flush at the back of the event loop's queue."""
        self.delay = 0.0 if self.adaptive else linger_ms / 1000
        """Seconds from the opening of a batch to its flush. 0 with a fixed linger: due as soon as it is opened."""

    def busy(self, queued_s: float) -> bool:
        """Whether the loop is busy if a flush took `queued_s` seconds to come round."""
        return queued_s > BUSY_S
