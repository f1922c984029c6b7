"""The APIs that Forebay offers to clients: in which versions, and what happens to their responses.

An API that is not in APIS is hidden: those used only between brokers and controllers (replication, KRaft, registration,
transaction markers, share-group state), and those newer than this table.

Only responses that name brokers need care, and only APIs that are decoded or name brokers have a highest version: a
newer layout would not be understood, and a newer response may name a broker where the older one did not. All others are
opaque in any version the broker offers. Every response of Kafka 3.9, 4.3 and 4.4 was searched for host, port, endpoint
and listener fields. Not broker addresses, so left alone: client_host of group members, the host of an ACL, the user
endpoints of Streams groups.

Sources: Kafka's message schemas (validVersions, flexibleVersions).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Final, TypeAlias

from forebay_codecs import addresses
from forebay_codecs import api_keys as keys
from forebay_codecs.addresses import Translate
from forebay_codecs.fetch_response import NAMES_BROKERS_FROM, FetchResponseFilter
from forebay_codecs.metadata import rewrite_metadata
from forebay_codecs.response_filter import ResponseFilter
from forebay_codecs.share_responses import ShareAcknowledgeResponseFilter, ShareFetchResponseFilter

NEVER_FLEXIBLE: Final = 1 << 15
"""Above every API version."""

Rewrite: TypeAlias = Callable[[bytes, int, Translate], bytes]
"""(response from correlation_id on, API version, translate) → the response for the client. Raises Malformed."""


class Treatment(Enum):
    """What happens to a broker's response on its way to the client."""

    OPAQUE = "opaque"
    """Forwarded without being decoded."""
    REWRITE = "rewrite"
    """Collected whole and passed to the API's `rewrite`."""
    STREAM = "stream"
    """Passed on chunk by chunk through the API's `filter`."""
    LOCAL = "local"
    """The proxy writes the response itself. If it relays a broker's instead, that one goes through `rewrite`."""


@dataclass(frozen=True)
class Api:
    """One API: the versions offered to clients, and how its requests and responses are handled."""

    key: int
    name: str
    first_flexible: int
    treatment: Treatment = Treatment.OPAQUE
    lowest: int = 0
    highest: int | None = None
    """The highest version that is understood; None where no bytes of any version are read."""
    rewrite: Rewrite | None = None
    filter: type[ResponseFilter] | None = None
    answered_here: bool = False
    """Versions from `lowest` on are offered even if the broker does not support them."""
    treated_from: int = 0
    """The first version that `treatment` applies to; responses below it name no broker and are opaque."""
    changes_topics: bool = False
    """Its requests may create, delete, grow or move topics: once one is answered, cached metadata is stale."""

    def flexible(self, version: int) -> bool:
        """Whether `version` has compact types and tagged fields (KIP-482)."""
        return version >= self.first_flexible

    def response_treatment(self, version: int) -> Treatment:
        """How a response of `version` is handled."""
        return self.treatment if version >= self.treated_from else Treatment.OPAQUE

    def supports(self, version: int) -> bool:
        """Whether the proxy handles requests of `version`, whatever the broker supports."""
        return self.lowest <= version and (self.highest is None or version <= self.highest)

    def offered(self, lowest: int, highest: int) -> tuple[int, int] | None:
        """The (lowest, highest) version that clients are offered of a broker's range; None if nothing is left.

        Produce 3–13 → 0–12.
        """
        lowest = max(lowest, self.lowest)
        if self.highest is not None:
            highest = min(highest, self.highest)
        if lowest > highest:
            return None
        return (self.lowest if self.answered_here else lowest), highest


_APIS: Final = (
    # v13 names topics by id. librdkafka compresses only if v0 is offered (KAFKA-18659).
    Api(
        keys.PRODUCE,
        "Produce",
        9,
        Treatment.LOCAL,
        highest=12,
        rewrite=addresses.rewrite_produce,
        answered_here=True,
    ),
    Api(
        keys.FETCH,
        "Fetch",
        12,
        Treatment.STREAM,
        highest=18,
        filter=FetchResponseFilter,
        treated_from=NAMES_BROKERS_FROM,
    ),
    Api(keys.LIST_OFFSETS, "ListOffsets", 6),
    Api(keys.METADATA, "Metadata", 9, Treatment.REWRITE, highest=13, rewrite=rewrite_metadata, answered_here=True),
    Api(keys.OFFSET_COMMIT, "OffsetCommit", 8),
    Api(keys.OFFSET_FETCH, "OffsetFetch", 6),
    Api(
        keys.FIND_COORDINATOR,
        "FindCoordinator",
        3,
        Treatment.REWRITE,
        highest=6,
        rewrite=addresses.rewrite_find_coordinator,
    ),
    Api(keys.JOIN_GROUP, "JoinGroup", 6),
    Api(keys.HEARTBEAT, "Heartbeat", 4),
    Api(keys.LEAVE_GROUP, "LeaveGroup", 4),
    Api(keys.SYNC_GROUP, "SyncGroup", 4),
    Api(keys.DESCRIBE_GROUPS, "DescribeGroups", 5),
    Api(keys.LIST_GROUPS, "ListGroups", 3),
    # After v0 tokens follow raw, without headers (header.may_be_request). librdkafka logs in only where v0 is offered,
    # even by v1. Java up to 2.4 would take v2 for granted (KAFKA-9577).
    Api(keys.SASL_HANDSHAKE, "SaslHandshake", NEVER_FLEXIBLE, highest=1),
    Api(keys.API_VERSIONS, "ApiVersions", 3, Treatment.LOCAL, highest=4),
    Api(keys.CREATE_TOPICS, "CreateTopics", 5, changes_topics=True),
    Api(keys.DELETE_TOPICS, "DeleteTopics", 4, changes_topics=True),
    Api(keys.DELETE_RECORDS, "DeleteRecords", 2),
    Api(keys.INIT_PRODUCER_ID, "InitProducerId", 2),
    Api(keys.OFFSET_FOR_LEADER_EPOCH, "OffsetForLeaderEpoch", 4),
    Api(keys.ADD_PARTITIONS_TO_TXN, "AddPartitionsToTxn", 3),
    Api(keys.ADD_OFFSETS_TO_TXN, "AddOffsetsToTxn", 3),
    Api(keys.END_TXN, "EndTxn", 3),
    Api(keys.WRITE_TXN_MARKERS, "WriteTxnMarkers", 1),  # an administrator ends a hanging transaction with it
    Api(keys.TXN_OFFSET_COMMIT, "TxnOffsetCommit", 3),
    Api(keys.DESCRIBE_ACLS, "DescribeAcls", 2),
    Api(keys.CREATE_ACLS, "CreateAcls", 2),
    Api(keys.DELETE_ACLS, "DeleteAcls", 2),
    Api(keys.DESCRIBE_CONFIGS, "DescribeConfigs", 4),
    Api(keys.ALTER_CONFIGS, "AlterConfigs", 2),
    Api(keys.ALTER_REPLICA_LOG_DIRS, "AlterReplicaLogDirs", 2),
    Api(keys.DESCRIBE_LOG_DIRS, "DescribeLogDirs", 2),
    Api(keys.SASL_AUTHENTICATE, "SaslAuthenticate", 2),
    Api(keys.CREATE_PARTITIONS, "CreatePartitions", 2, changes_topics=True),
    Api(keys.CREATE_DELEGATION_TOKEN, "CreateDelegationToken", 2),
    Api(keys.RENEW_DELEGATION_TOKEN, "RenewDelegationToken", 2),
    Api(keys.EXPIRE_DELEGATION_TOKEN, "ExpireDelegationToken", 2),
    Api(keys.DESCRIBE_DELEGATION_TOKEN, "DescribeDelegationToken", 2),
    Api(keys.DELETE_GROUPS, "DeleteGroups", 2),
    Api(keys.ELECT_LEADERS, "ElectLeaders", 2, changes_topics=True),
    Api(keys.INCREMENTAL_ALTER_CONFIGS, "IncrementalAlterConfigs", 1),
    Api(keys.ALTER_PARTITION_REASSIGNMENTS, "AlterPartitionReassignments", 0, changes_topics=True),
    Api(keys.LIST_PARTITION_REASSIGNMENTS, "ListPartitionReassignments", 0),
    Api(keys.OFFSET_DELETE, "OffsetDelete", NEVER_FLEXIBLE),
    Api(keys.DESCRIBE_CLIENT_QUOTAS, "DescribeClientQuotas", 1),
    Api(keys.ALTER_CLIENT_QUOTAS, "AlterClientQuotas", 1),
    Api(keys.DESCRIBE_USER_SCRAM_CREDENTIALS, "DescribeUserScramCredentials", 0),
    Api(keys.ALTER_USER_SCRAM_CREDENTIALS, "AlterUserScramCredentials", 0),
    # v2 names the controllers' own listeners, which are no addresses of brokers.
    Api(keys.DESCRIBE_QUORUM, "DescribeQuorum", 0),
    Api(keys.UPDATE_FEATURES, "UpdateFeatures", 0),
    Api(
        keys.DESCRIBE_CLUSTER,
        "DescribeCluster",
        0,
        Treatment.REWRITE,
        highest=2,
        rewrite=addresses.rewrite_describe_cluster,
    ),
    Api(keys.DESCRIBE_PRODUCERS, "DescribeProducers", 0),
    Api(keys.UNREGISTER_BROKER, "UnregisterBroker", 0),
    Api(keys.DESCRIBE_TRANSACTIONS, "DescribeTransactions", 0),
    Api(keys.LIST_TRANSACTIONS, "ListTransactions", 0),
    Api(keys.CONSUMER_GROUP_HEARTBEAT, "ConsumerGroupHeartbeat", 0),
    Api(keys.CONSUMER_GROUP_DESCRIBE, "ConsumerGroupDescribe", 0),
    Api(keys.GET_TELEMETRY_SUBSCRIPTIONS, "GetTelemetrySubscriptions", 0),
    Api(keys.PUSH_TELEMETRY, "PushTelemetry", 0),
    Api(keys.LIST_CONFIG_RESOURCES, "ListConfigResources", 0),
    Api(keys.DESCRIBE_TOPIC_PARTITIONS, "DescribeTopicPartitions", 0),
    Api(keys.SHARE_GROUP_HEARTBEAT, "ShareGroupHeartbeat", 0),
    Api(keys.SHARE_GROUP_DESCRIBE, "ShareGroupDescribe", 0),
    # v0 of the next two was Kafka 4.0's early access and is laid out differently.
    Api(
        keys.SHARE_FETCH,
        "ShareFetch",
        0,
        Treatment.STREAM,
        lowest=1,
        highest=2,
        filter=ShareFetchResponseFilter,
    ),
    Api(
        keys.SHARE_ACKNOWLEDGE,
        "ShareAcknowledge",
        0,
        Treatment.STREAM,
        lowest=1,
        highest=2,
        filter=ShareAcknowledgeResponseFilter,
    ),
    Api(keys.ADD_RAFT_VOTER, "AddRaftVoter", 0),
    Api(keys.REMOVE_RAFT_VOTER, "RemoveRaftVoter", 0),
    Api(keys.STREAMS_GROUP_HEARTBEAT, "StreamsGroupHeartbeat", 0),
    Api(keys.STREAMS_GROUP_DESCRIBE, "StreamsGroupDescribe", 0),
    Api(keys.DESCRIBE_SHARE_GROUP_OFFSETS, "DescribeShareGroupOffsets", 0),
    Api(keys.ALTER_SHARE_GROUP_OFFSETS, "AlterShareGroupOffsets", 0),
    Api(keys.DELETE_SHARE_GROUP_OFFSETS, "DeleteShareGroupOffsets", 0),
    Api(keys.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE, "StreamsGroupTopologyDescriptionUpdate", 0),
    Api(keys.UNREGISTER_CONTROLLER, "UnregisterController", 0),
)

OF_ONES_OWN_USER: Final = frozenset(
    {
        keys.CREATE_DELEGATION_TOKEN,
        keys.RENEW_DELEGATION_TOKEN,
        keys.EXPIRE_DELEGATION_TOKEN,
        keys.DESCRIBE_DELEGATION_TOKEN,
        keys.DESCRIBE_USER_SCRAM_CREDENTIALS,
        keys.ALTER_USER_SCRAM_CREDENTIALS,
    }
)
"""Delegation tokens and SCRAM credentials: brokers answer as to whoever the connection is logged in as. They are hidden
from clients whom brokers know under another name."""

APIS: Final[Mapping[int, Api]] = MappingProxyType({api.key: api for api in _APIS})
"""By API key. An API that is missing here is hidden from clients."""
