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
from forebay_codecs.addresses import Translate
from forebay_codecs.fetch_response import NAMES_BROKERS_FROM, FetchResponseFilter
from forebay_codecs.metadata import rewrite_metadata
from forebay_codecs.response_filter import ResponseFilter
from forebay_codecs.share_responses import ShareAcknowledgeResponseFilter, ShareFetchResponseFilter

PRODUCE: Final = 0
FETCH: Final = 1
LIST_OFFSETS: Final = 2
METADATA: Final = 3
FIND_COORDINATOR: Final = 10
JOIN_GROUP: Final = 11
SYNC_GROUP: Final = 14
SASL_HANDSHAKE: Final = 17
API_VERSIONS: Final = 18
INIT_PRODUCER_ID: Final = 22
SASL_AUTHENTICATE: Final = 36
DESCRIBE_QUORUM: Final = 55
DESCRIBE_CLUSTER: Final = 60
DESCRIBE_TOPIC_PARTITIONS: Final = 75
SHARE_FETCH: Final = 78
SHARE_ACKNOWLEDGE: Final = 79

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
        PRODUCE,
        "Produce",
        9,
        Treatment.LOCAL,
        highest=12,
        rewrite=addresses.rewrite_produce,
        answered_here=True,
    ),
    Api(
        FETCH,
        "Fetch",
        12,
        Treatment.STREAM,
        highest=18,
        filter=FetchResponseFilter,
        treated_from=NAMES_BROKERS_FROM,
    ),
    Api(LIST_OFFSETS, "ListOffsets", 6),
    Api(METADATA, "Metadata", 9, Treatment.REWRITE, highest=13, rewrite=rewrite_metadata, answered_here=True),
    Api(8, "OffsetCommit", 8),
    Api(9, "OffsetFetch", 6),
    Api(
        FIND_COORDINATOR,
        "FindCoordinator",
        3,
        Treatment.REWRITE,
        highest=6,
        rewrite=addresses.rewrite_find_coordinator,
    ),
    Api(JOIN_GROUP, "JoinGroup", 6),
    Api(12, "Heartbeat", 4),
    Api(13, "LeaveGroup", 4),
    Api(SYNC_GROUP, "SyncGroup", 4),
    Api(15, "DescribeGroups", 5),
    Api(16, "ListGroups", 3),
    # After v0 tokens follow raw, without headers (header.may_be_request). librdkafka logs in only where v0 is offered,
    # even by v1. Java up to 2.4 would take v2 for granted (KAFKA-9577).
    Api(SASL_HANDSHAKE, "SaslHandshake", NEVER_FLEXIBLE, highest=1),
    Api(API_VERSIONS, "ApiVersions", 3, Treatment.LOCAL, highest=4),
    Api(19, "CreateTopics", 5, changes_topics=True),
    Api(20, "DeleteTopics", 4, changes_topics=True),
    Api(21, "DeleteRecords", 2),
    Api(INIT_PRODUCER_ID, "InitProducerId", 2),
    Api(23, "OffsetForLeaderEpoch", 4),
    Api(24, "AddPartitionsToTxn", 3),
    Api(25, "AddOffsetsToTxn", 3),
    Api(26, "EndTxn", 3),
    Api(27, "WriteTxnMarkers", 1),  # an administrator ends a hanging transaction with it
    Api(28, "TxnOffsetCommit", 3),
    Api(29, "DescribeAcls", 2),
    Api(30, "CreateAcls", 2),
    Api(31, "DeleteAcls", 2),
    Api(32, "DescribeConfigs", 4),
    Api(33, "AlterConfigs", 2),
    Api(34, "AlterReplicaLogDirs", 2),
    Api(35, "DescribeLogDirs", 2),
    Api(SASL_AUTHENTICATE, "SaslAuthenticate", 2),
    Api(37, "CreatePartitions", 2, changes_topics=True),
    Api(38, "CreateDelegationToken", 2),
    Api(39, "RenewDelegationToken", 2),
    Api(40, "ExpireDelegationToken", 2),
    Api(41, "DescribeDelegationToken", 2),
    Api(42, "DeleteGroups", 2),
    Api(43, "ElectLeaders", 2, changes_topics=True),
    Api(44, "IncrementalAlterConfigs", 1),
    Api(45, "AlterPartitionReassignments", 0, changes_topics=True),
    Api(46, "ListPartitionReassignments", 0),
    Api(47, "OffsetDelete", NEVER_FLEXIBLE),
    Api(48, "DescribeClientQuotas", 1),
    Api(49, "AlterClientQuotas", 1),
    Api(50, "DescribeUserScramCredentials", 0),
    Api(51, "AlterUserScramCredentials", 0),
    # v2 names the controllers' own listeners, which are no addresses of brokers.
    Api(DESCRIBE_QUORUM, "DescribeQuorum", 0),
    Api(57, "UpdateFeatures", 0),
    Api(
        DESCRIBE_CLUSTER,
        "DescribeCluster",
        0,
        Treatment.REWRITE,
        highest=2,
        rewrite=addresses.rewrite_describe_cluster,
    ),
    Api(61, "DescribeProducers", 0),
    Api(64, "UnregisterBroker", 0),
    Api(65, "DescribeTransactions", 0),
    Api(66, "ListTransactions", 0),
    Api(68, "ConsumerGroupHeartbeat", 0),
    Api(69, "ConsumerGroupDescribe", 0),
    Api(71, "GetTelemetrySubscriptions", 0),
    Api(72, "PushTelemetry", 0),
    Api(74, "ListConfigResources", 0),
    Api(DESCRIBE_TOPIC_PARTITIONS, "DescribeTopicPartitions", 0),
    Api(76, "ShareGroupHeartbeat", 0),
    Api(77, "ShareGroupDescribe", 0),
    # v0 of the next two was Kafka 4.0's early access and is laid out differently.
    Api(
        SHARE_FETCH,
        "ShareFetch",
        0,
        Treatment.STREAM,
        lowest=1,
        highest=2,
        filter=ShareFetchResponseFilter,
    ),
    Api(
        SHARE_ACKNOWLEDGE,
        "ShareAcknowledge",
        0,
        Treatment.STREAM,
        lowest=1,
        highest=2,
        filter=ShareAcknowledgeResponseFilter,
    ),
    Api(80, "AddRaftVoter", 0),
    Api(81, "RemoveRaftVoter", 0),
    Api(88, "StreamsGroupHeartbeat", 0),
    Api(89, "StreamsGroupDescribe", 0),
    Api(90, "DescribeShareGroupOffsets", 0),
    Api(91, "AlterShareGroupOffsets", 0),
    Api(92, "DeleteShareGroupOffsets", 0),
    Api(93, "StreamsGroupTopologyDescriptionUpdate", 0),
    Api(94, "UnregisterController", 0),
)

OF_ONES_OWN_USER: Final = frozenset({38, 39, 40, 41, 50, 51})
"""Delegation tokens and SCRAM credentials: brokers answer as to whoever the connection is logged in as. They are hidden
from clients whom brokers know under another name."""

APIS: Final[Mapping[int, Api]] = MappingProxyType({api.key: api for api in _APIS})
"""By API key. An API that is missing here is hidden from clients."""
