"""Topics that brokers did not know when records waited for them: until when to wait, and when to ask again.

In: what brokers did not know or do know, the time. Out: how much patience is left. No I/O.

A topic that one broker has just created is not known to all at once, so the first TRIES come `backoff` apart. From
then on records are refused, and each next question comes after twice as long (KIP-580), up to LONGEST_S:
    0.1 → 0.1 0.1 0.1 0.1 0.1 0.1 0.1 (refused) 0.2 0.4 0.5 0.5 …
for as long as somebody sends records there. What nobody has missed for FORGOTTEN_S begins anew.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

TRIES: Final = 8
"""Before records are refused."""
LONGEST_S: Final = 0.5
"""Records wait for the next question rather than be refused by what the last one told. Those that wait for the least
time, a second, are to hear the answer, and not that their time is up."""
FORGOTTEN_S: Final = 10.0
MAX_MISSING: Final = 10_000
"""Names remembered; those missed longest ago are forgotten first. Beyond, records are refused at once."""


class MissingTopics:
    """No topic is asked for more often than `backoff` allows, however many records come for it.

    `backoff` and `max_backoff` are in seconds, and so are all times, of the caller's clock.
    """

    def __init__(self, backoff: float, max_backoff: float) -> None:
        self._backoff = backoff
        self._longest = min(max_backoff, max(backoff, LONGEST_S))
        self._missed: OrderedDict[str, tuple[int, float]] = OrderedDict()
        """How often in a row, and when last."""

    def missed(self, name: str, now: float) -> bool:
        """A broker did not know the topic. Returns whether it is not to be waited for any more."""
        tries = self._tries(name, now) + 1
        self._missed[name] = tries, now
        self._missed.move_to_end(name)
        while now - next(iter(self._missed.values()))[1] >= FORGOTTEN_S:
            self._missed.popitem(last=False)
        if len(self._missed) > MAX_MISSING:
            self._missed.popitem(last=False)
            return True  # if all that there are were waited for, none would come to its last try
        return tries >= TRIES

    def found(self, name: str) -> None:
        """A broker knows the topic."""
        self._missed.pop(name, None)

    def ask_at(self, name: str, now: float) -> float:
        """When it may be asked for again; not after `now`: at once."""
        tries = self._tries(name, now)
        if not tries:
            return now
        if tries < TRIES:
            return self._missed[name][1] + self._backoff
        return self._missed[name][1] + min(self._longest, self._backoff * (2 << min(tries - TRIES, 16)))

    def _tries(self, name: str, now: float) -> int:
        tries, last = self._missed.get(name, (0, now))
        return tries if now - last < FORGOTTEN_S else 0
