"""In which order clients are to leave a process while others accept on the same ports. No I/O.

In: on whose ports clients are, by node id (None: bootstrap). Out: whether those of one are to leave by now. So a client
has lost one broker at a time, as where brokers are restarted one by one, and has come back before it loses the next.
librdkafka that loses all at once tells its application so, and (2.11 and newer) forgets the brokers and starts anew:
what a connection made just before has away by then, it takes for never sent, and sends again whatever its `retries`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

APART_S: Final = 0.5
"""Between two brokers: to connect again takes less, a client's first pause (`reconnect.backoff.ms`) included."""
MOST_S: Final = 3.0
"""For all of them: where they are many, a client has many that are still there."""


class LeaveTurns:
    """Bootstrap's come first, then each broker's. `begun` is seconds of the caller's clock, `most_s` how many there
    are for all; 0: all leave at once."""

    def __init__(self, nodes: Iterable[int | None], begun: float, most_s: float) -> None:
        order = sorted(set(nodes), key=lambda node_id: (node_id is not None, node_id or 0))
        apart = min(APART_S, most_s / max(len(order) - 1, 1))
        self._turns = {node_id: begun + place * apart for place, node_id in enumerate(order)}
        self.last = max(self._turns.values(), default=begun)
        """When the last of them are to leave."""

    def has_come(self, node_id: int | None, now: float) -> bool:
        """Whether clients of that port are to leave; who was not there at first may at once."""
        turn = self._turns.get(node_id)
        return turn is None or now >= turn
