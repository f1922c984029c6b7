"""The versions of each API that Kafka 4 dropped (KIP-896).

A client that sends one is disconnected without an answer. Brokers advertise Produce from v0 all the same (KAFKA-18659).
Source: the ApiVersions response of Kafka 4.3.1; ProduceRequest.json.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

LOWEST: Final[Mapping[int, int]] = MappingProxyType(
    {
        0: 3,  # Produce
        1: 4,  # Fetch
        2: 1,  # ListOffsets
        8: 2,  # OffsetCommit
        9: 1,  # OffsetFetch
        19: 2,  # CreateTopics
        20: 1,  # DeleteTopics
        23: 2,  # OffsetForLeaderEpoch
        27: 1,  # WriteTxnMarkers
        29: 1,  # DescribeAcls
        30: 1,  # CreateAcls
        31: 1,  # DeleteAcls
        32: 1,  # DescribeConfigs
        34: 1,  # AlterReplicaLogDirs
        35: 1,  # DescribeLogDirs
        38: 1,  # CreateDelegationToken
        39: 1,  # RenewDelegationToken
        40: 1,  # ExpireDelegationToken
        41: 1,  # DescribeDelegationToken
        76: 1,  # ShareGroupHeartbeat
        77: 1,  # ShareGroupDescribe
        78: 1,  # ShareFetch
        79: 1,  # ShareAcknowledge
    }
)
"""API key → the lowest version that Kafka 4 accepts, where that is not 0."""


def takes(api_key: int, version: int) -> bool:
    """Whether Kafka 4 still accepts requests of `version`. Says nothing about versions newer than it knows."""
    return version >= LOWEST.get(api_key, 0)
