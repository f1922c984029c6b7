"""Which addresses of a name have failed since they last answered.

In: what became of each attempt. Out: a name's addresses in the order in which to try them: those that have not failed
as the resolver has them, then the others, the one that failed last at the end. After a minute one attempt finds out
whether that still holds. Bounded; no I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Final

GIVEN_UP_S: Final = 0.5
"""An attempt that is given up sooner shows nothing: its client may have left."""

AGAIN_S: Final = 60.0
"""For so long an address that failed comes last. Else, once all have, the first one that answers would have all
connections for good."""

MOST: Final = 1000
"""Beyond these the one that failed first is forgotten."""


class TriedAddresses:
    """Of all brokers. `clock` in seconds, always above 0."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._failed: dict[tuple[str, int, str], float] = {}
        """When, in that order."""

    def in_order(self, host: str, port: int, addresses: Iterable[str]) -> list[str]:
        """`addresses`, each once."""
        old = self._clock() - AGAIN_S

        def failed_at(address: str) -> float:
            at = self._failed.get((host, port, address), 0.0)
            return at if at > old else 0.0

        return sorted(dict.fromkeys(addresses), key=failed_at)

    @contextmanager
    def trying(self, host: str, port: int, address: str) -> Iterator[None]:
        """One attempt."""
        key, began = (host, port, address), self._clock()
        if key in self._failed:
            self._mark(key)  # until it answers, others need not find out, too
        try:
            yield
        except BaseException as error:
            if isinstance(error, Exception) or self._clock() - began >= GIVEN_UP_S:
                self._mark(key)
            raise
        self._failed.pop(key, None)

    def _mark(self, key: tuple[str, int, str]) -> None:
        self._failed.pop(key, None)
        self._failed[key] = self._clock()
        if len(self._failed) > MOST:
            del self._failed[next(iter(self._failed))]
