"""When an open batch is due, though it is not full: `linger.ms`.

`linger.ms` = −1, adaptive (after KIP "adaptive append linger" of Kafka's coordinators): when a batch opens, its flush
goes to the back of the event loop's queue instead of on a timer. Idle, the queue is empty and the batch leaves at
once; busy, what arrived before the flush is in the batch. How long the queue was tells how busy the loop is: beyond
BUSY_S what has become due goes to the back of the queue once more before it is sent, and gathers what arrived
meanwhile. 0 and more: a timer, as in Kafka's producer.

A flush names its batch by number. A batch that left earlier (full, or drained) leaves an orphaned flush behind, which
must do nothing to the batch that came after it.
"""

from __future__ import annotations

from typing import Final

ADAPTIVE: Final = -1

BUSY_S: Final = 0.0005
"""About ten requests."""


class Linger:
    """Says how a batch's flush is to be scheduled."""

    __slots__ = ("adaptive", "delay")

    def __init__(self, linger_ms: float) -> None:
        self.adaptive = linger_ms == ADAPTIVE
        """Put the flush at the back of the event loop's queue."""
        self.delay = 0.0 if self.adaptive else linger_ms / 1000
        """Seconds from a batch's opening to its flush; 0 with a fixed linger: due as soon as it is appended."""

    def busy(self, queued_s: float) -> bool:
        """Whether a flush that took so long to come round shows a busy loop."""
        return queued_s > BUSY_S
