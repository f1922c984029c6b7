"""Lets those in that wait for `buffer.memory`, soon after some of it was freed.

In: news from the buffer pool that those who wait may fit. Out: one look through them for all that is freed in a turn of
the loop, and less often the longer a look takes. One for each pool, however many accumulators share it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import Final

from forebay_policies.buffer_pool import BufferPool
from forebay_proxy.metrics.registry import MetricRegistry

PAUSE: Final = 4
"""From one look to the next, so many times what it took: it costs others a fifth of the loop at most."""
LONGEST_PAUSE_S: Final = 0.1
"""A look may seem to take long because the process stood still meanwhile."""


class MemoryGrants:
    """Guarantees that whoever fits is let in, without a look through all that wait for each batch that is gone."""

    def __init__(self, pool: BufferPool, stats: MetricRegistry, clock: Callable[[], float] = monotonic) -> None:
        self._pool = pool
        self._loop = asyncio.get_running_loop()
        self._clock = clock
        self._scheduled = False
        self._next = 0.0
        pool.observe(self._freed)
        stats.gauge("forebay_buffer_memory_total_bytes", lambda: pool.memory)
        stats.gauge("forebay_buffer_memory_available_bytes", lambda: pool.available)
        stats.gauge("forebay_buffer_memory_waiters", lambda: pool.waiting)
        stats.counter_from("forebay_pool_waits_total", lambda: pool.waits)

    def _freed(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            pause = self._next - self._clock()
            if pause > 0:
                self._loop.call_later(pause, self._grant)
            else:
                self._loop.call_soon(self._grant)

    def _grant(self) -> None:
        self._scheduled = False
        took = self._pool.grant(self._clock)
        self._next = self._clock() + min(PAUSE * took, LONGEST_PAUSE_S)
