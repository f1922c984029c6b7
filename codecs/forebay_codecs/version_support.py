"""The versions of each API that Kafka 4 dropped (KIP-896).

A client that sends one is disconnected without an answer. Brokers advertise Produce from v0 all the same (KAFKA-18659).
Source: the ApiVersions response of Kafka 4.3.1; ProduceRequest.json.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from forebay_codecs import api_keys as keys

LOWEST: Final[Mapping[int, int]] = MappingProxyType(
    {
        keys.PRODUCE: 3,
        keys.FETCH: 4,
        keys.LIST_OFFSETS: 1,
        keys.OFFSET_COMMIT: 2,
        keys.OFFSET_FETCH: 1,
        keys.CREATE_TOPICS: 2,
        keys.DELETE_TOPICS: 1,
        keys.OFFSET_FOR_LEADER_EPOCH: 2,
        keys.WRITE_TXN_MARKERS: 1,
        keys.DESCRIBE_ACLS: 1,
        keys.CREATE_ACLS: 1,
        keys.DELETE_ACLS: 1,
        keys.DESCRIBE_CONFIGS: 1,
        keys.ALTER_REPLICA_LOG_DIRS: 1,
        keys.DESCRIBE_LOG_DIRS: 1,
        keys.CREATE_DELEGATION_TOKEN: 1,
        keys.RENEW_DELEGATION_TOKEN: 1,
        keys.EXPIRE_DELEGATION_TOKEN: 1,
        keys.DESCRIBE_DELEGATION_TOKEN: 1,
        keys.SHARE_GROUP_HEARTBEAT: 1,
        keys.SHARE_GROUP_DESCRIBE: 1,
        keys.SHARE_FETCH: 1,
        keys.SHARE_ACKNOWLEDGE: 1,
    }
)
"""API key → the lowest version that Kafka 4 accepts, where that is not 0."""


def takes(api_key: int, version: int) -> bool:
    """Whether Kafka 4 still accepts requests of `version`. Says nothing about versions newer than it knows."""
    return version >= LOWEST.get(api_key, 0)
