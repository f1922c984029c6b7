"""Error codes translated for clients that predate them.

Old Java clients fail badly on a code that they do not know: 0.8 and 0.9 with a NullPointerException in the sender
thread. So clients that speak Produce v0 to v2 get a code of their time to which they react in the same way, by retrying
or by giving up.

Sources: `org.apache.kafka.common.protocol.Errors` in kafka-clients 0.8.2.2 (which speaks v0), 0.9.0.1 (v1) and 0.10.2.2
(v2), and which of its codes are a RetriableException there; clients older than KAFKA_STORAGE_ERROR were sent
NOT_LEADER_FOR_PARTITION instead (KIP-112).
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
"""The codes that clients of each Produce version know."""

ALIKE: Final[Mapping[int, int]] = MappingProxyType(
    {
        # Retried after a metadata refresh.
        codes.REPLICA_NOT_AVAILABLE: codes.LEADER_NOT_AVAILABLE,
        codes.LISTENER_NOT_FOUND: codes.LEADER_NOT_AVAILABLE,
        codes.KAFKA_STORAGE_ERROR: codes.NOT_LEADER_OR_FOLLOWER,
        codes.FENCED_LEADER_EPOCH: codes.NOT_LEADER_OR_FOLLOWER,
        codes.UNKNOWN_LEADER_EPOCH: codes.NOT_LEADER_OR_FOLLOWER,
        codes.UNKNOWN_TOPIC_ID: codes.UNKNOWN_TOPIC_OR_PARTITION,
        # Retried.
        codes.THROTTLING_QUOTA_EXCEEDED: codes.REQUEST_TIMED_OUT,
    }
)
"""New code → old code with the same reaction. Others become UNKNOWN_SERVER_ERROR, upon which clients give up."""


def known_to(version: int, error_code: int) -> int:
    """`error_code`, or what to send in its place to a client that speaks Produce `version`."""
    if version >= len(KNOWN) or error_code in KNOWN[version]:
        return error_code
    return ALIKE.get(error_code, codes.UNKNOWN_SERVER_ERROR)
