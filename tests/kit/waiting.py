"""Waiting for what another process does: look, and look again, until a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable

_POLL_SECONDS = 0.05


def wait_until(condition: Callable[[], object], seconds: float, what: str) -> None:
    """AssertionError with `what` if `condition` is not true within that time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(_POLL_SECONDS)
