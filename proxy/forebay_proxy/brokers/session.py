"""For how long a broker takes a connection for ours, and how it is proved again (KIP-368).

In: how to log in, and the lifetime that the broker told. Out: when to log in again: after 85 to 95 % of it, at random,
so that connections which were opened together do not all do so at once. A broker with a lifetime closes a connection at
the first request after it, and takes a login at any time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random
from time import monotonic
from typing import Final

from forebay_proxy.security.authenticator import Call

LEAST_S: Final = 1.0
"""Brokers take no second login sooner."""
NEVER: Final = float("inf")


class Session:
    """`due`: when to log in again, in seconds of `time.monotonic`. `log_in` is given a way to call the broker.

    It returns the lifetime in seconds (0: for ever), or raises OSError.
    """

    def __init__(self, log_in: Callable[[Call], Awaitable[float]], rng: Random) -> None:
        self.due = NEVER
        self._log_in = log_in
        self._rng = rng

    async def renew(self, call: Call) -> None:
        """Log in, for the first time or again. Raises OSError where the broker refuses or is gone."""
        # From before, for the broker counts from when it answered.
        began = monotonic()
        lifetime = await self._log_in(call)
        self.due = began + max(LEAST_S, lifetime * self._rng.uniform(0.85, 0.95)) if lifetime else NEVER
