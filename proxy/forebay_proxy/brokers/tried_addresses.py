"""Which addresses of a name have failed since they last answered.

In: what became of each attempt. Out: a name's addresses in the order in which to try them: those that have not failed
as the resolver has them, then the others, the one that failed last at the end. Bounded; no I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Final

GIVEN_UP_S: Final = 0.5
"""An attempt that is given up sooner shows nothing: its client may have left."""

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
        return sorted(dict.fromkeys(addresses), key=lambda address: self._failed.get((host, port, address), 0.0))

    @contextmanager
    def trying(self, host: str, port: int, address: str) -> Iterator[None]:
        """One attempt."""
        key, began = (host, port, address), self._clock()
        try:
            yield
        except BaseException as error:
            if isinstance(error, Exception) or self._clock() - began >= GIVEN_UP_S:
                self._failed.pop(key, None)
                self._failed[key] = self._clock()
                if len(self._failed) > MOST:
                    del self._failed[next(iter(self._failed))]
            raise
        self._failed.pop(key, None)
