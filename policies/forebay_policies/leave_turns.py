"""In which order clients are to leave a process while others accept on the same ports. No I/O.

In: brokers that are known, which all workers mostly know alike: a client may have connections to several. Out: whether
clients of one (None: bootstrap) are to leave by now. So a client that is answered has lost one broker at a time, as
where brokers are restarted one by one, and has come back before it loses the next.
librdkafka that loses all at once tells its application so, and (2.16) forgets the brokers and starts anew:
what a connection made just before has away by then, it takes for never sent, and sends again whatever its `retries`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

APART_S: Final = 0.75
"""Between two brokers: an empty Fetch (`fetch.max.wait.ms`, 0.5 s) is answered, and the client has connected again, its
first pause (`reconnect.backoff.ms`, 0.1 s) included."""
GAP_S: Final = 0.25
"""For a moment in which nothing of a client is under way, so that its connection can end without a request lost; then
it is read no more."""
MOST_S: Final = 3.0
"""For all of them: where they are many, a client mostly has many that are still there."""


class LeaveTurns:
    """Bootstrap's come first, then each of `nodes`. `begun` is seconds of the caller's clock, `most_s` how many there
    are for all; 0: all leave at once."""

    def __init__(self, nodes: Iterable[int], begun: float, most_s: float) -> None:
        order = sorted(set(nodes))
        apart = min(APART_S, most_s / max(len(order), 1))
        self._begun = begun
        self._gap = min(GAP_S, most_s)
        self._turns = {node_id: begun + place * apart for place, node_id in enumerate(order, 1)}
        self.last = max(self._turns.values(), default=begun)
        """When the last of them are to leave."""

    def has_come(self, node_id: int | None, now: float) -> bool:
        """Whether clients of that port are to leave; those of bootstrap and of other brokers may at once."""
        return now >= self._at(node_id)

    def is_over(self, node_id: int | None, now: float) -> bool:
        """Whether they have had the time to find a moment for it."""
        return now >= self._at(node_id) + self._gap

    def _at(self, node_id: int | None) -> float:
        return self._begun if node_id is None else self._turns.get(node_id, self._begun)
