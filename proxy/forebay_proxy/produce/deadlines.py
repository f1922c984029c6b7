"""Ends the wait of produce requests whose time is up.

In: completions with a deadline. Out: `expire()` on each that is still open then, within INTERVAL seconds. Time for
which the client is throttled does not count.
The live ones are looked through a few times a second, which costs less than a timer for each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic

from forebay_policies.throttling import Throttling
from forebay_proxy.logs import RateLimited, get_logger
from forebay_proxy.metrics.registry import MetricRegistry
from forebay_proxy.produce.completion import JOURNAL, ProduceCompletion

log = RateLimited(get_logger())

INTERVAL = 0.25


class Deadlines:
    """Guarantees that no request waits longer than its deadline.

    `expired` is told the time after some have ended: what they held is to be freed right away.
    """

    def __init__(self, stats: MetricRegistry, throttling: Throttling, expired: Callable[[float], None]) -> None:
        self._live: dict[ProduceCompletion, None] = {}
        self._loop = asyncio.get_running_loop()
        self._throttling = throttling
        self._on_expired = expired
        self._expired = stats.counter("forebay_errors_total", side="internal", kind="expired")
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._live)

    @property
    def has_clients(self) -> bool:
        """Whether any of them is not the journal's."""
        return any(completion.client != JOURNAL for completion in self._live)

    def add(self, completion: ProduceCompletion) -> None:
        """Watch `completion` until it is removed."""
        self._live[completion] = None
        self._look_again()

    def _look_again(self) -> None:
        if self._live and self._timer is None:
            self._timer = self._loop.call_later(INTERVAL, self._sweep)

    def remove(self, completion: ProduceCompletion) -> None:
        """Stop watching `completion`, if it is watched."""
        self._live.pop(completion, None)

    def _sweep(self) -> None:
        self._timer = None
        now = monotonic()
        due = [completion for completion in self._live if completion.deadline <= now]
        if due and self._throttling.active:
            due = [completion for completion in due if not self._postponed(completion, now)]
        for completion in due:
            completion.expire()
        if told := sum(completion.client != JOURNAL for completion in due):
            self._expired.value += told
            log.warning("produce requests not acknowledged in time", requests=told)
        if due:
            self._on_expired(now)
        self._look_again()  # unless a client that was just answered has sent more, which did so already

    def _postponed(self, completion: ProduceCompletion, now: float) -> bool:
        """Put its deadline off by the time for which its client was throttled since it came. False: it is due all the
        same."""
        paused = self._throttling.pause(completion.client_id, now)
        completion.deadline += max(0.0, paused - completion.paused)
        completion.paused = paused
        return completion.deadline > now

    def close(self) -> None:
        """Stop the timer: what is still live does not expire."""
        if self._timer is not None:
            self._timer.cancel()
