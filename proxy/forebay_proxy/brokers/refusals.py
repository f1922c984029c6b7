"""Brokers that do not take us for whom we say we are: which, why, and when to try again. No I/O.

In: each refusal and each success, by address. Out: how long to leave a broker alone; it grows with each refusal in a
row, for whoever keeps trying a wrong password is locked out, or fills the broker's log.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from forebay_policies import retry
from forebay_proxy.config.settings import HostPort


class Refusal(NamedTuple):
    """The last one: `until` no other attempt is made; `tries` failed in a row."""

    until: float
    tries: int
    why: str


class Refusals:
    """Nobody is refused on another broker's account. Times are in seconds of `time.monotonic`."""

    def __init__(self, first_s: float, most_s: float, rng: Random) -> None:
        self._first_s = first_s
        self._most_s = most_s
        self._rng = rng
        self._refused: dict[HostPort, Refusal] = {}

    def __bool__(self) -> bool:
        """Whether any broker refused when it was last asked."""
        return bool(self._refused)

    def now(self, broker: HostPort, now: float) -> str | None:
        """Why the broker is left alone at the moment; None: it is not."""
        refusal = self._refused.get(broker)
        return refusal.why if refusal is not None and now < refusal.until else None

    def refused(self, broker: HostPort, why: str, now: float) -> bool:
        """It refused once more. True where that is news: the first in a row, or another reason."""
        last = self._refused.get(broker)
        tries = last.tries + 1 if last is not None else 1
        pause = retry.backoff(tries - 1, self._first_s, self._most_s, self._rng)
        self._refused[broker] = Refusal(now + pause, tries, why)
        return last is None or _reason(last.why) != _reason(why)

    def accepted(self, broker: HostPort) -> bool:
        """It took us. True where it had refused before."""
        return self._refused.pop(broker, None) is not None

    def forget(self, now: float, after_s: float) -> None:
        """Drop brokers that nobody has tried for so long: addresses come and go."""
        for broker in [broker for broker, refusal in self._refused.items() if now - refusal.until > after_s]:
            del self._refused[broker]


def _reason(why: str) -> str:
    """Without what tells a session's renewal from its beginning in Kafka's words: sessions end and begin in turn."""
    return why.replace("re-authentication", "authentication")
