"""What the proxy may send again, and what must go back to the client.

The rule: what is known not to have been appended is the proxy's to retry; what may have been appended goes to the
client as a retriable error, since a proxy must not add duplicates that the client did not ask for.

NOT_LEADER_OR_FOLLOWER is no proof by itself: with acks=all, a leader demoted while waiting for followers answers with
it, too, after it has appended. Such an answer carries the base offset that the records got; a refusal carries −1. So an
error with an offset counts as "may have been appended". Since clients take NOT_LEADER_OR_FOLLOWER for a refusal
(librdkafka then sends again even with retries=0, on another connection, so that records end up duplicated or out of
order), they are told that the outcome is unknown instead.
"""

from __future__ import annotations

import enum
from typing import Final, Protocol

from forebay_codecs import error_codes as codes


class Verdict(enum.Enum):
    """What to do about a batch that a broker has answered."""

    ACKNOWLEDGED = "acknowledged"
    RETRY = "retry"
    """Not appended; another leader, or the same one later, will take it."""
    SPLIT = "split"
    """Refused as a whole, though only some of its records may be at fault: try smaller batches."""
    UNKNOWN = "unknown"
    """Reported as refused, yet perhaps appended: the client decides whether to retry."""
    ANSWER = "answer"
    """Passed on to the client with the broker's own error."""


_MOVED: Final = frozenset(
    {
        codes.UNKNOWN_TOPIC_OR_PARTITION,
        codes.LEADER_NOT_AVAILABLE,
        codes.NOT_LEADER_OR_FOLLOWER,
        codes.BROKER_NOT_AVAILABLE,
        codes.FENCED_LEADER_EPOCH,
        codes.UNKNOWN_LEADER_EPOCH,
    }
)
_REFUSED_WHOLE: Final = frozenset(
    {
        codes.CORRUPT_MESSAGE,
        codes.MESSAGE_TOO_LARGE,
        codes.RECORD_LIST_TOO_LARGE,
        codes.INVALID_TIMESTAMP,
        codes.INVALID_RECORD,
    }
)


def judge(error_code: int, base_offset: int, runs: int) -> Verdict:
    """The verdict on a batch of `runs` runs that a broker answered with `error_code` and `base_offset` (−1: none)."""
    if error_code == codes.NONE:
        return Verdict.ACKNOWLEDGED
    if error_code in _MOVED:
        return Verdict.RETRY if base_offset < 0 else Verdict.UNKNOWN
    if base_offset < 0 and runs > 1 and error_code in _REFUSED_WHOLE:
        return Verdict.SPLIT
    return Verdict.ANSWER


def refusal(error_code: int) -> bool:
    """Whether a client that gets `error_code` believes that nothing was appended, and sends everything again."""
    return error_code in _MOVED


JITTER: Final = 0.2
"""As in Kafka: what failed together must not be retried together."""


class Rng(Protocol):
    """What backoff needs of a `random.Random`."""

    def uniform(self, a: float, b: float, /) -> float:
        """A random number from a to b."""


def backoff(tries: int, first: float, max_backoff: float, rng: Rng) -> float:
    """Seconds to wait before try number `tries` + 1: 0.1 → 0.1 0.2 0.4 0.8, each ± a fifth, at most `max_backoff`."""
    return min(max_backoff, first * (1 << min(tries, 16)) * rng.uniform(1 - JITTER, 1 + JITTER))
