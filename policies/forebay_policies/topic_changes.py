"""Who has just created, deleted or moved topics, and through which broker.

Brokers learn of a change one after another. A client that goes on with the broker it told finds that one's view of it;
asking any other could answer that the topic is not there, which some clients take for final (KafkaJS).

In: changes, questions, the clock. Out: whether a client's Metadata is for that broker to answer. No I/O.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

SETTLE_S: Final = 1.0
"""How long a change may take to get to all brokers."""
MOST: Final = 1_000
"""The most that are remembered; the oldest are forgotten first."""


class TopicChanges:
    """`clock` counts seconds. Clients are told apart by their hosts: a client's connections are one client."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._until: OrderedDict[tuple[int | None, str], float] = OrderedDict()  # the oldest first

    def changed(self, node_id: int | None, host: str) -> None:
        """A client on `host` has changed topics through that broker (None: through any)."""
        who = (node_id, host)
        self._until[who] = self._clock() + SETTLE_S
        self._until.move_to_end(who)
        if len(self._until) > MOST:
            self._until.popitem(last=False)

    def settle(self, node_id: int | None, host: str) -> bool:
        """Whether what a client on `host` changed through that broker may not have got to the others yet."""
        if not self._until:
            return False
        until = self._until.get((node_id, host))
        if until is None:
            return False
        if self._clock() < until:
            return True
        del self._until[(node_id, host)]
        return False
