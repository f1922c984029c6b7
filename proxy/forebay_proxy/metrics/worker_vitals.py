"""What a worker process takes, and how late its event loop is.

In: the process's own accounts; a timer. Out: metrics with the worker's number as their label.
"""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import Final

from forebay_proxy.metrics.registry import MetricRegistry

EVERY_S: Final = 0.1
"""Between two looks at the loop. Whatever holds it up for longer is seen in full, shorter things in part."""
_STATM: Final = Path("/proc/self/statm")


class WorkerVitals:
    """Costs ten short turns of the loop a second. `worker` is its number, from 0; `clock` counts seconds."""

    def __init__(self, stats: MetricRegistry, worker: int, clock: Callable[[], float]) -> None:
        self._clock = clock
        label = str(worker)
        self._lag = stats.histogram("forebay_event_loop_lag_seconds", worker=label)
        stats.counter_from("forebay_worker_cpu_seconds_total", process_time, worker=label)
        if _STATM.exists():  # not outside Linux
            stats.gauge("forebay_worker_resident_memory_bytes", _resident, worker=label)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            due = self._clock() + EVERY_S
            await asyncio.sleep(EVERY_S)
            self.looked(due)

    def looked(self, due: float) -> None:
        """The loop came to what was `due`, now."""
        self._lag.observe(max(0.0, self._clock() - due))


def _resident() -> int:
    return int(_STATM.read_text().split()[1]) * resource.getpagesize()
