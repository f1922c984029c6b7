"""What the proxy may send again, and what must go back to the client.

The rule: what is known not to have been appended is the proxy's to retry. What may have been appended is sent again
only under the same sequence (idempotence.py), so that the broker knows it if it has it; without one it goes to the
client as a retriable error, since a proxy must not add duplicates that the client did not ask for. *Tainted* is a batch
of which an earlier attempt may have been appended: then a refusal of this attempt proves nothing of that one.

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
    ELSEWHERE = "elsewhere"
    """Not appended, and that may last: RETRY where it may go to another broker, to another one each time, in all
    ELSEWHERE_TRIES times; else ANSWER. Answers leave in order, so what else a client has sent would wait for it.
    Half of a client batch is tried until its client's time is up: the other half may be appended."""
    RETRY_SAME = "retry same"
    """Perhaps appended: the same records to the same partition under the same sequence."""
    RESEQUENCE = "resequence"
    """Not appended, because the broker expects other sequences: again, in a new epoch."""
    RENEW = "renew"
    """Not appended, because the broker knows a later epoch: again, under a new producer id."""
    PLAIN = "plain"
    """Not appended, because of its sequence: again without."""
    SPLIT = "split"
    """Refused as a whole, though only some of its records may be at fault: try smaller batches."""
    UNKNOWN = "unknown"
    """Perhaps appended, and not sent again: the client is told so, and decides whether to retry."""
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
_PERHAPS_APPENDED: Final = frozenset(
    {
        codes.REQUEST_TIMED_OUT,
        codes.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        codes.KAFKA_STORAGE_ERROR,
        codes.UNKNOWN_SERVER_ERROR,
    }
)
_NOT_APPENDED: Final = _MOVED | {codes.NOT_ENOUGH_REPLICAS}
"""Unless there is an offset. The latter lasts until a replica is back, the others until there is a leader."""
_NO_SEQUENCES: Final = frozenset({codes.CLUSTER_AUTHORIZATION_FAILED, codes.UNSUPPORTED_FOR_MESSAGE_FORMAT})
"""Brokers before 2.8 check the permission with every request; topics in an old message format have no sequences."""
ELSEWHERE_TRIES: Final = 4
"""Within a second. Meanwhile its partition has a load, so that others choose partitions with all replicas."""
SERVER_ERRORS: Final = 4
"""UNKNOWN_SERVER_ERROR is what brokers answer where they have a bug, too: a batch that always runs into it must not
hold up its partition for long. It is told at this attempt, in the broker's words, which clients take for final."""


def judge(
    error_code: int, base_offset: int, runs: int, *, sequenced: bool = False, tainted: bool = False, tries: int = 0
) -> Verdict:
    """The verdict on a batch of `runs` runs that a broker answered with `error_code` and `base_offset` (−1: none).

    `sequenced`: it was sent under a producer id and a sequence. Only then it can be `tainted`. `tries`: earlier ones.
    """
    if error_code == codes.NONE:
        return Verdict.ACKNOWLEDGED
    if sequenced:
        return _judge_sequenced(error_code, base_offset, runs, tries, tainted=tainted)
    if error_code in _MOVED:
        return Verdict.RETRY if base_offset < 0 else Verdict.UNKNOWN
    if base_offset < 0 and runs > 1 and error_code in _REFUSED_WHOLE:
        return Verdict.SPLIT
    return Verdict.ANSWER


def _judge_sequenced(error_code: int, base_offset: int, runs: int, tries: int, *, tainted: bool) -> Verdict:
    """The table of docs/design.md."""
    if error_code == codes.UNKNOWN_SERVER_ERROR and tries + 1 >= SERVER_ERRORS:
        return Verdict.UNKNOWN
    if error_code in _PERHAPS_APPENDED:
        return Verdict.RETRY_SAME
    if error_code in _NOT_APPENDED:
        if tainted or base_offset >= 0:
            return Verdict.RETRY_SAME
        return Verdict.ELSEWHERE if error_code == codes.NOT_ENOUGH_REPLICAS else Verdict.RETRY
    if error_code == codes.DUPLICATE_SEQUENCE_NUMBER:
        # Of a first attempt it is not true: nothing was sent under that sequence. To send it again is safe, then.
        return Verdict.ACKNOWLEDGED if tainted else Verdict.RESEQUENCE
    if error_code == codes.OUT_OF_ORDER_SEQUENCE_NUMBER:
        # Nor has an earlier attempt been appended: it would be the last batch that the broker has of this producer.
        return Verdict.RESEQUENCE
    if tainted:
        return Verdict.UNKNOWN
    if error_code == codes.UNKNOWN_PRODUCER_ID:
        return Verdict.RESEQUENCE
    if error_code == codes.INVALID_PRODUCER_EPOCH:
        return Verdict.RENEW
    if error_code in _NO_SEQUENCES:
        return Verdict.PLAIN
    if base_offset < 0 and runs > 1 and error_code in _REFUSED_WHOLE:
        return Verdict.SPLIT
    return Verdict.ANSWER


def refusal(error_code: int) -> bool:
    """Whether a client that gets `error_code` believes that nothing was appended, and sends everything again."""
    return error_code in _NOT_APPENDED


def leads_no_more(error_code: int) -> bool:
    """Whether `error_code` says that another broker leads, or none, or that there is no such partition."""
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
