"""Brokers that do not take us for whom we say we are: which, why, and when to try again. No I/O.

In: each refusal and each success, by the broker's address, or by the login where any broker may be asked about it. Out:
how long to leave that one alone; it grows with each refusal in a row, for whoever keeps trying a wrong password is
locked out, or fills the broker's log.
"""

from __future__ import annotations

from random import Random
from typing import Final, NamedTuple

from forebay_policies import retry
from forebay_proxy.config.settings import HostPort

MOST: Final = 10_000
"""Of which refusals are known; the one that was refused longest ago makes room."""

Whose = HostPort | str
"""A broker's, or a login's by its name (principals)."""


class Refusal(NamedTuple):
    """The last one: `until` no other attempt is made; `tries` failed in a row."""

    until: float
    tries: int
    why: str


class Refusals:
    """Nobody is refused on another's account. Times are in seconds of `time.monotonic`."""

    def __init__(self, first_s: float, most_s: float, rng: Random) -> None:
        self._first_s = first_s
        self._most_s = most_s
        self._rng = rng
        self._refused: dict[Whose, Refusal] = {}

    def __bool__(self) -> bool:
        """Whether anybody was refused when last tried."""
        return bool(self._refused)

    def now(self, whose: Whose, now: float) -> str | None:
        """Why it is left alone at the moment; None: it is not."""
        refusal = self._refused.get(whose)
        return refusal.why if refusal is not None and now < refusal.until else None

    def refused(self, whose: Whose, why: str, now: float) -> bool:
        """Once more. True where that is news: the first in a row, or another reason."""
        last = self._refused.pop(whose, None)
        tries = last.tries + 1 if last is not None else 1
        pause = retry.backoff(tries - 1, self._first_s, self._most_s, self._rng)
        if len(self._refused) >= MOST:
            del self._refused[next(iter(self._refused))]
        self._refused[whose] = Refusal(now + pause, tries, why)
        return last is None or _reason(last.why) != _reason(why)

    def accepted(self, whose: Whose) -> bool:
        """True where it had been refused before."""
        return self._refused.pop(whose, None) is not None

    def forget(self, now: float, after_s: float) -> None:
        """Drop those that nobody has tried for so long: addresses come and go."""
        for whose in [whose for whose, refusal in self._refused.items() if now - refusal.until > after_s]:
            del self._refused[whose]


def _reason(why: str) -> str:
    """Without what tells a session's renewal from its beginning in Kafka's words: sessions end and begin in turn."""
    return why.replace("re-authentication", "authentication")
