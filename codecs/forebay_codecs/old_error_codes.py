"""Error codes in terms of clients that are older than they are.

Java's clients of old find no entry for a code that they do not know and fail in ways of their own: 0.8 and 0.9 by a
NullPointerException in the thread that sends. So whoever speaks Produce v0 to v2 is told a code of its time that it
treats alike: one that it tries again upon, or one that it gives up upon.

Sources: the codes of `org.apache.kafka.common.protocol.Errors` in kafka-clients 0.8.2.2 (which speaks v0), 0.9.0.1 (v1)
and 0.10.2.2 (v2), and which of them are a RetriableException there; KAFKA_STORAGE_ERROR was NOT_LEADER_FOR_PARTITION to
clients before it (KIP-112).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from forebay_codecs import error_codes as codes

KNOWN: Final[tuple[frozenset[int], ...]] = (
    frozenset({-1, 0, 1, 2, 3, 5, 6, 7, 10, 12, 13, 17, 18, 19, 20}),
    frozenset({-1, 0, 1, 2, 3, *range(5, 32)}),
    frozenset(range(-1, 45)),
)
"""By version of Produce."""

ALIKE: Final[Mapping[int, int]] = MappingProxyType(
    {
        # Tried again, after asking who leads.
        codes.REPLICA_NOT_AVAILABLE: codes.LEADER_NOT_AVAILABLE,
        codes.LISTENER_NOT_FOUND: codes.LEADER_NOT_AVAILABLE,
        codes.KAFKA_STORAGE_ERROR: codes.NOT_LEADER_OR_FOLLOWER,
        codes.FENCED_LEADER_EPOCH: codes.NOT_LEADER_OR_FOLLOWER,
        codes.UNKNOWN_LEADER_EPOCH: codes.NOT_LEADER_OR_FOLLOWER,
        codes.UNKNOWN_TOPIC_ID: codes.UNKNOWN_TOPIC_OR_PARTITION,
        # Tried again.
        codes.THROTTLING_QUOTA_EXCEEDED: codes.REQUEST_TIMED_OUT,
    }
)
"""All others that a client does not know are UNKNOWN_SERVER_ERROR to it: it gives up."""


def known_to(version: int, error_code: int) -> int:
    """`error_code` as a client that speaks Produce `version` is told."""
    if version >= len(KNOWN) or error_code in KNOWN[version]:
        return error_code
    return ALIKE.get(error_code, codes.UNKNOWN_SERVER_ERROR)
