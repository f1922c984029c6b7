"""How a batch's flush is scheduled, and what an orphaned flush does: nothing."""

from __future__ import annotations

import pytest

from forebay_policies.accumulator import Accumulator, PartitionQueue
from forebay_policies.buffer_pool import BufferPool
from forebay_policies.linger import ADAPTIVE, BUSY_S, Linger
from forebay_policies.producer_batch import Lane, ProducerBatch
from tests.policies.accumulator_kit import drain
from tests.policies.batches import MOVABLE, client_batch, run_of, sent


@pytest.mark.parametrize(("linger_ms", "adaptive", "delay"), [(-1, True, 0.0), (0, False, 0.0), (5, False, 0.005)])
def test_linger_ms(*, linger_ms: int, adaptive: bool, delay: float) -> None:
    linger = Linger(linger_ms)

    assert linger.adaptive is adaptive
    assert linger.delay == pytest.approx(delay)
    assert ADAPTIVE == -1


def test_a_flush_that_came_round_late_shows_a_busy_loop() -> None:
    linger = Linger(ADAPTIVE)

    assert not linger.busy(BUSY_S)
    assert linger.busy(BUSY_S + 0.00001)


class EventLoop:
    """Calls what is put at its back, first in, first out, as an event loop does. The linger is adaptive."""

    def __init__(self) -> None:
        self.pool = BufferPool(1 << 20, 4096, 16384)
        self.accumulator = Accumulator(self.pool, 16384, 262144)
        self.accumulator.observe(opened=self._opened, ready=lambda leader: None)
        self.topic = self.accumulator.topic("topic")
        self.accumulator.set_leaders(self.topic, [1], 0.0)
        self.queue = self.topic.queue(0)
        self._calls: list[bytes | tuple[Lane, int]] = []
        self.left: list[list[bytes | None]] = []

    def _opened(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        self._calls.append((batch.lane, batch.number))

    def run(self, *arrivals: bytes) -> list[list[bytes | None]]:
        """Values that wait in the loop's queue when it comes round. Returns what left, batch by batch."""
        self._calls.extend(arrivals)
        while self._calls:
            call = self._calls.pop(0)
            if isinstance(call, bytes):
                batch = client_batch(call)
                self.accumulator.append(self.queue, MOVABLE, run_of(batch), batch, 0.0)
            else:
                self.accumulator.flush(self.queue, *call, 0.0)
            self.drain()
        return self.left

    def drain(self) -> None:
        for queue, batch in drain(self.accumulator, 1):
            self.left.append(sent(batch).values)
            self.accumulator.completed(queue, batch, 0.0)


def test_adaptive_idle_a_record_leaves_at_once() -> None:
    loop = EventLoop()

    assert loop.run(b"a") == [[b"a"]]
    assert loop.run(b"b") == [[b"a"], [b"b"]]


def test_adaptive_busy_what_arrived_before_the_flush_is_in_the_batch() -> None:
    assert EventLoop().run(b"a", b"b", b"c") == [[b"a", b"b", b"c"]]


def test_adaptive_a_batch_that_left_full_leaves_an_orphan_that_does_not_cut_the_next_one_short() -> None:
    full = b"x" * 16384

    # Queue of the loop: full | a | flush of full (orphan) | flush of a … : b comes between the two flushes.
    loop = EventLoop()
    loop._calls.extend([full, b"a"])
    for _ in range(2):
        call = loop._calls.pop(0)
        assert isinstance(call, bytes)
        batch = client_batch(call)
        loop.accumulator.append(loop.queue, MOVABLE, run_of(batch), batch, 0.0)
        loop.drain()
    orphan, flush = loop._calls
    assert loop.left == [[full]]

    loop._calls[:] = [orphan]
    assert loop.run() == [[full]]
    loop._calls[:] = [b"b", flush]
    assert loop.run() == [[full], [b"a", b"b"]]
